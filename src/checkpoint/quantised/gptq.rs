//! GPTQ: integers packed along the inputs, zeros along the outputs, and the group of each input.

use std::sync::Arc;

use super::fields::{Fields, Order};
use super::scaled::{Grouping, Scaled, Table, Zeros};
use super::{Folding, Method, Tensors};
use crate::checkpoint::error::{CheckpointError, Result};
use crate::checkpoint::{Config, Encoding, Stored};
use crate::tensor::{DType, shape};

pub(super) const METHOD: Method = Method { name: "gptq", open };

/// How all matrices of a checkpoint are quantised.
#[derive(Clone, Copy)]
struct Form {
    bits: u32,
    size: Option<usize>,
    /// What is added to the zeros: the first version of the format has one less than is meant.
    more: f32,
    /// Whether inputs may be in groups in any order.
    is_ordered_by_act: bool,
}

fn open(section: &Config) -> Result<Folding> {
    let format = section.opt_text("checkpoint_format").map_err(super::within)?.unwrap_or("gptq");
    let known = "checkpoints of the formats `gptq` and `gptq_v2` can be read";
    let more = match format {
        "gptq" => 1.0,
        "gptq_v2" => 0.0,
        other => return Err(super::unsupported("checkpoint_format", &format!("`{other}`"), known)),
    };
    if section.opt_bool("is_marlin_format").map_err(super::within)? == Some(true) {
        return Err(super::unsupported("is_marlin_format", "true", known));
    }
    let form = Form {
        bits: super::bits(section, "bits")?,
        size: super::group_size(section, "group_size")?,
        more,
        is_ordered_by_act: section.opt_bool("desc_act").map_err(super::within)?.unwrap_or(false),
    };
    Ok(Box::new(move |tensors| {
        super::modules(tensors, "qweight").iter().try_for_each(|module| fold(tensors, module, form))
    }))
}

fn fold(tensors: &mut Tensors, module: &str, form: Form) -> Result<()> {
    let mut part = |name: &str| super::take(tensors, module, name);
    let (packed, zeros, scales) = (part("qweight")?, part("qzeros")?, part("scales")?);
    let index = tensors.remove(&format!("{module}.g_idx"));
    let matrix = matrix(module, form, packed, &zeros, scales, index.as_ref())?;
    super::put(tensors, module, matrix)
}

fn matrix(
    module: &str,
    form: Form,
    packed: Stored,
    zeros: &Stored,
    scales: Stored,
    index: Option<&Stored>,
) -> Result<Stored> {
    let Form { bits, size, more, is_ordered_by_act } = form;
    let named = |part: &str| format!("{module}.{part}");
    let misshapen = || {
        let found = &packed.shape[..];
        let message = format!("is {found:?}, expected int32 words of {bits} bits by outputs");
        CheckpointError::new(message).at_tensor(&named("qweight"))
    };
    let &[words, rows] = &packed.shape[..] else { return Err(misshapen()) };
    let columns =
        words.checked_mul(32).filter(|all| all.is_multiple_of(bits as usize)).ok_or_else(misshapen)?;
    let columns = columns / bits as usize;
    super::check(&packed, &named("qweight"), super::is_word, "int32", &[words, rows])?;
    let shape = [rows, columns];
    let zero_words = Order::Stream.words(rows, bits).filter(|_| shape::element_count(&shape).is_some());
    let zero_words = zero_words.filter(|_| columns > 0 && rows > 0).ok_or_else(misshapen)?;
    let (size, groups) = super::divided(columns, size).map_err(|e| e.at_tensor(&named("qweight")))?;
    super::check(zeros, &named("qzeros"), super::is_word, "int32", &[groups, zero_words])?;
    super::check(&scales, &named("scales"), DType::is_float, "fp16", &[groups, rows])?;
    let listed = match index {
        Some(index) => super::listed(index, &named("g_idx"), columns, size)?,
        None if is_ordered_by_act => {
            let message = "is missing, and config key `quantization_config.desc_act` is true";
            return Err(CheckpointError::new(message).at_tensor(&named("g_idx")));
        }
        None => None,
    };
    let fields = |stored: &Stored, line, word| Fields {
        bytes: stored.bytes.clone(),
        bits,
        order: Order::Stream,
        line,
        word,
    };
    let scaled = Scaled {
        shape,
        codes: fields(&packed, 1, rows),
        by_input: false,
        is_signed: false,
        scales: Table { stored: scales, steps: [1, rows] },
        zeros: Zeros::Packed(fields(zeros, zero_words, 1), more),
        groups: Grouping { size, listed },
    };
    Ok(Stored { shape: shape[..].into(), encoding: Encoding::Scaled(Arc::new(scaled)), bytes: packed.bytes })
}

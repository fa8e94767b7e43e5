//! AWQ in its `gemm` form: integers and zeros packed along the outputs, eight to a word, the even ones first.

use std::sync::Arc;

use super::fields::{Fields, Order};
use super::scaled::{Grouping, Scaled, Table, Zeros};
use super::{Folding, Method, Tensors};
use crate::checkpoint::error::{CheckpointError, Result};
use crate::checkpoint::{Config, Encoding, Stored};
use crate::tensor::{DType, shape};

pub(super) const METHOD: Method = Method { name: "awq", open };

/// Bits of an integer: there are no others in this form.
const BITS: usize = 4;
/// Outputs of a word.
const TO_A_WORD: usize = 8;

fn open(section: &Config) -> Result<Folding> {
    let version = section.opt_text("version").map_err(super::within)?.unwrap_or("gemm");
    if !version.eq_ignore_ascii_case("gemm") {
        return Err(super::unsupported(
            "version",
            &format!("`{version}`"),
            "checkpoints of version `gemm` can be read",
        ));
    }
    let either = |names: [&'static str; 2]| {
        names.into_iter().find(|name| section.get(name).is_some()).unwrap_or(names[0])
    };
    let key = either(["bits", "w_bit"]);
    let bits = section.size(key).map_err(super::within)?;
    if bits != BITS {
        return Err(super::unsupported(key, &bits.to_string(), "integers of 4 bits can be read"));
    }
    let size = super::group_size(section, either(["group_size", "q_group_size"]))?;
    Ok(Box::new(move |tensors| {
        super::modules(tensors, "qweight").iter().try_for_each(|module| fold(tensors, module, size))
    }))
}

fn fold(tensors: &mut Tensors, module: &str, size: Option<usize>) -> Result<()> {
    let mut part = |name: &str| super::take(tensors, module, name);
    let (packed, zeros, scales) = (part("qweight")?, part("qzeros")?, part("scales")?);
    let matrix = matrix(module, size, packed, &zeros, scales)?;
    super::put(tensors, module, matrix)
}

fn matrix(
    module: &str,
    size: Option<usize>,
    packed: Stored,
    zeros: &Stored,
    scales: Stored,
) -> Result<Stored> {
    let named = |part: &str| format!("{module}.{part}");
    let misshapen = || {
        let message = format!("is {:?}, expected inputs by words of eight outputs", &packed.shape[..]);
        CheckpointError::new(message).at_tensor(&named("qweight"))
    };
    let &[columns, words] = &packed.shape[..] else { return Err(misshapen()) };
    super::check(&packed, &named("qweight"), super::is_word, "int32", &[columns, words])?;
    let rows = words.checked_mul(TO_A_WORD).filter(|&rows| rows > 0 && columns > 0).ok_or_else(misshapen)?;
    let shape = [rows, columns];
    shape::element_count(&shape).ok_or_else(misshapen)?;
    let (size, groups) = super::divided(columns, size).map_err(|e| e.at_tensor(&named("qweight")))?;
    super::check(zeros, &named("qzeros"), super::is_word, "int32", &[groups, words])?;
    super::check(&scales, &named("scales"), DType::is_float, "fp16", &[groups, rows])?;
    let fields = |stored: &Stored| Fields {
        bytes: stored.bytes.clone(),
        bits: BITS as u32,
        order: Order::Interleaved,
        line: words,
        word: 1,
    };
    let scaled = Scaled {
        shape,
        codes: fields(&packed),
        by_input: true,
        is_signed: false,
        scales: Table { stored: scales, steps: [1, rows] },
        zeros: Zeros::Packed(fields(zeros), 0.0),
        groups: Grouping { size, listed: None },
    };
    Ok(Stored { shape: shape[..].into(), encoding: Encoding::Scaled(Arc::new(scaled)), bytes: packed.bytes })
}

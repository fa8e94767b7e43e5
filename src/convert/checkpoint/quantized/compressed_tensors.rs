//! compressed-tensors: integers packed along the inputs or as bytes, with scales by tensor, row or group, and zeros
//! if there are any. Scales of activations are left out: activations stay fp16.

use std::sync::Arc;

use super::fields::{Fields, Order};
use super::group_quantized::{GroupQuantized, Grouping, Table, Zeros};
use super::{Folding, Method, Tensors, fake_quantized};
use crate::checkpoint::error::{CheckpointError, Result};
use crate::checkpoint::{Config, ConfigError, Encoding, Stored};
use anemeter_kernels::tensor::{DType, shape};

pub(super) const METHOD: Method = Method { name: "compressed-tensors", open };

/// Formats that can be read.
const FORMATS: &[&str] = &["pack-quantized", "int-quantized", "naive-quantized", "dense"];

/// Parts that are about activations.
const ACTIVATIONS: &[&str] = &["input_scale", "input_zero_point", "output_scale", "output_zero_point"];

fn open(section: &Config) -> Result<Folding> {
    let known = format!("the formats {} can be read, with weights of type `int`", FORMATS.join(", "));
    let format = |config: &Config, key: &str| match config.opt_text("format").map_err(super::within)? {
        Some(format) if !FORMATS.contains(&format) => {
            Err(super::unsupported(key, &format!("`{format}`"), &known))
        }
        _ => Ok(()),
    };
    let groups = section.opt_section("config_groups").map_err(super::within)?.unwrap_or_default();
    let mut widths = Vec::new();
    for name in groups.values().keys() {
        let key = format!("config_groups.{name}");
        let inside =
            |error: ConfigError| super::within(ConfigError { key: format!("{key}.{}", error.key), ..error });
        let Some(group) = groups.opt_section(name).map_err(inside)? else { continue };
        let Some(weights) = group.opt_section("weights").map_err(inside)? else { continue };
        format(&group, &format!("{key}.format"))?;
        match weights.opt_text("type").map_err(inside)? {
            Some("int") | None => {}
            Some(other) => {
                let key = format!("{key}.weights.type");
                return Err(super::unsupported(&key, &format!("`{other}`"), &known));
            }
        }
        widths.push(super::bits(&weights, "num_bits")?);
    }
    format(section, "format")?;
    Ok(Box::new(move |tensors| fold_all(tensors, &widths)))
}

fn fold_all(tensors: &mut Tensors, widths: &[u32]) -> Result<()> {
    for module in super::modules(tensors, "weight_packed") {
        let mut part = |name: &str| super::take(tensors, &module, name);
        let (packed, shape, scales) = (part("weight_packed")?, part("weight_shape")?, part("weight_scale")?);
        let (fields, shape) = packed_fields(&module, &packed, &shape, widths)?;
        let codes = Codes { fields, is_signed: false, shard: packed.shard };
        let matrix = matrix(tensors, &module, codes, shape, scales)?;
        super::put(tensors, &module, matrix)?;
    }
    for module in super::modules(tensors, "weight_scale") {
        let is_bytes = |stored: &Stored| stored.encoding == Encoding::Plain(DType::I8);
        let name = format!("{module}.weight");
        let Some(bytes) = tensors.get(&name).filter(|stored| is_bytes(stored)).cloned() else { continue };
        let &[rows, columns] = &bytes.shape[..] else {
            let message = format!("is {:?}, expected a matrix", &bytes.shape[..]);
            return Err(CheckpointError::new(message).at_tensor(&name));
        };
        let (order, line) = (Order::Bytes, columns);
        let fields = Fields { bytes: bytes.bytes.clone(), bits: 8, order, line, word: 1 };
        let scales = super::take(tensors, &module, "weight_scale")?;
        let codes = Codes { fields, is_signed: true, shard: bytes.shard };
        let matrix = matrix(tensors, &module, codes, [rows, columns], scales)?;
        tensors.insert(name, matrix);
    }
    let is_activation = |name: &str| name.rsplit_once('.').is_some_and(|(_, p)| ACTIVATIONS.contains(&p));
    tensors.retain(|name, _| !is_activation(name));
    fake_quantized::fold(tensors)
}

/// Packed integers and the shape of their matrix.
fn packed_fields(at: &str, packed: &Stored, shape: &Stored, widths: &[u32]) -> Result<(Fields, [usize; 2])> {
    let named = |part: &str| format!("{at}.{part}");
    let is_size = |dtype| matches!(dtype, DType::I32 | DType::I64);
    super::check(shape, &named("weight_shape"), is_size, "int64", &[2])?;
    let mut sizes = [0.0; 2];
    shape.read(0..2, &mut sizes);
    let sizes = sizes.map(|size| if size >= 1.0 { size as usize } else { 0 });
    let found = &packed.shape[..];
    let misfit = || {
        let message = format!("is {found:?}, which {widths:?} bits by a shape of {sizes:?} do not give");
        CheckpointError::new(message).at_tensor(&named("weight_packed"))
    };
    let [rows, columns] = sizes;
    if rows == 0 || columns == 0 || shape::element_count(&sizes).is_none() {
        return Err(misfit());
    }
    // Since version 0.18 fields run on across words, before there were whole ones to a word: that differs for three
    // bits, ten to a word, and rows of a multiple of 32 inputs then have more words.
    let mut orders = widths.iter().flat_map(|&bits| [(bits, Order::Stream), (bits, Order::Whole)]);
    let fits = |&(bits, order): &(u32, Order)| {
        order.words(columns, bits).is_some_and(|words| *found == [rows, words])
    };
    let (bits, order) = orders.find(fits).ok_or_else(misfit)?;
    super::check(packed, &named("weight_packed"), super::is_word, "int32", found)?;
    let line = found[1];
    Ok((Fields { bytes: packed.bytes.clone(), bits, order, line, word: 1 }, sizes))
}

/// Integers of a matrix, output by output.
struct Codes {
    fields: Fields,
    is_signed: bool,
    shard: usize,
}

fn matrix(tensors: &mut Tensors, at: &str, codes: Codes, shape: [usize; 2], scale: Stored) -> Result<Stored> {
    let Codes { fields, is_signed, shard } = codes;
    let named = |part: &str| format!("{at}.{part}");
    let mut part = |name: &str| tensors.remove(&format!("{at}.{name}"));
    let (zeros, index) = (part("weight_zero_point"), part("weight_g_idx"));
    let (scales, size) = Table::of(scale, &named("weight_scale"), shape)?;
    // Packed integers are moved up by half their range, as are packed zeros.
    let moved = if is_signed { 0.0 } else { (1u32 << (fields.bits - 1)) as f32 };
    let zeros = match zeros {
        None => Zeros::Same(moved),
        Some(zeros) => zero_points(zeros, &named("weight_zero_point"), &fields, shape, size, moved)?,
    };
    let listed = match index {
        Some(index) if !is_unset(&index) => super::listed(&index, &named("weight_g_idx"), shape[1], size)?,
        _ => None,
    };
    let bytes = fields.bytes.clone();
    let groups = Grouping { size, listed };
    let scaled = GroupQuantized { shape, codes: fields, by_input: false, is_signed, scales, zeros, groups };
    let encoding = Encoding::GroupQuantized(Arc::new(scaled));
    Ok(Stored { shape: shape[..].into(), encoding, bytes, shard })
}

fn zero_points(
    zeros: Stored,
    name: &str,
    codes: &Fields,
    shape: [usize; 2],
    size: usize,
    moved: f32,
) -> Result<Zeros> {
    if !matches!(zeros.encoding, Encoding::Plain(DType::I32)) || codes.order == Order::Bytes {
        return Ok(Zeros::Plain(Table::beside(size, zeros, name, shape)?, moved));
    }
    let groups = shape[1] / size;
    let &Fields { bits, order, .. } = codes;
    let words = order.words(shape[0], bits).expect("as many fields are in the file");
    super::check(&zeros, name, super::is_word, "int32", &[words, groups])?;
    Ok(Zeros::Packed(Fields { bytes: zeros.bytes, bits, order, line: 1, word: groups }, 0.0))
}

/// Whether no order of the inputs was ever written.
fn is_unset(index: &Stored) -> bool {
    let count = shape::element_count(&index.shape).expect("its elements are in the file");
    let mut numbers = vec![0.0; count];
    index.read(0..numbers.len(), &mut numbers);
    numbers.contains(&-1.0)
}

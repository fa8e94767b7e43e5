//! Checkpoints that come quantised: the parts of each matrix become the matrix they stand for.
//!
//! The configuration says how a checkpoint was quantised, and that is looked at before its weights are, so that a way
//! that is not known is named. A matrix keeps its integers; its elements are worked out when they are read.

mod awq;
mod compressed_tensors;
mod fake_quantized;
mod fields;
mod gptq;
mod group_quantized;
#[cfg(any(test, feature = "testing"))]
#[allow(clippy::unwrap_used, missing_docs, reason = "it serves tests only")]
pub mod testing;
#[cfg(test)]
mod tests;
mod words;

use std::collections::BTreeMap;

use super::error::{CheckpointError, Result, quoted};
use super::{Config, ConfigError, Encoding, Stored, mlx_affine};
use anemeter_kernels::tensor::DType;

pub use fake_quantized::FakeQuantized;
pub use group_quantized::GroupQuantized;

/// The configuration key that says how a checkpoint was quantised.
const KEY: &str = "quantization_config";
/// Bits an integer may have.
const BITS: &[usize] = &[2, 3, 4, 8];

type Tensors = BTreeMap<String, Stored>;

/// Replaces the parts of each quantised matrix by the matrix.
pub(super) type Folding = Box<dyn Fn(&mut Tensors) -> Result<()>>;

/// A way to quantise, under the name that configurations have for it.
struct Method {
    name: &'static str,
    open: fn(&Config) -> Result<Folding>,
}

static METHODS: &[Method] = &[awq::METHOD, compressed_tensors::METHOD, gptq::METHOD];

/// How the matrices of a checkpoint with this configuration are put together.
pub(super) fn folding(config: &Config) -> Result<Folding> {
    if config.get(mlx_affine::KEY).is_some() {
        let config = config.clone();
        return Ok(Box::new(move |tensors| mlx_affine::fold(tensors, &config)));
    }
    let Some(section) = config.opt_section(KEY)? else { return Ok(Box::new(fake_quantized::fold)) };
    let known = || {
        let names: Vec<String> = METHODS.iter().map(|method| format!("`{}`", method.name)).collect();
        format!("checkpoints quantised by {} can be read, and those that are not quantised", names.join(", "))
    };
    let Some(name) = section.opt_text("quant_method").map_err(within)? else {
        return Err(
            CheckpointError::new(format!("config key `{KEY}.quant_method` is missing")).with_help(known())
        );
    };
    match METHODS.iter().find(|method| method.name == name) {
        Some(method) => (method.open)(&section),
        None => {
            let message =
                format!("config key `{KEY}.quant_method` is {}, which is not supported", quoted(name));
            Err(CheckpointError::new(message).with_help(known()))
        }
    }
}

/// An error of a key of the section.
fn within(error: ConfigError) -> CheckpointError {
    ConfigError { key: format!("{KEY}.{}", error.key), ..error }.into()
}

/// An error of a key of the section: what it is, and what it may be.
fn unsupported(key: &str, found: &str, known: &str) -> CheckpointError {
    CheckpointError::new(format!("config key `{KEY}.{key}` is {found}, which is not supported"))
        .with_help(known.to_owned())
}

/// Bits of an integer, of a kind that can be read.
fn bits(section: &Config, key: &str) -> Result<u32> {
    let bits = section.size(key).map_err(within)?;
    match BITS.contains(&bits) {
        true => Ok(bits as u32),
        false => Err(unsupported(key, &bits.to_string(), &format!("integers of {BITS:?} bits can be read"))),
    }
}

/// Inputs of a group; none if all inputs of a row are one.
fn group_size(section: &Config, key: &str) -> Result<Option<usize>> {
    let Some(value) = section.get(key) else { return Ok(None) };
    match value.as_i64() {
        Some(-1) => Ok(None),
        Some(size @ 1..) => Ok(Some(size as usize)),
        _ => {
            let problem = format!("is {value}, expected a size, or -1 for whole rows");
            Err(within(ConfigError { key: key.to_owned(), problem }))
        }
    }
}

/// The modules that have a part of this name.
pub(super) fn modules(tensors: &Tensors, part: &str) -> Vec<String> {
    let of = |name: &String| name.strip_suffix(part)?.strip_suffix('.').map(str::to_owned);
    tensors.keys().filter_map(of).collect()
}

/// Takes a part that a quantised matrix must have.
pub(super) fn take(tensors: &mut Tensors, module: &str, part: &str) -> Result<Stored> {
    let name = format!("{module}.{part}");
    let missing = || CheckpointError::new("is missing, and its matrix is quantised").at_tensor(&name);
    tensors.remove(&name).ok_or_else(missing)
}

/// Puts a matrix in the place of its parts.
fn put(tensors: &mut Tensors, module: &str, matrix: Stored) -> Result<()> {
    let name = format!("{module}.weight");
    match tensors.insert(name.clone(), matrix) {
        None => Ok(()),
        Some(_) => Err(CheckpointError::new("is there, and in quantised parts as well").at_tensor(&name)),
    }
}

/// Checks the elements and the shape of a part.
fn check(stored: &Stored, name: &str, fits: fn(DType) -> bool, wanted: &str, shape: &[usize]) -> Result<()> {
    let problem = match &stored.encoding {
        Encoding::Plain(dtype) if fits(*dtype) => {
            (stored.shape[..] != *shape).then(|| format!("is {:?}, expected {shape:?}", &stored.shape[..]))
        }
        Encoding::Plain(dtype) => Some(format!("has elements of type {dtype}, expected {wanted}")),
        _ => Some(format!("is not plain, expected {wanted}")),
    };
    match problem {
        Some(problem) => Err(CheckpointError::new(problem).at_tensor(name)),
        None => Ok(()),
    }
}

fn is_word(dtype: DType) -> bool {
    matches!(dtype, DType::I32 | DType::U32)
}

/// Inputs of a group and how many groups a row has.
fn divided(columns: usize, size: Option<usize>) -> Result<(usize, usize)> {
    let size = size.unwrap_or(columns);
    match size > 0 && columns.is_multiple_of(size) {
        true => Ok((size, columns / size)),
        false => {
            let message = format!("has {columns} inputs, which cannot be divided into groups of {size}");
            Err(CheckpointError::new(message))
        }
    }
}

/// The group of each input as a tensor says; nothing if groups are runs of inputs.
fn listed(stored: &Stored, name: &str, columns: usize, size: usize) -> Result<Option<Vec<u32>>> {
    check(stored, name, |dtype| matches!(dtype, DType::I32 | DType::I64), "int32", &[columns])?;
    let mut numbers = vec![0.0; columns];
    stored.read(0..columns, &mut numbers);
    let groups = columns / size;
    if let Some((at, &bad)) =
        numbers.iter().enumerate().find(|&(_, &group)| !(0.0..groups as f32).contains(&group))
    {
        let message = format!("says that input {at} is in group {bad}, and there are {groups} groups");
        return Err(CheckpointError::new(message).at_tensor(name));
    }
    let listed: Vec<u32> = numbers.iter().map(|&group| group as u32).collect();
    let is_in_order = listed.iter().enumerate().all(|(at, &group)| group as usize == at / size);
    Ok((!is_in_order).then_some(listed))
}

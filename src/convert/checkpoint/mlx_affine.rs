//! Matrices quantised in groups as MLX writes them: packed integers, with a scale and a bias for each group of a row.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::error::{CheckpointError, Result};
use super::{Config, Encoding, Stored, quantized};
use anemeter_kernels::dequantize::unpack;
use anemeter_kernels::tensor::{Bytes, DType, shape};

/// The configuration key that says how matrices are quantised.
pub(super) const KEY: &str = "quantization";
/// Bits an integer may have.
const BITS: &[usize] = &[2, 3, 4, 6, 8];

/// What the integers of a matrix mean.
#[derive(Debug, PartialEq)]
pub struct MlxAffine {
    pub(super) bits: u32,
    /// Elements of a group.
    pub(super) size: usize,
    scales: Stored,
    biases: Stored,
}

impl MlxAffine {
    /// Writes the elements of a range of the matrix that the packed integers stand for.
    pub(super) fn read(&self, bytes: &Bytes, range: Range<usize>, out: &mut [f32]) {
        let mut codes = vec![0; self.size];
        let mut at = range.start;
        while at < range.end {
            let group = at / self.size;
            let end = range.end.min((group + 1) * self.size);
            let (scale, bias) = self.parameters(group);
            let codes = &mut codes[..end - at];
            unpack(bytes, self.bits, at, codes);
            for (out, &code) in out[at - range.start..].iter_mut().zip(&*codes) {
                *out = scale * f32::from(code) + bias;
            }
            at = end;
        }
    }

    /// Writes the integers of a group and tells its scale and bias.
    pub(super) fn split(&self, bytes: &Bytes, group: usize, codes: &mut [u8]) -> (f32, f32) {
        unpack(bytes, self.bits, group * self.size, codes);
        self.parameters(group)
    }

    fn parameters(&self, group: usize) -> (f32, f32) {
        let (mut scale, mut bias) = ([0.0], [0.0]);
        self.scales.read(group..group + 1, &mut scale);
        self.biases.read(group..group + 1, &mut bias);
        (scale[0], bias[0])
    }
}

/// Replaces the parts of each quantised matrix by the matrix they stand for.
pub(super) fn fold(tensors: &mut BTreeMap<String, Stored>, config: &Config) -> Result<()> {
    let Some(section) = config.opt_section(KEY)? else { return Ok(()) };
    for module in quantized::modules(tensors, "scales") {
        let own = if section.get(&module).is_some_and(serde_json::Value::is_object) {
            section.opt_section(&module)?
        } else {
            None
        };
        let own = own.as_ref().unwrap_or(&section);
        let form = (own.size("bits")?, own.size("group_size")?);
        let mut part = |name: &str| quantized::take(tensors, &module, name);
        let (packed, scales, biases) = (part("weight")?, part("scales")?, part("biases")?);
        let weight = format!("{module}.weight");
        let matrix = matrix(packed, scales, biases, form).map_err(|error| error.at_tensor(&weight))?;
        tensors.insert(weight, matrix);
    }
    Ok(())
}

fn matrix(packed: Stored, scales: Stored, biases: Stored, (bits, size): (usize, usize)) -> Result<Stored> {
    let problem = |text: String| Err(CheckpointError::new(text));
    if packed.encoding != Encoding::Plain(DType::U32) {
        return problem(format!("integers are packed into uint32, found {:?}", packed.encoding));
    }
    let is_float = |stored: &Stored| matches!(stored.encoding, Encoding::Plain(dtype) if dtype.is_float());
    if !is_float(&scales) || !is_float(&biases) {
        return problem("its scales and biases are not plain floats".to_owned());
    }
    if !BITS.contains(&bits) {
        return problem(format!("integers of {bits} bits are not supported; of {BITS:?} bits are"));
    }
    let shape = match (&packed.shape[..], &scales.shape[..]) {
        (&[rows, words], &[scale_rows, groups])
            if rows > 0 && rows == scale_rows && scales.shape == biases.shape =>
        {
            let columns = groups.checked_mul(size);
            let is_filled = |columns: usize| columns.checked_mul(bits) == words.checked_mul(32);
            columns.filter(|&columns| size > 0 && is_filled(columns)).map(|columns| [rows, columns])
        }
        _ => None,
    };
    let Some(shape) = shape.filter(|shape| shape::element_count(shape).is_some()) else {
        let (scales, biases) = (&scales.shape[..], &biases.shape[..]);
        return problem(format!(
            "{bits} bits in groups of {size} do not fit {:?} with scales {scales:?} and biases {biases:?}",
            &packed.shape[..]
        ));
    };
    let encoding = Encoding::MlxAffine(Arc::new(MlxAffine { bits: bits as u32, size, scales, biases }));
    Ok(Stored { shape: shape[..].into(), encoding, bytes: packed.bytes, shard: packed.shard })
}

#[cfg(test)]
mod tests {
    use super::*;
    use anemeter_mil::QuantizedSource;
    use safetensors::SafeTensors;
    use serde_json::json;

    fn plain(shape: &[usize], dtype: DType, bytes: Vec<u8>) -> Stored {
        Stored { shape: shape.into(), encoding: Encoding::Plain(dtype), bytes: bytes.into(), shard: 0 }
    }

    fn config(value: &serde_json::Value) -> Config {
        Config::new(value.as_object().unwrap().clone())
    }

    /// A matrix of three rows and 64 columns in groups of 32, and what MLX decodes: `xtask/python/mlx_affine.py` made it.
    fn golden(bits: u32) -> (BTreeMap<String, Stored>, Vec<f32>) {
        let golden = SafeTensors::deserialize(include_bytes!("testdata/mlx-affine.safetensors")).unwrap();
        let part = |part: &str| golden.tensor(&format!("{bits}.{part}")).unwrap();
        let named = [("weight", DType::U32), ("scales", DType::F32), ("biases", DType::F32)];
        let stored = |(name, dtype): (&str, DType)| {
            (format!("a.{name}"), plain(part(name).shape(), dtype, part(name).data().to_vec()))
        };
        (named.map(stored).into(), crate::checkpoint::tests::floats(part("values").data()))
    }

    /// MLX may fuse the multiplication and the addition.
    #[test]
    fn matrices_of_mlx_are_what_mlx_decodes() {
        for bits in [2, 3, 4, 6, 8] {
            let (mut tensors, expected) = golden(bits);
            fold(&mut tensors, &config(&json!({"quantization": {"group_size": 32, "bits": bits}}))).unwrap();
            assert_eq!(tensors.keys().collect::<Vec<_>>(), ["a.weight"]);
            let stored = &tensors["a.weight"];
            assert_eq!(stored.shape[..], [3, 64]);
            let found = crate::checkpoint::tests::all(stored);
            for (found, expected) in found.iter().zip(&expected) {
                assert!((found - expected).abs() < 1e-6, "{bits} bits: {found} {expected}");
            }
            for range in [0..192, 5..6, 30..97, 64..64] {
                let mut out = vec![f32::NAN; range.len()];
                stored.read(range.clone(), &mut out);
                assert_eq!(out, found[range], "{bits} bits");
            }
            assert_eq!(stored.quantized_blocks().is_some(), bits == 4 || bits == 8);
            if let Some(integers) = stored.quantized_blocks() {
                let (mut codes, mut scales, mut minimums) = ([0; 64], [0.0; 2], [0.0; 2]);
                integers.read(1..3, &mut codes, &mut scales, &mut minimums);
                let value = |i: usize| scales[i / 32] * f32::from(codes[i]) + minimums[i / 32];
                assert_eq!((0..64).map(value).collect::<Vec<_>>(), found[32..96]);
            }
        }
    }

    #[test]
    fn a_module_may_have_groups_of_its_own() {
        let (mut tensors, _) = golden(4);
        let mut same = tensors.clone();
        let own = json!({"quantization": {"group_size": 128, "bits": 4, "a": {"group_size": 32, "bits": 4}}});
        fold(&mut tensors, &config(&own)).unwrap();
        fold(&mut same, &config(&json!({"quantization": {"group_size": 32, "bits": 4}}))).unwrap();
        assert_eq!(tensors, same);
    }

    #[test]
    fn parts_that_do_not_fit_are_named() {
        let quantised = |size: usize| config(&json!({"quantization": {"group_size": size, "bits": 4}}));
        let (mut whole, _) = golden(4);
        let error = fold(&mut whole, &quantised(64)).unwrap_err();
        let expected = "tensor `a.weight`: 4 bits in groups of 64 do not fit [3, 8] with scales [3, 2] and biases [3, 2]";
        assert_eq!(error.to_string(), expected);
        let (mut missing, _) = golden(4);
        missing.remove("a.biases");
        let error = fold(&mut missing, &quantised(32)).unwrap_err();
        assert_eq!(error.to_string(), "tensor `a.biases`: is missing, and its matrix is quantised");
        let none = |part: &str, dtype, width| (format!("a.{part}"), plain(&[0, width], dtype, Vec::new()));
        let none =
            [none("weight", DType::U32, 8), none("scales", DType::F32, 2), none("biases", DType::F32, 2)];
        let error = fold(&mut none.into(), &quantised(32)).unwrap_err();
        assert!(error.to_string().contains("in groups of 32 do not fit [0, 8]"), "{error}");
        let (mut plain_tensors, _) = golden(4);
        fold(&mut plain_tensors, &config(&json!({}))).unwrap();
        assert_eq!(plain_tensors.len(), 3);
    }
}

//! Quantised matrices for tests: their parts as other programs pack them, and the elements they stand for.

use std::collections::HashMap;
use std::path::Path;

use anemeter_base::atomic::write_file;
use half::f16;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;

/// A tensor of a file.
#[derive(Clone)]
pub struct TestTensor {
    pub name: String,
    pub dtype: Dtype,
    pub shape: Vec<usize>,
    pub bytes: Vec<u8>,
}

impl TestTensor {
    pub fn halves(name: &str, shape: &[usize], values: &[f32]) -> TestTensor {
        let bytes = values.iter().flat_map(|&x| f16::from_f32(x).to_le_bytes()).collect();
        TestTensor { name: name.to_owned(), dtype: Dtype::F16, shape: shape.to_vec(), bytes }
    }

    fn words(name: &str, shape: &[usize], words: &[u32]) -> TestTensor {
        let bytes = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        TestTensor { name: name.to_owned(), dtype: Dtype::I32, shape: shape.to_vec(), bytes }
    }

    fn floats(name: &str, shape: &[usize], values: &[f32]) -> TestTensor {
        let bytes = values.iter().flat_map(|x| x.to_le_bytes()).collect();
        TestTensor { name: name.to_owned(), dtype: Dtype::F32, shape: shape.to_vec(), bytes }
    }
}

/// A matrix: the parts it is stored in, and its elements.
pub struct Matrix {
    pub parts: Vec<TestTensor>,
    pub elements: Vec<f32>,
}

/// Ways to quantise, each with its `quantization_config` and the parts of a matrix.
#[derive(Debug, Clone, Copy)]
pub enum QuantFormat {
    Gptq { bits: usize, size: Option<usize>, zero: Option<u32>, by_act: bool, is_second: bool },
    Awq { size: usize },
    Packed { bits: usize, size: Option<usize>, has_zeros: bool },
    Bytes,
    Fake { is_exact: bool },
    Golden(&'static str, &'static str),
}

/// Matrices of 32 outputs by 64 inputs as other programs pack and decode them; `xtask/python/packed_matrices.py` made
/// them and names the programs and their versions.
const GOLDEN: [(&str, &[u8]); 5] = [
    ("gptq", include_bytes!("../testdata/gptq.safetensors")),
    ("gptq-v2", include_bytes!("../testdata/gptq-v2.safetensors")),
    ("awq", include_bytes!("../testdata/awq.safetensors")),
    ("compressed-tensors", include_bytes!("../testdata/compressed-tensors.safetensors")),
    ("compressed-tensors-0.17", include_bytes!("../testdata/compressed-tensors-0.17.safetensors")),
];
const SHAPE: [usize; 2] = [32, 64];

/// All golden matrices.
pub fn golden() -> Vec<QuantFormat> {
    let cases = |bytes| SafeTensors::read_metadata(bytes).unwrap().1.metadata().clone().unwrap().into_keys();
    let ways = |&(file, bytes)| cases(bytes).map(move |case| QuantFormat::Golden(file, case.leak()));
    GOLDEN.iter().flat_map(ways).collect()
}

impl QuantFormat {
    /// The file and the case that has such a matrix.
    fn case(self) -> (&'static str, String) {
        let sized = |bits, size: Option<usize>| {
            format!("{bits}-{}", size.map_or_else(|| "row".to_owned(), |size| size.to_string()))
        };
        match self {
            QuantFormat::Gptq { bits, size, zero, by_act, is_second } => {
                let zero = zero.map_or_else(String::new, |zero| format!("-zero{zero}"));
                let order = if by_act { "-by-act" } else { "" };
                (if is_second { "gptq-v2" } else { "gptq" }, sized(bits, size) + &zero + order)
            }
            QuantFormat::Awq { size } => ("awq", sized(4, Some(size))),
            QuantFormat::Packed { bits, size, has_zeros } => {
                ("compressed-tensors", sized(bits, size) + if has_zeros { "" } else { "-symmetric" })
            }
            QuantFormat::Bytes => ("compressed-tensors", "bytes".to_owned()),
            QuantFormat::Golden(file, case) => (file, case.to_owned()),
            QuantFormat::Fake { .. } => panic!("{self:?} has no packing"),
        }
    }

    fn file(self) -> &'static [u8] {
        GOLDEN.iter().find(|golden| golden.0 == self.case().0).unwrap().1
    }

    pub fn config(self) -> Value {
        if matches!(self, QuantFormat::Fake { .. }) {
            return Value::Null;
        }
        let (_, metadata) = SafeTensors::read_metadata(self.file()).unwrap();
        serde_json::from_str(&metadata.metadata().as_ref().unwrap()[&self.case().1]).unwrap()
    }

    /// A matrix of such a shape: the golden one, once or several times down and across.
    pub fn matrix(self, module: &str, shape: [usize; 2]) -> Matrix {
        if let QuantFormat::Fake { is_exact } = self {
            return fake(module, shape, is_exact);
        }
        let times = [shape[0] / SHAPE[0], shape[1] / SHAPE[1]];
        assert_eq!([times[0] * SHAPE[0], times[1] * SHAPE[1]], shape, "golden matrices are {SHAPE:?}");
        let (file, case) = self.case();
        let is_by_input = file.starts_with("gptq") || file == "awq";
        let golden = SafeTensors::deserialize(self.file()).unwrap();
        let mut matrix = Matrix { parts: Vec::new(), elements: Vec::new() };
        for (name, view) in golden.tensors() {
            let Some(name) = name.strip_prefix(&case).and_then(|name| name.strip_prefix('/')) else {
                continue;
            };
            let mut size = view.shape().to_vec();
            let Some(part) = name.strip_prefix("a.") else {
                matrix.elements = bytemuck::pod_collect_to_vec(&tiled(view.data(), &mut size, times));
                continue;
            };
            let bytes = match part {
                "g_idx" | "weight_g_idx" => {
                    let groups: Vec<i32> = bytemuck::pod_collect_to_vec(view.data());
                    // One group is that of whole rows, however long they are.
                    let count = groups.iter().max().map_or(0, |&last| if last > 0 { last + 1 } else { 0 });
                    size[0] *= times[1];
                    let again = |time| groups.iter().map(move |group| group + time * count);
                    (0..times[1] as i32).flat_map(again).flat_map(i32::to_le_bytes).collect()
                }
                "weight_shape" => shape.iter().flat_map(|&size| (size as i64).to_le_bytes()).collect(),
                _ if is_by_input => tiled(view.data(), &mut size, [times[1], times[0]]),
                _ => tiled(view.data(), &mut size, times),
            };
            let name = format!("{module}.{part}");
            matrix.parts.push(TestTensor { name, dtype: view.dtype(), shape: size, bytes });
        }
        matrix
    }
}

/// A matrix so many times down and across; what there is one of, for all rows or columns, stays one.
fn tiled(bytes: &[u8], shape: &mut [usize], times: [usize; 2]) -> Vec<u8> {
    let &mut [ref mut rows, ref mut columns] = shape else { return bytes.to_vec() };
    let [down, across] = [if *rows == 1 { 1 } else { times[0] }, if *columns == 1 { 1 } else { times[1] }];
    let once: Vec<u8> = bytes.chunks_exact(bytes.len() / *rows).flat_map(|row| row.repeat(across)).collect();
    (*rows, *columns) = (*rows * down, *columns * across);
    once.repeat(down)
}

fn random(seed: usize) -> usize {
    let mixed = (seed as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 33) as usize
}

fn scale(row: usize, group: usize) -> f32 {
    f16::from_f32(0.004 + (random(row * 131 + group) % 97) as f32 * 0.0003).to_f32()
}

fn fake(module: &str, [rows, columns]: [usize; 2], is_exact: bool) -> Matrix {
    let shift = if is_exact { 0.0 } else { 0.21 };
    let value = |row: usize, column: usize| {
        scale(row, 0) * ((random(row * columns + column) % 15) as f32 - 7.0 + shift)
    };
    let elements: Vec<f32> = (0..rows * columns).map(|at| value(at / columns, at % columns)).collect();
    let quantiser = format!("{module}.weight_fake_quant");
    let scales: Vec<f32> = (0..rows).map(|row| scale(row, 0)).collect();
    let parts = vec![
        TestTensor::floats(&format!("{module}.weight"), &[rows, columns], &elements),
        TestTensor::floats(&format!("{quantiser}.scale"), &[rows], &scales),
        TestTensor::words(&format!("{quantiser}.zero_point"), &[rows], &vec![0; rows]),
        TestTensor::words(&format!("{quantiser}.observer_enabled"), &[1], &[1]),
        TestTensor::floats(&format!("{module}.activation_post_process.scale"), &[1], &[1.0]),
    ];
    Matrix { parts, elements }
}

/// Writes a folder with a configuration and one file of weights.
pub fn write(folder: &Path, config: &Value, parts: &[TestTensor]) {
    write_file(&folder.join("config.json"), config.to_string().as_ref()).unwrap();
    let views = parts.iter().map(|part| {
        (part.name.as_str(), TensorView::new(part.dtype, part.shape.clone(), &part.bytes).unwrap())
    });
    let bytes = safetensors::serialize(views.collect::<HashMap<_, _>>(), None).unwrap();
    write_file(&folder.join("model.safetensors"), bytes.as_ref()).unwrap();
}

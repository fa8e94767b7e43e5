//! Quantised matrices for tests: their parts, packed bit by bit, and the elements they stand for.

use std::collections::HashMap;
use std::path::Path;

use half::f16;
use safetensors::Dtype;
use safetensors::tensor::TensorView;
use serde_json::{Value, json};

use crate::checkpoint::tests::put;

/// A tensor of a file.
#[derive(Clone)]
pub(crate) struct Part {
    pub(crate) name: String,
    pub(crate) dtype: Dtype,
    pub(crate) shape: Vec<usize>,
    pub(crate) bytes: Vec<u8>,
}

impl Part {
    pub(crate) fn halves(name: &str, shape: &[usize], values: &[f32]) -> Part {
        let bytes = values.iter().flat_map(|&x| f16::from_f32(x).to_le_bytes()).collect();
        Part { name: name.to_owned(), dtype: Dtype::F16, shape: shape.to_vec(), bytes }
    }

    fn words(name: &str, shape: &[usize], words: &[u32]) -> Part {
        let bytes = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        Part { name: name.to_owned(), dtype: Dtype::I32, shape: shape.to_vec(), bytes }
    }

    fn floats(name: &str, shape: &[usize], values: &[f32]) -> Part {
        let bytes = values.iter().flat_map(|x| x.to_le_bytes()).collect();
        Part { name: name.to_owned(), dtype: Dtype::F32, shape: shape.to_vec(), bytes }
    }
}

/// A matrix: the parts it is stored in, and its elements.
pub(crate) struct Matrix {
    pub(crate) parts: Vec<Part>,
    pub(crate) elements: Vec<f32>,
}

/// Ways to quantise, each with its `quantization_config` and the parts of a matrix.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Way {
    Gptq { bits: usize, size: Option<usize>, zero: Option<u32>, by_act: bool, is_second: bool },
    Awq { size: usize },
    Packed { bits: usize, size: Option<usize>, has_zeros: bool },
    Bytes,
    Fake { is_exact: bool },
}

/// A number that looks random.
fn random(seed: usize) -> usize {
    let mixed = (seed as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 33) as usize
}

fn scale(row: usize, group: usize) -> f32 {
    f16::from_f32(0.004 + (random(row * 131 + group) % 97) as f32 * 0.0003).to_f32()
}

/// Sets bits of a row of words, one at a time.
fn set(words: &mut [u32], first: usize, bits: usize, value: u32) {
    for bit in 0..bits {
        words[(first + bit) / 32] |= (value >> bit & 1) << ((first + bit) % 32);
    }
}

/// Lines of words, the other way round.
fn transposed(lines: &[Vec<u32>]) -> Vec<u32> {
    (0..lines[0].len()).flat_map(|word| lines.iter().map(move |line| line[word])).collect()
}

impl Way {
    pub(crate) fn config(self) -> Value {
        match self {
            Way::Gptq { bits, size, by_act, is_second, .. } => json!({
                "quant_method": "gptq", "bits": bits, "desc_act": by_act, "sym": false,
                "group_size": size.map_or(-1, |size| size as i64),
                "checkpoint_format": if is_second { "gptq_v2" } else { "gptq" },
            }),
            Way::Awq { size } => {
                json!({"quant_method": "awq", "bits": 4, "group_size": size, "version": "gemm", "zero_point": true})
            }
            Way::Packed { bits, size, has_zeros } => json!({
                "quant_method": "compressed-tensors", "format": "pack-quantized", "ignore": ["lm_head"],
                "config_groups": {"group_0": {"targets": ["Linear"], "weights": {
                    "num_bits": bits, "type": "int", "symmetric": !has_zeros, "group_size": size,
                    "strategy": if size.is_some() { "group" } else { "channel" },
                }}},
            }),
            Way::Bytes => json!({
                "quant_method": "compressed-tensors", "format": "int-quantized",
                "config_groups": {"group_0": {"targets": ["Linear"], "input_activations": {"num_bits": 8},
                    "weights": {"num_bits": 8, "type": "int", "symmetric": true, "strategy": "channel"}}},
            }),
            Way::Fake { .. } => Value::Null,
        }
    }

    pub(crate) fn matrix(self, module: &str, shape: [usize; 2]) -> Matrix {
        match self {
            Way::Gptq { .. } => self.gptq(module, shape),
            Way::Awq { size } => awq(module, shape, size),
            Way::Packed { bits, size, has_zeros } => packed(module, shape, (bits, size, has_zeros)),
            Way::Bytes => bytes(module, shape),
            Way::Fake { is_exact } => fake(module, shape, is_exact),
        }
    }

    fn gptq(self, module: &str, [rows, columns]: [usize; 2]) -> Matrix {
        let Way::Gptq { bits, size, zero, by_act, is_second } = self else { panic!("{self:?} is not GPTQ") };
        let size = size.unwrap_or(columns);
        let groups = columns / size;
        let group = |column: usize| if by_act { (column * 5 + 3) % groups } else { column / size };
        let most = 1 << bits;
        let zero = |row: usize, group: usize| {
            zero.unwrap_or_else(|| 1 + random(row * 7 + group) as u32 % (most - 1))
        };
        let code = |row: usize, column: usize| random(row * columns + column) as u32 % most;
        let mut lines = vec![vec![0; columns * bits / 32]; rows];
        let mut zeros = vec![vec![0; rows * bits / 32]; groups];
        for (row, line) in lines.iter_mut().enumerate() {
            (0..columns).for_each(|column| set(line, column * bits, bits, code(row, column)));
            for (group, zeros) in zeros.iter_mut().enumerate() {
                set(zeros, row * bits, bits, zero(row, group) - u32::from(!is_second));
            }
        }
        let index: Vec<u32> = (0..columns).map(|column| group(column) as u32).collect();
        let parts = vec![
            Part::words(&format!("{module}.qweight"), &[columns * bits / 32, rows], &transposed(&lines)),
            Part::words(&format!("{module}.qzeros"), &[groups, rows * bits / 32], &zeros.concat()),
            scales_by_group(module, rows, groups),
            Part::words(&format!("{module}.g_idx"), &[columns], &index),
        ];
        Matrix::new(parts, [rows, columns], |row, column| {
            let group = group(column);
            scale(row, group) * (code(row, column) as f32 - zero(row, group) as f32)
        })
    }
}

fn scales_by_group(module: &str, rows: usize, groups: usize) -> Part {
    let scales: Vec<f32> = (0..groups * rows).map(|at| scale(at % rows, at / rows)).collect();
    Part::halves(&format!("{module}.scales"), &[groups, rows], &scales)
}

fn awq(module: &str, [rows, columns]: [usize; 2], size: usize) -> Matrix {
    let groups = columns / size;
    let code = |row: usize, column: usize| random(row * columns + column) as u32 % 16;
    let zero = |row: usize, group: usize| random(row * 11 + group) as u32 % 16;
    let places = [0, 16, 4, 20, 8, 24, 12, 28];
    let line = |value: &dyn Fn(usize) -> u32| {
        let mut words = vec![0; rows / 8];
        (0..rows).for_each(|row| set(&mut words, row / 8 * 32 + places[row % 8], 4, value(row)));
        words
    };
    let codes: Vec<u32> = (0..columns).flat_map(|column| line(&|row| code(row, column))).collect();
    let zeros: Vec<u32> = (0..groups).flat_map(|group| line(&|row| zero(row, group))).collect();
    let parts = vec![
        Part::words(&format!("{module}.qweight"), &[columns, rows / 8], &codes),
        Part::words(&format!("{module}.qzeros"), &[groups, rows / 8], &zeros),
        scales_by_group(module, rows, groups),
    ];
    Matrix::new(parts, [rows, columns], |row, column| {
        scale(row, column / size) * (code(row, column) as f32 - zero(row, column / size) as f32)
    })
}

fn bytes(module: &str, [rows, columns]: [usize; 2]) -> Matrix {
    let number = |row: usize, column: usize| (random(row * columns + column) as u8).cast_signed();
    let bytes = (0..rows * columns).map(|at| number(at / columns, at % columns).cast_unsigned());
    let name = format!("{module}.weight");
    let codes = Part { name, dtype: Dtype::I8, shape: vec![rows, columns], bytes: bytes.collect() };
    let scales: Vec<f32> = (0..rows).map(|row| scale(row, 0)).collect();
    let scales = Part::halves(&format!("{module}.weight_scale"), &[rows, 1], &scales);
    let input = Part::floats(&format!("{module}.input_scale"), &[1], &[0.5]);
    Matrix::new(vec![codes, scales, input], [rows, columns], |row, column| {
        scale(row, 0) * f32::from(number(row, column))
    })
}

fn fake(module: &str, [rows, columns]: [usize; 2], is_exact: bool) -> Matrix {
    let shift = if is_exact { 0.0 } else { 0.21 };
    let value = |row: usize, column: usize| {
        scale(row, 0) * ((random(row * columns + column) % 15) as f32 - 7.0 + shift)
    };
    let mut matrix = Matrix::new(Vec::new(), [rows, columns], value);
    let quantiser = format!("{module}.weight_fake_quant");
    let scales: Vec<f32> = (0..rows).map(|row| scale(row, 0)).collect();
    matrix.parts = vec![
        Part::floats(&format!("{module}.weight"), &[rows, columns], &matrix.elements),
        Part::floats(&format!("{quantiser}.scale"), &[rows], &scales),
        Part::words(&format!("{quantiser}.zero_point"), &[rows], &vec![0; rows]),
        Part::words(&format!("{quantiser}.observer_enabled"), &[1], &[1]),
        Part::floats(&format!("{module}.activation_post_process.scale"), &[1], &[1.0]),
    ];
    matrix
}

fn packed(
    module: &str,
    [rows, columns]: [usize; 2],
    (bits, size, has_zeros): (usize, Option<usize>, bool),
) -> Matrix {
    let size = size.unwrap_or(columns);
    let (groups, to_a_word, half) = (columns / size, 32 / bits, 1 << (bits - 1));
    let number = |row: usize, column: usize| random(row * columns + column) as i32 % (2 * half) - half;
    let zero = |row: usize, group: usize| match has_zeros {
        true => random(row * 3 + group) as i32 % (2 * half) - half,
        false => 0,
    };
    let at = |index: usize| index / to_a_word * 32 + index % to_a_word * bits;
    let mut codes = vec![vec![0; columns.div_ceil(to_a_word)]; rows];
    let mut zeros = vec![vec![0; rows.div_ceil(to_a_word)]; groups];
    for (row, codes) in codes.iter_mut().enumerate() {
        for column in 0..columns {
            set(codes, at(column), bits, (number(row, column) + half) as u32);
        }
        for (group, zeros) in zeros.iter_mut().enumerate() {
            set(zeros, at(row), bits, (zero(row, group) + half) as u32);
        }
    }
    let scales: Vec<f32> = (0..rows * groups).map(|at| scale(at / groups, at % groups)).collect();
    let sizes = [rows as u64, columns as u64].iter().flat_map(|size| size.to_le_bytes()).collect();
    let name = format!("{module}.weight_shape");
    let mut parts = vec![
        Part::words(&format!("{module}.weight_packed"), &[rows, codes[0].len()], &codes.concat()),
        Part::halves(&format!("{module}.weight_scale"), &[rows, groups], &scales),
        Part { name, dtype: Dtype::I64, shape: vec![2], bytes: sizes },
    ];
    if has_zeros {
        let shape = [zeros[0].len(), groups];
        parts.push(Part::words(&format!("{module}.weight_zero_point"), &shape, &transposed(&zeros)));
    }
    Matrix::new(parts, [rows, columns], |row, column| {
        let group = column / size;
        scale(row, group) * (number(row, column) - zero(row, group)) as f32
    })
}

impl Matrix {
    fn new(parts: Vec<Part>, [rows, columns]: [usize; 2], element: impl Fn(usize, usize) -> f32) -> Matrix {
        let elements = (0..rows * columns).map(|at| element(at / columns, at % columns)).collect();
        Matrix { parts, elements }
    }
}

/// Writes a folder with a configuration and one file of weights.
pub(crate) fn write(folder: &Path, config: &Value, parts: &[Part]) {
    put(folder, "config.json", config.to_string());
    let views = parts.iter().map(|part| {
        (part.name.as_str(), TensorView::new(part.dtype, part.shape.clone(), &part.bytes).unwrap())
    });
    let bytes = safetensors::serialize(views.collect::<HashMap<_, _>>(), None).unwrap();
    put(folder, "model.safetensors", bytes);
}

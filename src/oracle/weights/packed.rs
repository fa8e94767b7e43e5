//! Tensors of safetensors files, and matrices that are stored as packed integers: GPTQ, AWQ, compressed-tensors and MLX,
//! each from the description of its format, an element at a time.

use candle_core::{DType, Device, Error, Result, Tensor};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde_json::{Map, Value};

/// How the matrices of a checkpoint are packed, as its configuration says.
pub(crate) enum Packing {
    None,
    /// `bits`, and what is added to stored zeros: the first version of the format stores one less.
    Gptq {
        bits: usize,
        zero_offset: f32,
    },
    Awq,
    /// The widths that may occur.
    CompressedTensors {
        bits: Vec<usize>,
    },
    /// Sizes of groups: of all matrices, or by module.
    Mlx(Map<String, Value>),
}

type Files<'a> = [SafeTensors<'a>];

impl Packing {
    pub(super) fn read(config: &Map<String, Value>) -> Result<Packing> {
        if let Some(Value::Object(section)) = config.get("quantization") {
            return Ok(Packing::Mlx(section.clone()));
        }
        let Some(section) = config.get("quantization_config").filter(|section| section.is_object()) else {
            return Ok(Packing::None);
        };
        let size = |value: &Value, key: &str| value[key].as_u64().map(|bits| bits as usize);
        match section["quant_method"].as_str() {
            Some("gptq") => Ok(Packing::Gptq {
                bits: size(section, "bits").filter(|bits| (1..=8).contains(bits)).unwrap_or(4),
                zero_offset: if section["checkpoint_format"] == "gptq_v2" { 0.0 } else { 1.0 },
            }),
            Some("awq") => Ok(Packing::Awq),
            Some("compressed-tensors") => {
                let groups = section["config_groups"].as_object().into_iter().flat_map(Map::values);
                let bits = groups.filter_map(|group| size(&group["weights"], "num_bits"));
                Ok(Packing::CompressedTensors { bits: bits.filter(|bits| (1..=8).contains(bits)).collect() })
            }
            other => {
                candle_core::bail!("`quantization_config.quant_method` is {other:?}, which has no reference")
            }
        }
    }
}

/// A tensor as f32, unpacked if it is stored in parts.
pub(super) fn tensor(files: &Files<'_>, packing: &Packing, name: &str) -> Result<Tensor> {
    let module = name.strip_suffix(".weight").unwrap_or(name);
    let part = |part: &str| format!("{module}.{part}");
    let has = |name: &str| find(files, name).is_ok();
    match packing {
        Packing::Gptq { bits, zero_offset } if has(&part("qweight")) => {
            gptq(files, &part, *bits, *zero_offset)
        }
        Packing::Awq if has(&part("qweight")) => awq(files, &part),
        Packing::CompressedTensors { bits } if has(&part("weight_packed")) => {
            pack_quantized(files, &part, bits)
        }
        Packing::CompressedTensors { .. } if is_int8(files, name) => int_quantized(files, &part),
        Packing::Mlx(section) if has(&part("scales")) => mlx(files, &part, section, module),
        _ => load(files, name),
    }
}

/// `scale * (q - zero)`; integers along the inputs of an output, zeros along the outputs of a group.
fn gptq(files: &Files<'_>, part: &dyn Fn(&str) -> String, bits: usize, zero_offset: f32) -> Result<Tensor> {
    let [words, zeros] = [Words::load(files, &part("qweight"))?, Words::load(files, &part("qzeros"))?];
    let scales = load(files, &part("scales"))?.to_vec2::<f32>()?;
    let (outputs, inputs) = (words.columns, words.rows * 32 / bits);
    let groups: Vec<usize> = match load(files, &part("g_idx")) {
        Ok(index) => index.to_vec1::<f32>()?.into_iter().map(|group| group as usize).collect(),
        Err(_) => (0..inputs).map(|input| input * scales.len() / inputs).collect(),
    };
    super::matrix(outputs, inputs, |output, input| {
        let group = groups[input];
        let code = stream(bits, input, |word| words.get(word, output));
        let zero = stream(bits, output, |word| zeros.get(group, word)) as f32 + zero_offset;
        scales[group][output] * (code as f32 - zero)
    })
}

/// `scale * (q - zero)`; eight outputs to a word, the even ones in its lower half.
fn awq(files: &Files<'_>, part: &dyn Fn(&str) -> String) -> Result<Tensor> {
    const NIBBLE_OF_OUTPUT: [u32; 8] = [0, 4, 1, 5, 2, 6, 3, 7];
    let [words, zeros] = [Words::load(files, &part("qweight"))?, Words::load(files, &part("qzeros"))?];
    let scales = load(files, &part("scales"))?.to_vec2::<f32>()?;
    let (outputs, inputs) = (words.columns * 8, words.rows);
    let nibble = |word: u32, output: usize| (word >> (4 * NIBBLE_OF_OUTPUT[output % 8]) & 15) as f32;
    super::matrix(outputs, inputs, |output, input| {
        let group = input * scales.len() / inputs;
        let code = nibble(words.get(input, output / 8), output);
        scales[group][output] * (code - nibble(zeros.get(group, output / 8), output))
    })
}

/// `scale * (q - zero)`; fields along the inputs, moved up by half their range as packed zeros are. They run on across
/// words since version 0.18 of compressed-tensors; before, there were only whole ones to a word.
fn pack_quantized(files: &Files<'_>, part: &dyn Fn(&str) -> String, widths: &[usize]) -> Result<Tensor> {
    let words = Words::load(files, &part("weight_packed"))?;
    let shape = load(files, &part("weight_shape"))?.to_vec1::<f32>()?;
    let &[outputs, inputs] = &shape[..] else {
        candle_core::bail!("a packed matrix has a shape of {shape:?}")
    };
    let (outputs, inputs) = (outputs as usize, inputs as usize);
    let dense = widths.iter().map(|&bits| (bits, true, (inputs * bits).div_ceil(32)));
    let whole = widths.iter().map(|&bits| (bits, false, inputs.div_ceil(32 / bits)));
    let (bits, is_dense, _) = dense
        .chain(whole)
        .find(|form| form.2 == words.columns)
        .ok_or_else(|| Error::msg("no width fits a packed matrix"))?;
    let (fields, middle) = (32 / bits, (1u32 << (bits - 1)) as f32);
    let field = |index: usize, word: &dyn Fn(usize) -> u32| {
        let code = match is_dense {
            true => stream(bits, index, word),
            false => word(index / fields) >> (index % fields * bits) & ((1 << bits) - 1),
        };
        code as f32 - middle
    };
    let scales = Table::load(files, &part("weight_scale"))?;
    let zero_name = part("weight_zero_point");
    let packed_zeros = Words::load(files, &zero_name).ok();
    let plain_zeros = if packed_zeros.is_none() { Table::load(files, &zero_name).ok() } else { None };
    let listed = load(files, &part("weight_g_idx")).and_then(|index| index.to_vec1::<f32>()).ok();
    let listed = listed.filter(|index| index.iter().all(|&group| group >= 0.0));
    super::matrix(outputs, inputs, |output, input| {
        let group = listed.as_ref().map_or(input * scales.groups / inputs, |listed| listed[input] as usize);
        let zero = match (&packed_zeros, &plain_zeros) {
            (Some(zeros), _) => field(output, &|word| zeros.get(word, group)),
            (None, Some(zeros)) => zeros.get(output, group),
            (None, None) => 0.0,
        };
        scales.get(output, group) * (field(input, &|word| words.get(output, word)) - zero)
    })
}

/// `scale * (q - zero)` of bytes.
fn int_quantized(files: &Files<'_>, part: &dyn Fn(&str) -> String) -> Result<Tensor> {
    let codes = load(files, &part("weight"))?.to_vec2::<f32>()?;
    let scales = Table::load(files, &part("weight_scale"))?;
    let zeros = Table::load(files, &part("weight_zero_point")).ok();
    let inputs = codes.first().map_or(0, Vec::len);
    super::matrix(codes.len(), inputs, |output, input| {
        let group = input * scales.groups / inputs;
        let zero = zeros.as_ref().map_or(0.0, |zeros| zeros.get(output, group));
        scales.get(output, group) * (codes[output][input] - zero)
    })
}

/// `scale * q + bias`; integers along the inputs.
fn mlx(
    files: &Files<'_>,
    part: &dyn Fn(&str) -> String,
    section: &Map<String, Value>,
    module: &str,
) -> Result<Tensor> {
    let words = Words::load(files, &part("weight"))?;
    let [scales, biases] = [Table::load(files, &part("scales"))?, Table::load(files, &part("biases"))?];
    let own = section.get(module).and_then(Value::as_object).unwrap_or(section);
    let size = own.get("group_size").and_then(Value::as_u64).unwrap_or(64) as usize;
    let inputs = scales.groups * size;
    let bits = words.columns * 32 / inputs.max(1);
    super::matrix(words.rows, inputs, |output, input| {
        let code = stream(bits, input, |word| words.get(output, word));
        scales.get(output, input / size) * code as f32 + biases.get(output, input / size)
    })
}

/// A field of a run of words whose fields follow each other across the ends of words.
fn stream(bits: usize, index: usize, word: impl Fn(usize) -> u32) -> u32 {
    let (at, shift) = (index * bits / 32, index * bits % 32);
    let high = if shift + bits > 32 { u64::from(word(at + 1)) << 32 } else { 0 };
    ((high | u64::from(word(at))) >> shift) as u32 & ((1 << bits) - 1)
}

/// A matrix of 32-bit words.
struct Words {
    rows: usize,
    columns: usize,
    values: Vec<u32>,
}

impl Words {
    fn load(files: &Files<'_>, name: &str) -> Result<Words> {
        let view = find(files, name)?;
        match (view.shape(), view.dtype()) {
            (&[rows, columns], Dtype::I32 | Dtype::U32) => {
                let words = view.data().chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]));
                Ok(Words { rows, columns, values: words.collect() })
            }
            (shape, dtype) => {
                candle_core::bail!("`{name}` is {dtype:?} {shape:?}, expected a matrix of int32")
            }
        }
    }

    fn get(&self, row: usize, column: usize) -> u32 {
        self.values[row * self.columns + column]
    }
}

/// Numbers by tensor, output or group.
struct Table {
    values: Vec<f32>,
    rows: usize,
    groups: usize,
}

impl Table {
    fn load(files: &Files<'_>, name: &str) -> Result<Table> {
        let tensor = load(files, name)?;
        let (rows, groups) = match *tensor.dims() {
            [] => (1, 1),
            [rows] => (rows, 1),
            [rows, groups] => (rows, groups),
            _ => candle_core::bail!("`{name}` is {:?}, expected numbers by row and group", tensor.dims()),
        };
        Ok(Table { values: tensor.flatten_all()?.to_vec1()?, rows, groups })
    }

    fn get(&self, row: usize, group: usize) -> f32 {
        self.values[if self.rows == 1 { group } else { row * self.groups + group }]
    }
}

fn is_int8(files: &Files<'_>, name: &str) -> bool {
    find(files, name).is_ok_and(|view| view.dtype() == Dtype::I8)
}

fn find<'a>(files: &Files<'a>, name: &str) -> Result<TensorView<'a>> {
    files.iter().find_map(|file| file.tensor(name).ok()).ok_or_else(|| super::missing(name))
}

fn load(files: &Files<'_>, name: &str) -> Result<Tensor> {
    let view = find(files, name)?;
    let integers = |width: usize, number: fn(&[u8]) -> f32| {
        Tensor::from_vec(view.data().chunks_exact(width).map(number).collect(), view.shape(), &Device::Cpu)
    };
    let floats = |dtype: DType| {
        Tensor::from_raw_buffer(view.data(), dtype, view.shape(), &Device::Cpu)?.to_dtype(DType::F32)
    };
    match view.dtype() {
        Dtype::F16 => floats(DType::F16),
        Dtype::BF16 => floats(DType::BF16),
        Dtype::F32 => floats(DType::F32),
        Dtype::F64 => floats(DType::F64),
        Dtype::I8 => integers(1, |b| f32::from(b[0].cast_signed())),
        Dtype::I32 => integers(4, |b| i32::from_le_bytes([b[0], b[1], b[2], b[3]]) as f32),
        Dtype::I64 => {
            integers(8, |b| i64::from_le_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]]) as f32)
        }
        other => {
            candle_core::bail!("tensor `{name}` has elements of type {other:?}, which have no reference")
        }
    }
}

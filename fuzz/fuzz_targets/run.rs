//! Structure-aware: one operation of the table after another, with arguments that are almost right, loaded and
//! executed by the CPU runtime. Errors are fine, panics and runaway memory are not.
#![no_main]

use anemeter::mil::op::{Arity, OpDef, Param, Presence};
use anemeter::mil::{
    Argument, Binding, Function, Literal, LiteralData, Model, Operation, Opset, TensorType, Type, ValueId, ops,
};
use anemeter::runtime::{self, LoadOptions};
use anemeter::tensor::{AlignedBuf, DType, Tensor, TensorView, shape};
use arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;

const MEMORY: usize = 64 << 20;

fuzz_target!(|data: &[u8]| {
    let _ = attempt(&mut Unstructured::new(data));
});

fn attempt(bytes: &mut Unstructured<'_>) -> Result<()> {
    let opsets: Vec<Opset> = Opset::all().collect();
    let opset = *bytes.choose(&opsets)?;
    let mut program = Program { function: Function::new("main", opset), inputs: Vec::new(), results: Vec::new() };
    let definitions: Vec<&'static OpDef> = ops::all().collect();
    for _ in 0..bytes.int_in_range(1..=3)? {
        let def = *bytes.choose(&definitions)?;
        program.push(def, bytes)?;
    }
    program.execute();
    Ok(())
}

struct Program {
    function: Function,
    inputs: Vec<(String, Tensor)>,
    results: Vec<ValueId>,
}

impl Program {
    fn push(&mut self, def: &'static OpDef, bytes: &mut Unstructured<'_>) -> Result<()> {
        let dtype = *bytes.choose(&[DType::F16, DType::F32, DType::I32])?;
        let mut inputs = Vec::new();
        for param in def.params {
            let absent = param.presence != Presence::Required && bytes.ratio(1u8, 2u8)?;
            if absent || bytes.ratio(1u8, 60u8)? {
                continue;
            }
            let count = if param.arity == Arity::Many { bytes.int_in_range(1..=3)? } else { 1 };
            let bindings = (0..count).map(|_| self.bind(param, dtype, bytes)).collect::<Result<_>>()?;
            inputs.push(Argument { parameter: param.name.to_owned(), bindings });
        }
        inputs.sort_by(|a, b| a.parameter.cmp(&b.parameter));
        let count = *bytes.choose(&[1, 1, 1, 2, 3, 4])?;
        let declared: Type = TensorType::new(dtype, vec![anemeter::mil::Dim::Variadic]).into();
        let at = self.function.values.len();
        let outputs: Vec<ValueId> =
            (0..count).map(|i| self.function.add_value(&format!("v{at}_{i}"), declared.clone())).collect();
        self.results.extend(&outputs);
        let kind = def.name.to_owned();
        self.function.body.operations.push(Operation { kind, inputs, outputs, ..Operation::default() });
        Ok(())
    }

    fn bind(&mut self, param: &Param, dtype: DType, bytes: &mut Unstructured<'_>) -> Result<Binding> {
        if !param.constant && !self.results.is_empty() && bytes.ratio(1u8, 3u8)? {
            return Ok(Binding::Value(*bytes.choose(&self.results)?));
        }
        let dtype = if param.dtypes.contains(&dtype) { dtype } else { *bytes.choose(param.dtypes)? };
        let literal = literal(param, dtype, bytes)?;
        let is_input = !param.constant && bytes.ratio(2u8, 3u8)?;
        match literal.tensor() {
            Some(tensor) if is_input && tensor.dtype() != DType::String => {
                let name = format!("in{}", self.inputs.len());
                let id = self.function.add_value(&name, literal.ty.clone());
                self.function.inputs.push(id);
                self.inputs.push((name, tensor));
                Ok(Binding::Value(id))
            }
            _ => Ok(Binding::Literal(literal)),
        }
    }

    fn execute(mut self) {
        self.function.body.outputs.clone_from(&self.results);
        let options = LoadOptions { threads: Some(1), memory: Some(MEMORY), ..LoadOptions::default() };
        let Ok(loaded) = runtime::cpu().load_model(Model::single(self.function), &options) else { return };
        let mut session = loaded.session();
        let inputs: Vec<(&str, TensorView<'_>)> =
            self.inputs.iter().map(|(name, tensor)| (name.as_str(), tensor.view())).collect();
        for _ in 0..2 {
            let _ = session.predict("main", &inputs);
        }
    }
}

/// Words that string parameters know.
const WORDS: &[&str] = &[
    "valid", "custom", "same", "same_lower", "constant", "reflect", "replicate", "fp16", "fp32", "int32", "int8",
    "uint8", "bool", "EXACT", "TANH_APPROXIMATION", "SIGMOID_APPROXIMATION", "tanh", "sigmoid", "relu", "forward",
    "reverse", "bidirectional", "add", "update", "mul", "max", "ALIGN_CORNERS", "DEFAULT", "bilinear", "nearest",
    "nchw,nwhu->nchu", "chw,whr->chr", "CORNERS_HEIGHT_FIRST", "normalized_minus_one_to_one", "border", "",
];

fn literal(param: &Param, dtype: DType, bytes: &mut Unstructured<'_>) -> Result<Literal> {
    if dtype == DType::String {
        return Ok(Literal::text(bytes.choose(WORDS)?));
    }
    let most = if param.constant { 2 } else { 5 };
    let rank = bytes.int_in_range(0..=most)?;
    let dims: Vec<usize> = (0..rank).map(|_| size(bytes)).collect::<Result<_>>()?;
    let elements = shape::element_count(&dims).unwrap_or(usize::MAX);
    let Some(len) = dtype.byte_len(elements).filter(|&len| len <= 1 << 12) else {
        return Ok(Literal::text(""));
    };
    let mut data = AlignedBuf::zeroed(len);
    if dtype.is_int() && dtype.bits() >= 8 {
        for element in data.chunks_exact_mut(dtype.bits() as usize / 8) {
            let value = integer(bytes)?.to_le_bytes();
            element.copy_from_slice(&value[..element.len()]);
        }
    } else {
        bytes.fill_buffer(&mut data)?;
        if dtype == DType::Bool {
            data.iter_mut().for_each(|byte| *byte &= 1);
        }
    }
    let ty = TensorType::fixed(dtype, &dims).into();
    Ok(Literal { ty, data: LiteralData::Immediate(data.into()) })
}

fn size(bytes: &mut Unstructured<'_>) -> Result<usize> {
    Ok(*bytes.choose(&[1, 1, 2, 2, 3, 4, 5, 8, 0])?)
}

fn integer(bytes: &mut Unstructured<'_>) -> Result<i64> {
    Ok(match bytes.int_in_range(0..=15u8)? {
        0 => bytes.arbitrary::<i32>()?.into(),
        1 => i32::MAX.into(),
        2 => i32::MIN.into(),
        _ => bytes.int_in_range(-3..=6)?,
    })
}

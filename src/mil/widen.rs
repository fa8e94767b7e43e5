//! The twin of a model that computes in fp32 what the model computes in fp16.
//!
//! Weights keep their values: plain ones are widened while they are written, compressed ones keep their integers and
//! indices. Two engines can be held against each other with it, because neither rounds between operations.

use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::Arc;

use half::f16;

use super::{
    Binding, Block, Feature, FeatureType, Interfaces, Literal, LiteralData, Model, Operation, Payload, Type,
};
use anemeter_kernels::tensor::{Bytes, DType};

/// The model with fp32 in place of fp16.
pub fn widened(mut model: Model) -> Model {
    let mut pass = Pass::default();
    for function in &mut model.program.functions {
        function.values.iter_mut().for_each(|value| widen_type(&mut value.ty));
        pass.block(&mut function.body);
    }
    let interfaces = match &mut model.interfaces {
        Interfaces::Single(interface) => std::slice::from_mut(interface),
        Interfaces::Many { functions, .. } => functions,
    };
    for interface in interfaces {
        let features = interface.inputs.iter_mut().chain(&mut interface.outputs).chain(&mut interface.states);
        features.for_each(widen_feature);
    }
    model
}

fn widen_type(ty: &mut Type) {
    match ty {
        Type::Tensor(tensor) | Type::State(tensor) => widen_dtype(&mut tensor.dtype),
        Type::List(element, _) => widen_type(element),
        Type::Tuple(types) => types.iter_mut().for_each(widen_type),
        Type::Dictionary(key, value) => [key, value].into_iter().for_each(|ty| widen_type(ty)),
    }
}

fn widen_dtype(dtype: &mut DType) {
    if *dtype == DType::F16 {
        *dtype = DType::F32;
    }
}

fn widen_feature(feature: &mut Feature) {
    if let FeatureType::Array(array) | FeatureType::State(array) = &mut feature.ty {
        widen_dtype(&mut array.dtype);
    }
}

/// Functions that share a weight share what becomes of it.
#[derive(Default)]
struct Pass {
    streams: HashMap<usize, Arc<dyn Payload>>,
}

impl Pass {
    fn block(&mut self, block: &mut Block) {
        for operation in &mut block.operations {
            self.operation(operation);
        }
    }

    fn operation(&mut self, operation: &mut Operation) {
        let bound = operation.inputs.iter_mut().flat_map(|argument| &mut argument.bindings);
        for binding in bound {
            if let Binding::Literal(literal) = binding {
                self.literal(literal);
            }
        }
        let attributes = operation.attributes.iter_mut().filter(|(name, _)| name != "name");
        attributes.for_each(|(_, literal)| self.literal(literal));
        operation.blocks.iter_mut().for_each(|block| self.block(block));
    }

    fn literal(&mut self, literal: &mut Literal) {
        let is_half = literal.ty.tensor().is_some_and(|ty| ty.dtype == DType::F16);
        widen_type(&mut literal.ty);
        match &mut literal.data {
            LiteralData::Immediate(bytes) | LiteralData::Blob(bytes) if is_half => {
                *bytes = Bytes::from(floats(bytes));
            }
            LiteralData::Stream(payload) if is_half => {
                let key = Arc::as_ptr(payload).cast::<u8>().addr();
                let source = payload.clone();
                *payload = self.streams.entry(key).or_insert_with(|| Arc::new(Widened(source))).clone();
            }
            // No string says this but the name of a type to cast to.
            LiteralData::Strings(strings) => {
                strings.iter_mut().filter(|text| *text == "fp16").for_each(|text| "fp32".clone_into(text));
            }
            LiteralData::Items(items) => items.iter_mut().for_each(|item| self.literal(item)),
            LiteralData::Entries(entries) => {
                entries
                    .iter_mut()
                    .for_each(|(key, value)| [key, value].into_iter().for_each(|l| self.literal(l)));
            }
            LiteralData::Immediate(_) | LiteralData::Blob(_) | LiteralData::Stream(_) => {}
        }
    }
}

/// fp16 as fp32.
fn floats(bytes: &[u8]) -> Vec<u8> {
    bytes.as_chunks::<2>().0.iter().flat_map(|&b| f16::from_le_bytes(b).to_f32().to_le_bytes()).collect()
}

/// fp16 elements that are written as fp32.
struct Widened(Arc<dyn Payload>);

impl Payload for Widened {
    fn byte_len(&self) -> u64 {
        self.0.byte_len() * 2
    }

    fn write_to(&self, out: &mut dyn Write) -> io::Result<()> {
        self.0.write_to(&mut Widening { out, half: None })
    }
}

/// Widens what is written through it, a piece at a time.
struct Widening<'a> {
    out: &'a mut dyn Write,
    /// The first byte of an element whose second has not come yet.
    half: Option<u8>,
}

impl Write for Widening<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        const PIECE: usize = 1 << 16;
        let mut piece = &bytes[..bytes.len().min(PIECE)];
        let taken = piece.len();
        if let (Some(low), [high, rest @ ..]) = (self.half, piece) {
            self.out.write_all(&floats(&[low, *high]))?;
            (self.half, piece) = (None, rest);
        }
        let whole = piece.len() / 2 * 2;
        self.out.write_all(&floats(&piece[..whole]))?;
        if let Some(&low) = piece.get(whole) {
            self.half = Some(low);
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verify::verify;
    use crate::{Builder, Opset, TensorType};
    use anemeter_kernels::tensor::Tensor;

    #[test]
    fn halves_are_widened_however_they_are_cut() {
        let halves = [1.5f32, -0.25, 65504.0, 6e-8].map(f16::from_f32);
        let bytes: Vec<u8> = halves.iter().flat_map(|half| half.to_le_bytes()).collect();
        for cut in 0..=bytes.len() {
            let mut out = Vec::new();
            let mut widening = Widening { out: &mut out, half: None };
            widening.write_all(&bytes[..cut]).unwrap();
            widening.write_all(&bytes[cut..]).unwrap();
            let floats: Vec<f32> = out.as_chunks::<4>().0.iter().map(|&b| f32::from_le_bytes(b)).collect();
            assert_eq!(floats, halves.map(f16::to_f32), "cut at {cut}");
        }
    }

    #[test]
    fn types_constants_states_and_casts_become_fp32() {
        let mut main = Builder::new("main", Opset::Ios18);
        let x = main.input("x", TensorType::fixed(DType::F16, &[1, 2]));
        let state = main.input("kept", Type::State(TensorType::fixed(DType::F16, &[1, 2])));
        let kept = main.op("read_state").arg("input", state).named("read").push().unwrap();
        let weight = Tensor::from_slice(&[1, 2], &[f16::ONE, f16::from_f32(0.5)]).unwrap();
        let weight = main.constant("weight", Literal::blob(&weight));
        let sum = main.op("add").arg("x", x).arg("y", weight).named("sum").push().unwrap();
        let sum = main.op("mul").arg("x", sum).arg("y", kept).named("product").push().unwrap();
        let out = main.op("cast").arg("x", sum).arg("dtype", "fp16").named("y").push().unwrap();
        let model = widened(Model::single(main.finish(&[out])));
        insta::assert_snapshot!(model.program.functions[0], @r#"
            func main<ios18>(tensor<fp32, [1, 2]> x, state<tensor<fp32, [1, 2]>> kept) {
                tensor<fp32, [1, 2]> read = read_state(input = kept);
                tensor<fp32, [1, 2]> weight = const()[val = tensor<fp32, [1, 2]>(<weight file, 8 bytes>)];
                tensor<fp32, [1, 2]> sum = add(x = x, y = weight);
                tensor<fp32, [1, 2]> product = mul(x = sum, y = read);
                tensor<string, []> y_dtype_0 = const()[val = "fp32"];
                tensor<fp32, [1, 2]> y = cast(dtype = y_dtype_0, x = product);
            } -> (y);
        "#);
        verify(model).unwrap();
    }
}

//! Weights for tests, and what the operations of an encoding give for them.

use std::io::{self, Write};
use std::ops::Range;
use std::sync::Arc;

use super::encoder::{WeightEncoder, scheme};
use super::encoding::operations;
use super::layout::Layout;
use super::precision::{Linear, Precision};
use super::weight::{Weight, numbers, to_bytes};
use anemeter_kernels::quantize::Loss;
use anemeter_kernels::tensor::{Bytes, DType, Tensor};
use anemeter_mil::op::{KnownValue, Numerics, decode_all};
use anemeter_mil::propagate::{Options, propagate};
use anemeter_mil::{Function, Literal, LiteralData, Opset, Payload, QuantizedSource, TensorType};

/// Bytes that come as a stream, in pieces.
pub(super) struct Streamed(pub(super) Vec<u8>);

impl Payload for Streamed {
    fn byte_len(&self) -> u64 {
        self.0.len() as u64
    }

    fn write_to(&self, out: &mut dyn Write) -> io::Result<()> {
        self.0.chunks(100_001).try_for_each(|chunk| out.write_all(chunk))
    }
}

/// A weight called `w` with its channels first.
pub(super) fn weight(dtype: DType, shape: &[usize], values: &[f32]) -> Weight {
    weight_by(dtype, shape, values, (0, 1))
}

/// A weight with channels and inputs on the given axes.
pub(super) fn weight_by(dtype: DType, shape: &[usize], values: &[f32], axes: (usize, usize)) -> Weight {
    let data = LiteralData::Blob(to_bytes(dtype, values).into());
    let literal = Literal { ty: TensorType::fixed(dtype, shape).into(), data };
    Weight::of("w", &literal, Layout { shape: shape.into(), channel: axes.0, input: axes.1 }).unwrap()
}

pub(super) fn linear(kind: &str) -> Linear {
    match kind.parse().unwrap() {
        Precision::Linear(linear) => linear,
        other => panic!("{other} is not linear"),
    }
}

/// Normally distributed numbers.
pub(super) fn normal(len: usize, seed: u32) -> Vec<f32> {
    let mut state = u64::from(seed) + 1;
    let mut uniform = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u64 << 24) as f32 + 1e-9
    };
    (0..len)
        .map(|_| (-2.0 * uniform().ln()).sqrt() * (std::f32::consts::TAU * uniform()).cos() * 0.1)
        .collect()
}

/// What the operations give for a weight, and the loss that encoding reports.
pub(super) fn round_trip(weight: &Weight, kind: &str, opset: Opset) -> Result<(Vec<f32>, Loss), String> {
    let precision: Precision = kind.parse().map_err(|e: super::CompressError| e.to_string())?;
    let scheme = scheme(precision, weight, opset).map_err(|e| e.to_string())?.unwrap();
    let encoder = Arc::new(WeightEncoder::new(weight.clone(), precision, scheme));
    let types = encoder.scheme.pieces();
    let pieces: io::Result<Vec<Literal>> =
        types.into_iter().zip(encoder.parts()).map(|(ty, part)| written(ty, &*part)).collect();
    let pieces = pieces.map_err(|e| e.to_string())?;
    let mut function = Function::new("main", opset);
    let ty = TensorType::fixed(weight.dtype, &weight.layout.shape);
    let id = function.add_value("w", ty.into());
    function.body.operations = operations(&mut function, id, &encoder.scheme.steps(), &pieces);
    let options = Options { fold_bytes: 0, trust_declared: false, numerics: Numerics::Fast };
    let (facts, findings) = propagate(&function, &[], options);
    assert!(findings.is_empty(), "{kind}: {findings:?}");
    let tensor = match facts.known[id.index()].as_ref().unwrap() {
        KnownValue::Packed(packed) => decode_all(&**packed).unwrap(),
        KnownValue::Tensor(tensor) => tensor.clone(),
    };
    assert_eq!(tensor.shape(), &weight.layout.shape[..], "{kind}");
    Ok((floats(&tensor), encoder.tables().map_err(|e| e.to_string())?.loss))
}

/// A piece as a constant whose bytes are at hand.
fn written(ty: TensorType, part: &dyn Payload) -> io::Result<Literal> {
    let mut bytes = Vec::new();
    part.write_to(&mut bytes)?;
    assert_eq!(bytes.len() as u64, part.byte_len());
    Ok(Literal { ty: ty.into(), data: LiteralData::Blob(Bytes::from(bytes)) })
}

fn floats(tensor: &Tensor) -> Vec<f32> {
    let mut out = Vec::new();
    numbers(tensor.dtype(), tensor.bytes(), &mut out);
    out
}

/// What the operations give.
pub(super) fn decoded(weight: &Weight, kind: &str, opset: Opset) -> Vec<f32> {
    round_trip(weight, kind, opset).unwrap().0
}

/// Why a weight cannot be encoded.
pub(super) fn error_of(weight: &Weight, kind: &str, opset: Opset) -> String {
    round_trip(weight, kind, opset).unwrap_err()
}

/// Checks the loss that is reported against what the operations give, and against a bound relative to the signal.
pub(super) fn check(weight: &Weight, kind: &str, opset: Opset, bound: f64) {
    let (got, loss) = round_trip(weight, kind, opset).unwrap();
    let mut values = Vec::new();
    let mut take = |bytes: &[u8]| {
        let mut some = Vec::new();
        numbers(weight.dtype, bytes, &mut some);
        values.extend(some);
        Ok(())
    };
    let by_shape = weight.with_layout(Layout::rows_first(&weight.layout.shape));
    by_shape.for_each_batch(1, &mut take).unwrap();
    let measured = Loss::between(&values, &got);
    let near = |a: f64, b: f64| (a - b).abs() <= 1e-3 * loss.noise + 1e-6 * loss.signal;
    assert!(
        near(measured.noise, loss.noise)
            && near(measured.signal, loss.signal)
            && near(measured.decoded, loss.decoded),
        "{kind} {:?}: measured {measured:?}, reported {loss:?}",
        weight.layout
    );
    assert!(measured.noise <= bound * bound * measured.signal, "{kind}: {measured:?} is above {bound}");
}

/// Elements that come from integers.
#[derive(Clone)]
pub(super) struct Integers {
    pub(super) bits: u32,
    pub(super) is_signed: bool,
    pub(super) block: usize,
    pub(super) codes: Vec<u8>,
    pub(super) scales: Vec<f32>,
    pub(super) minimums: Vec<f32>,
}

impl Integers {
    pub(super) fn values(&self) -> Vec<f32> {
        let number = |code: u8| if self.is_signed { f32::from(code.cast_signed()) } else { f32::from(code) };
        let value = |(i, &code): (usize, &u8)| {
            self.scales[i / self.block] * number(code) + self.minimums[i / self.block]
        };
        self.codes.iter().enumerate().map(value).collect()
    }

    pub(super) fn weight(&self, shape: &[usize]) -> Weight {
        let literal = Literal {
            ty: TensorType::fixed(DType::F16, shape).into(),
            data: LiteralData::Stream(Arc::new(self.clone())),
        };
        Weight::of("w", &literal, Layout::rows_first(shape)).unwrap()
    }
}

impl Payload for Integers {
    fn byte_len(&self) -> u64 {
        self.codes.len() as u64 * 2
    }

    fn write_to(&self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(&to_bytes(DType::F16, &self.values()))
    }

    fn quantized(&self) -> Option<Arc<dyn QuantizedSource>> {
        Some(Arc::new(self.clone()))
    }
}

impl QuantizedSource for Integers {
    fn bits(&self) -> u32 {
        self.bits
    }

    fn is_signed(&self) -> bool {
        self.is_signed
    }

    fn block(&self) -> usize {
        self.block
    }

    fn read(&self, blocks: Range<usize>, codes: &mut [u8], scales: &mut [f32], minimums: &mut [f32]) {
        let elements = blocks.start * self.block..blocks.end * self.block;
        codes[..elements.len()].copy_from_slice(&self.codes[elements]);
        scales[..blocks.len()].copy_from_slice(&self.scales[blocks.clone()]);
        minimums[..blocks.len()].copy_from_slice(&self.minimums[blocks]);
    }
}

/// How a weight ends up being stored.
pub(super) fn form_of(weight: &Weight, kind: &str) -> String {
    let precision: Precision = kind.parse().unwrap();
    let scheme = scheme(precision, weight, Opset::Ios18).unwrap().unwrap();
    WeightEncoder::new(weight.clone(), precision, scheme).form()
}

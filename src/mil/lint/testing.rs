//! Small subjects that break or keep a rule.

use std::io::{self, Write};
use std::sync::Arc;

use half::f16;

use super::{Setting, Subject, Target};
use crate::{Builder, Dim, Function, Literal, LiteralData, Model, Opset, Payload, TensorType, Type, ValueId};
use anemeter_kernels::tensor::{DType, Element, Tensor};

/// Makes a subject and what it is held against.
pub(super) type Example = fn() -> Case;

/// A subject and what it is held against.
pub(super) struct Case {
    pub(super) subject: Subject,
    pub(super) setting: Setting,
}

impl Case {
    pub(super) fn of(model: Model) -> Case {
        Case { subject: Subject::of(model), setting: Setting::default() }
    }

    pub(super) fn on(mut self, target: Target) -> Case {
        self.setting.target = target;
        self
    }

    pub(super) fn with(mut self, change: impl FnOnce(&mut Setting)) -> Case {
        change(&mut self.setting);
        self
    }

    /// Enumerates shapes of an input of the first function.
    pub(super) fn enumerated(mut self, input: &str, shapes: &[Vec<u64>]) -> Case {
        let model = &mut self.subject.packages[0].model;
        let function = model.default_function().to_owned();
        model.interface_mut(&function).unwrap().enumerate(input, shapes);
        self
    }
}

/// The function `main`.
pub(super) fn case(build: impl FnOnce(&mut Builder) -> Vec<ValueId>) -> Case {
    Case::of(Model::single(function("main", build)))
}

/// The function `main` of one fp16 input `x` and one output.
pub(super) fn on_input(dims: &[usize], build: impl FnOnce(&mut Builder, ValueId) -> ValueId) -> Case {
    case(|b| {
        let x = x(b, dims);
        vec![build(b, x)]
    })
}

/// The function `main` with nothing to say of it.
pub(super) fn plain() -> Case {
    activated("relu", &[1, 64, 1, 32])
}

/// The function `main` of one elementwise operation.
pub(super) fn activated(kind: &str, dims: &[usize]) -> Case {
    on_input(dims, |b, x| unary(b, kind, x))
}

pub(super) fn function(name: &str, build: impl FnOnce(&mut Builder) -> Vec<ValueId>) -> Function {
    let mut builder = Builder::new(name, Opset::Ios18);
    let outputs = build(&mut builder);
    builder.finish(&outputs)
}

pub(super) fn input(b: &mut Builder, name: &str, dtype: DType, dims: &[usize]) -> ValueId {
    b.input(name, TensorType::fixed(dtype, dims))
}

/// The fp16 input `x`.
pub(super) fn x(b: &mut Builder, dims: &[usize]) -> ValueId {
    input(b, "x", DType::F16, dims)
}

/// The fp16 type `[1, 64, 1, ?]`.
pub(super) fn open_type() -> TensorType {
    TensorType::new(DType::F16, vec![1usize.into(), 64usize.into(), 1usize.into(), Dim::Unknown])
}

pub(super) fn state(b: &mut Builder, name: &str, dims: &[usize]) -> ValueId {
    b.input(name, Type::State(TensorType::fixed(DType::F16, dims)))
}

pub(super) fn read(b: &mut Builder, state: ValueId) -> ValueId {
    b.op("read_state").arg("input", state).push().unwrap()
}

pub(super) fn write(b: &mut Builder, state: ValueId, data: ValueId) {
    b.op("write_state").arg("input", state).arg("data", data).push_all().unwrap();
}

pub(super) fn unary(b: &mut Builder, kind: &str, x: ValueId) -> ValueId {
    b.op(kind).arg("x", x).push().unwrap()
}

pub(super) fn binary(b: &mut Builder, kind: &str, x: ValueId, y: ValueId) -> ValueId {
    b.op(kind).arg("x", x).arg("y", y).push().unwrap()
}

pub(super) fn softmax(b: &mut Builder, x: ValueId, axis: i32) -> ValueId {
    b.op("softmax").arg("x", x).arg("axis", axis).push().unwrap()
}

pub(super) fn matmul(b: &mut Builder, x: ValueId, y: ValueId) -> ValueId {
    b.op("matmul").arg("x", x).arg("y", y).push().unwrap()
}

pub(super) fn reduce(b: &mut Builder, kind: &str, x: ValueId, axis: i32) -> ValueId {
    b.op(kind).arg("x", x).arg("axes", [axis]).arg("keep_dims", true).push().unwrap()
}

/// A 1x1 convolution with a plain fp16 weight.
pub(super) fn conv(b: &mut Builder, x: ValueId, (out, into): (usize, usize)) -> ValueId {
    let weight = b.constant("w", big(&[out, into, 1, 1]));
    conv_by(b, x, weight)
}

/// A function of one 1x1 convolution of 64 channels by a weight.
pub(super) fn convolved(weight: impl FnOnce(&mut Builder) -> ValueId) -> Case {
    on_input(&[1, 64, 1, 32], |b, x| {
        let weight = weight(b);
        conv_by(b, x, weight)
    })
}

pub(super) fn conv_by(b: &mut Builder, x: ValueId, weight: ValueId) -> ValueId {
    b.op("conv").arg("x", x).arg("weight", weight).push().unwrap()
}

/// A constant of any type in the weight file, all elements alike.
pub(super) fn filled<T: Element>(dims: &[usize], value: T) -> Literal {
    Literal::blob(&Tensor::from_slice(dims, &vec![value; dims.iter().product()]).unwrap())
}

/// A constant of a type narrower than a byte, all zero.
pub(super) fn zeros(dtype: DType, dims: &[usize]) -> Literal {
    let bytes = vec![0u8; dtype.byte_len(dims.iter().product()).unwrap()];
    Literal { ty: TensorType::fixed(dtype, dims).into(), data: LiteralData::Blob(bytes.into()) }
}

/// An fp16 weight of any size that is never written.
pub(super) fn big(dims: &[usize]) -> Literal {
    struct Claimed(u64);
    impl Payload for Claimed {
        fn byte_len(&self) -> u64 {
            self.0
        }
        fn write_to(&self, _: &mut dyn Write) -> io::Result<()> {
            Err(io::Error::other("only its size matters"))
        }
    }
    let bytes = dims.iter().map(|&d| d as u64).product::<u64>() * 2;
    Literal {
        ty: TensorType::fixed(DType::F16, dims).into(),
        data: LiteralData::Stream(Arc::new(Claimed(bytes))),
    }
}

/// A convolution's weight `[out, into, 1, 1]` with a palette per group of outputs and inputs.
pub(super) fn palette(b: &mut Builder, (out, into): (usize, usize), groups: (usize, usize)) -> ValueId {
    let lut = filled(&[groups.0, groups.1, 1, 1, 16, 1], f16::ONE);
    let indices = zeros(DType::U4, &[out, into, 1, 1]);
    b.op("constexpr_lut_to_dense").arg("indices", indices).arg("lut", lut).push().unwrap()
}

/// A convolution's weight `[out, into, 1, 1]` with a scale per output and block of inputs.
pub(super) fn scaled(b: &mut Builder, dtype: DType, (out, into): (usize, usize), blocks: usize) -> ValueId {
    let scale = filled(&[out, blocks, 1, 1], f16::ONE);
    let data = zeros(dtype, &[out, into, 1, 1]);
    b.op("constexpr_blockwise_shift_scale").arg("data", data).arg("scale", scale).push().unwrap()
}

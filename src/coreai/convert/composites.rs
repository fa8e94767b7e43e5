//! Operations that are no primitives, each with the primitives that it stands for.

use super::body::{Body, extremes, tensor};
use crate::program::{Scalar, ValueId};

/// How a reduction combines elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Combine {
    Sum,
    Product,
    Max,
    Min,
}

impl Combine {
    fn composite(self) -> &'static str {
        match self {
            Combine::Sum => "reduce_sum_v1",
            Combine::Product => "reduce_product_v1",
            Combine::Max => "reduce_max_v1",
            Combine::Min => "reduce_min_v1",
        }
    }

    fn primitive(self) -> &'static str {
        match self {
            Combine::Sum => "primitive.add_v1",
            Combine::Product => "primitive.mul_v1",
            Combine::Max => "primitive.maximum_v1",
            Combine::Min => "primitive.minimum_v1",
        }
    }

    /// What leaves every element as it is; minus infinity is none that the Neural Engine computes with.
    fn neutral(self, element: Scalar) -> f64 {
        match self {
            Combine::Sum => 0.0,
            Combine::Product => 1.0,
            Combine::Max => extremes(element).0,
            Combine::Min => extremes(element).1,
        }
    }
}

impl Body {
    /// Reduces some axes to size one.
    pub(super) fn reduce(&mut self, combine: Combine, x: ValueId, axes: &[usize]) -> ValueId {
        let signed: Vec<i64> = axes.iter().map(|&axis| axis as i64).collect();
        let axes_value = self.indices(&signed);
        self.reduce_along(combine, x, axes_value, axes)
    }

    fn reduce_along(&mut self, combine: Combine, x: ValueId, along: ValueId, axes: &[usize]) -> ValueId {
        let (element, mut dims) = (self.element(x), self.dims(x));
        axes.iter().for_each(|&axis| dims[axis] = 1);
        let ty = tensor(element, &dims);
        self.composite(combine.composite(), &[x, along], ty.clone(), |body, arguments| {
            let start = body.splat(element, &[], combine.neutral(element));
            let scalar = tensor(element, &[]);
            let mut step = Body::new(vec![scalar.clone(), scalar]);
            let (sum, next) = (step.argument(0), step.argument(1));
            let combined = step.binary(combine.primitive(), sum, next);
            let operands = [arguments[0], arguments[1], start];
            let region = step.yielding(&[combined]);
            body.push_op("primitive.reduce_v1", &operands, vec![ty], Vec::new(), vec![region])[0]
        })
    }

    /// The mean over some axes, which become size one.
    pub(super) fn mean(&mut self, x: ValueId, axes: &[usize]) -> ValueId {
        let (element, mut dims) = (self.element(x), self.dims(x));
        let count: u64 = axes.iter().map(|&axis| dims[axis]).product();
        axes.iter().for_each(|&axis| dims[axis] = 1);
        let signed: Vec<i64> = axes.iter().map(|&axis| axis as i64).collect();
        let along = self.indices(&signed);
        self.composite("reduce_mean_v1", &[x, along], tensor(element, &dims), |body, arguments| {
            let wide = body.cast(arguments[0], Scalar::F32);
            let sum = body.reduce_along(Combine::Sum, wide, arguments[1], axes);
            let mean = body.with_number("primitive.divide_v1", sum, count as f64);
            body.cast(mean, element)
        })
    }

    /// Softmax along an axis.
    pub(super) fn softmax(&mut self, x: ValueId, axis: usize) -> ValueId {
        let (ty, along) = (self.ty(x).clone(), self.index(axis as i64));
        self.composite("softmax_v1", &[x, along], ty, |body, arguments| {
            let along = body.reshape(arguments[1], &[1]);
            let most = body.reduce_along(Combine::Max, arguments[0], along, &[axis]);
            let shifted = body.binary("primitive.sub_v1", arguments[0], most);
            let powers = body.unary("primitive.exp_v1", shifted);
            let sum = body.reduce_along(Combine::Sum, powers, along, &[axis]);
            body.binary("primitive.divide_v1", powers, sum)
        })
    }

    /// The logistic function.
    pub(super) fn sigmoid(&mut self, x: ValueId) -> ValueId {
        let ty = self.ty(x).clone();
        self.composite("sigmoid_v1", &[x], ty, |body, arguments| {
            let negative = body.negative(arguments[0]);
            let power = body.unary("primitive.exp_v1", negative);
            let sum = body.with_number("primitive.add_v1", power, 1.0);
            body.inverse(sum)
        })
    }

    /// `x` times its sigmoid.
    pub(super) fn silu(&mut self, x: ValueId) -> ValueId {
        let ty = self.ty(x).clone();
        self.composite("silu_v1", &[x], ty, |body, arguments| {
            let gate = body.sigmoid(arguments[0]);
            body.binary("primitive.mul_v1", arguments[0], gate)
        })
    }

    /// The larger of `x` and zero.
    pub(super) fn relu(&mut self, x: ValueId) -> ValueId {
        let ty = self.ty(x).clone();
        self.composite("relu_v1", &[x], ty, |body, arguments| {
            body.with_number("primitive.maximum_v1", arguments[0], 0.0)
        })
    }

    /// `-x`.
    pub(super) fn negative(&mut self, x: ValueId) -> ValueId {
        let (element, dims) = (self.element(x), self.dims(x));
        let zero = self.splat(element, &dims, 0.0);
        self.binary("primitive.sub_v1", zero, x)
    }

    /// `1 / x`.
    pub(super) fn inverse(&mut self, x: ValueId) -> ValueId {
        let (element, dims) = (self.element(x), self.dims(x));
        let one = self.splat(element, &dims, 1.0);
        self.binary("primitive.divide_v1", one, x)
    }
}

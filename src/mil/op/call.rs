//! One application of an operation: its arguments, by parameter name.

use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use super::{Decode, Default, Numerics, OpDef, OpError, Presence, Result, Weight};
use crate::{Opset, TensorType, Type};
use anemeter_kernels::convert;
use anemeter_kernels::tensor::{DType, Tensor, TensorView, shape};

/// A short list of integers, off the heap.
pub type Ints = SmallVec<[i64; 8]>;

/// Where a call's arguments come from. Indices are into the definition's parameter list.
pub trait Bindings {
    /// How many values are bound to a parameter; 0 if it was left out.
    fn count(&self, param: usize) -> usize;

    /// The type of the `index`-th value bound to a parameter.
    fn ty(&self, param: usize, index: usize) -> &Type;

    /// Its value, if that is known now.
    fn value(&self, param: usize, index: usize) -> Option<ArgValue<'_>>;

    /// The types a nested block of the operation yields, for control flow.
    fn block_outputs(&self, block: usize) -> Option<Vec<Type>> {
        let _ = block;
        None
    }
}

/// A value that is known when an operation is called.
#[derive(Debug, Clone, Copy)]
pub enum ArgValue<'a> {
    /// A tensor in working memory.
    View(TensorView<'a>),
    /// A constant that may be kept.
    Shared(&'a Tensor),
    /// A compressed weight.
    Packed(&'a Arc<dyn Decode>),
}

/// The arguments of one operation, as its type rule and its evaluation see them.
pub struct Call<'a> {
    def: &'static OpDef,
    opset: Opset,
    numerics: Numerics,
    outputs: usize,
    bindings: &'a dyn Bindings,
}

impl<'a> Call<'a> {
    /// A call of `def` that is to give `outputs` values.
    pub fn new(def: &'static OpDef, opset: Opset, outputs: usize, bindings: &'a dyn Bindings) -> Call<'a> {
        Call { def, opset, numerics: Numerics::Fast, outputs, bindings }
    }

    /// The same call under another arithmetic.
    pub fn with_numerics(mut self, numerics: Numerics) -> Call<'a> {
        self.numerics = numerics;
        self
    }

    /// The opset of the function.
    pub fn opset(&self) -> Opset {
        self.opset
    }

    /// How many outputs the program declares.
    pub fn output_count(&self) -> usize {
        self.outputs
    }

    /// Whether intermediates of an operation on `dtype` are to be rounded to fp16.
    pub fn rounds(&self, dtype: DType) -> bool {
        self.numerics == Numerics::Fp16Exact && dtype == DType::F16
    }

    /// Types yielded by a nested block.
    pub fn block_outputs(&self, block: usize) -> Result<Vec<Type>> {
        self.bindings.block_outputs(block).ok_or_else(|| op_error!("nested block {block} is missing"))
    }

    fn index(&self, name: &str) -> usize {
        let found = self.def.params.iter().position(|p| p.name == name);
        found.unwrap_or_else(|| unreachable!("`{}` declares no parameter `{name}`", self.def.name))
    }

    /// How many values are bound to a parameter.
    pub fn count(&self, name: &str) -> usize {
        self.bindings.count(self.index(name))
    }

    /// Whether a parameter was given.
    pub fn has(&self, name: &str) -> bool {
        self.count(name) > 0
    }

    /// The type bound to a parameter.
    pub fn any_ty(&self, name: &str) -> Result<&'a Type> {
        match self.count(name) {
            0 => refuse!("`{name}` is missing"),
            _ => Ok(self.bindings.ty(self.index(name), 0)),
        }
    }

    /// The tensor type bound to a parameter.
    pub fn ty(&self, name: &str) -> Result<&'a TensorType> {
        let ty = self.any_ty(name)?;
        ty.tensor().ok_or_else(|| op_error!("`{name}` is a {ty}, not a tensor"))
    }

    /// The tensor type bound to a parameter that may be left out.
    pub fn opt_ty(&self, name: &str) -> Result<Option<&'a TensorType>> {
        if self.has(name) { self.ty(name).map(Some) } else { Ok(None) }
    }

    /// The type of the `i`-th value of a list parameter.
    pub fn any_ty_at(&self, name: &str, i: usize) -> &'a Type {
        self.bindings.ty(self.index(name), i)
    }

    /// The tensor type of the `i`-th value of a list parameter.
    pub fn ty_at(&self, name: &str, i: usize) -> Result<&'a TensorType> {
        let count = self.bindings.count(self.index(name));
        refuse_if!(i >= count, "`{name}` has {count} values; {} are needed", i + 1);
        let ty = self.any_ty_at(name, i);
        ty.tensor().ok_or_else(|| op_error!("`{name}` {i} is a {ty}, not a tensor"))
    }

    /// The value of the `i`-th binding of a parameter, if it is known now.
    pub fn value_at(&self, name: &str, i: usize) -> Option<ArgValue<'a>> {
        let param = self.index(name);
        if i < self.bindings.count(param) { self.bindings.value(param, i) } else { None }
    }

    /// The value of a parameter, if it was given and is known now.
    pub fn known(&self, name: &str) -> Option<TensorView<'a>> {
        self.known_at(name, 0)
    }

    /// The value of the `i`-th binding of a parameter, if it is known now and plain.
    pub fn known_at(&self, name: &str, i: usize) -> Option<TensorView<'a>> {
        match self.value_at(name, i)? {
            ArgValue::View(view) => Some(view),
            ArgValue::Shared(tensor) => Some(tensor.view()),
            ArgValue::Packed(_) => None,
        }
    }

    /// The tensor bound to a parameter.
    pub fn tensor(&self, name: &str) -> Result<TensorView<'a>> {
        self.tensor_at(name, 0)
    }

    /// The `i`-th tensor of a list parameter.
    pub fn tensor_at(&self, name: &str, i: usize) -> Result<TensorView<'a>> {
        self.known_at(name, i).ok_or_else(|| self.unknown(name))
    }

    /// The tensor of a parameter that may be left out.
    pub fn opt_tensor(&self, name: &str) -> Result<Option<TensorView<'a>>> {
        if self.has(name) { self.tensor(name).map(Some) } else { Ok(None) }
    }

    /// A weight, plain or compressed.
    pub fn weight(&self, name: &str) -> Result<Weight<'a>> {
        self.weight_at(name, 0)
    }

    /// The `i`-th weight of a list parameter.
    pub fn weight_at(&self, name: &str, i: usize) -> Result<Weight<'a>> {
        match self.value_at(name, i) {
            Some(ArgValue::View(view)) => Ok(Weight::Dense(view)),
            Some(ArgValue::Shared(tensor)) => Ok(Weight::Dense(tensor.view())),
            Some(ArgValue::Packed(packed)) => Ok(Weight::Packed(&**packed)),
            None => Err(self.unknown(name)),
        }
    }

    /// A constant that can be kept after the call.
    pub fn shared(&self, name: &str) -> Result<Tensor> {
        match self.value_at(name, 0) {
            Some(ArgValue::Shared(tensor)) => Ok(tensor.clone()),
            Some(ArgValue::View(view)) => Ok(view.to_tensor()),
            _ => Err(self.unknown(name)),
        }
    }

    fn unknown(&self, name: &str) -> OpError {
        let reason = if self.has(name) { "is not known" } else { "is missing" };
        op_error!("`{name}` {reason}")
    }

    fn default_of(&self, name: &str) -> Option<Default> {
        match self.def.params[self.index(name)].presence {
            Presence::Default(default) => Some(default),
            Presence::Required | Presence::Optional => None,
        }
    }

    /// A scalar integer, or its default.
    pub fn int(&self, name: &str) -> Result<i64> {
        match (self.has(name), self.default_of(name)) {
            (false, Some(Default::Int(default))) => Ok(i64::from(default)),
            _ => match self.tensor(name)? {
                view if view.len() == 1 => Ok(convert::to_ints(&view)?[0]),
                view => refuse!("`{name}` holds {} integers, not one", view.len()),
            },
        }
    }

    /// A list of integers that must be known.
    pub fn ints(&self, name: &str) -> Result<Ints> {
        match (self.has(name), self.default_of(name)) {
            (false, Some(Default::Int(default))) => Ok(smallvec![i64::from(default)]),
            _ => widened(name, &self.tensor(name)?),
        }
    }

    /// A list of integers if it was given and is known now.
    pub fn known_ints(&self, name: &str) -> Result<Option<Ints>> {
        self.known(name).map(|view| widened(name, &view)).transpose()
    }

    /// A scalar number, or its default.
    pub fn float(&self, name: &str) -> Result<f32> {
        match (self.has(name), self.default_of(name)) {
            (false, Some(Default::Float(default))) => Ok(default),
            _ => {
                let view = self.tensor(name)?;
                let mut value = [0.0];
                refuse_if!(view.len() != 1, "`{name}` holds {} numbers, not one", view.len());
                convert::to_f32(&view, 0..1, &mut value);
                Ok(value[0])
            }
        }
    }

    /// A scalar boolean, or its default.
    pub fn bool(&self, name: &str) -> Result<bool> {
        match (self.has(name), self.default_of(name)) {
            (false, Some(Default::Bool(default))) => Ok(default),
            _ => match self.tensor(name)?.bools()? {
                [single] => Ok(*single != 0),
                more => refuse!("`{name}` holds {} booleans, not one", more.len()),
            },
        }
    }

    /// A string, or its default.
    pub fn text(&self, name: &str) -> Result<&'a str> {
        match (self.has(name), self.default_of(name)) {
            (false, Some(Default::Text(default))) => Ok(default),
            _ => std::str::from_utf8(self.tensor(name)?.bytes())
                .map_err(|_| op_error!("`{name}` is not valid UTF-8")),
        }
    }

    /// An axis parameter as an index below `rank`.
    pub fn axis(&self, name: &str, rank: usize) -> Result<usize> {
        let given = self.int(name)?;
        shape::axis(given, rank)
            .ok_or_else(|| op_error!("`{name}` is {given}, outside a tensor of rank {rank}"))
    }
}

/// The integers of a list parameter. None that makes sense is long; a computed one may be, and is not copied.
fn widened(name: &str, view: &TensorView<'_>) -> Result<Ints> {
    const LONGEST: usize = 1 << 16;
    refuse_if!(view.len() > LONGEST, "`{name}` holds {} integers, at most {LONGEST} are taken", view.len());
    Ok(convert::to_ints(view)?)
}

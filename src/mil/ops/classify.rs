//! `classify`: the label with the highest probability, and every label's probability.
//!
//! Its classes are a list of strings, which is no tensor, so the executor carries it out: the label is kept as a scalar, the
//! dictionary as the tensor of its values in the order of the classes.

use super::prelude::*;
use crate::{Binding, Function, Literal, LiteralData, Operation};
use anemeter_kernels::tensor::Tensor;

pub(super) const OPS: &[OpDef] = &[executed(OpClass::Elementwise, "classify", Ios15, infer)
    .takes(&[Param::value("probabilities", &[DType::F32]), Param::constant("classes", ANY)])];

fn infer(call: &Call<'_>) -> Result<Vec<Type>> {
    let ty = call.any_ty("classes")?;
    let Type::List(label, length) = ty else { refuse!("`classes` is a {ty}, not a list") };
    if !matches!(label.tensor(), Some(label) if matches!(label.dtype, DType::String | DType::I64)) {
        refuse!("`classes` holds {label}, neither strings nor int64");
    }
    let probabilities = call.ty("probabilities")?;
    let count = probabilities.concrete().and_then(|shape| shape::element_count(&shape));
    match (count, length.size()) {
        (Some(count), Some(classes)) if count != classes => {
            refuse!("`probabilities` is a {probabilities} for {classes} classes")
        }
        _ => Ok(vec![
            (**label).clone(),
            Type::Dictionary(label.clone(), Box::new(TensorType::scalar(DType::F64).into())),
        ]),
    }
}

/// What a function classifies.
#[derive(Debug, Clone)]
pub struct Classifier<'f> {
    /// The output with the label.
    pub label: &'f str,
    /// The output with the probability of every class.
    pub probabilities: &'f str,
    /// The classes: scalars, either strings or int64.
    pub classes: Vec<Tensor>,
}

impl<'f> Classifier<'f> {
    /// The classifier of a function, if it is one.
    pub fn of(function: &'f Function) -> Option<Classifier<'f>> {
        let op = function.body.operations.iter().find(|op| op.kind == "classify")?;
        let &[label, probabilities] = &op.outputs[..] else { return None };
        Some(Classifier {
            label: &function.value(label).name,
            probabilities: &function.value(probabilities).name,
            classes: classes(function, op)?,
        })
    }
}

/// The classes of a `classify`, which are written in place or as a constant.
pub fn classes(function: &Function, op: &Operation) -> Option<Vec<Tensor>> {
    let argument = op.inputs.iter().find(|argument| argument.parameter == "classes")?;
    let literal: &Literal = match argument.bindings.first()? {
        Binding::Literal(literal) => literal,
        Binding::Value(id) => {
            let defines = |op: &&Operation| op.kind == "const" && op.outputs.contains(id);
            function.body.operations.iter().find(defines)?.attribute("val")?
        }
    };
    match &literal.data {
        LiteralData::Items(items) => items.iter().map(Literal::tensor).collect(),
        _ => None,
    }
}

/// A class as people read it.
pub fn class_name(class: &TensorView<'_>) -> String {
    match class.slice::<i64>() {
        Ok([number]) => number.to_string(),
        _ => String::from_utf8_lossy(class.bytes()).into_owned(),
    }
}

/// The index of the highest probability, the first if there are several; nothing for no classes.
pub fn most_likely(probabilities: &[f32]) -> Option<usize> {
    let numbered = probabilities.iter().copied().enumerate();
    let is_better = |best: f32, next: f32| next > best || best.is_nan() && !next.is_nan();
    let best = numbered.reduce(|best, next| if is_better(best.1, next.1) { next } else { best });
    best.map(|(index, _)| index)
}

#[cfg(test)]
mod tests {
    use super::super::typed::infer;
    use super::*;

    #[test]
    fn the_first_of_the_highest_probabilities_is_the_most_likely() {
        assert_eq!(most_likely(&[0.2, 0.4, 0.4]), Some(1));
        assert_eq!(most_likely(&[f32::NAN, 0.4, f32::NAN, 0.5]), Some(3));
        assert_eq!(most_likely(&[f32::NAN, f32::NAN]), Some(0));
        assert_eq!(most_likely(&[]), None);
    }

    #[test]
    fn labels_and_probabilities_are_counted() {
        let classes = Type::List(Box::new(TensorType::scalar(DType::String).into()), Dim::Fixed(3));
        let call = |shape: &[usize]| {
            let probabilities = TensorType::fixed(DType::F32, shape).into();
            let arguments = [("probabilities", probabilities), ("classes", classes.clone())];
            infer("classify", Ios15, &Typed { arguments: &arguments, ..Typed::default() })
        };
        let types = call(&[1, 3]).unwrap();
        assert_eq!(types[0].to_string(), "tensor<string, []>");
        assert_eq!(types[1].to_string(), "dict<tensor<string, []>, tensor<fp64, []>>");
        refused(call(&[1, 4]), "`probabilities` is a tensor<fp32, [1, 4]> for 3 classes");
    }
}

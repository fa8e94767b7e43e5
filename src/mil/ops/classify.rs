//! `classify`: the label with the highest probability, and every label's probability.
//!
//! Its results are a label and a dictionary, which are no tensors, so the executor makes them.

use super::prelude::*;

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

#[cfg(test)]
mod tests {
    use super::super::typed::infer;
    use super::*;

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

//! `identity`: the same value under another name.

use crate::mil::Opset;
use crate::mil::op::domain::ANY;
use crate::mil::op::{Call, Eval, OpDef, OpError, Outputs, Param};
use crate::tensor::DType;

pub(super) const OPS: &[OpDef] = &[OpDef {
    name: "identity",
    since: Opset::Ios15,
    params: &[Param::value("x", ANY)],
    infer: |call| Ok(vec![call.any_ty("x")?.clone()]),
    eval: Eval::Kernel(eval),
}];

fn eval(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result<(), OpError> {
    let x = call.tensor("x")?;
    if x.dtype() == DType::String {
        return Err(OpError::new("`x` is a string, which cannot be computed"));
    }
    outputs.resize(0, x.shape())?.bytes().copy_from_slice(x.bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::testing::run;
    use super::*;
    use crate::tensor::Tensor;

    #[test]
    fn bytes_are_kept() {
        let x = Tensor::from_slice(&[3], &[-1i8, 0, 1]).unwrap();
        assert_eq!(run("identity", Opset::Ios15, &[("x", x.clone())]).unwrap(), [x]);
        let text = Tensor::from_text("abc");
        assert!(run("identity", Opset::Ios15, &[("x", text)]).is_err());
    }
}

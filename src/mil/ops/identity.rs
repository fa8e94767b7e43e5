//! `identity`: the same value under another name.

use super::prelude::*;

pub(super) const OPS: &[OpDef] =
    &[define(OpClass::View, "identity", Ios15, |call| Ok(vec![call.any_ty("x")?.clone()]), eval)
        .takes(&[Param::value("x", ANY)])];

fn eval(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
    let x = call.tensor("x")?;
    refuse_if!(x.dtype() == DType::String, "`x` is a string, which cannot be computed");
    outputs.resize(0, x.shape())?.bytes().copy_from_slice(x.bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_kept() {
        let x = tensor(&[3], &[-1i8, 0, 1]);
        assert_eq!(run("identity", Ios15, &[("x", x.clone())]).unwrap(), [x]);
        let text = Tensor::from_text("abc");
        assert!(run("identity", Ios15, &[("x", text)]).is_err());
    }
}

//! `cast`, and constants that are stored narrower than they are used.

use super::Emitter;
use crate::convert::emit::Emit;
use crate::convert::error::{Result, refuse};
use crate::program::{Scalar, Type, ValueId};

pub(super) const OPS: &[(&str, Emitter)] =
    &[("cast", |e| cast(e, "x")), ("constexpr_cast", |e| cast(e, "source_val"))];

fn cast(e: &mut Emit<'_, '_, '_>, parameter: &str) -> Result<Vec<ValueId>> {
    let x = e.arg(parameter)?;
    let Type::Tensor { element: to, .. } = e.result_type()? else { refuse!("gives no tensor") };
    if to == Scalar::Bool && e.body().element(x) != Scalar::Bool {
        let (element, dims) = (e.body().element(x), e.body().dims(x));
        let zero = e.body().splat(element, &dims, 0.0);
        return Ok(vec![e.body().binary_to("primitive.not_equal_v1", x, zero, Scalar::Bool)]);
    }
    Ok(vec![e.body().cast(x, to)])
}

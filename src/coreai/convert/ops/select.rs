//! `select`: elements of one tensor or another.

use super::Emitter;
use crate::convert::emit::Emit;
use crate::convert::error::Result;
use crate::program::ValueId;

pub(super) const OPS: &[(&str, Emitter)] = &[("select", select)];

fn select(e: &mut Emit<'_, '_, '_>) -> Result<Vec<ValueId>> {
    let (cond, a, b) = (e.arg("cond")?, e.arg("a")?, e.arg("b")?);
    let (dims, ty) = (e.result_dims()?, e.result_type()?);
    let operands = [cond, a, b].map(|operand| e.body().broadcast(operand, &dims));
    Ok(vec![e.body().push("primitive.where_v1", &operands, ty)])
}

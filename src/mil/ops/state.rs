//! Reading and writing states. The executor carries them out; here are their type rules.

use crate::mil::op::domain::MOVABLE_17;
use crate::mil::op::{Call, Eval, OpDef, OpError, Param};
use crate::mil::{Opset, TensorType, Type};

pub(super) const OPS: &[OpDef] = &[
    OpDef {
        name: "read_state",
        since: Opset::Ios18,
        params: &[Param::value("input", MOVABLE_17)],
        infer: |call| Ok(vec![wrapped(call, "input")?.clone().into()]),
        eval: Eval::Executor,
    },
    OpDef {
        name: "write_state",
        since: Opset::Ios18,
        params: &[Param::value("input", MOVABLE_17), Param::value("data", MOVABLE_17)],
        infer: |call| written(call, "input", "data").map(|_| Vec::new()),
        eval: Eval::Executor,
    },
    OpDef {
        name: "coreml_update_state",
        since: Opset::Ios18,
        params: &[Param::value("state", MOVABLE_17), Param::value("value", MOVABLE_17)],
        infer: |call| Ok(vec![written(call, "state", "value")?.clone().into()]),
        eval: Eval::Executor,
    },
];

fn wrapped<'a>(call: &Call<'a>, name: &str) -> Result<&'a TensorType, OpError> {
    match call.any_ty(name)? {
        Type::State(tensor) => Ok(tensor),
        other => Err(OpError::new(format!("`{name}` is a {other}, not a state"))),
    }
}

/// What is written must be exactly of the state's type.
fn written<'a>(call: &Call<'a>, state: &str, data: &str) -> Result<&'a TensorType, OpError> {
    let (wrapped, data_ty) = (wrapped(call, state)?, call.ty(data)?);
    if wrapped != data_ty {
        return Err(OpError::new(format!("`{data}` is a {data_ty}, the state holds a {wrapped}")));
    }
    Ok(data_ty)
}

#[cfg(test)]
mod tests {
    use super::super::typed::{Typed, infer};
    use super::*;
    use crate::tensor::DType;

    #[test]
    fn only_the_wrapped_type_can_be_written() {
        let tensor = |shape: &[usize]| TensorType::fixed(DType::F16, shape);
        let state = Type::State(tensor(&[2, 3]));
        let call = |name, arguments: &[(&str, Type)]| {
            infer(name, Opset::Ios18, &Typed { arguments, ..Typed::default() })
        };
        let held = Ok(vec![tensor(&[2, 3]).into()]);
        assert_eq!(call("read_state", &[("input", state.clone())]), held);
        let update = [("state", state.clone()), ("value", tensor(&[2, 3]).into())];
        assert_eq!(call("coreml_update_state", &update), held);
        let write = |shape: &[usize]| {
            call("write_state", &[("input", state.clone()), ("data", tensor(shape).into())])
        };
        assert_eq!(write(&[2, 3]), Ok(vec![]));
        assert_eq!(
            write(&[3, 2]).unwrap_err().to_string(),
            "`data` is a tensor<fp16, [3, 2]>, the state holds a tensor<fp16, [2, 3]>"
        );
    }
}

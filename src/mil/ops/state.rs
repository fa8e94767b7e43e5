//! Reading and writing states. The executor carries them out; here are their type rules.

use super::prelude::*;

pub(super) const OPS: &[OpDef] = &[
    executed(OpClass::State, "read_state", Ios18, |call| Ok(vec![wrapped(call, "input")?.clone().into()]))
        .takes(&[Param::value("input", MOVABLE_17)]),
    executed(OpClass::State, "write_state", Ios18, |call| written(call, "input", "data").map(|_| Vec::new()))
        .takes(&[Param::value("input", MOVABLE_17), Param::value("data", MOVABLE_17)]),
    executed(OpClass::State, "coreml_update_state", Ios18, |call| {
        Ok(vec![written(call, "state", "value")?.clone().into()])
    })
    .takes(&[Param::value("state", MOVABLE_17), Param::value("value", MOVABLE_17)]),
];

fn wrapped<'a>(call: &Call<'a>, name: &str) -> Result<&'a TensorType> {
    match call.any_ty(name)? {
        Type::State(tensor) => Ok(tensor),
        other => refuse!("`{name}` is a {other}, not a state"),
    }
}

/// What is written must be exactly of the state's type.
fn written<'a>(call: &Call<'a>, state: &str, data: &str) -> Result<&'a TensorType> {
    let (wrapped, data_ty) = (wrapped(call, state)?, call.ty(data)?);
    refuse_if!(wrapped != data_ty, "`{data}` is a {data_ty}, the state holds a {wrapped}");
    Ok(data_ty)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_wrapped_type_can_be_written() {
        let tensor = |shape: &[usize]| TensorType::fixed(DType::F16, shape);
        let state = Type::State(tensor(&[2, 3]));
        let call =
            |name, arguments: &[(&str, Type)]| infer(name, Ios18, &Typed { arguments, ..Typed::default() });
        let held = Ok(vec![tensor(&[2, 3]).into()]);
        assert_eq!(call("read_state", &[("input", state.clone())]), held);
        let update = [("state", state.clone()), ("value", tensor(&[2, 3]).into())];
        assert_eq!(call("coreml_update_state", &update), held);
        let write = |shape: &[usize]| {
            call("write_state", &[("input", state.clone()), ("data", tensor(shape).into())])
        };
        assert_eq!(write(&[2, 3]), Ok(vec![]));
        refused(write(&[3, 2]), "`data` is a tensor<fp16, [3, 2]>, the state holds a tensor<fp16, [2, 3]>");
    }
}

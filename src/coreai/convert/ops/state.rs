//! States: handles, read and written in the order that tokens give.

use super::Emitter;
use crate::convert::emit::Emit;
use crate::convert::error::{Result, refuse};
use crate::program::{Type, ValueId};

pub(super) const OPS: &[(&str, Emitter)] = &[
    ("coreml_update_state", |e| {
        write(e, "state", "value")?;
        read(e, "state")
    }),
    ("read_state", |e| read(e, "input")),
    ("write_state", |e| {
        write(e, "input", "data")?;
        Ok(Vec::new())
    }),
];

fn read(e: &mut Emit<'_, '_, '_>, parameter: &str) -> Result<Vec<ValueId>> {
    let (id, handle) = (e.mil_id(parameter)?, e.arg(parameter)?);
    let Some(&token) = e.function.tokens.get(&id) else {
        refuse!("`{parameter}` is no state of the function")
    };
    let Type::Handle(content) = e.body().ty(handle).clone() else { refuse!("`{parameter}` is no handle") };
    let types = vec![*content, Type::Token];
    let results =
        e.body().push_op("dataflow.read_handle_v1", &[handle, token], types, Vec::new(), Vec::new());
    e.function.tokens.insert(id, results[1]);
    Ok(vec![e.body().unconstrained(results[0])])
}

fn write(e: &mut Emit<'_, '_, '_>, parameter: &str, data: &str) -> Result<()> {
    let (id, handle, data) = (e.mil_id(parameter)?, e.arg(parameter)?, e.arg(data)?);
    let Some(&token) = e.function.tokens.get(&id) else {
        refuse!("`{parameter}` is no state of the function")
    };
    let data = match e.body().ty(handle).clone() {
        Type::Handle(content) => match *content {
            Type::Tensor { constraints: Some(constraints), .. } => e.body().constrained(data, &constraints),
            _ => data,
        },
        _ => data,
    };
    let token = e.body().push("dataflow.write_handle_v1", &[handle, data, token], Type::Token);
    e.function.tokens.insert(id, token);
    Ok(())
}

//! What the functions of an asset take and give, as the rest of the program sees models: without any operations.

use serde::Deserialize;

use super::frame::{Spec, type_of};
use anemeter_mil::{
    ArrayType, Dim, Feature, FeatureType, Flexibility, Function, Interface, Interfaces, Model, Opset,
    TensorType, Type,
};

/// A function as a worker describes it.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Described {
    pub(super) inputs: Vec<Spec>,
    pub(super) outputs: Vec<Spec>,
    pub(super) states: Vec<Spec>,
    /// What loading it took.
    pub(super) elapsed_s: f64,
}

/// Names and dimensions are limited, since they come from outside.
const MOST_DIMS: usize = 32;

/// The model of functions; the default is `main`, or else the first.
pub(super) fn model(functions: &[(String, Described)]) -> Result<Model, String> {
    let mut made = Vec::new();
    for (name, described) in functions {
        made.push(function(name, described).map_err(|problem| format!("function `{name}`: {problem}"))?);
    }
    let flexible: Vec<Interface> = made.iter().map(interface).collect();
    let default = made.iter().find(|function| function.name == "main").or(made.first());
    let default = default.map(|function| function.name.clone()).ok_or("it has no functions")?;
    let mut model = Model::multi(made);
    model.interfaces = Interfaces::Many { functions: flexible, default };
    Ok(model)
}

fn function(name: &str, described: &Described) -> Result<Function, String> {
    let mut function = Function::new(name, Opset::Ios18);
    for port in &described.inputs {
        let ty = Type::Tensor(tensor(port)?);
        let id = function.add_value(&port.name, ty);
        function.inputs.push(id);
    }
    for port in &described.states {
        let ty = Type::State(tensor(port)?);
        let id = function.add_value(&port.name, ty);
        function.inputs.push(id);
    }
    for port in &described.outputs {
        let ty = Type::Tensor(tensor(port)?);
        let id = function.add_value(&port.name, ty);
        function.body.outputs.push(id);
    }
    Ok(function)
}

fn tensor(port: &Spec) -> Result<TensorType, String> {
    let Spec { name, dtype, shape } = port;
    let known = type_of(dtype).ok_or_else(|| format!("`{name}` is of type {dtype:?}, which is not known"))?;
    if shape.len() > MOST_DIMS {
        return Err(format!("`{name}` has {} dimensions", shape.len()));
    }
    let dim = |&size: &i64| u64::try_from(size).map_or(Dim::Unknown, Dim::Fixed);
    Ok(TensorType::new(known, shape.iter().map(dim).collect()))
}

/// The interface that a function's types imply, with open dimensions as ranges.
fn interface(function: &Function) -> Interface {
    let mut interface = Interface::of(function);
    let types = function.values.iter().map(|value| (value.name.as_str(), &value.ty));
    let types: Vec<(&str, &Type)> = types.collect();
    let features = interface.inputs.iter_mut().chain(&mut interface.outputs).chain(&mut interface.states);
    for Feature { name, ty, .. } in features {
        let (FeatureType::Array(array) | FeatureType::State(array)) = ty else { continue };
        let declared = types.iter().find(|(of, _)| of == name).map(|(_, ty)| *ty);
        let (Some(Type::Tensor(declared) | Type::State(declared)), true) = (declared, array.shape.is_empty())
        else {
            continue;
        };
        open(array, declared);
    }
    interface
}

fn open(array: &mut ArrayType, declared: &TensorType) {
    if declared.concrete().is_some() {
        return;
    }
    let range = |dim: &Dim| match dim.size() {
        Some(size) => (size as u64, Some(size as u64)),
        None => (1, None),
    };
    array.flexibility = Flexibility::Ranges(declared.shape.iter().map(range).collect());
}

#[cfg(test)]
mod tests {
    use super::*;
    use anemeter_kernels::tensor::DType;

    fn port(name: &str, dtype: &str, shape: &[i64]) -> Spec {
        Spec { name: name.to_owned(), dtype: dtype.to_owned(), shape: shape.to_vec() }
    }

    fn described(inputs: Vec<Spec>, outputs: Vec<Spec>, states: Vec<Spec>) -> Described {
        Described { inputs, outputs, states, elapsed_s: 0.0 }
    }

    #[test]
    fn open_dimensions_are_ranges_and_states_are_told_apart() {
        let main = described(
            vec![port("ids", "int32", &[1, -1])],
            vec![port("logits", "float32", &[1, -1, 48])],
            vec![port("keyCache", "float16", &[2, 1, 4, -1, 16])],
        );
        let other = described(vec![port("x", "uint16", &[1, 8])], vec![port("y", "float32", &[])], vec![]);
        let model = model(&[("other".to_owned(), other), ("main".to_owned(), main)]).unwrap();
        assert_eq!(model.default_function(), "main");
        let main = model.interface("main").unwrap();
        let FeatureType::Array(ids) = &main.inputs[0].ty else { panic!("no tensor") };
        assert_eq!(
            (ids.dtype, &ids.flexibility),
            (DType::I32, &Flexibility::Ranges(vec![(1, Some(1)), (1, None)]))
        );
        assert!(matches!(&main.states[0].ty, FeatureType::State(state) if state.dtype == DType::F16));
        assert_eq!((main.inputs.len(), main.outputs.len(), main.states.len()), (1, 1, 1));
        let FeatureType::Array(x) = &model.interface("other").unwrap().inputs[0].ty else {
            panic!("no tensor")
        };
        assert_eq!((&x.shape[..], &x.flexibility), (&[1, 8][..], &Flexibility::Fixed));
    }

    #[test]
    fn what_is_no_tensor_is_refused_by_name() {
        let wrong =
            |port: Spec| model(&[("f".to_owned(), described(vec![port], vec![], vec![]))]).unwrap_err();
        insta::assert_snapshot!(wrong(port("image", "other", &[])), @r#"function `f`: `image` is of type "other", which is not known"#);
        insta::assert_snapshot!(wrong(port("x", "float32", &[1; 40])), @"function `f`: `x` has 40 dimensions");
        assert_eq!(model(&[]).unwrap_err(), "it has no functions");
    }
}

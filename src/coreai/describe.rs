//! What the functions of an asset take and give, as the rest of the program sees models: without operations.

use std::path::Path;

use crate::asset::Asset;
use crate::error::{AssetError, Result, quoted};
use crate::{Dim, Graph, Program, Scalar, Type};
use anemeter_kernels::tensor::DType;
use anemeter_mil::package::Package;
use anemeter_mil::{
    ArrayType, Dim as MilDim, FeatureType, Flexibility, Function, Interface, Interfaces, Model, Opset,
    TensorType, Type as MilType,
};

/// The function that is meant where none is named, if there is one of this name.
const DEFAULT: &str = "main";

/// Opens an asset and describes it.
pub fn open(path: &Path) -> Result<Package> {
    Asset::open(path)?.described()
}

impl Asset {
    /// What its functions take and give. Weights stay where they are.
    pub fn described(&self) -> Result<Package> {
        let model = model(self.program()).map_err(|e| e.in_file(&self.program_path()))?;
        Ok(Package::of_asset(self.path(), model, self.program_path(), self.file_len()))
    }
}

/// The functions of a program; the default is `main`, or else the first.
fn model(program: &Program) -> Result<Model> {
    let functions = program.graphs.iter().filter(|graph| !graph.is_private).map(function);
    let made: Vec<Function> = functions.collect::<Result<_>>()?;
    let default = made.iter().find(|function| function.name == DEFAULT).or(made.first());
    let default = default.map(|function| function.name.clone());
    let default = default.ok_or_else(|| AssetError::program("it has no functions"))?;
    let flexible = made.iter().map(interface).collect();
    let mut model = Model::multi(made);
    model.interfaces = Interfaces::Many { functions: flexible, default };
    Ok(model)
}

fn function(graph: &Graph) -> Result<Function> {
    let mut function = Function::new(&graph.name, Opset::Ios18);
    for port in &graph.inputs {
        let ty = typed(&port.name, &port.ty).map_err(|e| e.in_graph(&graph.name))?;
        let Some(ty) = ty else { continue };
        let id = function.add_value(&port.name, ty);
        function.inputs.push(id);
    }
    for port in &graph.outputs {
        let ty = typed(&port.name, &port.ty).map_err(|e| e.in_graph(&graph.name))?;
        let Some(ty) = ty else { continue };
        let id = function.add_value(&port.name, ty);
        function.body.outputs.push(id);
    }
    Ok(function)
}

/// The type of an input, output or state; none of what only orders reads and writes.
fn typed(name: &str, ty: &Type) -> Result<Option<MilType>> {
    let unknown = || AssetError::unsupported(format!("{} is a {ty}, not a tensor", quoted(name)));
    Ok(match ty {
        Type::Token => None,
        Type::Tensor { dims, element, .. } => Some(MilType::Tensor(tensor(name, dims, *element)?)),
        Type::Scalar(element) => Some(MilType::Tensor(tensor(name, &[], *element)?)),
        Type::Handle(inner) => match &**inner {
            Type::Tensor { dims, element, .. } => Some(MilType::State(tensor(name, dims, *element)?)),
            _ => return Err(unknown()),
        },
        _ => return Err(unknown()),
    })
}

fn tensor(name: &str, dims: &[Dim], element: Scalar) -> Result<TensorType> {
    let dtype = dtype(element).ok_or_else(|| {
        let element = element.name();
        AssetError::unsupported(format!("{} has elements of {element}, which no array has", quoted(name)))
    })?;
    let dim = |dim: &Dim| match dim {
        Dim::Fixed(size) => MilDim::Fixed(*size),
        Dim::Dynamic => MilDim::Unknown,
    };
    Ok(TensorType::new(dtype, dims.iter().map(dim).collect()))
}

/// An element type that arrays outside of a program have.
fn dtype(element: Scalar) -> Option<DType> {
    Some(match element {
        Scalar::Bool => DType::Bool,
        Scalar::F16 => DType::F16,
        Scalar::F32 => DType::F32,
        Scalar::F64 => DType::F64,
        Scalar::Bf16 => DType::BF16,
        Scalar::F8E4M3Fn => DType::F8E4M3FN,
        Scalar::F8E5M2 => DType::F8E5M2,
        Scalar::I8 => DType::I8,
        Scalar::I16 => DType::I16,
        Scalar::I32 => DType::I32,
        Scalar::I64 => DType::I64,
        Scalar::U8 => DType::U8,
        Scalar::U16 => DType::U16,
        Scalar::U32 => DType::U32,
        Scalar::U64 => DType::U64,
        _ => return None,
    })
}

/// The interface that a function's types imply, with open dimensions as ranges.
fn interface(function: &Function) -> Interface {
    let mut interface = Interface::of(function);
    let declared = |name: &str, is_state: bool| {
        let mut values = function.values.iter().filter(|value| value.name == name);
        values.find_map(|value| match &value.ty {
            MilType::Tensor(ty) if !is_state => Some(ty.clone()),
            MilType::State(ty) if is_state => Some(ty.clone()),
            _ => None,
        })
    };
    let features = interface.inputs.iter_mut().chain(&mut interface.outputs).chain(&mut interface.states);
    for feature in features {
        let is_state = matches!(feature.ty, FeatureType::State(_));
        let (FeatureType::Array(array) | FeatureType::State(array)) = &mut feature.ty else { continue };
        if let Some(declared) = declared(&feature.name, is_state) {
            open_dims(array, &declared);
        }
    }
    interface
}

fn open_dims(array: &mut ArrayType, declared: &TensorType) {
    if declared.concrete().is_some() {
        return;
    }
    let range = |dim: &MilDim| match dim.size() {
        Some(size) => (size as u64, Some(size as u64)),
        None => (1, None),
    };
    array.flexibility = Flexibility::Ranges(declared.shape.iter().map(range).collect());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Attribute, Port, Region};

    fn tensor_type(element: Scalar, dims: &[Dim]) -> Type {
        Type::Tensor { dims: dims.to_vec(), element, constraints: None }
    }

    fn graph(name: &str, inputs: Vec<(&str, Type)>, outputs: Vec<(&str, Type)>) -> Graph {
        let ports = |ports: Vec<(&str, Type)>| {
            ports.into_iter().map(|(name, ty)| Port { name: name.to_owned(), ty }).collect()
        };
        Graph {
            name: name.to_owned(),
            inputs: ports(inputs),
            outputs: ports(outputs),
            is_private: false,
            no_inline: false,
            externalize: false,
            composite: None,
            params: Attribute::Array(Vec::new()),
            body: Region::default(),
        }
    }

    fn program(graphs: Vec<Graph>) -> Program {
        Program { version: 20_260_409, graphs }
    }

    #[test]
    fn open_dimensions_are_ranges_and_states_are_told_apart() {
        use Dim::{Dynamic, Fixed};
        let cache = [Fixed(2), Fixed(1), Fixed(4), Dynamic, Fixed(16)];
        let main = graph(
            "main",
            vec![
                ("ids", tensor_type(Scalar::I32, &[Fixed(1), Dynamic])),
                ("keyCache", Type::Handle(Box::new(tensor_type(Scalar::F16, &cache)))),
            ],
            vec![
                ("keyCache", Type::Token),
                ("logits", tensor_type(Scalar::F32, &[Fixed(1), Dynamic, Fixed(48)])),
            ],
        );
        let other = graph(
            "other",
            vec![("x", tensor_type(Scalar::U16, &[Fixed(1), Fixed(8)]))],
            vec![("y", Type::Scalar(Scalar::F32))],
        );
        let hidden = Graph { is_private: true, ..graph("hidden", vec![], vec![]) };
        let model = model(&program(vec![other, hidden, main])).unwrap();
        assert_eq!(model.default_function(), "main");
        assert!(model.interface("hidden").is_none(), "only other graphs may call it");
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
    fn what_is_no_array_is_refused_by_name() {
        let wrong = |ty: Type| model(&program(vec![graph("f", vec![("w", ty)], vec![])])).unwrap_err();
        assert_eq!(
            wrong(tensor_type(Scalar::U6, &[])).to_string(),
            "graph `f`: `w` has elements of uint6, which no array has"
        );
        assert!(wrong(Type::ParamSymbol).to_string().starts_with("graph `f`: `w` is a "));
        assert_eq!(model(&program(vec![])).unwrap_err().to_string(), "it has no functions");
    }
}

//! The interface a model declares, against its program and the rules of its specification version.

use super::Report;
use crate::{
    ArrayType, Dim, Feature, FeatureType, Flexibility, Function, Interface, Interfaces, Model, TensorType,
    Type,
};
use anemeter_kernels::tensor::DType;

/// How many shapes an input may enumerate.
const MAX_SHAPES: usize = 128;

pub(super) fn check(model: &Model, report: &mut Report) {
    let spec = model.spec_version;
    if let Interfaces::Many { functions, default } = &model.interfaces {
        if spec < 9 {
            report.add(
                default,
                "interface",
                format!("several functions need specification 9, this is {spec}"),
            );
        }
        if !functions.iter().any(|f| f.function == *default) {
            report.add(default, "interface", "the default function has no interface");
        }
    }
    for function in &model.program.functions {
        match model.interface(&function.name) {
            Some(interface) => check_function(spec, function, interface, report),
            None => report.in_function(function, "interface", "the function has no interface"),
        }
    }
    for interface in model.interfaces() {
        if model.program.function(&interface.function).is_none() {
            report.add(&interface.function, "interface", "the program has no such function");
        }
    }
}

fn check_function(spec: i32, function: &Function, interface: &Interface, report: &mut Report) {
    for &id in &function.inputs {
        let value = function.value(id);
        let listed = match value.ty {
            Type::State(_) => &interface.states,
            _ => &interface.inputs,
        };
        match listed.iter().find(|f| f.name == value.name) {
            Some(feature) => check_feature(spec, function, feature, &value.ty, report),
            None => report.in_function(function, place(&value.name), "is missing in the interface"),
        }
    }
    for feature in interface.inputs.iter().chain(&interface.states) {
        if !function.inputs.iter().any(|&id| function.value(id).name == feature.name) {
            report.in_function(function, place(&feature.name), "is not an input of the function");
        }
    }
    for &id in &function.body.outputs {
        let value = function.value(id);
        match interface.outputs.iter().find(|f| f.name == value.name) {
            Some(feature) => check_feature(spec, function, feature, &value.ty, report),
            None => report.in_function(function, place(&value.name), "is missing in the interface"),
        }
    }
    if interface.outputs.is_empty() {
        report.in_function(function, "interface", "a function has at least one output");
    }
    check_pairing(spec, function, interface, report);
}

fn place(name: &str) -> String {
    format!("feature `{name}`")
}

fn check_feature(spec: i32, function: &Function, feature: &Feature, ty: &Type, report: &mut Report) {
    let mut add = |message: String| report.in_function(function, place(&feature.name), message);
    match (&feature.ty, ty) {
        (FeatureType::Array(array), Type::Tensor(tensor)) => check_array(spec, array, tensor, &mut add),
        (FeatureType::State(array), Type::State(tensor)) => {
            if spec < 9 {
                add(format!("states need specification 9, this is {spec}"));
            }
            if array.flexibility != Flexibility::Fixed || tensor.concrete().is_none() {
                add("a state has one fixed shape".to_owned());
            }
            check_array(spec, array, tensor, &mut add);
        }
        (FeatureType::Image(_), Type::Tensor(tensor)) if tensor.shape.len() == 4 => {}
        (FeatureType::Array(_) | FeatureType::State(_) | FeatureType::Image(_), _) => {
            add(format!("the program has a {ty} here"));
        }
        _ => {}
    }
}

fn check_array(spec: i32, array: &ArrayType, tensor: &TensorType, add: &mut impl FnMut(String)) {
    if array.dtype != tensor.dtype {
        add(format!("is {} in the interface and {} in the program", array.dtype, tensor.dtype));
    }
    let needed = match array.dtype {
        DType::F16 => 7,
        DType::I8 => 10,
        _ => 6,
    };
    if spec < needed {
        add(format!("{} needs specification {needed}, this is {spec}", array.dtype));
    }
    let allowed: Vec<&Vec<u64>> = match &array.flexibility {
        Flexibility::Fixed => Vec::new(),
        Flexibility::Enumerated(shapes) => {
            if shapes.is_empty() || shapes.len() > MAX_SHAPES {
                add(format!("enumerates {} shapes; 1 to {MAX_SHAPES} are possible", shapes.len()));
            }
            if !array.shape.is_empty() && !shapes.contains(&array.shape) {
                add(format!("the default shape {:?} is not among the enumerated ones", array.shape));
            }
            shapes.iter().collect()
        }
        Flexibility::Ranges(ranges) => {
            check_ranges(array, ranges, add);
            Vec::new()
        }
    };
    let scalar = tensor.shape.is_empty();
    for shape in allowed.into_iter().chain([&array.shape].into_iter().filter(|s| !s.is_empty() && !scalar)) {
        if !fits(shape, tensor) {
            add(format!("shape {shape:?} does not fit the program's {tensor}"));
        }
    }
}

fn check_ranges(array: &ArrayType, ranges: &[(u64, Option<u64>)], add: &mut impl FnMut(String)) {
    if ranges.iter().any(|(low, high)| high.is_some_and(|high| high < *low)) {
        add(format!("a range ends before it begins: {ranges:?}"));
    }
    let inside = |(&size, (low, high)): (&u64, &(u64, Option<u64>))| {
        size >= *low && high.is_none_or(|high| size <= high)
    };
    if !array.shape.is_empty()
        && (array.shape.len() != ranges.len() || !array.shape.iter().zip(ranges).all(inside))
    {
        add(format!("the default shape {:?} is outside the ranges {ranges:?}", array.shape));
    }
}

fn fits(shape: &[u64], tensor: &TensorType) -> bool {
    tensor.rank().is_none()
        || shape.len() == tensor.shape.len()
            && shape
                .iter()
                .zip(&tensor.shape)
                .all(|(&size, &dim)| dim == Dim::Unknown || dim == Dim::Fixed(size))
}

/// Enumerated shapes of several inputs pair by index.
fn check_pairing(spec: i32, function: &Function, interface: &Interface, report: &mut Report) {
    let counts = interface.inputs.iter().filter_map(|f| Some((f.name.as_str(), f.enumerated()?.len())));
    let counts: Vec<(&str, usize)> = counts.collect();
    if counts.len() > 1 && spec < 9 {
        let message = format!("several inputs with enumerated shapes need specification 9, this is {spec}");
        report.in_function(function, "interface", message);
    }
    if counts.windows(2).any(|pair| pair[0].1 != pair[1].1) {
        let message = format!("inputs enumerate different numbers of shapes, they pair by index: {counts:?}");
        report.in_function(function, "interface", message);
    }
}

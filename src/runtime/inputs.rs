//! Inputs of a prediction against what the function allows: all problems at once.

use anemeter_kernels::tensor::TensorView;
use anemeter_mil::{ArrayType, Feature, FeatureType, Flexibility, Function, Interface};

/// Everything that is wrong with the inputs of a prediction.
pub fn check(function: &Function, interface: &Interface, inputs: &[(&str, TensorView<'_>)]) -> Vec<String> {
    let mut problems = Vec::new();
    for (name, tensor) in inputs {
        match interface.inputs.iter().find(|f| f.name == *name) {
            Some(feature) => problems.extend(check_one(name, tensor, &feature.ty)),
            None => problems.push(format!("`{name}` is not an input; inputs are {}", names(interface))),
        }
        if inputs.iter().filter(|(other, _)| other == name).count() > 1 {
            problems.push(format!("`{name}` is given twice"));
        }
    }
    for feature in interface.inputs.iter().filter(|f| !f.optional) {
        if !inputs.iter().any(|(name, _)| *name == feature.name) {
            let expected = program_type(function, &feature.name);
            problems.push(format!("`{}` is missing; it is a {expected}", feature.name));
        }
    }
    if problems.is_empty() {
        problems.extend(check_pairing(interface, inputs));
    }
    problems
}

fn names(interface: &Interface) -> String {
    let names: Vec<_> = interface.inputs.iter().map(|f| format!("`{}`", f.name)).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

fn program_type(function: &Function, name: &str) -> String {
    let value = function.inputs.iter().map(|&id| function.value(id)).find(|v| v.name == name);
    value.map_or_else(|| "value unknown to the program".to_owned(), |v| v.ty.to_string())
}

fn check_one(name: &str, tensor: &TensorView<'_>, ty: &FeatureType) -> Option<String> {
    let FeatureType::Array(array) = ty else {
        return match ty {
            FeatureType::Image(_) => None,
            _ => Some(format!("`{name}` is not a tensor input")),
        };
    };
    if tensor.dtype() != array.dtype {
        return Some(format!("`{name}` is {}, expected {}", tensor.dtype(), array.dtype));
    }
    let shape: Vec<u64> = tensor.shape().iter().map(|&d| d as u64).collect();
    match &array.flexibility {
        Flexibility::Fixed if array.shape.is_empty() || array.shape == shape => None,
        Flexibility::Fixed => Some(format!("`{name}` has shape {shape:?}, expected {:?}", array.shape)),
        Flexibility::Enumerated(shapes) if shapes.contains(&shape) => None,
        Flexibility::Enumerated(shapes) => {
            Some(format!("`{name}` has shape {shape:?}, allowed are {}", list(shapes)))
        }
        Flexibility::Ranges(ranges) if is_inside(&shape, ranges) => None,
        Flexibility::Ranges(ranges) => {
            Some(format!("`{name}` has shape {shape:?}, allowed is {}", bounds(ranges)))
        }
    }
}

fn list(shapes: &[Vec<u64>]) -> String {
    let shapes: Vec<_> = shapes.iter().map(|s| format!("{s:?}")).collect();
    shapes.join(", ")
}

fn bounds(ranges: &[(u64, Option<u64>)]) -> String {
    let ranges: Vec<_> = ranges
        .iter()
        .map(|&(low, high)| match high {
            Some(high) if high == low => format!("{low}"),
            Some(high) => format!("{low}..={high}"),
            None => format!("{low}.."),
        })
        .collect();
    format!("[{}]", ranges.join(", "))
}

fn is_inside(shape: &[u64], ranges: &[(u64, Option<u64>)]) -> bool {
    shape.len() == ranges.len()
        && shape.iter().zip(ranges).all(|(&d, &(low, high))| d >= low && high.is_none_or(|high| d <= high))
}

/// Enumerated shapes of several inputs pair by index.
fn check_pairing(interface: &Interface, inputs: &[(&str, TensorView<'_>)]) -> Option<String> {
    let enumerated: Vec<EnumeratedInput<'_>> =
        interface.inputs.iter().filter_map(|feature| EnumeratedInput::of(feature, inputs)).collect();
    let count = enumerated.iter().map(|e| e.allowed.len()).max()?;
    let paired = (0..count).any(|i| enumerated.iter().all(|e| e.allowed.get(i) == Some(&e.given)));
    let shapes: Vec<_> = enumerated.iter().map(|e| format!("`{}` {:?}", e.name, e.given)).collect();
    (!paired).then(|| format!("enumerated shapes pair by index, these do not: {}", shapes.join(", ")))
}

/// An input with enumerated shapes and the shape it was given.
struct EnumeratedInput<'a> {
    name: &'a str,
    allowed: &'a [Vec<u64>],
    given: Vec<u64>,
}

impl<'a> EnumeratedInput<'a> {
    fn of(feature: &'a Feature, inputs: &[(&str, TensorView<'_>)]) -> Option<EnumeratedInput<'a>> {
        let FeatureType::Array(ArrayType { flexibility: Flexibility::Enumerated(allowed), .. }) = &feature.ty
        else {
            return None;
        };
        let (_, given) = inputs.iter().find(|(name, _)| *name == feature.name)?;
        let given = given.shape().iter().map(|&d| d as u64).collect();
        Some(EnumeratedInput { name: &feature.name, allowed, given })
    }
}

//! Which functions are predicted, and at which shapes.

use std::collections::BTreeSet;

use super::config::{PredictConfig, ShapeText};
use super::samples::{InputSamples, Sample};
use super::{PlannedCase, at_shapes};
use anemeter_base::advice::{Advice, Remedy};
use anemeter_base::config::nearest;
use anemeter_measure::report::{Case, InputShape};
use anemeter_mil::cost;
use anemeter_mil::graph::Graph;
use anemeter_mil::package::Package;
use anemeter_mil::{Feature, FeatureType, Flexibility, Function, ImageSizes, Interface, Model};

/// More cases are not a benchmark but a mistake.
const MOST_CASES: usize = 256;
/// Inputs whose shapes are part of a case's name.
const NAMED_INPUTS: usize = 3;

/// Why functions cannot be predicted as asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub(crate) struct CaseError {
    pub(crate) problem: String,
    pub(crate) remedy: Remedy,
}

impl Advice for CaseError {
    fn remedy(&self) -> Option<Remedy> {
        Some(self.remedy.clone())
    }
}

fn refuse<T>(problem: impl Into<String>, remedy: impl Into<Remedy>) -> Result<T, CaseError> {
    Err(CaseError { problem: problem.into(), remedy: remedy.into() })
}

/// The cases of some packages, each with its file name. Samples that are given decide the shapes.
pub(crate) fn cases(
    packages: &[(String, Package)],
    config: &PredictConfig,
    given: Option<&InputSamples>,
) -> Result<Vec<PlannedCase>, CaseError> {
    let mut cases: Vec<PlannedCase> = Vec::new();
    let mut known: BTreeSet<&str> = BTreeSet::new();
    for (index, (name, package)) in packages.iter().enumerate() {
        let model = package.model();
        for function in &model.program.functions {
            known.insert(&function.name);
            let wanted = config.functions.as_ref().is_none_or(|names| names.contains(&function.name));
            if wanted {
                let several = (packages.len() > 1).then_some(name.as_str());
                let found = of_function((index, name), (model, function), several, config, given)?;
                cases.extend(found);
            }
        }
    }
    check_functions(config, &known)?;
    check_inputs(packages, config, given, &cases)?;
    if cases.len() > MOST_CASES {
        let problem =
            format!("there are {} functions and shapes, a benchmark takes {MOST_CASES}", cases.len());
        return refuse(problem, Remedy::ChooseFunctions);
    }
    if cases.is_empty() {
        return refuse("the packages have no function", Remedy::ListFunctions);
    }
    make_unique(&mut cases);
    Ok(cases)
}

/// The cases of one function.
fn of_function(
    (index, package): (usize, &str),
    (model, function): (&Model, &Function),
    shown: Option<&str>,
    config: &PredictConfig,
    given: Option<&InputSamples>,
) -> Result<Vec<PlannedCase>, CaseError> {
    let empty = Interface { function: function.name.clone(), ..Interface::default() };
    let interface = model.interface(&function.name).unwrap_or(&empty);
    let choices: Vec<(Vec<InputShape>, usize)> = match given {
        Some(given) => {
            let samples = given.of(interface).map_err(|problem| CaseError {
                problem: format!("function `{}`: {problem}", function.name.escape_debug()),
                remedy: Remedy::ChooseFunctions,
            })?;
            by_shapes(&samples, interface)
        }
        None if !config.reported.is_empty() => config.reported_shapes(package, &function.name),
        None => declared(function, interface, config)?.into_iter().map(|shapes| (shapes, 1)).collect(),
    };
    let case = |(shapes, samples): (Vec<InputShape>, usize)| {
        if let Some(of) = shapes.iter().find(|of| of.shape.contains(&0)) {
            let (input, function) = (of.input.escape_debug(), function.name.escape_debug());
            let problem = format!(
                "input `{input}` of `{function}` has the shape {:?}: there is nothing to predict with",
                of.shape
            );
            return refuse(problem, Remedy::GiveShape);
        }
        let fixed = at_shapes(interface, &shapes);
        let total = cost::of(&Graph::new(function, Some(&fixed), 0)).total;
        let name = name(shown, function, &shapes);
        let (package, function) = (package.to_owned(), function.name.clone());
        let cost::Cost { flops, weight_bytes, activation_bytes } = total;
        let case = Case { name, package, function, shapes, samples, flops, weight_bytes, activation_bytes };
        Ok(PlannedCase { package: index, case })
    };
    choices.into_iter().map(case).collect()
}

/// Samples by their shapes, in the order in which these first occur, with the number of each.
fn by_shapes(samples: &[Sample], interface: &Interface) -> Vec<(Vec<InputShape>, usize)> {
    let mut found: Vec<(Vec<InputShape>, usize)> = Vec::new();
    for sample in samples {
        let shapes = sample.shapes(interface);
        match found.iter_mut().find(|(known, _)| *known == shapes) {
            Some((_, count)) => *count += 1,
            None => found.push((shapes, 1)),
        }
    }
    found
}

/// The shapes that a function declares, or those that were asked for instead.
fn declared(
    function: &Function,
    interface: &Interface,
    config: &PredictConfig,
) -> Result<Vec<Vec<InputShape>>, CaseError> {
    let mut inputs = Vec::new();
    for feature in &interface.inputs {
        let asked = config.shapes.get(&feature.name).map_or(&[][..], Vec::as_slice);
        let allowed: Vec<Vec<u64>> = asked
            .iter()
            .map(|ShapeText(shape)| shape.clone())
            .filter(|shape| takes(feature, shape))
            .collect();
        let shapes = if allowed.is_empty() { shapes(function, feature) } else { allowed };
        inputs.push((&feature.name, shapes));
    }
    let count = inputs.iter().map(|(_, shapes)| shapes.len()).max().unwrap_or(1).max(1);
    if let Some((name, shapes)) = inputs.iter().find(|(_, shapes)| ![1, count].contains(&shapes.len())) {
        let (name, function) = (name.escape_debug(), function.name.escape_debug());
        let problem = format!(
            "input `{name}` of `{function}` has {} shapes where another has {count}: shapes pair by index",
            shapes.len()
        );
        return refuse(problem, Remedy::GiveShape);
    }
    let at = |index: usize| {
        let shape = |(name, shapes): &(&String, Vec<Vec<u64>>)| InputShape {
            input: (*name).clone(),
            shape: shapes[index.min(shapes.len() - 1)].clone(),
        };
        inputs.iter().map(shape).collect()
    };
    Ok((0..count).map(at).collect())
}

/// The shapes that an input declares: all that are enumerated, of ranges the default. Images are height and width.
fn shapes(function: &Function, feature: &Feature) -> Vec<Vec<u64>> {
    match &feature.ty {
        FeatureType::Array(array) => match &array.flexibility {
            Flexibility::Enumerated(shapes) if !shapes.is_empty() => shapes.clone(),
            _ if !array.shape.is_empty() => vec![array.shape.clone()],
            Flexibility::Ranges(ranges) => vec![ranges.iter().map(|&(low, _)| low.max(1)).collect()],
            _ => vec![of_program(function, &feature.name)],
        },
        FeatureType::Image(image) => match &image.sizes {
            ImageSizes::Enumerated(sizes) if !sizes.is_empty() => {
                sizes.iter().map(|&(width, height)| vec![height, width]).collect()
            }
            _ => vec![vec![image.height, image.width]],
        },
        _ => vec![Vec::new()],
    }
}

/// The shape of an input that only the program states; none if it leaves it open.
fn of_program(function: &Function, name: &str) -> Vec<u64> {
    let value = function.inputs.iter().map(|&id| function.value(id)).find(|value| value.name == name);
    let shape = value.and_then(|value| value.ty.tensor()?.concrete());
    shape.map(|shape| shape.iter().map(|&size| size as u64).collect()).unwrap_or_default()
}

/// Whether an input takes a shape.
fn takes(feature: &Feature, shape: &[u64]) -> bool {
    let within =
        |size: u64, (low, high): (u64, Option<u64>)| size >= low && high.is_none_or(|high| size <= high);
    match &feature.ty {
        FeatureType::Array(array) => match &array.flexibility {
            Flexibility::Fixed => array.shape.is_empty() || array.shape == shape,
            Flexibility::Enumerated(shapes) => shapes.iter().any(|known| known == shape),
            Flexibility::Ranges(ranges) => {
                shape.len() == ranges.len()
                    && shape.iter().zip(ranges).all(|(&size, &range)| within(size, range))
            }
        },
        FeatureType::Image(image) => match (&image.sizes, shape) {
            (_, &[height, width]) if (height, width) == (image.height, image.width) => true,
            (ImageSizes::Enumerated(sizes), &[height, width]) => sizes.contains(&(width, height)),
            (ImageSizes::Range { width: widths, height: heights }, &[height, width]) => {
                within(width, *widths) && within(height, *heights)
            }
            _ => false,
        },
        _ => false,
    }
}

/// A case by the package if there are several, its function, and the shapes of its first inputs.
fn name(package: Option<&str>, function: &Function, shapes: &[InputShape]) -> String {
    let package = package.map(|name| format!("{} ", name.trim_end_matches(".mlpackage"))).unwrap_or_default();
    let text = |of: &InputShape| ShapeText(of.shape.clone()).to_string();
    let shapes = match shapes {
        [] => String::new(),
        [one] => format!(" {}", text(one)),
        many => {
            let named = many.iter().take(NAMED_INPUTS).map(|of| format!(" {}={}", of.input, text(of)));
            let more = many.len().saturating_sub(NAMED_INPUTS);
            named.chain((more > 0).then(|| format!(" and {more} more"))).collect()
        }
    };
    format!("{package}{}{shapes}", function.name)
}

/// Numbers cases that differ only in what their names leave out.
fn make_unique(cases: &mut [PlannedCase]) {
    let names: Vec<String> = cases.iter().map(|planned| planned.case.name.clone()).collect();
    for (index, planned) in cases.iter_mut().enumerate() {
        let before = names[..index].iter().filter(|name| **name == planned.case.name).count();
        if before > 0 {
            planned.case.name = format!("{} ({})", planned.case.name, before + 1);
        }
    }
}

fn check_functions(config: &PredictConfig, known: &BTreeSet<&str>) -> Result<(), CaseError> {
    let mut wanted = config.functions.iter().flatten();
    let Some(missing) = wanted.find(|name| !known.contains(name.as_str())) else { return Ok(()) };
    let hint = hint(missing, known);
    let problem = format!("the packages have no function `{}`{hint}", missing.escape_debug());
    refuse(problem, Remedy::ListFunctions)
}

/// The name that was probably meant, if one is near.
fn hint(name: &str, known: &BTreeSet<&str>) -> String {
    let near = nearest(name, known.iter().copied()).filter(|(_, distance)| *distance < 3);
    near.map(|(near, _)| format!("; is `{}` meant?", near.escape_debug())).unwrap_or_default()
}

/// Refuses shapes, ranges and samples that no case uses.
fn check_inputs(
    packages: &[(String, Package)],
    config: &PredictConfig,
    given: Option<&InputSamples>,
    cases: &[PlannedCase],
) -> Result<(), CaseError> {
    let interfaces: Vec<&Interface> = cases
        .iter()
        .filter_map(|planned| packages[planned.package].1.model().interface(&planned.case.function))
        .collect();
    let names: BTreeSet<&str> =
        interfaces.iter().flat_map(|of| &of.inputs).map(|feature| feature.name.as_str()).collect();
    let unknown = |name: &str, what: &str| {
        let hint = hint(name, &names);
        let problem = format!("{what} `{}`, which is not an input{hint}", name.escape_debug());
        refuse(problem, Remedy::ListFunctions)
    };
    if let Some(name) = config.shapes.keys().find(|name| !names.contains(name.as_str())) {
        return unknown(name, "there is a shape for");
    }
    if let Some(name) = config.ranges.keys().find(|name| !names.contains(name.as_str())) {
        return unknown(name, "there is a range for");
    }
    if let Some(name) = given.and_then(|given| given.unused(&interfaces)) {
        return unknown(name, "the file of inputs has");
    }
    let are_asked = given.is_none() && config.reported.is_empty();
    for (name, shapes) in config.shapes.iter().filter(|_| are_asked) {
        let used = |shape: &ShapeText| {
            let is_it = |of: &InputShape| of.input == *name && of.shape == shape.0;
            cases.iter().any(|planned| planned.case.shapes.iter().any(is_it))
        };
        if let Some(shape) = shapes.iter().find(|shape| !used(shape)) {
            let problem = format!("no function takes the shape {shape} for `{}`", name.escape_debug());
            return refuse(problem, Remedy::ListFunctions);
        }
    }
    Ok(())
}

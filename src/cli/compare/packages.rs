//! Two packages side by side: operations, weights, inputs and outputs, sizes, cost and predicted placement.

use std::collections::BTreeMap;
use std::path::Path;

use super::{Args, print};
use crate::cli::inspect::summary::{FeatureSummary, Summary};
use crate::cli::units::{Bytes, Count};
use crate::cli::{Failure, Output, Status};
use crate::compare::SCHEMA;
use crate::evaluate::compare::document::{Differing, Packages, Placed, WeightClass};
use crate::mil::verify;
use crate::package::Package;
use crate::render::{Align, Column, Table};
use crate::{cost, lint, view};

type Facts<V> = BTreeMap<(String, String), V>;

/// What is known of a package.
struct Described {
    sizes: Facts<u64>,
    weights: Facts<WeightClass>,
    interface: Facts<String>,
    operations: Facts<usize>,
    cost: Facts<u64>,
    placement: Facts<Placed>,
}

pub(super) fn run(args: &Args, packages: [&Path; 2], output: &mut Output) -> Result<Status, Failure> {
    let compared = compare(packages)?;
    let tables = tables(&compared);
    let headline = match tables.is_empty() {
        true => "the packages have the same structure, sizes and cost",
        false => "what differs between A and B",
    };
    print((headline, &tables), &compared, args.format(), output)?;
    Ok(Status::Good)
}

fn compare([baseline, candidate]: [&Path; 2]) -> Result<Packages, Failure> {
    let (a, b) = (Described::of(baseline)?, Described::of(candidate)?);
    Ok(Packages {
        schema: SCHEMA,
        kind: "packages",
        baseline: baseline.display().to_string(),
        candidate: candidate.display().to_string(),
        sizes: differing(&a.sizes, &b.sizes),
        weights: differing(&a.weights, &b.weights),
        interface: differing(&a.interface, &b.interface),
        operations: differing(&a.operations, &b.operations),
        cost: differing(&a.cost, &b.cost),
        placement: differing(&a.placement, &b.placement),
    })
}

fn tables(compared: &Packages) -> Vec<Table> {
    let bytes = |bytes: &u64| Bytes(*bytes).to_string();
    let weights = |class: &WeightClass| {
        let WeightClass { tensors, parameters, bytes } = class;
        format!("{tensors} tensors, {} parameters, {}", Count(*parameters), Bytes(*bytes))
    };
    let placed = |placed: &Placed| {
        let share = placed.share.map_or("unknown".to_owned(), |share| format!("{:.1} %", 100.0 * share));
        format!("{share}, {} transitions", placed.transitions)
    };
    let all = [
        table("Sizes", "", &compared.sizes, bytes),
        table("Weights", "", &compared.weights, weights),
        table("Inputs, outputs and states", "", &compared.interface, String::clone),
        table("Operations", "", &compared.operations, ToString::to_string),
        table("Cost of one prediction", "From shapes, not measured.", &compared.cost, |n| {
            Count(*n).to_string()
        }),
        table("Placement", "Predicted by rules, not measured.", &compared.placement, placed),
    ];
    all.into_iter().filter(|table| !table.rows.is_empty()).collect()
}

fn table<V>(title: &str, note: &str, rows: &[Differing<V>], shown: impl Fn(&V) -> String) -> Table {
    let cell = |value: &Option<V>| value.as_ref().map_or("–".to_owned(), &shown);
    let column = |heading: &str| Column { heading: heading.to_owned(), align: Align::Left };
    let row = |row: &Differing<V>| {
        vec![row.function.clone(), row.what.clone(), cell(&row.baseline), cell(&row.candidate)]
    };
    Table {
        title: title.to_owned(),
        note: note.to_owned(),
        columns: ["function", "what", "A", "B"].map(column).to_vec(),
        rows: rows.iter().map(row).collect(),
    }
}

/// What both do not have alike, in order.
fn differing<V: Clone + PartialEq>(a: &Facts<V>, b: &Facts<V>) -> Vec<Differing<V>> {
    let mut keys: Vec<&(String, String)> = a.keys().chain(b.keys()).collect();
    keys.sort_unstable();
    keys.dedup();
    let differs = |key: &&(String, String)| a.get(*key) != b.get(*key);
    let keys = keys.into_iter().filter(differs);
    keys.map(|key| Differing {
        function: key.0.clone(),
        what: key.1.clone(),
        baseline: a.get(key).cloned(),
        candidate: b.get(key).cloned(),
    })
    .collect()
}

impl Described {
    fn of(path: &Path) -> Result<Described, Failure> {
        let package = Package::open(path)?;
        if let Some(fault) = verify::structure(package.model()).into_iter().next() {
            return Err(Failure::at(path, fault));
        }
        let summary = Summary::of(&package);
        let whole = |what: &str| (String::new(), what.to_owned());
        let sizes = [(whole("program"), summary.model_bytes), (whole("weight files"), summary.weight_bytes)];
        let weights = summary.parameters.iter().map(|class| {
            let (tensors, parameters, bytes) = (class.tensors, class.parameters, class.bytes);
            let what = format!("{}, {}", class.scheme, class.stored_type);
            (whole(&what), WeightClass { tensors, parameters, bytes })
        });
        let subject = lint::Subject::open(path)?;
        let linted = lint::lint(&subject, &lint::Setting::default(), &[])?;
        let placement = linted.placements.iter().map(|found| {
            let placed = Placed { share: found.residency_by_cost, transitions: found.transitions };
            (at(&found.function, found.shape.as_deref(), "on the Neural Engine"), placed)
        });
        Ok(Described {
            sizes: sizes.into(),
            weights: weights.collect(),
            interface: interface(&summary),
            operations: operations(&summary),
            cost: view::graphs(package.model()).flat_map(|graph| costs(&graph)).collect(),
            placement: placement.collect(),
        })
    }
}

fn at(function: &str, shape: Option<&str>, what: &str) -> (String, String) {
    let shape = shape.map(|shape| format!(" at {shape}")).unwrap_or_default();
    (format!("{function}{shape}"), what.to_owned())
}

fn costs(graph: &view::Graph<'_>) -> [((String, String), u64); 3] {
    let cost = cost::of(graph);
    let key = |what: &str| at(&cost.function, cost.shape.as_deref(), what);
    [
        (key("FLOPs"), cost.total.flops),
        (key("bytes of weights"), cost.total.weight_bytes),
        (key("other bytes"), cost.total.activation_bytes),
    ]
}

fn operations(summary: &Summary) -> Facts<usize> {
    let of = |function: &crate::cli::inspect::summary::FunctionSummary| {
        let name = function.name.clone();
        let kinds = function.operations.clone();
        kinds.into_iter().map(move |(kind, count)| ((name.clone(), kind), count))
    };
    summary.functions.iter().flat_map(of).collect()
}

fn interface(summary: &Summary) -> Facts<String> {
    let mut facts = Facts::new();
    facts.insert((String::new(), "specification".to_owned()), format!("version {}", summary.spec_version));
    for function in &summary.functions {
        facts.insert((function.name.clone(), "opset".to_owned()), function.opset.to_owned());
        let all = [("input", &function.inputs), ("output", &function.outputs), ("state", &function.states)];
        for (role, features) in all {
            for feature in features {
                facts.insert((function.name.clone(), format!("{role} {}", feature.name)), typed(feature));
            }
        }
    }
    facts
}

fn typed(feature: &FeatureSummary) -> String {
    let list = |shape: &[u64]| {
        let dims: Vec<String> = shape.iter().map(ToString::to_string).collect();
        format!("[{}]", dims.join(", "))
    };
    let shapes: Vec<String> = match feature.enumerated_shapes.is_empty() {
        true => feature.shape.iter().map(|shape| list(shape)).collect(),
        false => feature.enumerated_shapes.iter().map(|shape| list(shape)).collect(),
    };
    let range = |&(low, high): &(u64, Option<u64>)| {
        format!("{low}..{}", high.map(|high| high.to_string()).unwrap_or_default())
    };
    let ranges: Vec<String> = feature.shape_ranges.iter().map(range).collect();
    let ranges = if ranges.is_empty() { String::new() } else { format!(" within {}", ranges.join(" × ")) };
    format!("{} {}{ranges}", feature.ty, shapes.join(" or "))
}

#[cfg(test)]
mod tests {
    use super::super::text;
    use super::*;
    use crate::mil::{Builder, Literal, Model, Opset, TensorType};
    use crate::package::{WriteOptions, write};
    use crate::tensor::{DType, Tensor};
    use half::f16;

    /// A linear layer, with another operation after it if asked for.
    fn package(path: &Path, width: usize, activated: bool) {
        let mut main = Builder::new("main", Opset::Ios18);
        let x = main.input("x", TensorType::fixed(DType::F16, &[1, 64]));
        let weight = |shape: &[usize]| {
            let numbers = vec![f16::ONE; shape.iter().product()];
            Literal::blob(&Tensor::from_slice(shape, &numbers).unwrap())
        };
        let (matrix, bias) = (main.constant("w", weight(&[width, 64])), main.constant("b", weight(&[width])));
        let linear = main.op("linear").arg("x", x).arg("weight", matrix).arg("bias", bias);
        let mut y = linear.named("y").push().unwrap();
        if activated {
            y = main.op("relu").arg("x", y).named("z").push().unwrap();
        }
        let model = verify::verify(Model::single(main.finish(&[y]))).unwrap();
        write(&model, path, WriteOptions::default()).unwrap();
    }

    #[test]
    fn what_differs_is_listed_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let [a, b] = ["a.mlpackage", "b.mlpackage"].map(|name| folder.path().join(name));
        package(&a, 32, false);
        package(&b, 64, true);
        let compared = compare([&a, &b]).unwrap();
        insta::assert_snapshot!(text("what differs between A and B", &tables(&compared)));
        assert_eq!(compared.operations.len(), 1);
        assert!(tables(&compare([&a, &a]).unwrap()).is_empty());
    }
}

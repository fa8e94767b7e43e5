//! Two packages or two assets side by side: operations, weights, inputs and outputs, sizes, cost and predicted placement.

use std::path::Path;

use super::{Args, print};
use crate::cli::units::{Bytes, Count};
use crate::cli::{Failure, Output, Result, Status};
use crate::evaluate::compare::assets;
use crate::evaluate::compare::document::{Differing, Packages, PredictedPlacement, WeightClass};
use crate::evaluate::compare::packages::{PackagesError, compare};
use crate::render::Table;

pub(super) fn run(args: &Args, packages: [&Path; 2], output: &mut Output) -> Result<Status> {
    show(args, &compare(packages)?, "the packages have the same structure, sizes and cost", output)
}

pub(super) fn run_assets(args: &Args, assets: [&Path; 2], output: &mut Output) -> Result<Status> {
    show(args, &assets::compare(assets)?, "the assets have the same structure and sizes", output)
}

fn show(args: &Args, compared: &Packages, same: &str, output: &mut Output) -> Result<Status> {
    let tables = tables(compared);
    let headline = if tables.is_empty() { same } else { "what differs between A and B" };
    print((headline, &tables), compared, args.format(), output)?;
    Ok(Status::Good)
}

impl From<PackagesError> for Failure {
    fn from(error: PackagesError) -> Failure {
        match error {
            PackagesError::Package(error) => error.into(),
            PackagesError::Lint(error) => error.into(),
            error @ PackagesError::Structure { .. } => Failure::bad_input(error),
        }
    }
}

fn tables(compared: &Packages) -> Vec<Table> {
    let bytes = |bytes: &u64| Bytes(*bytes).to_string();
    let weights = |class: &WeightClass| {
        let WeightClass { tensors, parameters, bytes } = class;
        format!("{tensors} tensors, {} parameters, {}", Count(*parameters), Bytes(*bytes))
    };
    let placed = |placed: &PredictedPlacement| {
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
    let row = |row: &Differing<V>| {
        vec![row.function.clone(), row.what.clone(), cell(&row.baseline), cell(&row.candidate)]
    };
    Table::new(&["function", "what", "A", "B"]).titled(title, note).with(rows.iter().map(row))
}

#[cfg(test)]
mod tests {
    use super::super::text;
    use super::*;
    use crate::mil::{Builder, Literal, Model, Opset, TensorType, verify};
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
    fn assets_are_compared_too() {
        let sample =
            |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("src/coreai/testdata").join(name);
        let [a, b] = ["t_bss_int4_g32_float16.aimodel", "t_lut4_group4.aimodel"].map(sample);
        let compared = assets::compare([&a, &b]).unwrap();
        assert_eq!(compared.kind, "assets");
        let palette = compared.operations.iter().find(|row| row.what == "primitive.lut_to_dense_v1").unwrap();
        assert_eq!((palette.baseline, palette.candidate), (None, Some(1)));
        assert!(compared.interface.iter().any(|row| row.what == "aicode"));
        assert!(tables(&assets::compare([&a, &a]).unwrap()).is_empty());
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

//! Products with weights that the exporter compresses itself: every kind of which it writes other operations.

use anyhow::{Context, Result};

use super::made::{Case, Making, SUMS};
use anemeter::compress::{self, Plan, Precision, Rule};
use anemeter::mil::{Literal, Model, Opset};

/// Kinds of compression. Those of iOS 16 are lists of bytes with the shape apart.
pub(super) const NAMES: &[&str] = &[
    "int8 of iOS 16",
    "lut4 of iOS 16",
    "lut6 of iOS 16",
    "sparse:0.5 of iOS 16",
    "int4:block=32",
    "int8:asym",
    "lut4:scale",
    "lut6:tensor:scale",
    "lut4:vector=2",
    "lut6:group=8:vector=2",
    "lut3:group=8:vector=4",
    "sparse:0.5",
    "sparse:2:4",
    "sparse:0.5+int8",
    "sparse:2:4+int4",
    "sparse:0.5+lut1",
    "sparse:0.5+lut3",
    "sparse:2:4+lut4:group=8",
];

pub(super) fn make(mut m: Making<'_>, name: &str) -> Result<Case> {
    let (precision, opset) = match name.strip_suffix(" of iOS 16") {
        Some(precision) => (precision, Opset::Ios16),
        None => (name, Opset::Ios18),
    };
    m.of(opset);
    let (rows, columns) = (8 * m.rng.usize(2..5), 32 * m.rng.usize(1..5));
    let tokens = [1, 5][m.rng.usize(0..2)];
    m.note(&format!("[{rows}, {columns}] of {tokens} tokens"));
    let weight = Literal::blob(&m.floats(&[rows, columns, 1, 1], (-0.1, 0.1))?);
    let weight = m.builder.constant("weight", weight);
    let x = m.input("x", &[1, columns, 1, tokens], (-2.0, 2.0))?;
    let y = m.builder.op("conv").arg("x", x).arg("weight", weight).named("y").push()?;
    let mut case = m.end(name, SUMS, &[y]);
    let precision: Precision = precision.parse()?;
    let plan = Plan { default: precision, rules: vec![Rule { pattern: "weight".to_owned(), precision }] };
    let (model, _) = compress::apply(Model::single(case.function), &plan)?;
    let mut functions = model.program.functions.into_iter();
    case.function = functions.next().context("the model has no function")?;
    Ok(case)
}

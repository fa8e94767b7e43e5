//! `--compression`: a package per way of storing weights, validated, and its weights as coremltools decompresses them.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anemeter::compress::{Plan, apply};
use anemeter::mil::op::{KnownValue, Numerics};
use anemeter::mil::propagate::{Options, propagate};
use anemeter::mil::verify::verify;
use anemeter::mil::{Builder, Literal, Model, Opset, TensorType};
use anemeter::package::{self, Package, WriteOptions};
use anemeter::tensor::{DType, Tensor};
use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::validator::Validator;
use crate::python;
use xtask::outcome::Outcome;
use xtask::process::read;
use xtask::project::{Project, make_empty};

const WHAT: &str = "compressed weights";

/// Everything that iOS 18 can hold, and what iOS 16 can.
const IOS18: &[&str] = &[
    "int8",
    "int8:tensor",
    "int8:asym",
    "int8:block=16",
    "int4",
    "int4:block=16:asym",
    "int4:channel",
    "int4:tensor",
    "lut1:tensor",
    "lut2:tensor",
    "lut3:tensor",
    "lut4:tensor",
    "lut6:tensor",
    "lut8:tensor",
    "lut4",
    "lut6",
    "lut1:group=8",
    "lut3:group=16",
    "lut4:group=8",
    "lut6:group=16",
    "lut4:scale",
    "lut4:group=16:scale",
];
/// What only weights with their output channels first can be stored as.
const IOS18_BY_ROWS: &[&str] = &[
    "lut4:vector=2",
    "lut6:group=16:vector=4",
    "sparse:0.5",
    "sparse:2:4",
    "sparse:0.3+int8",
    "sparse:2:4+int4:block=16",
    "sparse:0.5+lut4",
    "sparse:1:4+lut6:group=8",
];
const IOS16: &[&str] =
    &["int8", "int8:tensor", "int8:asym", "lut1", "lut2", "lut4", "lut6", "lut8", "sparse:0.5"];

/// What coremltools says of one package.
#[derive(Debug, Deserialize)]
struct Verdict {
    folder: PathBuf,
    compared: usize,
    different: Vec<String>,
}

pub(super) fn check(project: &Project, limit: Option<usize>) -> Result<Outcome> {
    let output = project.target.join("conformance/compression");
    make_empty(&output)?;
    let forms =
        [(Opset::Ios18, IOS18, true), (Opset::Ios18, IOS18_BY_ROWS, false), (Opset::Ios16, IOS16, true)];
    let kinds =
        forms.iter().flat_map(|&(opset, kinds, any)| kinds.iter().map(move |&kind| (opset, kind, any)));
    let mut folders = Vec::new();
    for (opset, kind, any_axis) in kinds.take(limit.unwrap_or(usize::MAX)) {
        for dtype in [DType::F16, DType::F32] {
            let name = format!("{opset}-{}-{dtype}", kind.replace([':', '=', '+'], "_"));
            let folder = output.join(name);
            make(&folder, opset, kind, dtype, any_axis).with_context(|| format!("{kind} for {opset}"))?;
            folders.push(folder);
        }
    }
    let Some(python) = python::interpreter(project)? else {
        return Ok(Outcome::not_checked(WHAT, "there is no python3"));
    };
    let compared = compare(project, &python, &folders)?;
    let text = format!("{} packages: {compared} weights are what coremltools decompresses", folders.len());
    let Some(validator) = Validator::find(project)? else {
        return Ok(Outcome::not_checked(WHAT, &format!("{text}, but there is no validator")));
    };
    let packages: Vec<PathBuf> = folders.iter().map(|folder| folder.join("model.mlpackage")).collect();
    validator.accepts(&packages)?;
    Ok(Outcome::Checked(format!("{text}, all packages validated")))
}

/// Compresses a model of every sort of weight and writes it with what its weights decode to.
fn make(folder: &Path, opset: Opset, kind: &str, dtype: DType, any_axis: bool) -> Result<()> {
    let path = folder.join("model.mlpackage");
    fs::create_dir_all(folder.join("weights"))?;
    let plan: Plan = Plan {
        default: "fp16".parse()?,
        rules: vec![anemeter::compress::Rule { pattern: "*".to_owned(), precision: kind.parse()? }],
    };
    let (model, _) = apply(model(opset, dtype, any_axis)?, &plan)?;
    package::write(&verify(model)?, &path, WriteOptions::default())?;
    let written = Package::open(&path)?;
    let function = written.model().program.functions.first().context("the package has no function")?;
    let inputs: Vec<_> = function.inputs.iter().map(|&id| (id, function.value(id).ty.clone())).collect();
    let options = Options { fold_bytes: 0, trust_declared: true, numerics: Numerics::Fast };
    let (facts, findings) = propagate(function, &inputs, options);
    ensure!(findings.is_empty(), "{}", findings[0]);
    for op in function.body.operations.iter().filter(|op| op.kind.starts_with("constexpr_")) {
        let [output] = op.outputs[..] else { continue };
        let Some(KnownValue::Packed(weight)) = &facts.known[output.index()] else { continue };
        let mut values = vec![0.0; weight.shape().iter().product()];
        weight.decode(0..values.len(), &mut values);
        let tensor = anemeter::kernels::convert::from_f32(weight.dtype(), weight.shape(), &values)?;
        fs::write(
            folder.join("weights").join(format!("{}.bin", function.value(output).name)),
            &**tensor.bytes(),
        )?;
    }
    Ok(())
}

/// A gather, a convolution, a linear layer and, if channels may be on any axis, a product with a matrix.
fn model(opset: Opset, dtype: DType, any_axis: bool) -> Result<Model> {
    let mut main = Builder::new("main", opset);
    let ids = main.input("ids", TensorType::fixed(DType::I32, &[1, 4]));
    let table = main.constant("table", weight(dtype, &[96, 64], 1)?);
    let mut x = main.op("gather").arg("x", table).arg("indices", ids).named("looked_up").push()?;
    let dense = main.constant("dense", weight(dtype, &[64, 64], 2)?);
    let bias = main.constant("bias", weight(dtype, &[64], 3)?);
    x = main.op("linear").arg("x", x).arg("weight", dense).arg("bias", bias).named("projected").push()?;
    if any_axis {
        let matrix = main.constant("matrix", weight(dtype, &[64, 64], 4)?);
        x = main.op("matmul").arg("x", x).arg("y", matrix).named("product").push()?;
    }
    x = main.op("reshape").arg("x", x).arg("shape", [1, 64, 2, 2]).named("image").push()?;
    let kernel = main.constant("kernel", weight(dtype, &[32, 64, 2, 2], 5)?);
    let y = main.op("conv").arg("x", x).arg("weight", kernel).arg("strides", [1, 1]).arg("pad", [0, 0, 0, 0]);
    let y = y.arg("dilations", [1, 1]).named("y").push()?;
    Ok(Model::single(main.finish(&[y])))
}

/// Numbers that look like weights: most are small, some are not.
fn weight(dtype: DType, shape: &[usize], seed: u64) -> Result<Literal> {
    let mut state = seed;
    let mut uniform = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u64 << 24) as f32 - 0.5
    };
    let values: Vec<f32> = (0..shape.iter().product()).map(|_| uniform() * uniform() * uniform()).collect();
    let tensor: Tensor = anemeter::kernels::convert::from_f32(dtype, shape, &values)?;
    Ok(Literal::blob(&tensor))
}

/// How many weights coremltools decompresses to the same elements; any other is an error.
fn compare(project: &Project, python: &Path, folders: &[PathBuf]) -> Result<usize> {
    let list = project.target.join("conformance/compression.txt");
    fs::write(&list, folders.iter().map(|folder| format!("{}\n", folder.display())).collect::<String>())?;
    let mut command = project.command(python);
    command.arg("xtask/python/decompress.py").stdin(File::open(&list)?);
    let verdicts: Vec<Verdict> = read(&mut command)?
        .lines()
        .map(|line| serde_json::from_str(line).with_context(|| format!("read the verdict {line}")))
        .collect::<Result<_>>()?;
    ensure!(verdicts.len() == folders.len(), "{} packages got {} verdicts", folders.len(), verdicts.len());
    let mut wrong = 0;
    for verdict in &verdicts {
        wrong += usize::from(!verdict.different.is_empty() || verdict.compared == 0);
        verdict.different.iter().for_each(|text| eprintln!("{}: {text}", verdict.folder.display()));
    }
    ensure!(wrong == 0, "{wrong} packages have weights that coremltools decompresses to something else");
    Ok(verdicts.iter().map(|verdict| verdict.compared).sum())
}

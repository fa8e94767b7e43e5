//! The process that writes the package, so that its peak memory is that of the writer alone.

use std::fs::{self, File};
use std::path::Path;
use std::time::Instant;

use anemeter::mil::verify::verify;
use anemeter::mil::{Builder, Literal, LiteralData, Model, Opset, TensorType};
use anemeter::package::{self, WriteOptions};
use anemeter::tensor::{Bytes, DType};
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// The argument that makes this process the worker; not for users.
pub(super) const FLAG: &str = "--write-from";
/// How many constants the weights are cut into.
pub(super) const TENSORS: usize = 64;
/// The source's size is a multiple of this, so that every constant has whole elements and whole lines.
pub(super) const GRAIN: u64 = TENSORS as u64 * 4096;

/// What the worker prints.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Measured {
    pub(super) seconds: f64,
    pub(super) peak_bytes: u64,
}

/// Writes a package over the mapped source and prints what that took.
pub(super) fn run(source: &Path, package: &Path) -> Result<()> {
    let bytes = Bytes::map(&File::open(source).with_context(|| format!("open {}", source.display()))?)?;
    let model = verify(model(&bytes)?)?;
    let start = Instant::now();
    package::write(&model, package, WriteOptions::default())?;
    let measured = Measured { seconds: start.elapsed().as_secs_f64(), peak_bytes: peak_bytes()? };
    println!("{}", serde_json::to_string(&measured)?);
    Ok(())
}

/// The most memory this process ever had resident.
fn peak_bytes() -> Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no VmHWM in /proc")?;
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().context("read VmHWM")?;
    Ok(kib * 1024)
}

/// A chain of additions, one constant each.
fn model(weights: &Bytes) -> Result<Model> {
    let size = weights.len() / TENSORS;
    let ty = TensorType::fixed(DType::F16, &[1, size / 2]);
    let mut main = Builder::new("main", Opset::Ios18);
    let mut last = main.input("x", ty.clone());
    for index in 0..TENSORS {
        let data = weights.slice(index * size..(index + 1) * size).context("the source is too short")?;
        let literal = Literal { ty: ty.clone().into(), data: LiteralData::Blob(data) };
        let weight = main.constant(&format!("w{index}"), literal);
        last = main.op("add").arg("x", last).arg("y", weight).named(&format!("y{index}")).push()?;
    }
    Ok(Model::single(main.finish(&[last])))
}

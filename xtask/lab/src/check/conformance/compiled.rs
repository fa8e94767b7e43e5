//! `--compiled`: every package as the text of a compiled model, in both spellings, which must become the same model.
//!
//! The text comes from a stand-in for Core ML's compiler that works on Apple's protobuf messages; real compiled models
//! are in `--foreign`.

use std::fs;
use std::path::{Path, PathBuf};

use anemeter::package::Package;
use anemeter::tensor::Bytes;
use anyhow::{Context, Result, ensure};
use coreml_proto::proto;
use prost::Message as _;
use xtask::outcome::Outcome;
use xtask::project::Project;

use super::corpus;
use crate::mil_compiler::{Dialect, compile};

const WHAT: &str = "compiled models";
const DATA: &str = "Data/com.apple.CoreML";

/// Compiles every package of the corpus and the samples and reads it back.
pub(super) fn check(project: &Project, limit: Option<usize>) -> Result<Outcome> {
    let Some(open) = corpus::unpack(project)? else {
        return Ok(Outcome::not_checked(WHAT, "the corpus is not beside the repository"));
    };
    let mut packages: Vec<PathBuf> = corpus::folders(&open, |path| path.join("model.mlpackage").is_dir())?
        .into_iter()
        .map(|case| case.join("model.mlpackage"))
        .collect();
    packages.truncate(limit.unwrap_or(usize::MAX));
    packages.extend(corpus::folders(&project.shared.join("samples"), |path| path.is_dir())?);
    let mut faults = 0;
    for package in &packages {
        if let Err(error) = read_back(package) {
            faults += 1;
            eprintln!("{}: {error:#}", package.display());
        }
    }
    let text = format!("{} packages, {} the same after compiling", packages.len(), packages.len() - faults);
    ensure!(faults == 0, "{text}");
    Ok(Outcome::Checked(text))
}

/// Compiles a package in both spellings and compares what is read with the package.
fn read_back(package: &Path) -> Result<()> {
    let expected = Package::open(package)?.into_model();
    let bytes = fs::read(package.join(DATA).join("model.mlmodel"))?;
    let model = proto::Model::decode(&bytes[..]).context("decode with Apple's schema")?;
    let weights = fs::read(package.join(DATA).join("weights/weight.bin")).unwrap_or_default();
    for dialect in [Dialect::Tensors, Dialect::Scalars] {
        let (text, description) = compile(&model, dialect);
        let file = |name: &str, bytes: Vec<u8>| (PathBuf::from(name), Bytes::from(bytes));
        let files = [
            file("coremldata.bin", description),
            file("model.mil", text.into_bytes()),
            file("weights/weight.bin", weights.clone()),
        ];
        let found = Package::from_files(files).with_context(|| format!("{dialect:?}"))?.into_model();
        ensure!(found == expected, "another model as {dialect:?}");
    }
    Ok(())
}

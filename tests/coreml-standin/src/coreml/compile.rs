//! Compiling: a package becomes a folder `NAME….mlmodelc` in a temporary place, from where the caller takes it.

use std::fs;
use std::path::{Path, PathBuf};

use anemeter::package::Package;

use super::code;
use crate::fault::{self, Fault};
use crate::foundation::error::Failure;

/// What is inside a compiled model: a file that only compiled models have, and the package.
const MARK: &str = "coremldata.bin";
const CONTENT: &str = "content.mlpackage";

/// Compiles a package. `None` is what a compiler gives that says nothing at all.
pub(super) fn compile(package: &Path) -> Result<Option<PathBuf>, Failure> {
    if fault::is_on(Fault::CompileGivesNothing) {
        return Ok(None);
    }
    let title = package.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    if fault::is_on(Fault::CompileFails) {
        let text = format!(
            "Failed to compile model {title}. The model may be corrupt or use unsupported operations."
        );
        return Err(Failure::new(code::GENERIC, text).caused_by(
            "com.apple.mil",
            1,
            "Failed to parse the model specification: unable to parse ML Program",
        ));
    }
    Package::open(package).map_err(|error| {
        Failure::new(code::GENERIC, format!("Failed to read model package at {}.", package.display()))
            .caused_by("com.apple.mil", 1, error.to_string())
    })?;
    let made = make(package, &title);
    let text = |error| Failure::new(code::IO, format!("Failed to write the compiled model: {error}"));
    made.map(Some).map_err(text)
}

fn make(package: &Path, title: &str) -> std::io::Result<PathBuf> {
    let prefix = format!("{title}-");
    let compiled = tempfile::Builder::new().prefix(&prefix).suffix(".mlmodelc").tempdir()?.keep();
    fs::write(compiled.join(MARK), title)?;
    copy(package, &compiled.join(CONTENT))?;
    Ok(compiled)
}

/// Weights are large and never change, so that a second name for them does.
fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            copy(&from, &to)?;
        } else if fs::hard_link(&from, &to).is_err() {
            fs::copy(&from, &to)?;
        }
    }
    Ok(())
}

/// The package inside a compiled model, or the model itself if Core ML's own compiler made it.
pub(super) fn content(compiled: &Path) -> Result<Package, Failure> {
    if !compiled.join(MARK).is_file() {
        let text = format!(
            "Unable to load model: {}. Compile the model with Xcode or `MLModel.compileModel(at:)`.",
            compiled.display()
        );
        return Err(Failure::new(code::IO, text));
    }
    let content = compiled.join(CONTENT);
    let content = if content.exists() { &content } else { compiled };
    Package::open(content).map_err(|error| {
        Failure::new(code::IO, "Failed to load the model.").caused_by("com.apple.mil", 2, error.to_string())
    })
}

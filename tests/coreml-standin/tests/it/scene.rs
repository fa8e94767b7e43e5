//! Packages and bundles on disk, and the Core ML runtime with a cache of its own for them.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use anemeter::bundle::Bundle;
use anemeter::generate::{Driver, GenerateError, SystemClock, sessions};
use anemeter::mil::Model;
use anemeter::package::Package;
use anemeter::runtime::{CoreMlRuntime, LoadOptions, LoadedModel, Runtime, RuntimeError, Session, cpu};
use anemeter::tensor::Tensor;
use anemeter::vocabulary::KvForm;
use half::f16;

use crate::{checkpoints, fixtures};

/// A scratch folder.
pub(crate) struct Scene {
    folder: tempfile::TempDir,
}

impl Scene {
    pub(crate) fn new() -> Scene {
        Scene { folder: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Core ML, with compiled models in this folder.
    pub(crate) fn core_ml(&self) -> CoreMlRuntime {
        CoreMlRuntime::with_cache(self.path("cache"))
    }

    /// Writes a model as a package.
    pub(crate) fn package(&self, model: Model) -> Package {
        Package::open(fixtures::write(model, self.folder.path(), "model.mlpackage")).unwrap()
    }

    /// A model, loaded by Core ML.
    pub(crate) fn load(&self, model: Model) -> Result<Arc<dyn LoadedModel>, RuntimeError> {
        self.core_ml().load(&self.package(model), &LoadOptions::default())
    }

    /// A model, ready to run in both runtimes: Core ML first.
    pub(crate) fn both(&self, model: Model) -> [Box<dyn Session>; 2] {
        let package = self.package(model);
        let load = |runtime: &dyn Runtime| runtime.load(&package, &LoadOptions::default()).unwrap().session();
        [load(&self.core_ml()), load(&cpu())]
    }

    /// Exports a small Llama in two forms and two lengths.
    pub(crate) fn tiny_bundle(&self) -> Bundle {
        checkpoints::write(&self.path("tiny"), &checkpoints::tensors(7));
        let mut export = self.anemeter(&["export"]);
        export.arg(self.path("tiny")).arg("-o").arg(self.path("bundle"));
        let done = export.args(["--shapes", "16,32", "--kv", "io,state", "--query", "4"]).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        Bundle::open(self.path("bundle")).unwrap()
    }

    /// The program with the stand-in.
    pub(crate) fn anemeter(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_anemeter_standin"));
        command
            .args(arguments)
            .env("ANEMETER_CACHE_DIR", self.path("cache"))
            .env_remove("COREML_STANDIN_FAULTS");
        command
    }
}

/// Deterministic numbers in a shape.
pub(crate) fn halves(shape: &[usize], seed: u32) -> Tensor {
    Tensor::from_slice(shape, &fixtures::numbers(shape.iter().product(), seed)).unwrap()
}

/// An output as fp16 numbers.
pub(crate) fn output(session: &dyn Session, name: &str) -> Vec<f16> {
    session.output(name).unwrap().slice::<f16>().unwrap().to_vec()
}

/// A driver of a bundle.
pub(crate) fn driver(bundle: &Bundle, runtime: &dyn Runtime, form: KvForm) -> Result<Driver, GenerateError> {
    let sessions = sessions(bundle, runtime, &LoadOptions::default())?;
    Driver::new(bundle, sessions, Some(form), Arc::new(SystemClock::default()))
}

/// The tokens that follow a prompt, the likeliest each time.
pub(crate) fn greedy(driver: &mut Driver, prompt: &[u32], count: usize) -> Result<Vec<u32>, GenerateError> {
    driver.prefill(&[prompt], None)?;
    let mut tokens = Vec::new();
    for _ in 0..count {
        let logits = driver.logits(0);
        let best = (0..logits.len()).max_by(|&a, &b| logits[a].total_cmp(&logits[b]).then(b.cmp(&a)));
        tokens.push(u32::try_from(best.unwrap()).unwrap());
        driver.step(&tokens[tokens.len() - 1..])?;
    }
    Ok(tokens)
}

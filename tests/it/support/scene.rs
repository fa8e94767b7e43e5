//! A folder of a test's own, with a checkpoint to begin with.

use std::path::{Path, PathBuf};

use super::checkpoints::{self, tensors};
use super::command::{Outcome, anemeter, arg};

/// A folder that is removed at the end.
pub(crate) struct Scene {
    folder: tempfile::TempDir,
}

impl Scene {
    /// Nothing in it.
    pub(crate) fn empty() -> Scene {
        Scene { folder: tempfile::tempdir().unwrap() }
    }

    /// A checkpoint of two layers, `tiny`, in it.
    pub(crate) fn new() -> Scene {
        let scene = Scene::empty();
        checkpoints::write(&scene.path("tiny"), &tensors(7));
        scene
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder().join(name)
    }

    /// Exports the checkpoint.
    pub(crate) fn export(&self, bundle: &str, args: &[&str]) -> Outcome {
        let (checkpoint, bundle) = (self.path("tiny"), self.path(bundle));
        anemeter(&[&["export", arg(&checkpoint), "-o", arg(&bundle)], args].concat())
    }
}

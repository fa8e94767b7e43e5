//! What the quickstart works on.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Failure, Result};

/// The checkpoint that comes with the program; `cargo xtask train` makes it from `src/quickstart/merrow.txt`.
const MERROW: &[(&str, &[u8])] = &[
    ("config.json", include_bytes!("../../quickstart/model/config.json")),
    ("model.safetensors", include_bytes!("../../quickstart/model/model.safetensors")),
    ("tokenizer.json", include_bytes!("../../quickstart/model/tokenizer.json")),
    ("tokenizer_config.json", include_bytes!("../../quickstart/model/tokenizer_config.json")),
];

/// Where `cargo xtask fetch-smollm2` puts it.
const SMOLLM2: &str = "target/smollm2/SmolLM2-135M-Instruct.Q4_1.gguf";

pub(super) enum Model {
    /// The one that comes with the program.
    Merrow,
    /// A checkpoint on this machine.
    At(PathBuf),
}

impl Model {
    pub(super) fn named(name: &str) -> Result<Model> {
        let path = match name {
            "merrow" => return Ok(Model::Merrow),
            "smollm2" => SMOLLM2,
            path => path,
        };
        let help = match name {
            "smollm2" => "`cargo xtask fetch-smollm2` fetches it",
            _ => "`--model` is `merrow`, `smollm2` or the path of a checkpoint",
        };
        let found = Path::new(path).canonicalize();
        found.map(Model::At).map_err(|e| Failure::at(Path::new(path), e).with_help(help))
    }

    /// The checkpoint's path as seen from `folder`, where it is put if it comes with the program.
    pub(super) fn place(&self, folder: &Path) -> Result<PathBuf> {
        let Model::Merrow = self else { return Ok(self.path()) };
        let checkpoint = folder.join("merrow");
        fs::create_dir(&checkpoint).map_err(|e| Failure::at(&checkpoint, e))?;
        for (name, bytes) in MERROW {
            super::super::output::write_file(&checkpoint.join(name), bytes)?;
        }
        Ok(self.path())
    }

    fn path(&self) -> PathBuf {
        match self {
            Model::Merrow => "merrow".into(),
            Model::At(path) => path.clone(),
        }
    }

    /// Lengths to export.
    pub(super) fn seq_lens(&self) -> &'static str {
        match self {
            Model::Merrow => "128,256",
            Model::At(_) => "128,512",
        }
    }

    /// How a text begins that it can continue.
    pub(super) fn prompt(&self) -> &'static str {
        match self {
            Model::Merrow => "The baker brought a scale",
            Model::At(_) => "The capital of France is",
        }
    }
}

//! The engines, one line each, and where they are set up.

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;

use anemeter::checkpoint;
use anyhow::{Context, Result};

use super::{candle, llama_cpp, onnxruntime, ours, torch};
use crate::bench::export::write_fp16;
use crate::python;
use xtask::project::Project;

/// An engine with weights of one kind.
pub(super) struct Engine {
    pub(super) name: &'static str,
    pub(super) weights: &'static str,
    /// Installs what it needs and makes its model.
    pub(super) set_up: fn(&Place<'_>, &'static str) -> Result<Ready>,
}

/// The name of this runtime in the table.
pub(super) const OURS: &str = "anemeter";

/// All of them, in the order of the table.
pub(super) const ENGINES: &[Engine] = &[
    Engine { name: OURS, weights: "fp16", set_up: ours::set_up },
    Engine { name: OURS, weights: "int8", set_up: ours::set_up },
    Engine { name: OURS, weights: "int4:block=32", set_up: ours::set_up },
    Engine { name: OURS, weights: "int4:asym", set_up: ours::set_up },
    Engine { name: OURS, weights: "stored Q4_1", set_up: ours::set_up_as_fetched },
    Engine { name: OURS, weights: "stored Q8_0", set_up: ours::set_up_as_llama_cpp_stores },
    Engine { name: OURS, weights: "stored Q4_0", set_up: ours::set_up_as_llama_cpp_stores },
    Engine { name: OURS, weights: "lut4:group=16", set_up: ours::set_up },
    Engine { name: OURS, weights: "int4:block=32 for every weight", set_up: ours::set_up },
    Engine { name: OURS, weights: "lut4:group=16 for every weight", set_up: ours::set_up },
    Engine { name: "llama.cpp", weights: "F16", set_up: llama_cpp::set_up },
    Engine { name: "llama.cpp", weights: "Q8_0", set_up: llama_cpp::set_up },
    Engine { name: "llama.cpp", weights: "Q4_0", set_up: llama_cpp::set_up },
    Engine { name: "ONNX Runtime GenAI", weights: "int4", set_up: onnxruntime::set_up },
    Engine { name: "torch", weights: "fp32", set_up: torch::set_up },
    Engine { name: "candle", weights: "f32", set_up: candle::set_up },
    Engine { name: "candle", weights: "Q8_0", set_up: candle::set_up },
    Engine { name: "candle", weights: "Q4_0", set_up: candle::set_up },
];

impl Engine {
    /// How tables and targets call it.
    pub(super) fn title(&self) -> String {
        format!("{} {}", self.name, self.weights)
    }
}

/// An engine that can be started.
pub(super) struct Ready {
    /// The program and its arguments; the workload file comes last.
    pub(super) command: Vec<OsString>,
    /// Bytes of the weights as stored.
    pub(super) weight_bytes: u64,
}

/// What engines are set up with.
pub(super) struct Place<'a> {
    pub(super) project: &'a Project,
    /// Where engines and their models are.
    pub(super) folder: PathBuf,
    /// The model as it was fetched.
    pub(super) gguf: PathBuf,
    /// The same numbers in fp16, as a Hugging Face folder.
    pub(super) checkpoint: PathBuf,
    /// Lengths that exports are to have.
    pub(super) seq_lens: &'static [usize],
    /// This program, built for speed.
    pub(super) worker: PathBuf,
    pub(super) anemeter: PathBuf,
    /// The interpreter with the peers' packages, or why there is none.
    python: Result<PathBuf, String>,
}

impl<'a> Place<'a> {
    /// Builds what is ours and writes the checkpoint.
    pub(super) fn new(project: &'a Project, gguf: PathBuf, seq_lens: &'static [usize]) -> Result<Place<'a>> {
        let folder = project.target.join("peers");
        let checkpoint = folder.join("checkpoint");
        if !checkpoint.join("tokenizer.json").exists() {
            write_fp16(&checkpoint::open(&gguf)?, &checkpoint)?;
        }
        let python = match python::interpreter_for_peers(project) {
            Ok(Some(python)) => Ok(python),
            Ok(None) => Err("there is no python3".to_owned()),
            Err(error) => Err(format!("{error:#}")),
        };
        println!("building for speed");
        let (worker, anemeter) = (project.release("lab")?, project.release("anemeter")?);
        Ok(Place { project, folder, gguf, checkpoint, seq_lens, worker, anemeter, python })
    }

    /// A script of the peers' with its interpreter.
    pub(super) fn script(&self, name: &str) -> Result<Vec<OsString>> {
        let python = self.python.clone().map_err(anyhow::Error::msg)?;
        Ok(vec![python.into(), self.project.root.join("xtask/python/peers").join(name).into()])
    }

    /// A program from such words, with the threads everybody has.
    pub(super) fn command(&self, words: &[OsString]) -> Result<std::process::Command> {
        let (program, arguments) = words.split_first().context("a command has a program")?;
        let mut command = self.project.command(program);
        command.args(arguments).env("PYTHONDONTWRITEBYTECODE", "1");
        for variable in ["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS"] {
            command.env(variable, super::THREADS.to_string());
        }
        Ok(command)
    }

    /// The lengths of exports, with something between them.
    pub(super) fn lengths(&self, between: &str) -> String {
        self.seq_lens.iter().map(ToString::to_string).collect::<Vec<_>>().join(between)
    }

    /// A folder for the models of an engine.
    pub(super) fn models(&self, engine: &str) -> Result<PathBuf> {
        let folder = self.folder.join("models").join(engine);
        fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
        Ok(folder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_are_unique() {
        let mut titles: Vec<String> = ENGINES.iter().map(Engine::title).collect();
        titles.sort();
        titles.dedup();
        assert_eq!(titles.len(), ENGINES.len());
    }
}

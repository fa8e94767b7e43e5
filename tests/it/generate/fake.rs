//! A runtime that follows a script: each function takes its time and the logits are written down beforehand.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use anemeter::bundle::{
    Architecture, Checkpoint, Chunk, ComputeUnits, Embeddings, Function, KvForm, Manifest, Mask, Port,
    SCHEMA, Settings, Tool,
};
use anemeter::generate::{Driver, Generator, ManualClock};
use anemeter::runtime::{Observer, RuntimeError, Session};
use anemeter::tensor::{Tensor, TensorView};
use half::f16;

use super::bundles::file;

const VOCABULARY: usize = 4;

struct FakeSession {
    clock: ManualClock,
    /// Nanoseconds of each function.
    costs: Vec<(&'static str, u64)>,
    /// Logits of the predictions to come; zeros when they run out.
    script: VecDeque<[f32; VOCABULARY]>,
    outputs: Vec<(&'static str, Tensor)>,
}

impl Session for FakeSession {
    fn predict(&mut self, function: &str, inputs: &[(&str, TensorView<'_>)]) -> Result<(), RuntimeError> {
        let cost = self.costs.iter().find(|(name, _)| *name == function).unwrap().1;
        self.clock.advance(Duration::from_nanos(cost));
        let width = inputs[0].1.shape().last().copied().unwrap();
        let zeros =
            |shape: &[usize]| Tensor::from_slice(shape, &vec![f16::ZERO; shape.iter().product()]).unwrap();
        if function == "embed" {
            self.outputs = vec![("hidden", zeros(&[1, 2, 1, width]))];
            return Ok(());
        }
        let logits = self.script.pop_front().unwrap_or_default().map(f16::from_f32);
        let new = zeros(&[1, 2, 1, width]);
        let logits = Tensor::from_slice(&[1, VOCABULARY, 1, 1], &logits).unwrap();
        self.outputs = vec![("logits", logits), ("k_new", new.clone()), ("v_new", new)];
        Ok(())
    }

    fn output(&self, name: &str) -> Option<TensorView<'_>> {
        self.outputs.iter().find(|(output, _)| *output == name).map(|(_, tensor)| tensor.view())
    }

    fn state(&self, _: &str) -> Option<TensorView<'_>> {
        None
    }

    fn set_state(&mut self, _: &str, _: &Tensor) -> Result<(), RuntimeError> {
        Ok(())
    }

    fn state_names(&self) -> Vec<String> {
        Vec::new()
    }

    fn observe(&mut self, _: Option<Box<dyn Observer>>) -> Option<Box<dyn Observer>> {
        None
    }
}

pub(crate) fn session(clock: &ManualClock, script: &[[f32; VOCABULARY]]) -> Box<dyn Session> {
    let costs = vec![("embed", 30), ("prefill", 1_000), ("decode", 200)];
    let script = script.iter().copied().collect();
    Box::new(FakeSession { clock: clock.clone(), costs, script, outputs: Vec::new() })
}

/// A generator over the script, at lengths 4 and 8.
pub(crate) fn generator(clock: &ManualClock, script: &[[f32; VOCABULARY]]) -> Generator {
    let session = session(clock, script);
    let clock = Arc::new(clock.clone());
    let driver = Driver::over(&manifest(), None, vec![session], None, clock.clone()).unwrap();
    Generator::new(driver, None, clock)
}

fn function(name: &str, inputs: &[&str], outputs: &[&str]) -> Function {
    let port = |name: &&str| Port {
        name: (*name).to_owned(),
        dtype: "fp16".to_owned(),
        shapes: vec![vec![1, 2, 1, 4]],
    };
    Function {
        name: name.to_owned(),
        inputs: inputs.iter().map(port).collect(),
        outputs: outputs.iter().map(port).collect(),
        states: Vec::new(),
    }
}

pub(crate) fn manifest() -> Manifest {
    let given = ["logits", "k_new", "v_new"];
    Manifest {
        schema: SCHEMA.to_owned(),
        tool: Tool { name: "anemeter".to_owned(), version: "test".to_owned() },
        name: "script".to_owned(),
        architecture: Architecture {
            name: "llama".to_owned(),
            hidden: 2,
            vocabulary: VOCABULARY,
            layers: 1,
            heads: 1,
            kv_heads: 1,
            head_dim: 2,
            parameters: 0,
            max_positions: 8,
            kv_bytes_per_token: 8,
            embedding_scale: 1.0,
            learned_positions: false,
        },
        checkpoint: Checkpoint { name: "none".to_owned(), bytes: 0, digest: String::new() },
        settings: Settings {
            kv: vec![KvForm::Io],
            shapes: vec![4, 8],
            contexts: vec![4, 8],
            query: 2,
            batch: 1,
            embeddings: Embeddings::Function,
            head_split: 1,
            opset: "CoreML8".to_owned(),
            compute_units: ComputeUnits::All,
            precision: "fp16".to_owned(),
            training_shapes: None,
        },
        chunks: vec![Chunk {
            file: file("model.mlpackage"),
            first_layer: 0,
            layers: 1,
            masks: vec![Mask { input: "mask".to_owned(), window: None }],
            rotations: Vec::new(),
            functions: vec![
                function("embed", &["input_ids"], &["hidden"]),
                function("prefill", &["hidden", "mask", "select"], &given),
                function("decode", &["hidden", "mask", "k_cache", "v_cache"], &given),
            ],
        }],
        host_embeddings: None,
        tokenizer: None,
        compression: None,
        sensitivity: None,
        warnings: Vec::new(),
        profile: Vec::new(),
    }
}

//! A runtime that follows a script: each function takes its time and the logits are written down beforehand.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anemeter::bundle::{
    Architecture, Checkpoint, Chunk, Function, Manifest, Mask, Origin, Port, Settings, Tool,
};
use anemeter::generate::{Driver, Generator, ManualClock};
use anemeter::runtime::{Observer, RuntimeError, Session};
use anemeter::tensor::{Tensor, TensorView};
use anemeter::vocabulary::{ComputeUnits, Embeddings, KvForm, ShapesAs};
use half::f16;

use super::bundles::file;

const VOCABULARY: usize = 4;

/// Makes logits up; token vectors, keys and values are zero.
struct FakeSession<F> {
    /// What a prediction of a function does; gives the logits, which nobody asks `embed` for.
    act: F,
    outputs: Vec<(&'static str, Tensor)>,
}

impl<F: FnMut(&str) -> Vec<f16> + Send> Session for FakeSession<F> {
    fn predict(&mut self, function: &str, inputs: &[(&str, TensorView<'_>)]) -> Result<(), RuntimeError> {
        let width = inputs[0].1.shape().last().copied().unwrap();
        let zeros = Tensor::from_slice(&[1, 2, 1, width], &vec![f16::ZERO; 2 * width]).unwrap();
        let logits = (self.act)(function);
        self.outputs = match function {
            "embed" => vec![("hidden", zeros)],
            _ => {
                let logits = Tensor::from_slice(&[1, logits.len(), 1, 1], &logits).unwrap();
                vec![("logits", logits), ("k_new", zeros.clone()), ("v_new", zeros)]
            }
        };
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

/// A session that does as it is told.
pub(crate) fn acting(act: impl FnMut(&str) -> Vec<f16> + Send + 'static) -> Box<dyn Session> {
    Box::new(FakeSession { act, outputs: Vec::new() })
}

/// Each function takes its time; logits are those of the script, then zeros.
pub(crate) fn session(clock: &ManualClock, script: &[[f32; VOCABULARY]]) -> Box<dyn Session> {
    let mut script: VecDeque<[f32; VOCABULARY]> = script.iter().copied().collect();
    let clock = clock.clone();
    acting(move |function| {
        let (nanoseconds, logits) = match function {
            "embed" => (30, None),
            "prefill" => (1_000, script.pop_front()),
            "decode" => (200, script.pop_front()),
            other => panic!("{other} is not in the script"),
        };
        clock.advance(Duration::from_nanos(nanoseconds));
        logits.unwrap_or_default().map(f16::from_f32).to_vec()
    })
}

/// A generator over the script, at lengths 4 and 8.
pub(crate) fn generator(clock: &ManualClock, script: &[[f32; VOCABULARY]]) -> Generator {
    let session = session(clock, script);
    let clock = Arc::new(clock.clone());
    let driver = Driver::over(&manifest(), Path::new(""), vec![session], None, clock.clone()).unwrap();
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
    let chunk = Chunk {
        file: file("model.mlpackage"),
        first_layer: 0,
        layers: 1,
        masks: vec![Mask { input: "mask".to_owned(), window: None }],
        rotations: Vec::new(),
        query_scales: Vec::new(),
        functions: vec![
            function("embed", &["input_ids"], &["hidden"]),
            function("prefill", &["hidden", "mask", "select"], &given),
            function("decode", &["hidden", "mask", "k_cache", "v_cache"], &given),
        ],
        asset: None,
    };
    Manifest {
        tool: Tool { name: "anemeter".to_owned(), version: "test".to_owned() },
        origin: Origin::Exported,
        architecture: Some(Architecture {
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
            state_bytes: 0,
            embedding_scale: 1.0,
            learned_positions: false,
            per_layer: None,
        }),
        checkpoint: Some(Checkpoint { name: "none".to_owned(), bytes: 0, digest: String::new() }),
        settings: Some(Settings {
            kv: vec![KvForm::Io],
            seq_lens: vec![4, 8],
            contexts: vec![4, 8],
            query: 2,
            batch: 1,
            embeddings: Embeddings::Function,
            head_split: 1,
            opset: "CoreML8".to_owned(),
            compute_units: ComputeUnits::All,
            precision: "fp16".to_owned(),
            activations: anemeter::vocabulary::Activations::Fp16,
            shapes_as: ShapesAs::Enumerated,
            training_seq_lens: None,
            config: None,
        }),
        ..Manifest::of_packages("script".to_owned(), vec![chunk])
    }
}

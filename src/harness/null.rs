//! A model that does nothing, to see what the harness itself costs.

use half::f16;

use anemeter_base::vocabulary::{Activations, ComputeUnits, Embeddings, FunctionRole, KvForm, ShapesAs};
use anemeter_convert::bundle::{
    Architecture, Checkpoint, Chunk, File, Function, Manifest, Mask, Origin, Port, Settings, Tool,
};
use anemeter_kernels::tensor::{DType, Tensor, TensorView};
use anemeter_runtime::{Observer, RuntimeError, Session};

const VOCABULARY: usize = 32;
const CHANNELS: usize = 8;
const HEADS: usize = 1;

/// The description of a model with one layer that keeps keys and values with the caller.
pub(crate) fn manifest(seq_lens: &[usize], batch: usize) -> Manifest {
    let file = || File { name: "null.mlpackage".to_owned(), bytes: 0, digest: String::new() };
    let chunk = Chunk {
        file: file(),
        first_layer: 0,
        layers: 1,
        masks: vec![Mask { input: "mask".to_owned(), window: None }],
        rotations: Vec::new(),
        query_scales: Vec::new(),
        functions: vec![
            function(FunctionRole::PREFILL, &["input_ids", "mask", "select"]),
            function(FunctionRole::DECODE, &["input_ids", "mask", "k_cache", "v_cache"]),
        ],
        asset: None,
    };
    Manifest {
        tool: Tool { name: "anemeter".to_owned(), version: String::new() },
        origin: Origin::Exported,
        architecture: Some(Architecture {
            name: "null".to_owned(),
            hidden: CHANNELS,
            vocabulary: VOCABULARY,
            layers: 1,
            heads: HEADS,
            kv_heads: HEADS,
            head_dim: CHANNELS,
            parameters: 0,
            max_positions: seq_lens.iter().max().copied().unwrap_or(0),
            kv_bytes_per_token: 4 * CHANNELS as u64,
            state_bytes: 0,
            embedding_scale: 1.0,
            learned_positions: false,
            per_layer: None,
        }),
        checkpoint: Some(Checkpoint { name: "null".to_owned(), bytes: 0, digest: String::new() }),
        settings: Some(Settings {
            kv: vec![KvForm::Io],
            seq_lens: seq_lens.to_vec(),
            contexts: Vec::new(),
            query: 1,
            batch,
            embeddings: Embeddings::Graph,
            head_split: 1,
            opset: "CoreML8".to_owned(),
            compute_units: ComputeUnits::Cpu,
            precision: "fp16".to_owned(),
            activations: Activations::Fp16,
            shapes_as: ShapesAs::Enumerated,
            training_seq_lens: None,
            config: None,
        }),
        ..Manifest::of_packages("null".to_owned(), vec![chunk])
    }
}

fn function(name: &str, inputs: &[&str]) -> Function {
    let port = |name: &str| Port {
        name: name.to_owned(),
        dtype: "fp16".to_owned(),
        shapes: vec![vec![1, CHANNELS as u64, 1, 1]],
    };
    let outputs = ["logits", "k_new", "v_new"];
    Function {
        name: name.to_owned(),
        inputs: inputs.iter().map(|name| port(name)).collect(),
        outputs: outputs.iter().map(|name| port(name)).collect(),
        states: Vec::new(),
    }
}

/// What happens in a prediction of a function, besides nothing; it may change the logits.
pub(super) type Act = Box<dyn FnMut(&str, &mut [f16]) -> Result<(), RuntimeError> + Send>;

/// A session of the model.
pub(super) struct NullSession {
    batch: usize,
    shape: [usize; 4],
    logits: Vec<f16>,
    /// Keys or values of one token, and of as many as a prefill had.
    new: [Tensor; 2],
    decodes: bool,
    act: Act,
}

impl NullSession {
    /// A session that does nothing but what `act` does.
    pub(super) fn new(batch: usize, act: Act) -> NullSession {
        NullSession {
            batch,
            shape: [batch, VOCABULARY, 1, 1],
            logits: vec![f16::ZERO; batch * VOCABULARY],
            new: [zeros(batch, 1), zeros(batch, 0)],
            decodes: false,
            act,
        }
    }
}

fn zeros(batch: usize, width: usize) -> Tensor {
    let values = vec![f16::ZERO; batch * CHANNELS * width];
    Tensor::from_slice(&[batch, CHANNELS, 1, width], &values).expect("as many values as the shape has")
}

impl Session for NullSession {
    fn predict(&mut self, function: &str, inputs: &[(&str, TensorView<'_>)]) -> Result<(), RuntimeError> {
        self.decodes = function == FunctionRole::DECODE;
        let ids = inputs.iter().find(|(name, _)| *name == "input_ids");
        let width = ids.and_then(|(_, ids)| ids.shape().last().copied()).unwrap_or(1);
        if !self.decodes && self.new[1].shape()[3] != width {
            self.new[1] = zeros(self.batch, width);
        }
        (self.act)(function, &mut self.logits)
    }

    fn output(&self, name: &str) -> Option<TensorView<'_>> {
        match name {
            "logits" => TensorView::new(DType::F16, &self.shape, bytemuck::cast_slice(&self.logits)).ok(),
            "k_new" | "v_new" => Some(self.new[usize::from(!self.decodes)].view()),
            _ => None,
        }
    }

    fn state(&self, _: &str) -> Option<TensorView<'_>> {
        None
    }

    fn set_state(&mut self, name: &str, _: &Tensor) -> Result<(), RuntimeError> {
        Err(RuntimeError::State { name: name.to_owned(), problem: "there are no states".to_owned() })
    }

    fn state_names(&self) -> Vec<String> {
        Vec::new()
    }

    fn observe(&mut self, _: Option<Box<dyn Observer>>) -> Option<Box<dyn Observer>> {
        None
    }
}

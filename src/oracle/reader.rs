//! The tensors of a checkpoint as candle asks for them: by Hugging Face's names, f32, one at a time.

use candle_core::{DType, Device, Error, Result, Shape, Tensor};
use candle_nn::var_builder::SimpleBackend;
use candle_nn::{Init, Linear, VarBuilder};

use crate::stored::{Head, Overlay};
use crate::weights::Weights;
use anemeter_convert::checkpoint::Checkpoint;

/// The output projection.
const HEAD: &str = "lm_head.weight";

/// The output projection of a model whose head is its embedding. Packages may store the two apart.
const TIED_HEAD: &str = "tied_head.weight";

/// After the name of a matrix: what a program adds to its outputs besides.
const ADDED: &str = ".added";

/// The values' projection of a layer that makes them by its keys' projection. Packages may store the two apart.
pub(super) const TIED_VALUES: &str = "tied_v_proj";
const KEYS: &str = "k_proj";

/// How an architecture names its tensors when nothing surrounds it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Names {
    /// Before everything but the head.
    pub(super) body: &'static str,
    /// The embedding, after that.
    pub(super) embedding: &'static str,
}

impl Names {
    /// The norm before the head.
    fn last_norm(self) -> &'static str {
        if self.body == GPT2.body { "transformer.ln_f" } else { "model.norm" }
    }
}

/// Llama's names.
pub(super) const LLAMA: Names = Names { body: "model.", embedding: "embed_tokens.weight" };

/// GPT-2's names.
pub(super) const GPT2: Names = Names { body: "transformer.", embedding: "wte.weight" };

struct Reader<'a> {
    weights: Weights<'a>,
    checkpoint: &'a Checkpoint,
    names: Names,
    /// What the checkpoint has in place of `names.body`.
    body: String,
    /// The head as the checkpoint names it.
    head: Option<String>,
    /// Weights that take the place of the checkpoint's.
    overlay: Option<Overlay<'a>>,
}

/// A builder over the tensors of a checkpoint. A head that is not stored is the embedding.
pub(super) fn builder<'a>(
    checkpoint: &'a Checkpoint,
    weights: Weights<'a>,
    names: Names,
    overlay: Option<Overlay<'a>>,
) -> VarBuilder<'a> {
    let body = checkpoint.tensors.keys().find_map(|name| name.strip_suffix(names.embedding));
    let reader = Reader {
        weights,
        checkpoint,
        names,
        body: body.unwrap_or(names.body).to_owned(),
        head: checkpoint.tensors.keys().find(|name| name.ends_with(HEAD)).cloned(),
        overlay,
    };
    VarBuilder::from_backend(Box::new(reader), DType::F32, Device::Cpu)
}

/// The output projection `[vocabulary, hidden]` of a model, which may be its embedding.
pub(super) fn head(tensors: &VarBuilder<'_>, embedding: &Tensor, is_tied: bool) -> Result<Linear> {
    let (name, weight) = match is_tied {
        true if tensors.contains_tensor(TIED_HEAD) => (TIED_HEAD, tensors.get(embedding.shape(), TIED_HEAD)?),
        true => (TIED_HEAD, embedding.clone()),
        false => (HEAD, tensors.get(embedding.shape(), HEAD)?),
    };
    Ok(Linear::new(weight, with_added(tensors, name, None)?))
}

/// A linear map, whose bias may be of the program alone.
pub(super) fn linear(inputs: usize, outputs: usize, has_bias: bool, at: &VarBuilder<'_>) -> Result<Linear> {
    let weight = at.get((outputs, inputs), "weight")?;
    let bias = has_bias.then(|| at.get(outputs, "bias")).transpose()?;
    Ok(Linear::new(weight, with_added(at, "weight", bias)?))
}

/// The bias of a matrix that was read, with what the program adds besides.
pub(super) fn with_added(at: &VarBuilder<'_>, matrix: &str, bias: Option<Tensor>) -> Result<Option<Tensor>> {
    let name = format!("{matrix}{ADDED}");
    if !at.contains_tensor(&name) {
        return Ok(bias);
    }
    let added = at.get_unchecked(&name)?;
    Ok(Some(match bias {
        Some(bias) => (bias + added)?,
        None => added,
    }))
}

impl Reader<'_> {
    /// The name that the checkpoint has for a tensor.
    fn stored_name(&self, name: &str) -> Option<String> {
        let own = |rest: &str| format!("{}{rest}", self.body);
        if name == TIED_HEAD {
            return Some(own(self.names.embedding));
        }
        if name == HEAD {
            return Some(self.head.clone().unwrap_or_else(|| own(self.names.embedding)));
        }
        let name = &name.replace(TIED_VALUES, KEYS);
        // What belongs to no body, such as a classifier, has no prefix anywhere.
        Some(name.strip_prefix(self.names.body).map_or_else(|| name.to_owned(), own))
    }
}

impl SimpleBackend for Reader<'_> {
    fn get(&self, shape: Shape, name: &str, _: Init, dtype: DType, device: &Device) -> Result<Tensor> {
        let tensor = self.get_unchecked(name, dtype, device)?;
        if tensor.shape() == &shape {
            return Ok(tensor);
        }
        let (found, expected) = (tensor.dims(), shape.dims());
        Err(Error::Msg(format!("tensor `{name}` is {found:?}, expected {expected:?}")))
    }

    fn get_unchecked(&self, name: &str, dtype: DType, device: &Device) -> Result<Tensor> {
        let missing = || Error::Msg(format!("tensor `{name}` is missing"));
        if let Some(matrix) = name.strip_suffix(ADDED) {
            return self.overlay.as_ref().and_then(|overlay| overlay.added(matrix)).ok_or_else(missing);
        }
        let tensor = self.weights.tensor(&self.stored_name(name).ok_or_else(missing)?)?;
        let is_head = [HEAD, TIED_HEAD].contains(&name);
        let is_tied = name == TIED_HEAD || self.head.is_none();
        let head = is_head.then_some(Head { is_tied, norm: self.names.last_norm() });
        let others = |name: &str| self.weights.tensor(&self.stored_name(name)?).ok();
        let tensor = match &self.overlay {
            Some(overlay) => overlay.tensor(name, tensor, head, &others)?,
            None => tensor,
        };
        tensor.to_device(device)?.to_dtype(dtype)
    }

    fn contains_tensor(&self, name: &str) -> bool {
        match name {
            _ if name.ends_with(ADDED) => {
                let matrix = name.trim_end_matches(ADDED);
                self.overlay.as_ref().is_some_and(|overlay| overlay.added(matrix).is_some())
            }
            HEAD => self.head.is_some(),
            TIED_HEAD => self.overlay.is_some(),
            _ if name.contains(TIED_VALUES) && self.overlay.is_none() => false,
            _ => self.stored_name(name).is_some_and(|name| self.checkpoint.tensors.contains_key(&name)),
        }
    }
}

//! The tensors of a checkpoint as candle asks for them: by Hugging Face's names, f32, one at a time.

use candle_core::{DType, Device, Error, Result, Shape, Tensor};
use candle_nn::var_builder::SimpleBackend;
use candle_nn::{Init, VarBuilder};
use rayon::prelude::*;

use crate::checkpoint::{Checkpoint, Stored};

/// The output projection.
const HEAD: &str = "lm_head.weight";

/// Elements converted by one thread at a time.
const SPAN: usize = 1 << 18;

/// How an architecture names its tensors when nothing surrounds it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Names {
    /// Before everything but the head.
    pub(super) body: &'static str,
    /// The embedding, after that.
    pub(super) embedding: &'static str,
}

/// Llama's names.
pub(super) const LLAMA: Names = Names { body: "model.", embedding: "embed_tokens.weight" };

/// GPT-2's names.
pub(super) const GPT2: Names = Names { body: "transformer.", embedding: "wte.weight" };

struct Reader<'a> {
    checkpoint: &'a Checkpoint,
    names: Names,
    /// What the checkpoint has in place of `names.body`.
    body: String,
    /// The head as the checkpoint names it.
    head: Option<String>,
}

/// A builder over the tensors of a checkpoint. A head that is not stored is the embedding.
pub(super) fn builder(checkpoint: &Checkpoint, names: Names) -> VarBuilder<'_> {
    let body = checkpoint.tensors.keys().find_map(|name| name.strip_suffix(names.embedding));
    let reader = Reader {
        checkpoint,
        names,
        body: body.unwrap_or(names.body).to_owned(),
        head: checkpoint.tensors.keys().find(|name| name.ends_with(HEAD)).cloned(),
    };
    VarBuilder::from_backend(Box::new(reader), DType::F32, Device::Cpu)
}

impl Reader<'_> {
    fn find(&self, name: &str) -> Option<&Stored> {
        let own = |rest: &str| self.checkpoint.tensors.get(&format!("{}{rest}", self.body));
        if name == HEAD {
            return match &self.head {
                Some(head) => self.checkpoint.tensors.get(head),
                None => own(self.names.embedding),
            };
        }
        name.strip_prefix(self.names.body).and_then(own)
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
        let stored = self.find(name).ok_or_else(missing)?;
        let mut values = vec![0f32; stored.shape.iter().product()];
        values.par_chunks_mut(SPAN).enumerate().for_each(|(i, span)| {
            let start = i * SPAN;
            stored.read(start..start + span.len(), span);
        });
        Tensor::from_vec(values, stored.shape.as_slice(), device)?.to_dtype(dtype)
    }

    fn contains_tensor(&self, name: &str) -> bool {
        if name == HEAD { self.head.is_some() } else { self.find(name).is_some() }
    }
}

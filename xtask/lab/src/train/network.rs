//! The model while it is trained: a Llama decoder of plain candle operations, which have derivatives.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use candle_core::{D, DType, Device, Tensor, Var};
use candle_nn::ops::softmax;
use candle_nn::rotary_emb::rope_slow;

pub(super) const EPSILON: f64 = 1e-5;

#[derive(Clone, Copy)]
pub(super) struct Sizes {
    pub(super) vocabulary: usize,
    pub(super) hidden: usize,
    pub(super) layers: usize,
    pub(super) heads: usize,
    pub(super) kv_heads: usize,
    pub(super) head: usize,
    pub(super) inner: usize,
    pub(super) theta: f32,
}

impl Sizes {
    pub(super) fn parameters(&self) -> usize {
        self.tensors().iter().map(|(_, shape)| shape.iter().product::<usize>()).sum()
    }

    /// Names and shapes as transformers writes them. The head is the embedding.
    fn tensors(&self) -> Vec<(String, Vec<usize>)> {
        let (hidden, inner) = (self.hidden, self.inner);
        let (queries, keys) = (self.heads * self.head, self.kv_heads * self.head);
        let mut all = vec![("model.embed_tokens.weight".to_owned(), vec![self.vocabulary, hidden])];
        for layer in 0..self.layers {
            let of_layer = [
                ("input_layernorm", vec![hidden]),
                ("self_attn.q_proj", vec![queries, hidden]),
                ("self_attn.k_proj", vec![keys, hidden]),
                ("self_attn.v_proj", vec![keys, hidden]),
                ("self_attn.o_proj", vec![hidden, queries]),
                ("post_attention_layernorm", vec![hidden]),
                ("mlp.gate_proj", vec![inner, hidden]),
                ("mlp.up_proj", vec![inner, hidden]),
                ("mlp.down_proj", vec![hidden, inner]),
            ];
            all.extend(of_layer.map(|(name, shape)| (format!("model.layers.{layer}.{name}.weight"), shape)));
        }
        all.push(("model.norm.weight".to_owned(), vec![hidden]));
        all
    }
}

pub(super) struct Network {
    pub(super) sizes: Sizes,
    weights: BTreeMap<String, Var>,
    cos: Tensor,
    sin: Tensor,
    mask: Tensor,
}

impl Network {
    /// Norms at one, everything else normally distributed, from a seed.
    pub(super) fn new(sizes: Sizes, context: usize, seed: u64) -> Result<Network> {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut weights = BTreeMap::new();
        for (name, shape) in sizes.tensors() {
            let values = initial(&shape, &mut random);
            weights.insert(name, Var::from_vec(values, shape, &Device::Cpu)?);
        }
        let half = sizes.head / 2;
        let angles: Vec<f32> = (0..context * half)
            .map(|index| (index / half) as f32 / sizes.theta.powf((index % half) as f32 / half as f32))
            .collect();
        let angles = Tensor::from_vec(angles, (context, half), &Device::Cpu)?;
        let mask: Vec<f32> = (0..context * context)
            .map(|index| if index % context > index / context { f32::NEG_INFINITY } else { 0.0 })
            .collect();
        let mask = Tensor::from_vec(mask, (context, context), &Device::Cpu)?;
        Ok(Network { sizes, weights, cos: angles.cos()?, sin: angles.sin()?, mask })
    }

    pub(super) fn variables(&self) -> Vec<Var> {
        self.weights.values().cloned().collect()
    }

    /// Names and values, at the precision they are trained in.
    pub(super) fn weights(&self) -> impl Iterator<Item = (&String, &Tensor)> {
        self.weights.iter().map(|(name, value)| (name, value.as_tensor()))
    }

    /// `[rows, length]` token ids to `[rows, length, vocabulary]` logits.
    pub(super) fn logits(&self, ids: &Tensor) -> Result<Tensor> {
        let (rows, length) = ids.dims2()?;
        let embedding = self.weight("model.embed_tokens")?;
        let mut stream =
            embedding.index_select(&ids.flatten_all()?, 0)?.reshape((rows, length, self.sizes.hidden))?;
        for layer in 0..self.sizes.layers {
            let part = |name: &str| format!("model.layers.{layer}.{name}");
            let attended =
                self.attention(&self.norm(&stream, &part("input_layernorm"))?, &part("self_attn"))?;
            stream = (stream + attended)?;
            let mixed = self.mlp(&self.norm(&stream, &part("post_attention_layernorm"))?, &part("mlp"))?;
            stream = (stream + mixed)?;
        }
        let normed = self.norm(&stream, "model.norm")?;
        times(&normed, embedding)
    }

    fn attention(&self, input: &Tensor, name: &str) -> Result<Tensor> {
        let (rows, length, _) = input.dims3()?;
        let Sizes { heads, kv_heads, head, .. } = self.sizes;
        let split = |part: &str, count: usize| -> Result<Tensor> {
            let flat = self.linear(input, &format!("{name}.{part}_proj"))?;
            Ok(flat.reshape((rows, length, count, head))?.transpose(1, 2)?.contiguous()?)
        };
        let turned = |heads: Tensor| rope_slow(&heads, &self.cos, &self.sin);
        let queries = turned(split("q", heads)?)?;
        let keys = self.repeated(&turned(split("k", kv_heads)?)?)?;
        let values = self.repeated(&split("v", kv_heads)?)?;
        let scores = (queries.matmul(&keys.t()?)? * (head as f64).powf(-0.5))?;
        let weights = softmax(&scores.broadcast_add(&self.mask)?, D::Minus1)?;
        let mixed = weights.matmul(&values)?.transpose(1, 2)?.reshape((rows, length, heads * head))?;
        self.linear(&mixed, &format!("{name}.o_proj"))
    }

    /// Each key or value head as often as query heads share it.
    fn repeated(&self, heads: &Tensor) -> Result<Tensor> {
        let (rows, kv_heads, length, head) = heads.dims4()?;
        let times = self.sizes.heads / kv_heads;
        let wide = heads.unsqueeze(2)?.broadcast_as((rows, kv_heads, times, length, head))?;
        Ok(wide.reshape((rows, kv_heads * times, length, head))?)
    }

    fn mlp(&self, input: &Tensor, name: &str) -> Result<Tensor> {
        let gate = self.linear(input, &format!("{name}.gate_proj"))?.silu()?;
        let up = self.linear(input, &format!("{name}.up_proj"))?;
        self.linear(&(gate * up)?, &format!("{name}.down_proj"))
    }

    fn linear(&self, input: &Tensor, name: &str) -> Result<Tensor> {
        times(input, self.weight(name)?)
    }

    fn norm(&self, input: &Tensor, name: &str) -> Result<Tensor> {
        let square = input.sqr()?.mean_keepdim(D::Minus1)?;
        let scaled = input.broadcast_div(&(square + EPSILON)?.sqrt()?)?;
        Ok(scaled.broadcast_mul(self.weight(name)?)?)
    }

    fn weight(&self, name: &str) -> Result<&Tensor> {
        let var =
            self.weights.get(&format!("{name}.weight")).with_context(|| format!("there is no `{name}`"))?;
        debug_assert_eq!(var.dtype(), DType::F32);
        Ok(var.as_tensor())
    }
}

/// `[rows, length, in]` by `[out, in]`, as one product: candle would copy the weights for each row.
fn times(input: &Tensor, weight: &Tensor) -> Result<Tensor> {
    let (rows, length, width) = input.dims3()?;
    let flat = input.reshape((rows * length, width))?.matmul(&weight.t()?)?;
    Ok(flat.reshape((rows, length, weight.dim(0)?))?)
}

fn initial(shape: &[usize], random: &mut fastrand::Rng) -> Vec<f32> {
    let count = shape.iter().product();
    if shape.len() == 1 {
        return vec![1.0; count];
    }
    let spread = (*shape.last().unwrap_or(&1) as f32).powf(-0.5) * 0.7;
    // The sum of twelve uniform numbers is near enough to a normal one.
    (0..count).map(|_| ((0..12).map(|_| random.f32()).sum::<f32>() - 6.0) * spread).collect()
}

//! Linear attention by the gated delta rule (Yang et al. 2024), as Qwen 3.5 has it in three of four layers.
//!
//! Queries, keys, values and both gates are made in fp16. The rule itself is in fp32, and so is its state: a state of fp16
//! forgets what is smaller than its rounding, token by token. fp32 is for CPU and GPU; the Neural Engine has the rest.

use super::attention::Tokens;
use super::causal_conv::causal_conv;
use super::delta_chunks::{self, Sequence};
use super::error::{LowerError, Result};
use super::graph::{CHANNELS, Graph};
use super::mlp::activate;
use super::recurrent::RecurrentStates;
use crate::model::{Activation, DeltaNet, Weight};
use anemeter_kernels::tensor::Tensor;
use anemeter_mil::ValueId;

/// Added to the square of a length before its root is taken, as the network was trained.
const LENGTH_EPSILON: f32 = 1e-6;
/// The axis of tokens where heads have an axis of their own, and that of a head's width.
pub(super) const TOKENS: usize = 2;
pub(super) const WIDTH: usize = 3;

/// Sizes of a delta rule in a function.
#[derive(Debug, Clone, Copy)]
pub(super) struct Heads {
    pub(super) batch: usize,
    /// Key heads of all sequences.
    pub(super) rows: usize,
    /// Value heads of a key head.
    pub(super) group: usize,
    pub(super) tokens: usize,
    pub(super) key_dim: usize,
    pub(super) value_dim: usize,
}

impl Heads {
    fn of(at: &str, mixer: &DeltaNet, tokens: &Tokens) -> Result<Heads> {
        let DeltaNet { key_heads, value_heads, key_dim, value_dim, .. } = *mixer;
        if key_heads == 0 || !value_heads.is_multiple_of(key_heads) || key_dim * value_dim == 0 {
            let message = format!("{value_heads} heads of values cannot share the keys of {key_heads}");
            return Err(LowerError::model(at, message));
        }
        let one_length = || LowerError::model(at, "a delta rule is lowered for one length at a time");
        Ok(Heads {
            batch: tokens.batch,
            rows: tokens.batch * key_heads,
            group: value_heads / key_heads,
            tokens: tokens.count.ok_or_else(one_length)?,
            key_dim,
            value_dim,
        })
    }

    fn value_heads(self) -> usize {
        self.rows / self.batch * self.group
    }
}

/// What a delta rule takes, in fp32: queries and keys `[rows, 1, tokens, key_dim]`, values `[rows, group, tokens, value_dim]`,
/// shares that are written and logarithms of what is kept `[rows, group, tokens, 1]`.
pub(super) struct DeltaInputs {
    pub(super) query: ValueId,
    pub(super) key: ValueId,
    pub(super) value: ValueId,
    pub(super) beta: ValueId,
    pub(super) log_decay: ValueId,
}

/// A delta rule over `x`, with its output projection.
pub(super) fn delta_net(
    graph: &mut Graph<'_>,
    x: ValueId,
    mixer: &DeltaNet,
    (hidden, tokens): (usize, &Tokens),
    recurrent: &mut RecurrentStates,
) -> Result {
    let heads = Heads::of(graph.scope(), mixer, tokens)?;
    let (keys, values) = (mixer.key_width(), mixer.value_width());
    let qkv = graph.linear("qkv", x, &mixer.qkv, (2 * keys + values, hidden))?;
    let qkv = graph.within("conv", |graph| causal_conv(graph, qkv, &mixer.conv, tokens, recurrent))?;
    let qkv = activate(graph, "active", qkv, mixer.activation)?;
    let query = graph.slice("query", qkv, CHANNELS, 0..keys)?;
    let key = graph.slice("key", qkv, CHANNELS, keys..2 * keys)?;
    let value = graph.slice("value", qkv, CHANNELS, 2 * keys..2 * keys + values)?;
    let by_key = |width| (1, width);
    let query = by_token(graph, "query", query, (heads, by_key(heads.key_dim)))?;
    let key = by_token(graph, "key", key, (heads, by_key(heads.key_dim)))?;
    let query = unit_length(graph, "query_unit", query)?;
    let inputs = DeltaInputs {
        query: graph.binary("mul", "query_scaled", query, (heads.key_dim as f32).powf(-0.5))?,
        key: unit_length(graph, "key_unit", key)?,
        value: by_token(graph, "value", value, (heads, (heads.group, heads.value_dim)))?,
        beta: beta(graph, x, mixer, (hidden, heads), recurrent)?,
        log_decay: log_decay(graph, x, mixer, (hidden, heads), recurrent)?,
    };
    let past = recurrent.delta.past(graph, heads.value_heads())?;
    let (mixed, state) = match past {
        Some(past) => graph.within("rule", |graph| one_token(graph, &inputs, past, heads))?,
        None => graph.within("rule", |graph| delta_chunks::sequence(graph, &inputs, Sequence::of(heads)))?,
    };
    if recurrent.delta.keeps() {
        let shape = [heads.batch, heads.value_heads(), heads.key_dim, heads.value_dim].map(Some);
        recurrent.delta.keep(graph.reshape("delta_state_new", state, shape)?);
    }
    let normal = graph.within("norm", |graph| normal(graph, mixed, mixer, heads))?;
    let gate = graph.linear("gate", x, &mixer.gate, (values, hidden))?;
    let gate = activate(graph, "gate_active", gate, Activation::Silu)?;
    let gated = graph.binary("mul", "gated", normal, gate)?;
    graph.linear("output", gated, &mixer.output, (hidden, values))
}

/// Channels of heads in fp32, `[rows, heads of a row, tokens, width]`.
fn by_token(
    graph: &mut Graph<'_>,
    label: &str,
    x: ValueId,
    (heads, (group, width)): (Heads, (usize, usize)),
) -> Result {
    graph.within(label, |graph| {
        let Heads { rows, tokens, .. } = heads;
        let by_token = match tokens {
            1 => graph.reshape("tokens", x, [rows, group, 1, width].map(Some))?,
            _ => {
                let by_width = graph.reshape("heads", x, [rows, group, width, tokens].map(Some))?;
                graph.transpose("tokens", by_width, [0, 1, 3, 2])?
            }
        };
        graph.cast("fp32", by_token, "fp32")
    })
}

/// Divides the last axis by its length.
fn unit_length(graph: &mut Graph<'_>, label: &str, x: ValueId) -> Result {
    graph.within(label, |graph| {
        let squares = graph.binary("mul", "squares", x, x)?;
        let sum = graph.reduce("reduce_sum", "sum", squares, WIDTH)?;
        let inverse = graph.rsqrt_f32("inverse", sum, LENGTH_EPSILON)?;
        graph.binary("mul", "out", x, inverse)
    })
}

/// How much of each value is written; nothing of padding.
fn beta(
    graph: &mut Graph<'_>,
    x: ValueId,
    mixer: &DeltaNet,
    (hidden, heads): (usize, Heads),
    recurrent: &RecurrentStates,
) -> Result {
    let beta = graph.linear("beta", x, &mixer.beta, (heads.value_heads(), hidden))?;
    graph.within("beta", |graph| {
        let beta = graph.cast("fp32", beta, "fp32")?;
        let share = graph.unary("sigmoid", "share", beta)?;
        of_tokens(graph, share, heads, recurrent)
    })
}

/// The logarithm of how much is kept: `-exp(decay_log) softplus(decay(x) + decay_bias)`. Padding forgets nothing.
fn log_decay(
    graph: &mut Graph<'_>,
    x: ValueId,
    mixer: &DeltaNet,
    (hidden, heads): (usize, Heads),
    recurrent: &RecurrentStates,
) -> Result {
    let count = heads.value_heads();
    let decay = graph.linear("decay", x, &mixer.decay, (count, hidden))?;
    graph.within("decay", |graph| {
        let decay = graph.cast("fp32", decay, "fp32")?;
        let bias = vector(graph, &mixer.decay_bias, count, |bias| bias)?;
        let biased = graph.binary("add", "biased", decay, &bias)?;
        let soft = graph.unary("softplus", "soft", biased)?;
        let rate = vector(graph, &mixer.decay_log, count, |log| -log.exp())?;
        let log = graph.binary("mul", "log", soft, &rate)?;
        of_tokens(graph, log, heads, recurrent)
    })
}

/// `[batch, heads, 1, tokens]` as `[rows, group, tokens, 1]`, zero for padding.
fn of_tokens(graph: &mut Graph<'_>, x: ValueId, heads: Heads, recurrent: &RecurrentStates) -> Result {
    let x = match recurrent.present {
        Some(present) => {
            let present = graph.cast("present", present, "fp32")?;
            graph.binary("mul", "of_tokens", x, present)?
        }
        None => x,
    };
    graph.reshape("by_head", x, [heads.rows, heads.group, heads.tokens, 1].map(Some))
}

/// A number per head in fp32, `[1, heads, 1, 1]`.
fn vector(graph: &Graph<'_>, weight: &Weight, count: usize, map: impl Fn(f32) -> f32) -> Result<Tensor> {
    if weight.shape[..] != [count] {
        return Err(LowerError::Weight {
            at: graph.scope().to_owned(),
            name: weight.name.clone(),
            found: weight.shape.to_vec(),
            expected: vec![count],
        });
    }
    let mut values = vec![0.0; count];
    weight.read(0..count, &mut values);
    values.iter_mut().for_each(|value| *value = map(*value));
    if let Some(bad) = values.iter().find(|value| !value.is_finite()) {
        let message = format!("weight `{}` gives {bad}", weight.name);
        return Err(LowerError::model(graph.scope(), message));
    }
    Tensor::from_slice(&[1, count, 1, 1], &values)
        .map_err(|e| LowerError::model(graph.scope(), e.to_string()))
}

/// One token after a state: what comes out `[rows, group, 1, value_dim]`, and the state after it.
fn one_token(
    graph: &mut Graph<'_>,
    inputs: &DeltaInputs,
    past: ValueId,
    heads: Heads,
) -> Result<(ValueId, ValueId)> {
    let Heads { rows, group, key_dim, value_dim, .. } = heads;
    let past = graph.reshape("past", past, [rows, group, key_dim, value_dim].map(Some))?;
    let decay = graph.unary("exp", "decay", inputs.log_decay)?;
    let kept = graph.binary("mul", "kept", past, decay)?;
    let known = graph.matmul("known", (inputs.key, false), (kept, false))?;
    let error = graph.binary("sub", "error", inputs.value, known)?;
    let correction = graph.binary("mul", "correction", error, inputs.beta)?;
    let column = graph.reshape("key_column", inputs.key, [rows, 1, key_dim, 1].map(Some))?;
    let written = graph.binary("mul", "written", column, correction)?;
    let state = graph.binary("add", "state", kept, written)?;
    Ok((graph.matmul("read", (inputs.query, false), (state, false))?, state))
}

/// Each head over the root of its mean square, in channels of fp16 again.
fn normal(graph: &mut Graph<'_>, x: ValueId, mixer: &DeltaNet, heads: Heads) -> Result {
    let Heads { batch, rows, group, tokens, value_dim, .. } = heads;
    let squares = graph.binary("mul", "squares", x, x)?;
    let variance = graph.reduce("reduce_mean", "variance", squares, WIDTH)?;
    let inverse = graph.rsqrt_f32("inverse", variance, mixer.norm.epsilon)?;
    let normal = graph.binary("mul", "normal", x, inverse)?;
    let normal = graph.cast("fp16", normal, "fp16")?;
    let weight = graph.whole("weight", &mixer.norm.weight, &[value_dim], &[1, 1, 1, value_dim])?;
    let mut out = graph.binary("mul", "scaled", normal, weight)?;
    if tokens > 1 {
        let by_head = graph.reshape("heads", out, [rows, group, tokens, value_dim].map(Some))?;
        out = graph.transpose("channels", by_head, [0, 1, 3, 2])?;
    }
    graph.reshape("out", out, [batch, rows / batch * group * value_dim, 1, tokens].map(Some))
}

//! What mixes the tokens of a layer: attention, a gated short convolution, or a gated delta rule. The last two keep a state
//! of fixed size instead of keys and values of every token.

use super::graph::{Activation, Attention, Linear, Norm};
use super::weight::Weight;

/// The part of a layer that mixes tokens.
#[derive(Debug, Clone)]
pub enum Mixer {
    /// Causal self-attention.
    Attention(Attention),
    /// A convolution over the latest tokens between gates (LFM2).
    ShortConv(ShortConv),
    /// Linear attention whose state is corrected by the gated delta rule (Yang et al. 2024).
    DeltaNet(DeltaNet),
}

/// A gated short convolution: `output(after * conv(before * value))`.
#[derive(Debug, Clone)]
pub struct ShortConv {
    /// Projects to what the convolution's input is multiplied by.
    pub before: Linear,
    /// Projects to what its output is multiplied by.
    pub after: Linear,
    /// Projects to its input.
    pub value: Linear,
    /// Over the tokens.
    pub conv: CausalConv,
    /// Back to the hidden size.
    pub output: Linear,
}

/// A convolution of each channel with its own kernel over a token and those before it.
#[derive(Debug, Clone)]
pub struct CausalConv {
    /// `[channels, 1, kernel]`; the last element is for the token itself.
    pub weight: Weight,
    /// Added to the sums, if any.
    pub bias: Option<Weight>,
}

impl CausalConv {
    /// Channels, and tokens of a window.
    pub fn sizes(&self) -> (usize, usize) {
        let size = |axis: usize| self.weight.shape.get(axis).copied().unwrap_or(0);
        (size(0), size(2))
    }

    /// Numbers in kernels and biases.
    pub fn element_count(&self) -> usize {
        self.weight.element_count() + self.bias.as_ref().map_or(0, Weight::element_count)
    }
}

/// Linear attention by the gated delta rule. With keys `k` and queries `q` of unit length, a state `S` of each head becomes
/// `S' = decay S + k (beta (v - k^T decay S))^T`, and `q^T S'` is what comes out. It is computed in fp32.
#[derive(Debug, Clone)]
pub struct DeltaNet {
    /// Heads of queries and of keys.
    pub key_heads: usize,
    /// Heads of values; so many in a row share the keys of one.
    pub value_heads: usize,
    /// Width of a query, and of a key.
    pub key_dim: usize,
    /// Width of a value.
    pub value_dim: usize,
    /// Projects to queries, keys and values, one after the other.
    pub qkv: Linear,
    /// Over queries, keys and values, before the activation.
    pub conv: CausalConv,
    /// Applied to what the convolution gives.
    pub activation: Activation,
    /// Projects to the gate of the output.
    pub gate: Linear,
    /// Projects to how much of a value is written, before a sigmoid; one per value head.
    pub beta: Linear,
    /// Projects to how much is forgotten, one per value head.
    pub decay: Linear,
    /// Added to that before a softplus.
    pub decay_bias: Weight,
    /// The logarithm of what the softplus is multiplied by.
    pub decay_log: Weight,
    /// Norm of each head's output, before the gate.
    pub norm: Norm,
    /// Back to the hidden size.
    pub output: Linear,
}

impl DeltaNet {
    /// Channels of queries, or of keys.
    pub fn key_width(&self) -> usize {
        self.key_heads * self.key_dim
    }

    /// Channels of values.
    pub fn value_width(&self) -> usize {
        self.value_heads * self.value_dim
    }
}

impl From<Attention> for Mixer {
    fn from(attention: Attention) -> Mixer {
        Mixer::Attention(attention)
    }
}

impl Mixer {
    /// The attention, if it is that.
    pub fn attention(&self) -> Option<&Attention> {
        match self {
            Mixer::Attention(attention) => Some(attention),
            Mixer::ShortConv(_) | Mixer::DeltaNet(_) => None,
        }
    }

    /// The same, to change it.
    pub fn attention_mut(&mut self) -> Option<&mut Attention> {
        match self {
            Mixer::Attention(attention) => Some(attention),
            Mixer::ShortConv(_) | Mixer::DeltaNet(_) => None,
        }
    }

    /// Its convolution, if it has one.
    pub fn conv(&self) -> Option<&CausalConv> {
        match self {
            Mixer::Attention(_) => None,
            Mixer::ShortConv(mixer) => Some(&mixer.conv),
            Mixer::DeltaNet(mixer) => Some(&mixer.conv),
        }
    }

    /// Its delta rule, if it has one.
    pub fn delta_net(&self) -> Option<&DeltaNet> {
        match self {
            Mixer::DeltaNet(mixer) => Some(mixer),
            Mixer::Attention(_) | Mixer::ShortConv(_) => None,
        }
    }

    /// What it is called in a program.
    pub fn name(&self) -> &'static str {
        match self {
            Mixer::Attention(_) => "attention",
            Mixer::ShortConv(_) => "short_conv",
            Mixer::DeltaNet(_) => "delta_net",
        }
    }

    /// Its matrices, with their names in a program.
    pub fn matrices(&self) -> Vec<(&'static str, &Linear)> {
        match self {
            Mixer::Attention(Attention { query, key, value, output, output_gate, .. }) => {
                let gate = output_gate.as_ref().map(|gate| ("gate", gate));
                let four = [("query", query), ("key", key), ("value", value), ("output", output)];
                four.into_iter().chain(gate).collect()
            }
            Mixer::ShortConv(ShortConv { before, after, value, output, .. }) => {
                vec![("before", before), ("after", after), ("value", value), ("output", output)]
            }
            Mixer::DeltaNet(DeltaNet { qkv, gate, beta, decay, output, .. }) => {
                vec![("qkv", qkv), ("gate", gate), ("beta", beta), ("decay", decay), ("output", output)]
            }
        }
    }

    /// Norms of heads.
    pub fn norms(&self) -> Vec<&Norm> {
        match self {
            // A norm of values has no weight.
            Mixer::Attention(attention) => attention.query_norm.iter().chain(&attention.key_norm).collect(),
            Mixer::ShortConv(_) => Vec::new(),
            Mixer::DeltaNet(mixer) => vec![&mixer.norm],
        }
    }

    /// Numbers in what is neither a matrix nor a norm.
    pub fn other_elements(&self) -> usize {
        let conv = self.conv().map_or(0, CausalConv::element_count);
        let vectors = self
            .delta_net()
            .map_or(0, |mixer| mixer.decay_bias.element_count() + mixer.decay_log.element_count());
        conv + vectors
    }

    /// Bytes of the state that it keeps of a sequence of any length.
    pub fn state_bytes(&self) -> u64 {
        let conv = self.conv().map(CausalConv::sizes);
        let columns = conv.map_or(0, |(channels, kernel)| 2 * channels * kernel.saturating_sub(1));
        let matrices =
            self.delta_net().map_or(0, |mixer| 4 * mixer.value_heads * mixer.key_dim * mixer.value_dim);
        (columns + matrices) as u64
    }
}

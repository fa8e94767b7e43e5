//! The text model of Gemma 4 (E2B and E4B, and dense ones without inputs of layers): Gemma 3's four norms, which scale by their
//! weight, wider heads in layers without a window, of which a part is rotated, normed values, the last layers with keys and
//! values of earlier ones, inputs of each layer, and a factor on what leaves a layer.
//!
//! Of a checkpoint that also sees images or hears, the text model is taken and other tensors are left.

use super::family::{self, Family};
use super::rotary::{self, Defaults, USUAL};
use super::{Architecture, activation, gemma3, windowed};
use crate::checkpoint::Config;
use crate::model::graph::{Activation, Attention, Decoder, Layer, Mlp, Norm, NormKind, Residual};
use crate::model::keys::{Keys, Result, Size};
use crate::model::per_layer::{PerLayerInputs, PerLayerMix};
use crate::model::rope::Rope;
use crate::model::tensors::Tensors;

pub(super) const DEF: Architecture = Architecture {
    name: "gemma4",
    classes: &["Gemma4ForCausalLM", "Gemma4ForConditionalGeneration"],
    model_types: &["gemma4_text", "gemma4"],
    harmless: |name| {
        let others = ["vision_tower.", "audio_tower.", "embed_vision.", "embed_audio."];
        let inner = name.strip_prefix("model.").unwrap_or(name);
        family::harmless(name) || others.iter().any(|other| inner.starts_with(other))
    },
    build,
    ..gemma3::DEF
};

/// What configurations leave out.
const DEFAULTS: &[(&str, usize)] = &[
    ("vocab_size", 262_144),
    ("num_attention_heads", 8),
    ("num_key_value_heads", 4),
    ("head_dim", 256),
    ("global_head_dim", 512),
    ("max_position_embeddings", 131_072),
    ("sliding_window", 512),
    ("vocab_size_per_layer_input", 262_144),
];

/// Width of a layer's input, unless a configuration says another or zero.
const PER_LAYER: usize = 256;
const GLOBAL_BASE: f64 = 1_000_000.0;
/// Every so many layers one has no window.
const PATTERN: usize = 6;

fn build(config: &Config, tensors: &mut Tensors<'_>) -> Result<Decoder> {
    let whole = Keys::new(config, &[]);
    let keys = whole.section("text_config")?.unwrap_or(whole).with_defaults(DEFAULTS);
    refuse_others(&keys)?;
    let family = Family {
        activation: activation(&keys, "hidden_activation", Activation::GeluTanh)?,
        tied_by_default: true,
        ..Family::read(DEF.name, &keys, tensors)?
    };
    let gemma = Gemma4::read(&keys, &family)?;
    let mut max_positions = 0;
    let kinds = (0..family.layers).map(|i| gemma.kind(&keys, i)).collect::<Result<Vec<Kind>>>()?;
    let sources = gemma.sources(&keys)?;
    if let Some(kind) = kinds.first() {
        max_positions = kind.max_positions;
    }
    let mut decoder = family.decoder(&keys, tensors, max_positions, |tensors, i, at| {
        gemma.layer(tensors, at, &kinds[i], sources[i])
    })?;
    decoder.embedding_scale = gemma3::embedding_scale(&decoder.embedding, decoder.hidden);
    decoder.head.softcap = keys.opt_positive("final_logit_softcapping")?.map(|cap| cap as f32);
    decoder.per_layer = gemma.per_layer_inputs(&keys, tensors)?;
    Ok(decoder)
}

fn refuse_others(keys: &Keys) -> Result<()> {
    if keys.opt_text("use_bidirectional_attention")? == Some("all") {
        return Err(
            keys.wrong("use_bidirectional_attention", "is `all`, but only causal attention is supported")
        );
    }
    if keys.bool_or("enable_moe_block", false)? {
        let problem =
            "is true, but gathers of experts' weights leave the Neural Engine: take a dense Gemma 4";
        return Err(keys.wrong("enable_moe_block", problem));
    }
    Ok(())
}

/// What a layer is among the others.
struct Kind {
    window: Option<usize>,
    heads_of: (Size, Size),
    rope: Rope,
    max_positions: usize,
}

struct Gemma4<'a> {
    family: &'a Family,
    windowed: Vec<bool>,
    window: usize,
    /// The first layer without keys and values of its own.
    first_shared: usize,
    /// Whether MLPs of those layers are twice as wide.
    is_doubled: bool,
    /// Whether layers without a window take keys for values.
    keys_are_values: bool,
    bias: bool,
    per_layer: Option<Size>,
}

impl<'a> Gemma4<'a> {
    fn read(keys: &Keys, family: &'a Family) -> Result<Gemma4<'a>> {
        let shared = keys.count_or("num_kv_shared_layers", 0)?;
        let Some(first_shared) = family.layers.checked_sub(shared).filter(|&first| first > 0) else {
            let problem = format!("is {shared}, expected less than the {} layers", family.layers);
            return Err(keys.wrong("num_kv_shared_layers", &problem));
        };
        let mut windowed = windowed(keys, family.layers, |layer| !(layer + 1).is_multiple_of(PATTERN))?;
        // transformers takes the last layer so, whatever is said.
        if let Some(last) = windowed.last_mut() {
            *last = false;
        }
        let width = keys.count_or("hidden_size_per_layer_input", PER_LAYER)?;
        let from = "hidden_size_per_layer_input".to_owned();
        Ok(Gemma4 {
            family,
            windowed,
            window: keys.size("sliding_window")?.value,
            first_shared,
            is_doubled: keys.bool_or("use_double_wide_mlp", false)?,
            keys_are_values: keys.bool_or("attention_k_eq_v", false)?,
            bias: keys.bool_or("attention_bias", false)?,
            per_layer: (width > 0).then_some(Size { value: width, from }),
        })
    }

    /// Heads, window and rotation of a layer.
    fn kind(&self, keys: &Keys, index: usize) -> Result<Kind> {
        let is_windowed = self.windowed[index];
        let mut heads_of = (self.family.kv_heads.clone(), self.family.head_dim.clone());
        let own = match keys.section("per_layer_config")? {
            Some(layers) => layers.section(&index.to_string())?,
            None if is_windowed => None,
            None => {
                heads_of.1 = keys.size("global_head_dim")?;
                if let Some(kv_heads) =
                    keys.opt_size("num_global_key_value_heads")?.filter(|_| self.keys_are_values)
                {
                    heads_of.0 = kv_heads;
                }
                None
            }
        };
        if let Some(own) = own {
            heads_of.0 = own.opt_size("num_key_value_heads")?.unwrap_or(heads_of.0);
            heads_of.1 = own.opt_size("head_dim")?.unwrap_or(heads_of.1);
        }
        let (name, base, kind) = match is_windowed {
            true => ("sliding_attention", rotary::BASE, None),
            false => ("full_attention", GLOBAL_BASE, Some(0.25)),
        };
        let section = keys.section("rope_parameters")?.map(|all| all.section(name)).transpose()?.flatten();
        let defaults = Defaults { base, ..USUAL };
        let rotary = match (&section, kind) {
            (None, Some(share)) => rotary::proportional(keys, &heads_of.1, (base, share))?,
            _ => rotary::scaled(keys, section.as_ref(), &heads_of.1, defaults)?,
        };
        let window = is_windowed.then_some(self.window);
        Ok(Kind { window, heads_of, rope: rotary.rope, max_positions: rotary.max_positions })
    }

    /// The layers whose keys and values others see: the last of the same sort that has its own.
    fn sources(&self, keys: &Keys) -> Result<Vec<Option<usize>>> {
        let source = |index: usize| match index < self.first_shared {
            true => Ok(None),
            false => {
                let before = self.windowed[..self.first_shared].iter();
                let source = before.clone().rposition(|windowed| *windowed == self.windowed[index]);
                let problem = format!("leaves layer {index} no earlier layer of its sort to share with");
                source.map(Some).ok_or_else(|| keys.wrong("num_kv_shared_layers", &problem))
            }
        };
        (0..self.family.layers).map(source).collect()
    }

    fn layer(&self, tensors: &mut Tensors<'_>, at: &str, kind: &Kind, source: Option<usize>) -> Layer {
        let family = self.family;
        let is_wide = self.is_doubled && source.is_some();
        let attention = self.attention(tensors, at, kind, source);
        let mlp = self.mlp(tensors, at, is_wide);
        let mut norm = |name: &str| family.norm(tensors, &format!("{at}.{name}"), &family.hidden);
        let norms = [
            norm("input_layernorm"),
            norm("post_attention_layernorm"),
            norm("pre_feedforward_layernorm"),
            norm("post_feedforward_layernorm"),
        ];
        let [attention_norm, post_attention_norm, mlp_norm, post_mlp_norm] = norms.map(Some);
        let per_layer = self.per_layer.as_ref().map(|width| self.mix(tensors, at, width));
        let scalar = format!("{at}.layer_scalar");
        let scale = if tensors.has(&scalar) { tensors.number(&scalar) } else { 1.0 };
        Layer {
            attention_norm,
            mixer: attention.into(),
            post_attention_norm,
            mlp_norm,
            mlp,
            post_mlp_norm,
            residual: Residual::Sequential,
            per_layer,
            scale,
        }
    }

    fn attention(
        &self,
        tensors: &mut Tensors<'_>,
        at: &str,
        kind: &Kind,
        source: Option<usize>,
    ) -> Attention {
        let Family { heads, hidden, .. } = self.family;
        let (kv_heads, head_dim) = &kind.heads_of;
        let at = format!("{at}.self_attn");
        let (queries, keys) = (heads.times(head_dim), kv_heads.times(head_dim));
        let map = |tensors: &mut Tensors<'_>, name: &str, out: &Size| {
            tensors.linear(&format!("{at}.{name}"), out, hidden, self.bias)
        };
        let query = map(tensors, "q_proj", &queries);
        let (key, value) = match source {
            // Published checkpoints have them, for nothing.
            Some(_) => (
                tensors.no_rows(&format!("{at}.k_proj"), hidden),
                tensors.no_rows(&format!("{at}.v_proj"), hidden),
            ),
            None => {
                let key = map(tensors, "k_proj", &keys);
                let is_same = self.keys_are_values && kind.window.is_none();
                let value = if is_same { key.clone() } else { map(tensors, "v_proj", &keys) };
                (key, value)
            }
        };
        let output = tensors.linear(&format!("{at}.o_proj"), hidden, &queries, self.bias);
        let query_norm = self.family.norm(tensors, &format!("{at}.q_norm"), head_dim);
        let key_norm = source.is_none().then(|| self.family.norm(tensors, &format!("{at}.k_norm"), head_dim));
        if source.is_some() {
            ["k_proj", "v_proj", "k_norm", "v_norm"].iter().for_each(|name| {
                ["weight", "bias"].iter().for_each(|end| tensors.leave(&format!("{at}.{name}.{end}")));
            });
        }
        Attention {
            heads: heads.value,
            kv_heads: kv_heads.value,
            head_dim: head_dim.value,
            scale: 1.0,
            query,
            key,
            value,
            output,
            query_norm: Some(query_norm),
            key_norm,
            value_norm: source.is_none().then(|| Norm {
                kind: NormKind::Rms,
                weight: tensors.ones(&format!("{at}.v_norm.weight"), head_dim),
                bias: None,
                epsilon: self.family.epsilon,
            }),
            rope: Some(kind.rope.clone()),
            window: kind.window,
            softcap: None,
            growth: None,
            shared_from: source,
            output_gate: None,
        }
    }

    fn mlp(&self, tensors: &mut Tensors<'_>, at: &str, is_wide: bool) -> Mlp {
        let Family { hidden, intermediate, activation, .. } = self.family;
        let twice = Size { value: 2, from: "2".to_owned() };
        let wide = if is_wide { intermediate.times(&twice) } else { intermediate.clone() };
        let mut map = |name: &str, out: &Size, input: &Size| {
            tensors.linear(&format!("{at}.mlp.{name}"), out, input, false)
        };
        Mlp::Gated {
            gate: map("gate_proj", &wide, hidden),
            up: map("up_proj", &wide, hidden),
            activation: *activation,
            down: map("down_proj", hidden, &wide),
        }
    }

    /// A layer's input is the sum of what was looked up and of the projection, divided by the root of two. The division is left
    /// out: the norm that follows takes it back, but for epsilon.
    fn mix(&self, tensors: &mut Tensors<'_>, at: &str, width: &Size) -> PerLayerMix {
        let hidden = &self.family.hidden;
        let norm = self.family.norm(tensors, &format!("{at}.post_per_layer_input_norm"), hidden);
        PerLayerMix {
            gate: tensors.linear(&format!("{at}.per_layer_input_gate"), width, hidden, false),
            activation: self.family.activation,
            projection: tensors.linear(&format!("{at}.per_layer_projection"), hidden, width, false),
            norm: Norm { epsilon: 2.0 * norm.epsilon, ..norm },
        }
    }

    /// The projection is divided by the root of its width, which its norm takes back but for epsilon.
    fn per_layer_inputs(&self, keys: &Keys, tensors: &mut Tensors<'_>) -> Result<Option<PerLayerInputs>> {
        let Some(width) = &self.per_layer else { return Ok(None) };
        let Family { hidden, vocabulary, layers, .. } = self.family;
        let rows = keys.size("vocab_size_per_layer_input")?;
        if rows.value < vocabulary.value {
            let problem =
                format!("is {}, expected {} as {} at least", rows.value, vocabulary.value, vocabulary.from);
            return Err(keys.wrong("vocab_size_per_layer_input", &problem));
        }
        let all = Size { value: *layers, from: "num_hidden_layers".to_owned() }.times(width);
        let table = tensors.weight("embed_tokens_per_layer.weight", &[&rows, &all]);
        let norm = self.family.norm(tensors, "per_layer_projection_norm", width);
        Ok(Some(PerLayerInputs {
            width: width.value,
            scale: gemma3::embedding_scale(&table, width.value),
            table,
            projection: tensors.linear("per_layer_model_projection", &all, hidden, false),
            norm: Norm { epsilon: norm.epsilon * hidden.value as f32, ..norm },
        }))
    }
}

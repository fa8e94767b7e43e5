//! The dense text models of Qwen 3.5: gated delta rules in three of four layers, and attention with an output gate and a
//! partial rotation in the others. Norms scale by one more than their weight.
//!
//! Of a checkpoint that also sees images, the text model is taken; the tensors of the image side and of the additional head
//! that guesses further tokens are left.

use super::family::{self, Family, Projections};
use super::{Architecture, rotary};
use crate::checkpoint::Config;
use crate::model::graph::{Attention, Decoder, Linear, Norm, NormKind};
use crate::model::keys::{Keys, Result, Size};
use crate::model::mixer::{CausalConv, DeltaNet, Mixer};
use crate::model::tensors::{Prefix, Tensors};
use crate::model::weight::Stripes;

pub(super) const DEF: Architecture = Architecture {
    name: "qwen3_5",
    classes: &["Qwen3_5ForCausalLM", "Qwen3_5ForConditionalGeneration"],
    model_types: &["qwen3_5_text", "qwen3_5"],
    marker: None,
    prefixes: &[
        Prefix { body: "model.language_model.", head: "" },
        Prefix { body: "model.", head: "" },
        Prefix { body: "", head: "" },
    ],
    probe: family::PROBE,
    harmless: |name| {
        let others = ["visual.", "mtp."];
        let inner = name.strip_prefix("model.").unwrap_or(name);
        family::harmless(name) || others.iter().any(|side| inner.starts_with(side))
    },
    build,
};

const DEFAULTS: &[(&str, usize)] = &[
    ("vocab_size", 248_320),
    ("num_attention_heads", 16),
    ("num_key_value_heads", 4),
    ("head_dim", 256),
    ("max_position_embeddings", 32_768),
    ("full_attention_interval", 4),
    ("linear_conv_kernel_dim", 4),
    ("linear_key_head_dim", 128),
    ("linear_value_head_dim", 128),
    ("linear_num_key_heads", 16),
    ("linear_num_value_heads", 32),
];

const ROTARY: rotary::Defaults = rotary::Defaults { partial: 0.25, ..rotary::USUAL };

fn build(config: &Config, tensors: &mut Tensors<'_>) -> Result<Decoder> {
    let whole = Keys::new(config, &[]);
    // The model that sees images has the key outside its text model, too.
    let tied_outside = whole.bool_or("tie_word_embeddings", false)?;
    let keys = whole.section("text_config")?.unwrap_or(whole).with_defaults(DEFAULTS);
    refuse_other_types(&keys)?;
    let family = Family {
        adds_one: true,
        tied: Some(keys.bool_or("tie_word_embeddings", tied_outside)?),
        ..Family::read(DEF.name, &keys, tensors)?
    };
    let rotary = family.rotary_or(&keys, ROTARY)?;
    let attends = attending(&keys, family.layers)?;
    let bias = keys.bool_or("attention_bias", false)?;
    let sizes = Sizes::read(&keys)?;
    family.decoder(&keys, tensors, rotary.max_positions, |tensors, i, at| {
        let mixer = match attends[i] {
            true => attention(&family, &rotary, tensors, (at, bias)).into(),
            false => Mixer::DeltaNet(sizes.delta_net(&family, tensors, &format!("{at}.linear_attn"))),
        };
        let mlp = family.gated_mlp(tensors, at, false);
        family.layer(tensors, at, mixer, mlp)
    })
}

/// The state is one of fp32, as every released model has it.
fn refuse_other_types(keys: &Keys) -> Result<()> {
    match keys.opt_text("mamba_ssm_dtype")? {
        None | Some("float32") => Ok(()),
        Some(other) => {
            Err(keys.wrong("mamba_ssm_dtype", &format!("is `{other}`, but states are computed in float32")))
        }
    }
}

/// Which layers attend; without a list every fourth, or as often as the interval says.
fn attending(keys: &Keys, layers: usize) -> Result<Vec<bool>> {
    let interval = keys.size("full_attention_interval")?.value;
    let Some(types) = keys.opt_texts("layer_types")? else {
        return Ok((0..layers).map(|layer| (layer + 1).is_multiple_of(interval)).collect());
    };
    if types.len() != layers {
        return Err(keys.wrong("layer_types", &format!("has {} entries for {layers} layers", types.len())));
    }
    let attends = types.into_iter().map(|kind| match kind {
        "full_attention" => Ok(true),
        "linear_attention" => Ok(false),
        other => {
            let problem = format!("has `{other}`, expected linear_attention or full_attention");
            Err(keys.wrong("layer_types", &problem))
        }
    });
    attends.collect()
}

/// Attention whose query projection has the rows of each head's gate below those of its query.
fn attention(
    family: &Family,
    rotary: &rotary::Rotary,
    tensors: &mut Tensors<'_>,
    (at, bias): (&str, bool),
) -> Attention {
    let (query, key, hidden) = (family.query_width(), family.key_width(), &family.hidden);
    let both = query.plus(&query);
    let stored = tensors.linear(&format!("{at}.self_attn.q_proj"), &both, hidden, bias);
    let rows = family.head_dim.value;
    let part = |name: &str, first: usize| {
        let stripes = Stripes { every: 2 * rows, rows, first };
        let of = |weight: &crate::model::Weight| weight.striped(stripes, name);
        Linear { weight: of(&stored.weight), bias: stored.bias.as_ref().map(of) }
    };
    let mut into =
        |name: &str, width: &Size| tensors.linear(&format!("{at}.self_attn.{name}"), width, hidden, bias);
    let projections = Projections {
        query: part("query", 0),
        key: into("k_proj", &key),
        value: into("v_proj", &key),
        output: tensors.linear(&format!("{at}.self_attn.o_proj"), hidden, &query, bias),
    };
    Attention {
        query_norm: Some(family.norm(tensors, &format!("{at}.self_attn.q_norm"), &family.head_dim)),
        key_norm: Some(family.norm(tensors, &format!("{at}.self_attn.k_norm"), &family.head_dim)),
        output_gate: Some(part("gate", rows)),
        ..family.attention(projections, &rotary.rope, None)
    }
}

/// Sizes of the delta rules.
struct Sizes {
    key_heads: Size,
    value_heads: Size,
    key_dim: Size,
    value_dim: Size,
    kernel: Size,
}

impl Sizes {
    fn read(keys: &Keys) -> Result<Sizes> {
        let sizes = Sizes {
            key_heads: keys.size("linear_num_key_heads")?,
            value_heads: keys.size("linear_num_value_heads")?,
            key_dim: keys.size("linear_key_head_dim")?,
            value_dim: keys.size("linear_value_head_dim")?,
            kernel: keys.size("linear_conv_kernel_dim")?,
        };
        let (keys_of, values) = (sizes.key_heads.value, sizes.value_heads.value);
        match values.is_multiple_of(keys_of) {
            true => Ok(sizes),
            false => {
                let problem = format!("is {keys_of}, which does not divide linear_num_value_heads {values}");
                Err(keys.wrong("linear_num_key_heads", &problem))
            }
        }
    }

    fn delta_net(&self, family: &Family, tensors: &mut Tensors<'_>, at: &str) -> DeltaNet {
        let hidden = &family.hidden;
        let (keys, values) = (self.key_heads.times(&self.key_dim), self.value_heads.times(&self.value_dim));
        let all = keys.plus(&keys).plus(&values);
        let one = Size { value: 1, from: "1".to_owned() };
        let mut linear = |name: &str, out: &Size| tensors.linear(&format!("{at}.{name}"), out, hidden, false);
        let (qkv, gate) = (linear("in_proj_qkv", &all), linear("in_proj_z", &values));
        let (beta, decay) = (linear("in_proj_b", &self.value_heads), linear("in_proj_a", &self.value_heads));
        DeltaNet {
            key_heads: self.key_heads.value,
            value_heads: self.value_heads.value,
            key_dim: self.key_dim.value,
            value_dim: self.value_dim.value,
            qkv,
            conv: CausalConv {
                weight: tensors.weight(&format!("{at}.conv1d.weight"), &[&all, &one, &self.kernel]),
                bias: None,
            },
            activation: family.activation,
            gate,
            beta,
            decay,
            decay_bias: tensors.weight(&format!("{at}.dt_bias"), &[&self.value_heads]),
            decay_log: tensors.weight(&format!("{at}.A_log"), &[&self.value_heads]),
            norm: Norm {
                kind: NormKind::Rms,
                weight: tensors.weight(&format!("{at}.norm.weight"), &[&self.value_dim]),
                bias: None,
                epsilon: family.epsilon,
            },
            output: tensors.linear(&format!("{at}.out_proj"), hidden, &values, false),
        }
    }
}

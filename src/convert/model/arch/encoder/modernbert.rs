//! ModernBERT: rotated queries and keys, norms before each part but the first, GeGLU, and windows to both sides in two
//! of three layers.

use super::bert::classifier;
use super::{EncoderArchitecture, Source};
use crate::model::arch::rotary::{self, Defaults, Rotary};
use crate::model::arch::{activation, windowed};
use crate::model::encoder::{Attends, Encoder, EncoderLayer, Gives, Pooling, Readout, Stage, Sublayer};
use crate::model::graph::{Activation, Attention, Mlp, Norm, NormKind};
use crate::model::keys::{Keys, Result, Size};
use crate::model::tensors::{Prefix, Tensors};

const PROBE: &str = "embeddings.tok_embeddings.weight";

pub(super) const DEF: EncoderArchitecture = EncoderArchitecture {
    name: "modernbert",
    classes: &["ModernBertModel", "ModernBertForMaskedLM", "ModernBertForSequenceClassification"],
    model_types: &["modernbert"],
    applies: |_| true,
    prefixes: &[Prefix { body: "model.", head: "" }, Prefix { body: "", head: "" }],
    probe: PROBE,
    // The head that fills in words.
    harmless: |name| name.starts_with("head.") || name.starts_with("decoder."),
    build,
};

const DEFAULTS: &[(&str, usize)] =
    &[("max_position_embeddings", 8192), ("local_attention", 128), ("global_attn_every_n_layers", 3)];

fn build(source: &Source<'_>, tensors: &mut Tensors<'_>) -> Result<Encoder> {
    let keys = Keys::new(source.config, DEFAULTS);
    let sizes = Sizes::read(&keys)?;
    let layers = keys.layers("num_hidden_layers", tensors.count())?;
    let every = keys.size("global_attn_every_n_layers")?.value;
    let local = windowed(&keys, layers, |layer| !layer.is_multiple_of(every))?;
    let hidden = &sizes.hidden;
    let layers = local.iter().enumerate();
    let layers = layers.map(|(i, &is_local)| sizes.layer(tensors, i, is_local)).collect();
    let mut encoder = Encoder {
        architecture: DEF.name,
        hidden: hidden.value,
        vocabulary: sizes.vocabulary.value,
        max_positions: sizes.global.max_positions,
        embedding: tensors.weight(PROBE, &[&sizes.vocabulary, hidden]),
        embedding_scale: 1.0,
        positions: None,
        token_types: None,
        embedding_norm: Some(sizes.norm(tensors, "embeddings.norm")),
        attends: Attends::BothSides,
        layers,
        final_norm: Some(sizes.norm(tensors, "final_norm")),
        readout: None,
    };
    if source.classifies() {
        encoder.readout = Some(readout(&keys, &sizes, tensors)?);
    }
    Ok(encoder)
}

/// The classifier: a dense layer, its activation and a norm before the scores.
fn readout(keys: &Keys, sizes: &Sizes, tensors: &mut Tensors<'_>) -> Result<Readout> {
    let pooling = match keys.opt_text("classifier_pooling")? {
        None | Some("cls") => Pooling::First,
        Some("mean") => Pooling::Mean,
        Some(other) => {
            return Err(keys.wrong("classifier_pooling", &format!("is `{other}`, expected cls or mean")));
        }
    };
    let hidden = &sizes.hidden;
    let bias = keys.bool_or("classifier_bias", false)?;
    let linear = tensors.outside("head.dense", hidden, hidden, bias);
    let activation = activation(keys, "classifier_activation", Activation::Gelu)?;
    let weight = tensors.outside_weight("head.norm.weight", &[hidden]);
    let shift = sizes.norm_bias.then(|| tensors.outside_weight("head.norm.bias", &[hidden]));
    let norm = Norm { kind: NormKind::Layer, weight, bias: shift, epsilon: sizes.epsilon };
    let classifier = classifier(keys, "classifier", hidden, tensors)?;
    let stages = vec![Stage::Dense { linear, activation: Some(activation) }, Stage::Norm(norm), classifier];
    Ok(Readout { pooling, stages, gives: Gives::Scores })
}

struct Sizes {
    hidden: Size,
    vocabulary: Size,
    inner: Size,
    heads: Size,
    head_dim: Size,
    epsilon: f32,
    activation: Activation,
    /// Tokens to each side that a local layer sees, its own included.
    window: usize,
    local: Rotary,
    global: Rotary,
    norm_bias: bool,
    attention_bias: bool,
    mlp_bias: bool,
}

impl Sizes {
    fn read(keys: &Keys) -> Result<Sizes> {
        let (hidden, heads) = (keys.size("hidden_size")?, keys.size("num_attention_heads")?);
        let head_dim = keys.head_dim(None, &hidden, &heads)?;
        let parameters = keys.section("rope_parameters")?;
        let rotary = |kind: &str, key: &str, base: f64| {
            let section = match &parameters {
                Some(parameters) => parameters.section(kind)?,
                None => None,
            };
            let defaults = Defaults { base: keys.positive_or(key, base)?, ..rotary::USUAL };
            rotary::scaled(keys, section.as_ref(), &head_dim, defaults)
        };
        Ok(Sizes {
            vocabulary: keys.size("vocab_size")?,
            inner: keys.size("intermediate_size")?,
            epsilon: keys.epsilon("norm_eps", 1e-5)?,
            activation: activation(keys, "hidden_activation", Activation::Gelu)?,
            window: keys.size("local_attention")?.value / 2 + 1,
            local: rotary("sliding_attention", "local_rope_theta", 10_000.0)?,
            global: rotary("full_attention", "global_rope_theta", 160_000.0)?,
            norm_bias: keys.bool_or("norm_bias", false)?,
            attention_bias: keys.bool_or("attention_bias", false)?,
            mlp_bias: keys.bool_or("mlp_bias", false)?,
            hidden,
            heads,
            head_dim,
        })
    }

    fn norm(&self, tensors: &mut Tensors<'_>, module: &str) -> Norm {
        let weight = tensors.weight(&format!("{module}.weight"), &[&self.hidden]);
        let bias = self.norm_bias.then(|| tensors.weight(&format!("{module}.bias"), &[&self.hidden]));
        Norm { kind: NormKind::Layer, weight, bias, epsilon: self.epsilon }
    }

    fn layer(&self, tensors: &mut Tensors<'_>, index: usize, is_local: bool) -> EncoderLayer {
        let (hidden, inner, at) = (&self.hidden, &self.inner, format!("layers.{index}"));
        let parts = [("query", hidden), ("key", hidden), ("value", hidden)];
        let fused = format!("{at}.attn.Wqkv");
        let [query, key, value] = tensors.fused_biased(&fused, parts, hidden, self.attention_bias);
        let attention = Attention {
            heads: self.heads.value,
            kv_heads: self.heads.value,
            head_dim: self.head_dim.value,
            scale: (self.head_dim.value as f64).powf(-0.5) as f32,
            query,
            key,
            value,
            output: tensors.linear(&format!("{at}.attn.Wo"), hidden, hidden, self.attention_bias),
            query_norm: None,
            key_norm: None,
            rope: Some(if is_local { self.local.rope.clone() } else { self.global.rope.clone() }),
            window: is_local.then_some(self.window),
            softcap: None,
            growth: None,
            value_norm: None,
            shared_from: None,
            output_gate: None,
        };
        let halves = [("gate", inner), ("up", inner)];
        let fused = format!("{at}.mlp.Wi");
        let [gate, up] = tensors.fused_biased(&fused, halves, hidden, self.mlp_bias);
        let down = tensors.linear(&format!("{at}.mlp.Wo"), hidden, inner, self.mlp_bias);
        let mlp = Mlp::Gated { gate, up, activation: self.activation, down };
        // What enters the first layer has just been normalised.
        let before = (index > 0).then(|| self.norm(tensors, &format!("{at}.attn_norm")));
        EncoderLayer {
            attention: Sublayer::pre_norm(before, attention),
            mlp: Sublayer::pre_norm(Some(self.norm(tensors, &format!("{at}.mlp_norm"))), mlp),
        }
    }
}

//! BERT: learned positions, kinds of segments, norms of sums, biases everywhere. MiniLM, BGE and E5 are of this class.

use super::{EncoderArchitecture, Source};
use crate::model::arch::activation;
use crate::model::encoder::{Attends, Encoder, EncoderLayer, Gives, Pooling, Readout, Stage, Sublayer};
use crate::model::graph::{Activation, Attention, Mlp};
use crate::model::keys::{Keys, Result, Size};
use crate::model::tensors::{Prefix, Tensors};

/// The embedding.
pub(super) const PROBE: &str = "embeddings.word_embeddings.weight";

pub(super) const DEF: EncoderArchitecture = EncoderArchitecture {
    name: "bert",
    classes: &["BertModel", "BertForMaskedLM", "BertForPreTraining", "BertForSequenceClassification"],
    model_types: &["bert"],
    applies: |_| true,
    prefixes: &[Prefix { body: "bert.", head: "" }, Prefix { body: "", head: "" }],
    probe: PROBE,
    harmless,
    build,
};

/// Buffers, the heads of training, and a pooler that nothing here uses.
pub(super) fn harmless(name: &str) -> bool {
    let inner = ["bert.", "roberta."].iter().find_map(|body| name.strip_prefix(body)).unwrap_or(name);
    ["embeddings.position_ids", "embeddings.token_type_ids"].contains(&inner)
        || ["pooler.", "cls.", "lm_head."].iter().any(|head| inner.starts_with(head))
}

fn build(source: &Source<'_>, tensors: &mut Tensors<'_>) -> Result<Encoder> {
    let keys = Keys::new(source.config, DEFAULTS);
    let trunk = Trunk::read(&keys, tensors)?;
    let positions = trunk.positions.clone();
    let table = tensors.weight("embeddings.position_embeddings.weight", &[&positions, &trunk.hidden]);
    let mut encoder = trunk.encoder(DEF.name, (table, positions.value), tensors);
    if source.classifies() {
        let hidden = &trunk.hidden;
        let pooler = tensors.linear("pooler.dense", hidden, hidden, true);
        let classifier = classifier(&keys, "classifier", hidden, tensors)?;
        let stages = vec![Stage::Dense { linear: pooler, activation: Some(Activation::Tanh) }, classifier];
        encoder.readout = Some(Readout { pooling: Pooling::First, stages, gives: Gives::Scores });
    }
    Ok(encoder)
}

/// What BERT takes where its configuration is silent.
pub(super) const DEFAULTS: &[(&str, usize)] = &[("type_vocab_size", 2), ("max_position_embeddings", 512)];

/// The map from a vector to a score for each label.
pub(super) fn classifier(
    keys: &Keys,
    module: &str,
    hidden: &Size,
    tensors: &mut Tensors<'_>,
) -> Result<Stage> {
    let labels = Size { value: keys.labels()?, from: "labels".to_owned() };
    let linear = tensors.outside(module, &labels, hidden, true);
    Ok(Stage::Dense { linear, activation: None })
}

/// Everything but the positions and the readout.
pub(super) struct Trunk {
    pub(super) hidden: Size,
    pub(super) positions: Size,
    vocabulary: Size,
    kinds: Size,
    inner: Size,
    heads: Size,
    head_dim: Size,
    layers: usize,
    epsilon: f32,
    activation: Activation,
}

impl Trunk {
    pub(super) fn read(keys: &Keys, tensors: &Tensors<'_>) -> Result<Trunk> {
        if let Some(other) = keys.opt_text("position_embedding_type")?.filter(|&kind| kind != "absolute") {
            let problem = format!("is `{other}`, but only absolute positions are supported");
            return Err(keys.wrong("position_embedding_type", &problem));
        }
        for key in ["is_decoder", "add_cross_attention"] {
            if keys.bool_or(key, false)? {
                return Err(keys.wrong(key, "is true, but only encoders are supported"));
            }
        }
        let (hidden, heads) = (keys.size("hidden_size")?, keys.size("num_attention_heads")?);
        Ok(Trunk {
            vocabulary: keys.size("vocab_size")?,
            positions: keys.size("max_position_embeddings")?,
            kinds: keys.size("type_vocab_size")?,
            inner: keys.size("intermediate_size")?,
            head_dim: keys.head_dim(None, &hidden, &heads)?,
            layers: keys.layers("num_hidden_layers", tensors.count())?,
            epsilon: keys.epsilon("layer_norm_eps", 1e-12)?,
            activation: activation(keys, "hidden_act", Activation::Gelu)?,
            hidden,
            heads,
        })
    }

    /// The whole encoder, given its table of positions and how many of them are for tokens.
    pub(super) fn encoder(
        &self,
        architecture: &'static str,
        (positions, max_positions): (crate::model::Weight, usize),
        tensors: &mut Tensors<'_>,
    ) -> Encoder {
        let hidden = &self.hidden;
        let layers = (0..self.layers).map(|i| self.layer(tensors, &format!("encoder.layer.{i}"))).collect();
        Encoder {
            architecture,
            hidden: hidden.value,
            vocabulary: self.vocabulary.value,
            max_positions,
            embedding: tensors.weight(PROBE, &[&self.vocabulary, hidden]),
            embedding_scale: 1.0,
            positions: Some(positions),
            token_types: Some(
                tensors.weight("embeddings.token_type_embeddings.weight", &[&self.kinds, hidden]),
            ),
            embedding_norm: Some(tensors.layer_norm("embeddings.LayerNorm", hidden, self.epsilon)),
            attends: Attends::BothSides,
            layers,
            final_norm: None,
            readout: None,
        }
    }

    fn layer(&self, tensors: &mut Tensors<'_>, at: &str) -> EncoderLayer {
        let hidden = &self.hidden;
        let mut map =
            |name: &str, out: &Size, input: &Size| tensors.linear(&format!("{at}.{name}"), out, input, true);
        let attention = Attention {
            heads: self.heads.value,
            kv_heads: self.heads.value,
            head_dim: self.head_dim.value,
            scale: (self.head_dim.value as f64).powf(-0.5) as f32,
            query: map("attention.self.query", hidden, hidden),
            key: map("attention.self.key", hidden, hidden),
            value: map("attention.self.value", hidden, hidden),
            output: map("attention.output.dense", hidden, hidden),
            query_norm: None,
            key_norm: None,
            rope: None,
            window: None,
            softcap: None,
            growth: None,
            value_norm: None,
            shared_from: None,
            output_gate: None,
        };
        let mlp = Mlp::Plain {
            up: map("intermediate.dense", &self.inner, hidden),
            activation: self.activation,
            down: map("output.dense", hidden, &self.inner),
        };
        let mut norm =
            |name: &str| tensors.layer_norm(&format!("{at}.{name}.LayerNorm"), hidden, self.epsilon);
        EncoderLayer {
            attention: Sublayer::post_norm(attention, norm("attention.output")),
            mlp: Sublayer::post_norm(mlp, norm("output")),
        }
    }
}

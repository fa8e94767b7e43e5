//! What a lowering is asked for.

use std::collections::BTreeSet;

use super::error::{LowerError, Result};
use crate::model::{Attention, Decoder, Encoder, Layer, Position, Rope};
use anemeter_base::vocabulary::{Embeddings, KvForm, ShapesAs};
use anemeter_mil::Opset;

/// How many shapes an input may enumerate.
const MAX_SHAPES: usize = 128;
/// Longest sequence: the Neural Engine takes no wider axis.
const MAX_LENGTH: usize = 16384;

/// What to lower a model to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Forms of the KV cache; several share one package.
    pub kv: BTreeSet<KvForm>,
    /// Sequence lengths of the `Io` and `None` forms, and cache lengths of `Io`; the first is the default.
    pub seq_lens: Vec<usize>,
    /// Sequences at once, 1 to 4.
    pub batch: usize,
    /// Where token ids become vectors.
    pub embeddings: Embeddings,
    /// Parts the head is split into; each has an output.
    pub head_split: usize,
    /// How functions take the lengths of the `Io` and `None` forms.
    pub shapes_as: ShapesAs,
    /// Cache lengths of the `State` form; each has its functions.
    pub contexts: Vec<usize>,
    /// Tokens per prediction of the `State` form's prefill.
    pub query: usize,
    /// Packages the layers are divided among.
    pub chunks: usize,
    /// The opset of all functions.
    pub opset: Opset,
}

impl Default for Options {
    fn default() -> Options {
        let lengths = vec![512, 1024, 2048, 4096];
        Options {
            kv: BTreeSet::from([KvForm::Io]),
            seq_lens: lengths.clone(),
            shapes_as: ShapesAs::Enumerated,
            batch: 1,
            embeddings: Embeddings::Function,
            head_split: 1,
            contexts: lengths,
            query: 64,
            chunks: 1,
            opset: Opset::Ios18,
        }
    }
}

impl Options {
    pub(super) fn check(&self, decoder: &Decoder) -> Result<()> {
        if self.kv.is_empty() {
            return Err(LowerError::option("kv", "names no form; io, state and none are possible"));
        }
        self.check_common(decoder.layers.len())?;
        if !(1..=decoder.vocabulary).contains(&self.head_split) {
            let message = format!("is {}, should be 1 to the {} tokens", self.head_split, decoder.vocabulary);
            return Err(LowerError::option("head_split", message));
        }
        self.check_states(decoder)?;
        let reach = Reach::of(decoder);
        if self.kv.contains(&KvForm::Io) || self.kv.contains(&KvForm::None) {
            check_lengths("shapes", &self.seq_lens, reach)?;
        }
        if self.kv.contains(&KvForm::State) {
            check_lengths("contexts", &self.contexts, reach)?;
            let shortest = *self.contexts.iter().min().expect("an empty list is refused above");
            if self.query < 2 || self.query > shortest {
                let message = format!("is {}, should be 2 to {shortest}, the shortest context", self.query);
                return Err(LowerError::option("query", message));
            }
        }
        Ok(())
    }

    /// Refuses what layers with states of their own cannot be lowered to.
    fn check_states(&self, decoder: &Decoder) -> Result<()> {
        let has_states = decoder.layers.iter().any(|layer| layer.mixer.state_bytes() > 0);
        if has_states && self.kv.contains(&KvForm::State) {
            let message = "has state, but the model has layers with states of convolutions, which are inputs and \
                           outputs: models of several states fail on the Neural Engine; io and none are possible";
            return Err(LowerError::option("kv", message));
        }
        let has_delta_rules = decoder.layers.iter().any(|layer| layer.mixer.delta_net().is_some());
        if has_delta_rules && self.shapes_as == ShapesAs::Enumerated {
            let message = "is enumerated, but the model has delta rules, which go over a sequence piece by piece, so \
                           that each length is another program; functions is possible";
            return Err(LowerError::option("shapes_as", message));
        }
        Ok(())
    }

    /// Whether an encoder can be lowered so.
    pub(super) fn check_encoder(&self, encoder: &Encoder) -> Result<()> {
        self.check_common(encoder.layers.len())?;
        check_lengths("shapes", &self.seq_lens, Reach::of_encoder(encoder))
    }

    fn check_common(&self, layers: usize) -> Result<()> {
        if !(1..=4).contains(&self.batch) {
            return Err(LowerError::option("batch", format!("is {}, should be 1 to 4", self.batch)));
        }
        if !(1..=layers).contains(&self.chunks) {
            let message = format!("is {}, should be 1 to {layers}, the number of layers", self.chunks);
            return Err(LowerError::option("chunks", message));
        }
        if self.opset < Opset::Ios18 {
            let message = format!("is {}: functions and paired shapes need ios18 or later", self.opset);
            return Err(LowerError::option("opset", message));
        }
        Ok(())
    }

    /// Sequence lengths that the functions of this lowering take vectors for.
    pub(super) fn embedded_lengths(&self) -> Vec<usize> {
        let mut lengths = Vec::new();
        if self.kv.contains(&KvForm::Io) {
            lengths.extend(&self.seq_lens);
        }
        if self.kv.contains(&KvForm::State) {
            lengths.push(self.query);
        }
        lengths.push(1);
        let mut seen = BTreeSet::new();
        lengths.retain(|&length| seen.insert(length));
        lengths
    }
}

/// Refuses lengths that a decoder cannot have.
pub(super) fn check_decoder_lengths(
    option: &'static str,
    lengths: &[usize],
    decoder: &Decoder,
) -> Result<()> {
    check_lengths(option, lengths, Reach::of(decoder))
}

/// How long sequences of a model can be.
#[derive(Debug, Clone, Copy)]
struct Reach {
    /// Positions that it learned, if it did.
    learned: Option<usize>,
    /// Positions up to which its rotations are the same for every length.
    fixed: Option<usize>,
}

impl Reach {
    fn of(decoder: &Decoder) -> Reach {
        let is_learned = matches!(decoder.position, Position::Learned(_));
        let attentions = decoder.layers.iter().filter_map(Layer::attention);
        Reach { learned: is_learned.then_some(decoder.max_positions), fixed: fixed(attentions) }
    }

    fn of_encoder(encoder: &Encoder) -> Reach {
        let attentions = encoder.layers.iter().map(|layer| &layer.attention.part);
        let learned = encoder.positions.as_ref().map(|_| encoder.max_positions);
        Reach { learned, fixed: fixed(attentions) }
    }
}

fn fixed<'a>(attentions: impl Iterator<Item = &'a Attention>) -> Option<usize> {
    attentions.filter_map(|attention| attention.rope.as_ref()).filter_map(Rope::fixed_up_to).min()
}

fn check_lengths(option: &'static str, lengths: &[usize], reach: Reach) -> Result<()> {
    // `embed` takes the lengths of decoding and of a state's prefill as well.
    if lengths.is_empty() || lengths.len() > MAX_SHAPES - 2 {
        let message = format!("has {} lengths, should have 1 to {}", lengths.len(), MAX_SHAPES - 2);
        return Err(LowerError::option(option, message));
    }
    for (i, &length) in lengths.iter().enumerate() {
        if !(2..=MAX_LENGTH).contains(&length) {
            return Err(LowerError::option(option, format!("has {length}, should be 2 to {MAX_LENGTH}")));
        }
        if lengths[..i].contains(&length) {
            return Err(LowerError::option(option, format!("has {length} twice")));
        }
        if let Some(learned) = reach.learned.filter(|&learned| length > learned) {
            let message = format!("has {length}, the model learned {learned} positions");
            return Err(LowerError::option(option, message));
        }
        if let Some(most) = reach.fixed.filter(|&most| length > most) {
            let message = format!(
                "has {length}; beyond {most} positions dynamic RoPE scaling has other frequencies for every length, \
                 and a cache keeps keys of one; should be 2 to {most}"
            );
            return Err(LowerError::option(option, message));
        }
    }
    Ok(())
}

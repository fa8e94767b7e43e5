//! What a host gives an encoder beside its tokens: positions, masks, rotations, and how much each token counts.

use anemeter_convert::bundle::{Encoder, MANIFEST, Manifest};
use anemeter_convert::model::{Attends, Pooling};
use anemeter_kernels::tensor::{Tensor, TensorError};
use half::f16;

use super::EncoderTokens;
use crate::generate::{GenerateError, RotationTable};

/// What is added to scores of tokens that are not seen: far below any score, and finite even when added twice.
const HIDDEN: f16 = f16::from_f32_const(-1e4);

/// The inputs of an encoder, by name.
pub(super) struct HostInputs {
    batch: usize,
    vocabulary: usize,
    /// Shortest first.
    lengths: Vec<usize>,
    masks: Vec<(String, Option<usize>)>,
    rotations: Vec<RotationTable>,
    described: Encoder,
    learned_positions: bool,
}

/// A named input.
type Named = (String, Tensor);

impl HostInputs {
    pub(super) fn new(manifest: &Manifest, described: &Encoder) -> Result<HostInputs, GenerateError> {
        let wrong = |problem: &str| GenerateError::file(MANIFEST, problem);
        let exported = manifest.exported().ok_or_else(|| wrong("describes an encoder without its sizes"))?;
        let mut lengths = exported.settings.seq_lens.clone();
        lengths.sort_unstable();
        let longest = *lengths.last().ok_or_else(|| wrong("has no sequence length"))?;
        let mut masks: Vec<(String, Option<usize>)> = Vec::new();
        for mask in manifest.chunks.iter().flat_map(|chunk| &chunk.masks) {
            if masks.iter().all(|(name, _)| *name != mask.input) {
                masks.push((mask.input.clone(), mask.window));
            }
        }
        let mut rotations = RotationTable::all(manifest)?;
        rotations.iter_mut().for_each(|table| table.extend_to(longest));
        Ok(HostInputs {
            batch: exported.settings.batch.max(1),
            vocabulary: exported.architecture.vocabulary,
            lengths,
            masks,
            rotations,
            described: described.clone(),
            learned_positions: exported.architecture.learned_positions,
        })
    }

    pub(super) fn lengths(&self) -> &[usize] {
        &self.lengths
    }

    pub(super) fn batch(&self) -> usize {
        self.batch
    }

    pub(super) fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    /// The shortest length that the texts fit, or the one asked for.
    pub(super) fn length(
        &self,
        texts: &[EncoderTokens],
        wanted: Option<usize>,
    ) -> Result<usize, GenerateError> {
        let needed = texts.iter().map(|text| text.ids.len()).max().unwrap_or(0);
        let list = || self.lengths.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        if let Some(wanted) = wanted.filter(|wanted| !self.lengths.contains(wanted)) {
            let problem = format!("the bundle has no sequence length {wanted}, but {}", list());
            return Err(GenerateError::request(problem));
        }
        let fits = |&length: &usize| length >= needed;
        let found = match wanted {
            Some(wanted) => Some(wanted).filter(fits),
            None => self.lengths.iter().copied().find(fits),
        };
        found.ok_or_else(|| {
            let problem = format!("a text has {needed} tokens; sequence lengths are {}", list());
            GenerateError::request(problem).with_help("shorten it, or export with a longer sequence length")
        })
    }

    /// All inputs of some texts at a length. Where there are fewer texts than the packages take, the last is repeated.
    pub(super) fn fill(&self, texts: &[EncoderTokens], seq_len: usize) -> Result<Vec<Named>, GenerateError> {
        self.check(texts)?;
        let last = texts.len().saturating_sub(1);
        let rows: Vec<&EncoderTokens> = (0..self.batch).map(|row| &texts[row.min(last)]).collect();
        let counts: Vec<usize> = rows.iter().map(|row| row.ids.len()).collect();
        let mut inputs = self.integers(&rows, seq_len)?;
        for (name, window) in &self.masks {
            let sees = Sees { attends: self.described.attends, window: *window };
            let mask = sees.mask(&counts, seq_len).map_err(|error| unmade(&error))?;
            inputs.push((name.clone(), mask));
        }
        let most = counts.iter().copied().max().unwrap_or(1);
        for table in &self.rotations {
            let rows = table.rows(most);
            let sizes = (table.dims(), seq_len);
            let cos = columns(sizes, |at| rows.cos(at)).map_err(|error| unmade(&error))?;
            let sin = columns(sizes, |at| rows.sin(at)).map_err(|error| unmade(&error))?;
            inputs.extend([(table.cos_input.clone(), cos), (table.sin_input.clone(), sin)]);
        }
        if let Some(pooling) = self.described.pooling {
            let weights: Vec<f16> = counts.iter().flat_map(|&count| pool(pooling, count, seq_len)).collect();
            let shape = [self.batch, 1, 1, seq_len];
            inputs.push(("pool".to_owned(), Tensor::from_slice(&shape, &weights).map_err(|e| unmade(&e))?));
        }
        Ok(inputs)
    }

    fn integers(&self, rows: &[&EncoderTokens], seq_len: usize) -> Result<Vec<Named>, GenerateError> {
        let int32 = |value: u32| {
            i32::try_from(value)
                .map_err(|_| GenerateError::request(format!("int32 does not have the id {value}")))
        };
        let padded = |of: &dyn Fn(&EncoderTokens) -> Vec<u32>| {
            let values = rows.iter().flat_map(|row| {
                let mut values = of(row);
                values.resize(seq_len, 0);
                values
            });
            let values: Vec<i32> = values.map(int32).collect::<Result<_, _>>()?;
            Tensor::from_slice(&[rows.len(), seq_len], &values).map_err(|error| unmade(&error))
        };
        let mut inputs = vec![("input_ids".to_owned(), padded(&|row| row.ids.clone())?)];
        if self.learned_positions {
            inputs.push(("position_ids".to_owned(), padded(&|_| (0..).take(seq_len).collect())?));
        }
        if self.described.segment_kinds > 1 {
            inputs.push(("token_type_ids".to_owned(), padded(&|row| row.types.clone())?));
        }
        Ok(inputs)
    }

    fn check(&self, texts: &[EncoderTokens]) -> Result<(), GenerateError> {
        for text in texts {
            if text.ids.is_empty() {
                return Err(GenerateError::request("a text has no tokens"));
            }
            if let Some(id) = text.ids.iter().find(|&&id| id as usize >= self.vocabulary) {
                let problem = format!("token {id} is outside the vocabulary of {}", self.vocabulary);
                return Err(GenerateError::request(problem));
            }
            let kinds = self.described.segment_kinds.max(1);
            if kinds > 1 && text.types.iter().any(|&kind| kind as usize >= kinds) {
                let problem = format!("a segment is of a kind beyond the {kinds} that the model tells apart");
                return Err(GenerateError::request(problem));
            }
        }
        match texts.is_empty() {
            true => Err(GenerateError::request("there is no text")),
            false => Ok(()),
        }
    }
}

/// The rows of positions as columns, `[1, dims, 1, seq_len]`.
fn columns<'r>(
    (dims, seq_len): (usize, usize),
    row: impl Fn(usize) -> &'r [f16],
) -> Result<Tensor, TensorError> {
    let mut values = Vec::with_capacity(dims * seq_len);
    for dim in 0..dims {
        values.extend((0..seq_len).map(|at| row(at)[dim]));
    }
    Tensor::from_slice(&[1, dims, 1, seq_len], &values)
}

fn unmade(error: &TensorError) -> GenerateError {
    GenerateError::request(format!("an input cannot be made: {error}"))
}

/// What a query sees.
struct Sees {
    attends: Attends,
    window: Option<usize>,
}

impl Sees {
    /// `[batch, 1, 1 or seq_len, seq_len]`: one row for all queries where their positions do not matter.
    fn mask(&self, counts: &[usize], seq_len: usize) -> Result<Tensor, TensorError> {
        let by_query = self.window.is_some() || self.attends == Attends::Causally;
        let queries = if by_query { seq_len } else { 1 };
        let mut values = vec![HIDDEN; counts.len() * queries * seq_len];
        for (of_text, &count) in values.chunks_exact_mut((queries * seq_len).max(1)).zip(counts) {
            for (query, row) in of_text.chunks_exact_mut(seq_len.max(1)).enumerate() {
                for (key, value) in row.iter_mut().enumerate().take(count) {
                    if !by_query || self.sees(query, key) {
                        *value = f16::ZERO;
                    }
                }
            }
        }
        Tensor::from_slice(&[counts.len(), 1, queries, seq_len], &values)
    }

    fn sees(&self, query: usize, key: usize) -> bool {
        let near = self.window.is_none_or(|window| query.abs_diff(key) < window);
        near && (self.attends == Attends::BothSides || key <= query)
    }
}

/// How much each of `seq_len` positions counts in the vector of a text of `count` tokens.
fn pool(pooling: Pooling, count: usize, seq_len: usize) -> Vec<f16> {
    let tokens = count as f32;
    let weight = |at: usize| match pooling {
        _ if at >= count => 0.0,
        Pooling::First => f32::from(u8::from(at == 0)),
        Pooling::Last => f32::from(u8::from(at + 1 == count)),
        Pooling::Mean => 1.0 / tokens,
        Pooling::MeanSqrtLen => 1.0 / tokens.sqrt(),
        Pooling::WeightedMean => (at + 1) as f32 / (tokens * (tokens + 1.0) / 2.0),
    };
    (0..seq_len).map(|at| f16::from_f32(weight(at))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(attends: Attends, window: Option<usize>) -> (Vec<usize>, String) {
        let mask = Sees { attends, window }.mask(&[3], 4).unwrap();
        let values = mask.view().slice::<f16>().unwrap().to_vec();
        let rows = values.chunks(4).map(|row| {
            row.iter().map(|&value| if value == f16::ZERO { 'x' } else { '.' }).collect::<String>()
        });
        (mask.shape().to_vec(), rows.collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn padding_windows_and_the_future_are_hidden() {
        assert_eq!(shown(Attends::BothSides, None), (vec![1, 1, 1, 4], "xxx.".to_owned()));
        assert_eq!(shown(Attends::BothSides, Some(2)), (vec![1, 1, 4, 4], "xx.. xxx. .xx. ..x.".to_owned()));
        assert_eq!(shown(Attends::Causally, None).1, "x... xx.. xxx. xxx.");
        assert_eq!(shown(Attends::Causally, Some(2)).1, "x... xx.. .xx. ..x.");
    }

    #[test]
    fn every_pooling_weighs_tokens_and_no_padding() {
        let of = |pooling| pool(pooling, 3, 5).into_iter().map(f16::to_f32).collect::<Vec<_>>();
        assert_eq!(of(Pooling::First), [1.0, 0.0, 0.0, 0.0, 0.0]);
        assert_eq!(of(Pooling::Last), [0.0, 0.0, 1.0, 0.0, 0.0]);
        let third = f16::from_f32(1.0 / 3.0).to_f32();
        assert_eq!(of(Pooling::Mean), [third, third, third, 0.0, 0.0]);
        let root = f16::from_f32(3f32.sqrt().recip()).to_f32();
        assert_eq!(of(Pooling::MeanSqrtLen)[..4], [root, root, root, 0.0]);
        let sixth = f16::from_f32(1.0 / 6.0).to_f32();
        assert_eq!(of(Pooling::WeightedMean), [sixth, third, 0.5, 0.0, 0.0]);
    }
}

//! What transformers computes from a checkpoint, and where its configuration has boundaries; `tiny_checkpoints.py`
//! writes both, and reads the boundaries from transformers' own configuration.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use safetensors::{Dtype, SafeTensors};
use serde::Deserialize;
use serde_json::Value;

/// A checkpoint as transformers sees it.
pub(super) struct Reference {
    /// Its class, as `config.json` names it.
    pub(super) class: String,
    pub(super) boundaries: Vec<Boundary>,
    pub(super) sequences: Vec<Sequence>,
    pub(super) greedy: Greedy,
}

/// A number of tokens beyond which something else is computed.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Boundary {
    /// The key of the configuration.
    pub(super) key: String,
    /// Sequences of more tokens are beyond it.
    pub(super) at: usize,
    /// Nothing is exported beyond it.
    pub(super) end: bool,
    /// The least cosine beyond it of a model whose configuration lacks the key.
    pub(super) ignored: Option<f64>,
}

/// A sequence, and the logits after each of its prefixes.
pub(super) struct Sequence {
    pub(super) ids: Vec<u32>,
    pub(super) logits: Vec<Vec<f32>>,
}

/// A prompt with its greedy continuation.
pub(super) struct Greedy {
    pub(super) ids: Vec<u32>,
    pub(super) prompt: usize,
}

/// What the metadata of the file say.
#[derive(Deserialize)]
struct Notes {
    boundaries: Vec<Boundary>,
    prompt: usize,
}

impl Reference {
    /// Reads `reference.safetensors` of a checkpoint.
    pub(super) fn read(checkpoint: &Path) -> Result<Reference> {
        let config = fs::read_to_string(checkpoint.join("config.json")).context("read config.json")?;
        let config: Value = serde_json::from_str(&config).context("read config.json")?;
        let class = config["architectures"][0].as_str().context("config.json names no class")?;
        let path = checkpoint.join("reference.safetensors");
        let bytes = fs::read(&path).with_context(|| format!("read {}", path.display()))?;
        let reference =
            Reference::parse(class, &bytes).with_context(|| format!("read {}", path.display()))?;
        let longest = reference.longest();
        for Boundary { key, at, end, .. } in &reference.boundaries {
            ensure!(*end || longest > *at, "no sequence goes beyond `{key}` {at}: the longest has {longest}");
        }
        Ok(reference)
    }

    fn parse(class: &str, bytes: &[u8]) -> Result<Reference> {
        let (_, metadata) = SafeTensors::read_metadata(bytes)?;
        let empty = HashMap::new();
        let notes =
            metadata.metadata().as_ref().unwrap_or(&empty).get("notes").context("there are no notes")?;
        let notes: Notes = serde_json::from_str(notes)?;
        let file = SafeTensors::deserialize(bytes)?;
        let mut sequences = Vec::new();
        while file.tensor(&format!("ids.{}", sequences.len())).is_ok() {
            let index = sequences.len();
            let ids = ids(&file, &format!("ids.{index}"))?;
            let logits: Vec<f32> =
                words(&file, &format!("logits.{index}"), Dtype::F32)?.map(f32::from_le_bytes).collect();
            ensure!(
                !ids.is_empty() && logits.len().is_multiple_of(ids.len()),
                "a sequence has logits for other positions"
            );
            let logits = logits.chunks_exact(logits.len() / ids.len()).map(<[f32]>::to_vec).collect();
            sequences.push(Sequence { ids, logits });
        }
        ensure!(!sequences.is_empty(), "there is no sequence");
        let greedy = Greedy { ids: ids(&file, "greedy")?, prompt: notes.prompt };
        ensure!((1..greedy.ids.len()).contains(&greedy.prompt), "the greedy sequence is not continued");
        Ok(Reference { class: class.to_owned(), boundaries: notes.boundaries, sequences, greedy })
    }

    /// Tokens of the longest sequence.
    pub(super) fn longest(&self) -> usize {
        let sequences = self.sequences.iter().map(|sequence| sequence.ids.len());
        sequences.chain([self.greedy.ids.len()]).max().unwrap_or(0)
    }
}

fn ids(file: &SafeTensors<'_>, name: &str) -> Result<Vec<u32>> {
    Ok(words(file, name, Dtype::I32)?.map(u32::from_le_bytes).collect())
}

/// The elements of a tensor, four bytes each.
fn words<'a>(
    file: &SafeTensors<'a>,
    name: &str,
    dtype: Dtype,
) -> Result<impl Iterator<Item = [u8; 4]> + use<'a>> {
    let tensor = file.tensor(name)?;
    ensure!(tensor.dtype() == dtype, "`{name}` is {:?}, expected {dtype:?}", tensor.dtype());
    Ok(tensor.data().chunks_exact(4).map(|word| [word[0], word[1], word[2], word[3]]))
}

//! Keys and values that layers share with earlier ones, within a chunk and across chunks.
//!
//! A chunk gives the new keys and values of a layer that later chunks see as outputs `key_N` and `value_N`. Those chunks
//! take them as inputs and keep them in their own caches, before those of their own layers.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::attention::{Heads, Tokens};
use super::cache::{AttendedKv, Cache};
use super::error::{LowerError, Result};
use super::graph::Graph;
use crate::model::{Attention, Layer};
use anemeter_mil::ValueId;

/// Which layers a chunk has keys and values of, and where they go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sharing {
    /// Earlier layers of other chunks, whose keys and values are inputs.
    pub(super) imported: Vec<usize>,
    /// Layers of the chunk whose keys and values are outputs.
    pub(super) exported: BTreeSet<usize>,
    /// Layers in the order of the chunk's caches, and their heads.
    pub(super) cached: Vec<(usize, Heads)>,
}

impl Sharing {
    /// That of a chunk with these layers.
    pub(super) fn of(layers: &[Layer], chunk: Range<usize>) -> Result<Sharing> {
        let sources =
            |range: Range<usize>| -> BTreeSet<usize> { layers[range].iter().filter_map(source_of).collect() };
        for (index, layer) in layers.iter().enumerate() {
            if let Some(own) = layer.attention() {
                check(layers, index, own)?;
            }
        }
        let imported: Vec<usize> =
            sources(chunk.clone()).into_iter().filter(|source| !chunk.contains(source)).collect();
        let later = sources(chunk.end..layers.len());
        let own = chunk.clone().filter(|&index| source_of(&layers[index]).is_none());
        // Other mixers than attention have no keys.
        let heads = |index: usize| {
            let attention = layers[index].attention()?;
            let heads = Heads::of(&format!("layers_{index}_attention"), attention);
            Some(heads.map(|heads| (index, heads)))
        };
        Ok(Sharing {
            cached: imported.iter().copied().chain(own).filter_map(heads).collect::<Result<_>>()?,
            exported: later.into_iter().filter(|source| chunk.contains(source)).collect(),
            imported,
        })
    }
}

/// The earlier layer whose keys and values a layer sees.
fn source_of(layer: &Layer) -> Option<usize> {
    layer.attention()?.shared_from
}

/// That a layer sees keys and values of an earlier layer that has its own, in the same heads.
fn check(layers: &[Layer], index: usize, own: &Attention) -> Result<()> {
    let Some(source) = own.shared_from else { return Ok(()) };
    let fits = source < index
        && layers.get(source).and_then(Layer::attention).is_some_and(|other| {
            let same = (other.kv_heads, other.head_dim) == (own.kv_heads, own.head_dim);
            other.shared_from.is_none() && same
        });
    if fits {
        return Ok(());
    }
    let message = format!(
        "cannot see keys and values of layer {source}: it has none of its own in the same heads before"
    );
    Err(LowerError::model(&format!("layers_{index}_attention"), message))
}

/// Keys and values of a function, by layer.
pub(super) struct KeysAndValues {
    cache: Cache,
    exported: BTreeSet<usize>,
    seen: BTreeMap<usize, AttendedKv>,
    /// Outputs for later chunks.
    pub(super) outputs: Vec<(String, ValueId)>,
}

/// The names of the inputs and outputs that carry a layer's keys and values from chunk to chunk.
pub(super) fn names(layer: usize) -> [String; 2] {
    [format!("key_{layer}"), format!("value_{layer}")]
}

impl KeysAndValues {
    pub(super) fn new(cache: Cache, exported: BTreeSet<usize>) -> KeysAndValues {
        KeysAndValues { cache, exported, seen: BTreeMap::new(), outputs: Vec::new() }
    }

    /// Takes a layer's new keys and values and gives what its attention is to see.
    pub(super) fn exchange(
        &mut self,
        graph: &mut Graph<'_>,
        (layer, heads): (usize, Heads),
        tokens: &Tokens,
        (key, value): (ValueId, ValueId),
    ) -> Result<AttendedKv> {
        if self.exported.contains(&layer) {
            let flat = [Some(tokens.batch), Some(heads.kv_channels()), Some(1), tokens.count];
            for (name, (label, id)) in
                names(layer).into_iter().zip([("key_given", key), ("value_given", value)])
            {
                let given = graph.reshape(label, id, flat)?;
                self.outputs.push((name, given));
            }
        }
        let seen = self.cache.exchange(graph, heads, tokens, (key, value))?;
        self.seen.insert(layer, seen.clone());
        Ok(seen)
    }

    /// What attention of an earlier layer sees.
    pub(super) fn seen(&self, at: &str, layer: usize) -> Result<AttendedKv> {
        let unknown = || LowerError::model(at, format!("keys and values of layer {layer} are not there"));
        self.seen.get(&layer).cloned().ok_or_else(unknown)
    }

    /// The cache alone.
    pub(super) fn into_cache(self) -> Cache {
        self.cache
    }

    /// New keys and values of the form `io`, in the order of its caches.
    pub(super) fn new_of_io(self) -> Option<(Vec<ValueId>, Vec<ValueId>)> {
        match self.cache {
            Cache::Io { keys, values, .. } => Some((keys, values)),
            Cache::None | Cache::State(_) | Cache::Pair(_) => None,
        }
    }
}

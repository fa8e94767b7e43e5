//! What layers see besides the residual stream: inputs of their own, and keys and values of earlier layers.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use rayon::prelude::*;

use super::hidden::normalize;
use super::linear::LoadedLinear;
use crate::model::{Decoder, PerLayerInputs};

/// Keys and values of a layer, a row for each token, normed and rotated.
pub(super) type KeysAndValues = (Vec<f32>, Vec<f32>);

/// Inputs of all layers.
#[derive(Debug, Clone, PartialEq)]
struct Inputs {
    /// Width of one layer's part.
    part: usize,
    /// Width of a row.
    all: usize,
    /// A row for each token.
    rows: Vec<f32>,
}

/// What layers see besides the residual stream.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Aside {
    /// Inputs of all layers.
    inputs: Option<Inputs>,
    /// Layers whose keys and values later ones see.
    sources: BTreeSet<usize>,
    /// Those that were computed.
    kept: BTreeMap<usize, KeysAndValues>,
}

impl Aside {
    /// Given the vectors of all tokens.
    pub(super) fn of(decoder: &Decoder, ids: &[u32], vectors: &[f32]) -> Aside {
        Aside {
            inputs: decoder.per_layer.as_ref().map(|inputs| Inputs::of(inputs, ids, vectors)),
            sources: decoder.layers.iter().filter_map(|layer| layer.attention()?.shared_from).collect(),
            kept: BTreeMap::new(),
        }
    }

    /// The inputs of one layer, a row for each token.
    pub(super) fn inputs(&self, layer: usize) -> Vec<f32> {
        let Some(Inputs { part, all, rows }) = &self.inputs else { return Vec::new() };
        let own = |row: &[f32]| row[layer * part..(layer + 1) * part].to_vec();
        rows.chunks((*all).max(1)).flat_map(own).collect()
    }

    /// That of some of `all` tokens.
    pub(super) fn tokens(&self, range: Range<usize>, all: usize) -> Aside {
        let of = |rows: &[f32]| {
            let width = rows.len() / all.max(1);
            rows[range.start * width..range.end * width].to_vec()
        };
        let kept = self.kept.iter().map(|(&layer, (key, value))| (layer, (of(key), of(value))));
        let inputs = self.inputs.as_ref().map(|inputs| Inputs { rows: of(&inputs.rows), ..*inputs });
        Aside { inputs, sources: self.sources.clone(), kept: kept.collect() }
    }

    /// Adds that of further tokens.
    pub(super) fn append(&mut self, more: Aside) {
        if let (Some(inputs), Some(more)) = (&mut self.inputs, more.inputs) {
            inputs.rows.extend(more.rows);
        }
        for (layer, (key, value)) in more.kept {
            let (keys, values) = self.kept.entry(layer).or_default();
            keys.extend(key);
            values.extend(value);
        }
    }

    /// Keeps what later layers see.
    pub(super) fn keep(&mut self, layer: usize, made: &KeysAndValues) {
        if self.sources.contains(&layer) {
            self.kept.insert(layer, made.clone());
        }
    }

    /// Keys and values of an earlier layer.
    pub(super) fn kept(&self, layer: usize) -> Option<&KeysAndValues> {
        self.kept.get(&layer)
    }
}

impl Inputs {
    /// What is looked up for each token, and a norm of the projection of its vector.
    fn of(inputs: &PerLayerInputs, ids: &[u32], vectors: &[f32]) -> Inputs {
        let mut rows = LoadedLinear::load("per_layer_projection", &inputs.projection).apply(vectors, 0);
        normalize(&mut rows, &inputs.norm);
        let all = inputs.all();
        rows.par_chunks_mut(all.max(1)).zip(ids).for_each(|(row, &id)| {
            let start = id as usize * all;
            let mut looked_up = vec![0.0; all];
            inputs.table.read(start..start + all, &mut looked_up);
            row.iter_mut().zip(&looked_up).for_each(|(x, own)| *x += own * inputs.scale);
        });
        Inputs { part: inputs.width, all, rows }
    }
}

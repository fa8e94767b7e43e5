//! The residual stream of several sequences.

use rayon::prelude::*;

use super::aside::Aside;
use super::error::CalibrateError;
use crate::model::{Decoder, Norm, NormKind, Position, Weight};

/// Hidden states of all tokens of all sequences, one row for each.
#[derive(Debug, Clone, PartialEq)]
pub struct Hidden {
    /// Elements of a row.
    pub width: usize,
    /// Tokens of each sequence.
    pub lengths: Vec<usize>,
    /// The rows, sequence after sequence.
    pub rows: Vec<f32>,
    /// What layers see besides.
    pub(super) aside: Aside,
    /// How many tokens come first that are of the uncompressed model.
    pub exact: usize,
}

/// All elements of a weight.
pub(super) fn read(weight: &Weight) -> Vec<f32> {
    read_range(weight, 0..weight.element_count())
}

/// Some elements of a weight; its stored bytes are released.
pub(super) fn read_range(weight: &Weight, range: std::ops::Range<usize>) -> Vec<f32> {
    const PIECE: usize = 1 << 16;
    let mut elements = vec![0.0; range.len()];
    elements.par_chunks_mut(PIECE).enumerate().for_each(|(index, piece)| {
        let start = range.start + index * PIECE;
        weight.read(start..start + piece.len(), piece);
    });
    weight.release(range);
    elements
}

impl Hidden {
    /// The embeddings of sequences; `change` may replace the elements of a token's embedding.
    pub fn embed(
        decoder: &Decoder,
        sequences: &[Vec<u32>],
        change: impl Fn(u32, &mut [f32]) + Sync,
    ) -> Result<Hidden, CalibrateError> {
        let (width, vocabulary) = (decoder.hidden, decoder.vocabulary);
        let lengths: Vec<usize> = sequences.iter().map(Vec::len).filter(|&length| length > 0).collect();
        let ids: Vec<u32> = sequences.concat();
        if ids.is_empty() {
            return Err(CalibrateError::NoTokens);
        }
        if let Some(&token) = ids.iter().find(|&&id| id as usize >= vocabulary) {
            return Err(CalibrateError::Token { token, vocabulary });
        }
        let mut rows = vec![0.0; ids.len() * width];
        rows.par_chunks_mut(width.max(1)).zip(&ids).for_each(|(row, &id)| {
            let start = id as usize * width;
            decoder.embedding.read(start..start + width, row);
            change(id, row);
            row.iter_mut().for_each(|x| *x *= decoder.embedding_scale);
        });
        let mut each = rows.chunks(width.max(1)).zip(&ids);
        let bad = each.find_map(|(row, &id)| Some((id, *row.iter().find(|x| !x.is_finite())?)));
        if let Some((token, value)) = bad {
            return Err(CalibrateError::Embedding { token, value });
        }
        let aside = Aside::of(decoder, &ids, &rows);
        let mut hidden = Hidden { width, lengths, rows, aside, exact: 0 };
        if let Position::Learned(positions) = &decoder.position {
            hidden.place(positions)?;
        }
        Ok(hidden)
    }

    /// The sequences as the uncompressed model takes them, then again with other embeddings.
    pub fn twins(
        decoder: &Decoder,
        sequences: &[Vec<u32>],
        change: impl Fn(u32, &mut [f32]) + Sync,
    ) -> Result<Hidden, CalibrateError> {
        let mut hidden = Hidden::embed(decoder, sequences, |_, _| ())?;
        let changed = Hidden::embed(decoder, sequences, change)?;
        hidden.exact = hidden.rows.len() / hidden.width.max(1);
        hidden.append(changed);
        Ok(hidden)
    }

    fn place(&mut self, positions: &Weight) -> Result<(), CalibrateError> {
        let most = positions.shape.first().copied().unwrap_or(0);
        if let Some(&found) = self.lengths.iter().find(|&&length| length > most) {
            return Err(CalibrateError::Length { found, most });
        }
        let table = read(positions);
        let width = self.width;
        for range in self.ranges() {
            let rows = &mut self.rows[range.start * width..range.end * width];
            rows.iter_mut().zip(&table).for_each(|(x, position)| *x += position);
        }
        Ok(())
    }

    /// Adds the rows of other sequences.
    pub(super) fn append(&mut self, other: Hidden) {
        self.rows.extend(other.rows);
        self.lengths.extend(other.lengths);
        self.aside.append(other.aside);
    }

    /// The rows of each sequence.
    pub fn ranges(&self) -> Vec<std::ops::Range<usize>> {
        let ends = self.lengths.iter().scan(0, |end, length| {
            *end += length;
            Some(*end)
        });
        ends.zip(&self.lengths).map(|(end, length)| end - length..end).collect()
    }

    /// The rows after a norm, if there is one.
    pub(super) fn normalized(&self, norm: Option<&Norm>) -> Vec<f32> {
        let mut rows = self.rows.clone();
        if let Some(norm) = norm {
            normalize(&mut rows, norm);
        }
        rows
    }

    /// Adds other rows.
    pub(super) fn add(&mut self, rows: &[f32]) {
        self.rows.par_iter_mut().zip(rows).for_each(|(x, more)| *x += more);
    }
}

/// Normalises rows as wide as the norm, in place.
pub(super) fn normalize(rows: &mut [f32], norm: &Norm) {
    let scale = read(&norm.weight);
    let shift = norm.bias.as_ref().map(read);
    rows.par_chunks_mut(scale.len().max(1)).for_each(|row| {
        let count = row.len() as f64;
        if norm.kind == NormKind::Layer {
            let mean = (row.iter().map(|&x| f64::from(x)).sum::<f64>() / count) as f32;
            row.iter_mut().for_each(|x| *x -= mean);
        }
        let square = row.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>() / count;
        let inverse = (1.0 / (square + f64::from(norm.epsilon)).sqrt()) as f32;
        row.iter_mut().zip(&scale).for_each(|(x, scale)| *x *= inverse * scale);
        if let Some(shift) = &shift {
            row.iter_mut().zip(shift).for_each(|(x, shift)| *x += shift);
        }
    });
}

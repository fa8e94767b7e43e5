//! Token vectors that the host looks up.

use std::path::Path;

use half::f16;
use safetensors::SafeTensors;

use super::call::TokenBatch;
use super::layout::Layout;
use crate::generate::error::{GenerateError, Result};
use anemeter_base::files;
use anemeter_convert::bundle::Architecture;
use anemeter_kernels::convert::to_f32;
use anemeter_kernels::tensor::{Bytes, DType, Tensor, TensorView};

/// Vectors of all tokens and, where they are learned, of all positions.
pub(super) struct HostTable {
    tokens: Tensor,
    positions: Option<Tensor>,
    per_layer: Option<(Tensor, f32)>,
    scale: f32,
    row: Vec<f32>,
    position_row: Vec<f32>,
}

impl HostTable {
    /// Reads a safetensors file with `token_embeddings` `[vocabulary, hidden]`, for learned positions `position_embeddings`
    /// `[positions, hidden]`, and where layers have inputs of their own `per_layer_embeddings` `[vocabulary, per_layer.width]`.
    pub(super) fn open(path: &Path, layout: &Layout, sizes: &Architecture) -> Result<HostTable> {
        let failed = |e: std::io::Error| GenerateError::file(path, e.to_string());
        let bytes = Bytes::map(&files::open(path).map_err(failed)?).map_err(failed)?;
        let tensors = SafeTensors::deserialize(&bytes)
            .map_err(|e| GenerateError::file(path, format!("is not a safetensors file: {e}")))?;
        let tokens = read(path, &bytes, &tensors, "token_embeddings", layout.hidden)?;
        let (rows, vocabulary) = (tokens.shape()[0], layout.vocabulary);
        if rows < vocabulary {
            let problem = format!("`token_embeddings` has {rows} rows, the vocabulary {vocabulary}");
            return Err(GenerateError::file(path, problem));
        }
        let positions = match sizes.learned_positions {
            true => Some(read(path, &bytes, &tensors, "position_embeddings", layout.hidden)?),
            false => None,
        };
        if let Some(positions) = positions.as_ref().filter(|p| p.shape()[0] < layout.longest()) {
            let problem = format!(
                "`position_embeddings` has {} rows, sequences have up to {}",
                positions.shape()[0],
                layout.longest()
            );
            return Err(GenerateError::file(path, problem));
        }
        let per_layer = sizes.per_layer.map(|lookup| {
            let table = read(path, &bytes, &tensors, "per_layer_embeddings", layout.per_layer)?;
            match table.shape()[0] {
                rows if rows < vocabulary => {
                    let problem =
                        format!("`per_layer_embeddings` has {rows} rows, the vocabulary {vocabulary}");
                    Err(GenerateError::file(path, problem))
                }
                _ => Ok((table, lookup.scale)),
            }
        });
        let (per_layer, scale) = (per_layer.transpose()?, sizes.embedding_scale);
        let row = vec![0.0; layout.hidden];
        Ok(HostTable { tokens, positions, per_layer, scale, position_row: row.clone(), row })
    }

    /// Writes `[batch, hidden, 1, width]`; columns without a token become zero.
    pub(super) fn write(&mut self, fed: &TokenBatch<'_>, width: usize, out: &mut [f16]) {
        let hidden = self.row.len();
        out.fill(f16::ZERO);
        for ((ids, &start), out) in fed.ids.iter().zip(&fed.starts).zip(out.chunks_exact_mut(hidden * width))
        {
            for (column, &id) in ids.iter().enumerate() {
                self.look_up(id as usize, start + column);
                let columns = out[column..].iter_mut().step_by(width);
                columns.zip(&self.row).for_each(|(to, &value)| *to = f16::from_f32(value));
            }
        }
    }

    /// Writes `[batch, per_layer.width, 1, width]`; columns without a token become zero.
    pub(super) fn write_per_layer(&self, fed: &TokenBatch<'_>, width: usize, out: &mut [f16]) {
        let Some((table, scale)) = &self.per_layer else { return };
        let channels = table.shape()[1];
        let mut row = vec![0.0; channels];
        out.fill(f16::ZERO);
        for (ids, out) in fed.ids.iter().zip(out.chunks_exact_mut(channels * width)) {
            for (column, &id) in ids.iter().enumerate() {
                to_f32(&table.view(), id as usize * channels..(id as usize + 1) * channels, &mut row);
                let columns = out[column..].iter_mut().step_by(width);
                columns.zip(&row).for_each(|(to, &value)| *to = f16::from_f32(value * scale));
            }
        }
    }

    fn look_up(&mut self, id: usize, position: usize) {
        let hidden = self.row.len();
        to_f32(&self.tokens.view(), id * hidden..(id + 1) * hidden, &mut self.row);
        self.row.iter_mut().for_each(|value| *value *= self.scale);
        if let Some(positions) = &self.positions {
            to_f32(&positions.view(), position * hidden..(position + 1) * hidden, &mut self.position_row);
            self.row.iter_mut().zip(&self.position_row).for_each(|(value, place)| *value += place);
        }
    }
}

/// A matrix of floats with rows of the given width.
fn read(path: &Path, bytes: &Bytes, tensors: &SafeTensors<'_>, name: &str, width: usize) -> Result<Tensor> {
    let problem = |problem: String| GenerateError::file(path, format!("`{name}` {problem}"));
    let found = tensors
        .tensor(name)
        .map_err(|_| problem(format!("is missing; the file has {}", tensors.names().join(", "))))?;
    let dtype = match found.dtype() {
        safetensors::Dtype::F16 => DType::F16,
        safetensors::Dtype::BF16 => DType::BF16,
        safetensors::Dtype::F32 => DType::F32,
        other => return Err(problem(format!("is {other:?}, expected F16, BF16 or F32"))),
    };
    if found.shape().len() != 2 || found.shape()[1] != width {
        return Err(problem(format!("has shape {:?}, expected rows of {width}", found.shape())));
    }
    let start = found.data().as_ptr() as usize - bytes.as_ptr() as usize;
    let data = bytes.slice(start..start + found.data().len());
    let data = data.ok_or_else(|| problem("lies outside the file".to_owned()))?;
    TensorView::new(dtype, found.shape(), &data).map_err(|e| problem(e.to_string()))?;
    Tensor::new(dtype, found.shape().into(), data).map_err(|e| problem(e.to_string()))
}

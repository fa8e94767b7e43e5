//! A weight and its encoding, made while its pieces are written.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use super::encoding::Step;
use super::linear::LinearScheme;
use super::palette::PaletteScheme;
use super::passthrough::{Passthrough, PassthroughScheme};
use super::precision::{Palette, Precision};
use super::sparse::SparseScheme;
use super::vector::VectorScheme;
use super::weight::Weight;
use super::{CompressError, Result};
use anemeter_kernels::quantize::Loss;
use anemeter_kernels::tensor::{DType, shape};
use anemeter_mil::{Opset, Payload, TensorType};

/// One way to encode one weight.
pub(super) trait Scheme: Send + Sync {
    /// Types of its pieces: first those that are streamed, then the tables that come out of encoding.
    fn pieces(&self) -> Vec<TensorType>;

    /// How many of the pieces are streamed.
    fn streams(&self) -> usize {
        1
    }

    /// Writes a streamed piece. The last one tells what was encoded besides.
    fn write(&self, weight: &Weight, stream: usize, out: &mut dyn Write)
    -> io::Result<Option<EncodedTables>>;

    /// The operations that give the weight back.
    fn steps(&self) -> Vec<Step>;

    /// How the elements are stored, where the precision that was asked for does not tell.
    fn form(&self) -> Option<String> {
        None
    }

    /// The bytes of the tables for parameters that were chosen by data; nothing if the form has no such.
    fn solved_tables(&self, _parameters: &[f32], _scales: &[f32]) -> Option<Vec<Vec<u8>>> {
        None
    }

    /// Whether codes were chosen by data.
    fn is_solved(&self) -> bool {
        false
    }
}

/// What encoding a weight tells besides its streamed pieces.
#[derive(Debug, Default)]
pub(super) struct EncodedTables {
    /// The bytes of the other pieces.
    pub(super) pieces: Vec<Vec<u8>>,
    pub(super) loss: Loss,
}

/// The scheme of a precision for a weight; `None` to leave it as it is.
pub(super) fn scheme(precision: Precision, weight: &Weight, opset: Opset) -> Result<Option<Box<dyn Scheme>>> {
    Ok(Some(match precision {
        Precision::Keep => return Ok(None),
        Precision::Stored => match PassthroughScheme::choose(weight, opset)? {
            Some(Passthrough::Same(carried)) => Box::new(carried),
            Some(Passthrough::Requantized(linear)) => Box::new(LinearScheme::new(linear, weight, opset)?),
            None => return Ok(None),
        },
        Precision::Linear(linear) => Box::new(LinearScheme::new(linear, weight, opset)?),
        Precision::Palette(palette @ Palette { vector: 2.., .. }) => {
            Box::new(VectorScheme::new(palette, weight, opset)?)
        }
        Precision::Palette(palette) => Box::new(PaletteScheme::new(palette, weight, opset)?),
        Precision::Sparse(_) | Precision::SparseLinear(..) | Precision::SparsePalette(..) => {
            Box::new(SparseScheme::new(precision, weight, opset)?)
        }
    }))
}

/// The error of an opset that lacks an operation.
pub(super) fn too_old(weight: &Weight, precision: impl std::fmt::Display, opset: Opset) -> CompressError {
    let message = format!("weight `{}` cannot be stored as {precision} in {opset}", weight.name);
    CompressError::new(message).with_help(
        "ios16 and ios17 have int8 per channel or tensor, lut1:tensor, lut2:tensor, \
         lut4:tensor, lut6:tensor, lut8:tensor and sparse; everything else needs a model for ios18",
    )
}

/// A weight with its scheme.
pub(super) struct WeightEncoder {
    pub(super) weight: Weight,
    pub(super) precision: Precision,
    pub(super) scheme: Box<dyn Scheme>,
    tables: Mutex<Option<Arc<EncodedTables>>>,
}

impl WeightEncoder {
    pub(super) fn new(weight: Weight, precision: Precision, scheme: Box<dyn Scheme>) -> WeightEncoder {
        WeightEncoder { weight, precision, scheme, tables: Mutex::new(None) }
    }

    /// The pieces, produced when they are written.
    pub(super) fn parts(self: &Arc<WeightEncoder>) -> Vec<Arc<dyn Payload>> {
        let pieces = self.scheme.pieces();
        let part = |(index, ty): (usize, &TensorType)| -> Arc<dyn Payload> {
            Arc::new(EncodedPiece { encoder: self.clone(), index, len: byte_len(ty) })
        };
        pieces.iter().enumerate().map(part).collect()
    }

    /// How the elements are stored.
    pub(super) fn form(&self) -> String {
        match (self.precision, self.scheme.form()) {
            (Precision::Stored, Some(form)) => form,
            (precision, _) => precision.to_string(),
        }
    }

    /// Bytes of all pieces.
    pub(super) fn byte_len(&self) -> u64 {
        self.scheme.pieces().iter().map(byte_len).sum()
    }

    /// The tables; encodes the weight if that has not been done yet.
    pub(super) fn tables(&self) -> io::Result<Arc<EncodedTables>> {
        let known = self.tables.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match known {
            Some(tables) => Ok(tables),
            None => self.write(self.scheme.streams() - 1, &mut io::sink()),
        }
    }

    fn write(&self, stream: usize, out: &mut dyn Write) -> io::Result<Arc<EncodedTables>> {
        let Some(tables) = self.scheme.write(&self.weight, stream, out)? else {
            return Ok(Arc::default());
        };
        let tables = Arc::new(tables);
        *self.tables.lock().unwrap_or_else(PoisonError::into_inner) = Some(tables.clone());
        Ok(tables)
    }
}

fn byte_len(ty: &TensorType) -> u64 {
    let shape = ty.concrete().expect("pieces have fixed types");
    let bytes = shape::element_count(&shape).and_then(|elements| ty.dtype.byte_len(elements));
    bytes.expect("a piece is no larger than the weight in memory") as u64
}

/// One piece of an encoded weight.
struct EncodedPiece {
    encoder: Arc<WeightEncoder>,
    index: usize,
    len: u64,
}

impl Payload for EncodedPiece {
    fn byte_len(&self) -> u64 {
        self.len
    }

    fn write_to(&self, out: &mut dyn Write) -> io::Result<()> {
        let streams = self.encoder.scheme.streams();
        match self.index.checked_sub(streams) {
            None => self.encoder.write(self.index, out).map(|_| ()),
            Some(small) => out.write_all(&self.encoder.tables()?.pieces[small]),
        }
    }
}

/// A type of the first generation's flat form: packed elements as a list of bytes.
pub(super) fn flat(dtype: DType, elements: usize) -> TensorType {
    let bytes = dtype.byte_len(elements).expect("packed elements take less than those in memory");
    TensorType::fixed(DType::U8, &[bytes])
}

//! The table of embeddings as int8 with one scale, read once for the scale and once for the codes.

use std::io::{self, Write};
use std::sync::{Arc, OnceLock};

use half::f16;
use rayon::prelude::*;

use crate::model::{Decoder, Weight};
use anemeter_kernels::tensor::DType;
use anemeter_mil::{Literal, LiteralData, Payload, TensorType};

/// Elements that are in memory at a time, on each core.
const PIECE: usize = 1 << 16;

/// The table.
pub(super) struct EmbeddingTable {
    codes: Arc<Codes>,
    shape: [usize; 3],
}

impl EmbeddingTable {
    pub(super) fn of(decoder: &Decoder) -> EmbeddingTable {
        let codes = Codes { weight: decoder.embedding.clone(), scale: OnceLock::new() };
        EmbeddingTable { codes: Arc::new(codes), shape: [decoder.vocabulary, 1, decoder.hidden] }
    }

    /// What codes are multiplied by.
    pub(super) fn scale(&self) -> f16 {
        self.codes.scale()
    }

    /// The codes, as a constant of int8.
    pub(super) fn literal(&self) -> Literal {
        Literal {
            ty: TensorType::fixed(DType::I8, &self.shape).into(),
            data: LiteralData::Stream(self.codes.clone()),
        }
    }
}

/// Codes of -127 to 127.
struct Codes {
    weight: Weight,
    scale: OnceLock<f16>,
}

impl Codes {
    fn read(&self, start: usize) -> Vec<f32> {
        let range = start..self.weight.element_count().min(start + PIECE);
        let mut floats = vec![0.0; range.len()];
        self.weight.read(range.clone(), &mut floats);
        self.weight.release(range);
        floats
    }

    /// The largest magnitude over the largest code; such a number as fp16 has, so that codes are made for what they are
    /// multiplied by.
    fn scale(&self) -> f16 {
        *self.scale.get_or_init(|| {
            let starts = (0..self.weight.element_count()).into_par_iter().step_by(PIECE);
            let largest = |start| self.read(start).into_iter().fold(0.0f32, |most, x| most.max(x.abs()));
            let largest = starts.map(largest).reduce(|| 0.0, f32::max);
            f16::from_f32(largest / 127.0).max(f16::MIN_POSITIVE)
        })
    }
}

impl Payload for Codes {
    fn byte_len(&self) -> u64 {
        self.weight.element_count() as u64
    }

    fn write_to(&self, out: &mut dyn Write) -> io::Result<()> {
        let factor = self.scale().to_f32().recip();
        let starts: Vec<usize> = (0..self.weight.element_count()).step_by(PIECE).collect();
        for window in starts.chunks(4 * rayon::current_num_threads()) {
            let pieces: io::Result<Vec<Vec<u8>>> = window
                .par_iter()
                .map(|&start| {
                    let values = self.read(start);
                    // As a code it would be one of a number.
                    if let Some(at) = values.iter().position(|x| !x.is_finite()) {
                        let message = format!("element {} of a weight is infinite or no number", start + at);
                        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
                    }
                    let code = |x: f32| (x * factor).round_ties_even().clamp(-127.0, 127.0) as i8;
                    Ok(values.into_iter().map(|x| code(x).cast_unsigned()).collect())
                })
                .collect();
            pieces?.iter().try_for_each(|piece| out.write_all(piece))?;
        }
        Ok(())
    }
}

//! Cosines and sines of rotary positions.

use half::f16;

use crate::generate::error::{GenerateError, Result};
use anemeter_convert::bundle::{MANIFEST, Manifest, Rotation};

/// Both inputs of a rotation.
#[derive(Debug)]
pub(crate) struct RotationTable {
    pub(crate) cos_input: String,
    pub(crate) sin_input: String,
    rows: Rows,
    /// Those of sequences of more tokens than a number, where they differ.
    long: Option<(usize, Rows)>,
}

/// Cosines and sines of the first positions, row by row.
#[derive(Debug)]
pub(crate) struct Rows {
    frequencies: Vec<f32>,
    magnitude: f32,
    cos: Vec<f16>,
    sin: Vec<f16>,
}

impl RotationTable {
    /// The rotations of all chunks; those of one name are the same.
    pub(crate) fn all(manifest: &Manifest) -> Result<Vec<RotationTable>> {
        let mut tables: Vec<RotationTable> = Vec::new();
        for rotation in manifest.chunks.iter().flat_map(|chunk| &chunk.rotations) {
            if tables.iter().all(|table| table.cos_input != rotation.cos) {
                tables.push(RotationTable::new(rotation)?);
            }
        }
        Ok(tables)
    }

    fn new(rotation: &Rotation) -> Result<RotationTable> {
        let rows = |frequencies: &[f32]| Rows::new(frequencies, rotation.magnitude);
        let long = rotation.long.as_ref();
        if let Some(long) = long.filter(|long| long.frequencies.len() != rotation.frequencies.len()) {
            let (found, expected) = (long.frequencies.len(), rotation.frequencies.len());
            let problem = format!("`{}` has {found} long frequencies, expected {expected}", rotation.cos);
            return Err(GenerateError::file(MANIFEST, problem));
        }
        Ok(RotationTable {
            cos_input: rotation.cos.clone(),
            sin_input: rotation.sin.clone(),
            rows: rows(&rotation.frequencies),
            long: long.map(|long| (long.above, rows(&long.frequencies))),
        })
    }

    /// Rotated dimensions of a head.
    pub(crate) fn dims(&self) -> usize {
        self.rows.dims()
    }

    /// Computes rows up to a number of positions.
    pub(crate) fn extend_to(&mut self, positions: usize) {
        self.rows.extend_to(positions);
        // Sequences of this length may need either.
        if let Some((_, long)) = self.long.as_mut().filter(|(above, _)| positions > *above) {
            long.extend_to(positions);
        }
    }

    /// The rows for a sequence of so many tokens.
    pub(crate) fn rows(&self, seq_len: usize) -> &Rows {
        match &self.long {
            Some((above, long)) if seq_len > *above => long,
            _ => &self.rows,
        }
    }
}

/// How many rotations have the angles of longer sequences at a length. Where two lengths have the same number, they
/// have the same angles.
pub(super) fn count_long(tables: &[RotationTable], seq_len: usize) -> usize {
    tables.iter().filter(|table| table.long.as_ref().is_some_and(|(above, _)| seq_len > *above)).count()
}

impl Rows {
    fn new(frequencies: &[f32], magnitude: f32) -> Rows {
        Rows { frequencies: frequencies.to_vec(), magnitude, cos: Vec::new(), sin: Vec::new() }
    }

    fn dims(&self) -> usize {
        2 * self.frequencies.len()
    }

    fn extend_to(&mut self, positions: usize) {
        let known = self.cos.len().checked_div(self.dims()).unwrap_or(positions);
        for position in known..positions {
            for &frequency in self.frequencies.iter().chain(&self.frequencies) {
                // Rounded to f32 where transformers rounds.
                let (sin, cos) = f64::from(frequency * position as f32).sin_cos();
                self.cos.push(f16::from_f32(cos as f32 * self.magnitude));
                self.sin.push(f16::from_f32(sin as f32 * self.magnitude));
            }
        }
    }

    /// The row of a position, which must have been computed.
    pub(crate) fn cos(&self, position: usize) -> &[f16] {
        &self.cos[position * self.dims()..][..self.dims()]
    }

    pub(crate) fn sin(&self, position: usize) -> &[f16] {
        &self.sin[position * self.dims()..][..self.dims()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anemeter_convert::bundle::LongRotation;

    fn rotation(long: Option<LongRotation>) -> Rotation {
        Rotation {
            cos: "cos".to_owned(),
            sin: "sin".to_owned(),
            frequencies: vec![1.0, 0.749_894_2, 1.333_521_5e-4],
            magnitude: 2.0,
            long,
        }
    }

    // The expected numbers are those of transformers' rotary embeddings.
    #[test]
    fn rows_repeat_their_first_half_and_carry_the_magnitude() {
        let mut table = RotationTable::new(&rotation(None)).unwrap();
        table.extend_to(3);
        table.extend_to(1001);
        let rows = table.rows(1001);
        let halves = [0.562_379_06, -0.584_592_9, 0.991_121_77].map(|v: f32| f16::from_f32(2.0 * v));
        assert_eq!(rows.cos(1000), [halves, halves].concat());
        let halves = [0.826_879_56, 0.811_326_8, 0.132_957_27].map(|v: f32| f16::from_f32(2.0 * v));
        assert_eq!(rows.sin(1000), [halves, halves].concat());
        assert_eq!((rows.cos(0)[0].to_f32(), rows.sin(0)[5].to_f32()), (2.0, 0.0));
        assert_eq!(rows.cos.len(), 6 * 1001);
    }

    #[test]
    fn longer_sequences_have_other_rows_from_their_first_position_on() {
        let long = LongRotation { above: 4, frequencies: vec![0.5, 0.25, 0.125] };
        let mut table = RotationTable::new(&rotation(Some(long))).unwrap();
        table.extend_to(5);
        assert_eq!(table.rows(4).cos(1)[0], f16::from_f32(2.0 * 1f32.cos()));
        assert_eq!(table.rows(5).cos(1)[0], f16::from_f32(2.0 * 0.5f32.cos()));
        assert_eq!([4, 5].map(|seq_len| count_long(std::slice::from_ref(&table), seq_len)), [0, 1]);
        let wrong = LongRotation { above: 4, frequencies: vec![0.5] };
        let error = RotationTable::new(&rotation(Some(wrong))).unwrap_err().to_string();
        assert!(error.contains("has 1 long frequencies, expected 3"), "{error}");
    }
}

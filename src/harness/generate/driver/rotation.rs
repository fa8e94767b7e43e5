//! Cosines and sines of rotary positions.

use half::f16;

use anemeter_convert::bundle::{Manifest, Rotation};

/// Both inputs of a rotation for the first positions, row by row.
#[derive(Debug)]
pub(super) struct RotationTable {
    pub(super) cos_input: String,
    pub(super) sin_input: String,
    frequencies: Vec<f32>,
    magnitude: f32,
    cos: Vec<f16>,
    sin: Vec<f16>,
}

impl RotationTable {
    /// The rotations of all chunks; those of one name are the same.
    pub(super) fn all(manifest: &Manifest) -> Vec<RotationTable> {
        let mut tables: Vec<RotationTable> = Vec::new();
        for rotation in manifest.chunks.iter().flat_map(|chunk| &chunk.rotations) {
            if tables.iter().all(|table| table.cos_input != rotation.cos) {
                tables.push(RotationTable::new(rotation));
            }
        }
        tables
    }

    fn new(rotation: &Rotation) -> RotationTable {
        RotationTable {
            cos_input: rotation.cos.clone(),
            sin_input: rotation.sin.clone(),
            frequencies: rotation.frequencies.clone(),
            magnitude: rotation.magnitude,
            cos: Vec::new(),
            sin: Vec::new(),
        }
    }

    /// Rotated dimensions of a head.
    pub(super) fn dims(&self) -> usize {
        2 * self.frequencies.len()
    }

    /// Computes rows up to a number of positions.
    pub(super) fn extend_to(&mut self, positions: usize) {
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
    pub(super) fn cos(&self, position: usize) -> &[f16] {
        &self.cos[position * self.dims()..][..self.dims()]
    }

    pub(super) fn sin(&self, position: usize) -> &[f16] {
        &self.sin[position * self.dims()..][..self.dims()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // The expected numbers are those of transformers' rotary embeddings.
    #[test]
    fn rows_repeat_their_first_half_and_carry_the_magnitude() {
        let rotation = Rotation {
            cos: "cos".to_owned(),
            sin: "sin".to_owned(),
            frequencies: vec![1.0, 0.749_894_2, 1.333_521_5e-4],
            magnitude: 2.0,
        };
        let mut table = RotationTable::new(&rotation);
        table.extend_to(3);
        table.extend_to(1001);
        let halves = [0.562_379_06, -0.584_592_9, 0.991_121_77].map(|v: f32| f16::from_f32(2.0 * v));
        assert_eq!(table.cos(1000), [halves, halves].concat());
        let halves = [0.826_879_56, 0.811_326_8, 0.132_957_27].map(|v: f32| f16::from_f32(2.0 * v));
        assert_eq!(table.sin(1000), [halves, halves].concat());
        assert_eq!((table.cos(0)[0].to_f32(), table.sin(0)[5].to_f32()), (2.0, 0.0));
        assert_eq!(table.cos.len(), 6 * 1001);
    }
}

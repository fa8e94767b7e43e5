//! Rotary positions in their textbook form: angles in f64, the two halves of the rotated dimensions as pairs.

use std::f64::consts::TAU;

use candle_core::{Device, Result, Tensor};

use crate::settings::{Rope, Scaling};

/// Cosines and sines of all positions.
pub(super) struct Rotary {
    table: Table,
    /// Those of sequences of more tokens than a number.
    long: Option<(usize, Table)>,
    dims: usize,
    pairs: Pairs,
}

/// Which dimensions are rotated against each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pairs {
    /// Those half of the rotated dimensions apart.
    Halves,
    /// Neighbours.
    Neighbours,
}

/// Each `[positions, dims / 2]`.
struct Table {
    cos: Tensor,
    sin: Tensor,
}

impl Rotary {
    pub(super) fn new(rope: &Rope, positions: usize) -> Result<Rotary> {
        let table = |seq_len: usize| Table::new(&frequencies(rope, seq_len), magnitude(rope), positions);
        let boundary = match rope.scaling {
            Scaling::Long { original, .. } => Some(original as usize),
            Scaling::Dynamic { original, .. } if positions as f64 > original => {
                candle_core::bail!("dynamic RoPE scaling has no reference beyond {original} positions")
            }
            _ => None,
        };
        let boundary = boundary.filter(|&boundary| positions > boundary);
        let long = boundary.map(|boundary| Ok::<_, candle_core::Error>((boundary, table(boundary + 1)?)));
        Ok(Rotary { table: table(0)?, long: long.transpose()?, dims: rope.dims, pairs: Pairs::Halves })
    }

    /// As [`Rotary::new`], with neighbouring dimensions as pairs.
    pub(super) fn of_neighbours(rope: &Rope, positions: usize) -> Result<Rotary> {
        Ok(Rotary { pairs: Pairs::Neighbours, ..Rotary::new(rope, positions)? })
    }

    /// Sequences of more tokens than this are rotated otherwise.
    pub(super) fn boundary(&self) -> Option<usize> {
        self.long.as_ref().map(|(boundary, _)| *boundary)
    }

    /// Rotates `[heads, tokens, head_dim]` from a position on.
    pub(super) fn apply(&self, x: &Tensor, offset: usize) -> Result<Tensor> {
        let (_, tokens, width) = x.dims3()?;
        let table = match &self.long {
            Some((boundary, long)) if offset + tokens > *boundary => long,
            _ => &self.table,
        };
        let (cos, sin) = (table.cos.narrow(0, offset, tokens)?, table.sin.narrow(0, offset, tokens)?);
        let (first, second) = self.pairs(&x.narrow(2, 0, self.dims)?)?;
        let turned_first = (first.broadcast_mul(&cos)? - second.broadcast_mul(&sin)?)?;
        let turned_second = (second.broadcast_mul(&cos)? + first.broadcast_mul(&sin)?)?;
        let turned = match self.pairs {
            Pairs::Halves => Tensor::cat(&[turned_first, turned_second], 2)?,
            Pairs::Neighbours => Tensor::stack(&[turned_first, turned_second], 3)?.flatten(2, 3)?,
        };
        Tensor::cat(&[turned, x.narrow(2, self.dims, width - self.dims)?], 2)
    }

    /// The first and the second of every pair, each `[heads, tokens, dims / 2]`.
    fn pairs(&self, x: &Tensor) -> Result<(Tensor, Tensor)> {
        let half = self.dims / 2;
        match self.pairs {
            Pairs::Halves => Ok((x.narrow(2, 0, half)?, x.narrow(2, half, half)?)),
            Pairs::Neighbours => {
                let (heads, tokens, _) = x.dims3()?;
                let pairs = x.contiguous()?.reshape((heads, tokens, half, 2))?;
                Ok((pairs.narrow(3, 0, 1)?.squeeze(3)?, pairs.narrow(3, 1, 1)?.squeeze(3)?))
            }
        }
    }
}

impl Table {
    fn new(frequencies: &[f64], magnitude: f64, positions: usize) -> Result<Table> {
        let table = |function: fn(f64) -> f64| {
            let angles = (0..positions).flat_map(|p| frequencies.iter().map(move |f| f * p as f64));
            let values: Vec<f32> = angles.map(|angle| (function(angle) * magnitude) as f32).collect();
            Tensor::from_vec(values, (positions, frequencies.len()), &Device::Cpu)
        };
        Ok(Table { cos: table(f64::cos)?, sin: table(f64::sin)? })
    }
}

fn magnitude(rope: &Rope) -> f64 {
    match &rope.scaling {
        Scaling::Long { magnitude, .. } | Scaling::Yarn { magnitude, .. } => *magnitude,
        Scaling::None | Scaling::Linear(_) | Scaling::Llama3 { .. } | Scaling::Dynamic { .. } => 1.0,
    }
}

/// The angle per position of each pair of dimensions, in a sequence of `seq_len` tokens.
fn frequencies(rope: &Rope, seq_len: usize) -> Vec<f64> {
    let dims = rope.dims as f64;
    let plain = |pair: usize| rope.base.powf(-2.0 * pair as f64 / dims);
    let scaled = |pair: usize| match &rope.scaling {
        Scaling::None => plain(pair),
        Scaling::Linear(factor) => plain(pair) / factor,
        Scaling::Long { short, long, original, .. } => {
            let factors = if seq_len as f64 > *original { long } else { short };
            plain(pair) / factors.get(pair).copied().unwrap_or(1.0)
        }
        Scaling::Dynamic { factor, original } => {
            let stretch = factor * (seq_len as f64).max(*original) / original - (factor - 1.0);
            let base = rope.base * stretch.powf(dims / (dims - 2.0));
            base.powf(-2.0 * pair as f64 / dims)
        }
        Scaling::Llama3 { factor, low, high, original } => {
            let turns = original * plain(pair) / TAU;
            let kept = ((turns - low) / (high - low)).clamp(0.0, 1.0);
            plain(pair) * (kept + (1.0 - kept) / factor)
        }
        Scaling::Yarn { factor, fast, slow, original, truncate, .. } => {
            let pair_with = |turns: f64| dims * (original / (turns * TAU)).ln() / (2.0 * rope.base.ln());
            let (mut start, mut end) = (pair_with(*fast), pair_with(*slow));
            if *truncate {
                (start, end) = (start.floor(), end.ceil());
            }
            (start, end) = (start.max(0.0), end.min(dims - 1.0));
            let stretched = ((pair as f64 - start) / (end - start).max(0.001)).clamp(0.0, 1.0);
            plain(pair) * (1.0 - stretched + stretched / factor)
        }
    };
    (0..rope.dims / 2).map(scaled).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

    use super::*;
    use crate::settings::{LLAMA, PHI3, Settings};
    use anemeter_convert::checkpoint::Config;

    /// `xtask/python/rope_frequencies.py` writes them.
    const BY_TRANSFORMERS: &str = include_str!("../../convert/model/testdata/rope.json");

    fn rope(entry: &Value) -> Rope {
        let sizes = json!({"vocab_size": 8, "intermediate_size": 8, "num_hidden_layers": 1});
        let mut config: Map<String, Value> = sizes.as_object().unwrap().clone();
        config.extend(entry["config"].as_object().unwrap().clone());
        let defaults = if entry["class"] == "phi3" { PHI3 } else { LLAMA };
        Settings::read(&Config::new(config), defaults, 8).unwrap().rope().unwrap()
    }

    #[test]
    fn frequencies_are_those_of_transformers_on_both_sides_of_every_boundary() {
        let entries: Vec<Value> = serde_json::from_str(BY_TRANSFORMERS).unwrap();
        for entry in &entries {
            let rope = rope(entry);
            let found = frequencies(&rope, entry["seq_len"].as_u64().unwrap() as usize);
            let expected = entry["frequencies"].as_array().unwrap();
            assert_eq!(found.len(), expected.len(), "{entry}");
            for (found, expected) in found.iter().zip(expected) {
                assert!((found / expected.as_f64().unwrap() - 1.0).abs() < 1e-6, "{found} in {entry}");
            }
            assert!((magnitude(&rope) - entry["magnitude"].as_f64().unwrap()).abs() < 1e-12, "{entry}");
        }
    }

    #[test]
    fn the_length_of_a_sequence_decides_for_all_of_its_positions() {
        let scaling = Scaling::Long { short: vec![1.0], long: vec![4.0], original: 4.0, magnitude: 1.0 };
        let rotary = Rotary::new(&Rope { base: 10_000.0, dims: 2, scaling }, 8).unwrap();
        assert_eq!(rotary.boundary(), Some(4));
        let x = Tensor::new(&[[[1f32, 0.0]; 5]], &Device::Cpu).unwrap();
        let angle = |tokens: usize| {
            let turned = rotary.apply(&x.narrow(1, 0, tokens).unwrap(), 0).unwrap();
            let turned = turned.to_vec3::<f32>().unwrap();
            turned[0][1][1].atan2(turned[0][1][0])
        };
        assert!((angle(4) - 1.0).abs() < 1e-6 && (angle(5) - 0.25).abs() < 1e-6);
    }

    #[test]
    fn neighbours_turn_as_halves_do_in_another_order() {
        let rope = Rope { base: 100.0, dims: 4, scaling: Scaling::None };
        let turned = |rotary: Rotary, head: [f32; 6]| {
            let x = Tensor::new(&[[head; 3]], &Device::Cpu).unwrap();
            rotary.apply(&x, 0).unwrap().to_vec3::<f32>().unwrap()[0][2].clone()
        };
        let halves = turned(Rotary::new(&rope, 3).unwrap(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let neighbours = turned(Rotary::of_neighbours(&rope, 3).unwrap(), [1.0, 3.0, 2.0, 4.0, 5.0, 6.0]);
        assert_eq!([0, 2, 1, 3, 4, 5].map(|i: usize| neighbours[i]), halves[..]);
        assert!((halves[0] - (2f32.cos() - 3.0 * 2f32.sin())).abs() < 1e-6, "{halves:?}");
    }

    #[test]
    fn dynamic_scaling_is_refused_where_every_length_has_frequencies_of_its_own() {
        let scaling = Scaling::Dynamic { factor: 2.0, original: 4.0 };
        let rope = Rope { base: 10_000.0, dims: 4, scaling };
        assert!(Rotary::new(&rope, 4).is_ok());
        assert!(Rotary::new(&rope, 5).is_err());
    }
}

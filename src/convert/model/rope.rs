//! Rotary positions: frequencies and tables of cosines and sines, rounded where transformers rounds them.

use std::f64::consts::PI;
use std::ops::Range;

/// Rotary positions: the first dimensions of each head are rotated in pairs half of them apart.
#[derive(Debug, Clone, PartialEq)]
pub struct Rope {
    /// Base of the frequencies.
    pub base: f64,
    /// How many of a head's dimensions are rotated.
    pub dims: usize,
    /// Change of the frequencies for long contexts.
    pub scaling: RopeScaling,
}

/// Change of rotary frequencies for long contexts.
#[derive(Debug, Clone, PartialEq)]
pub enum RopeScaling {
    /// Frequencies are used as they are.
    None,
    /// Positions divided by a factor.
    Linear(f64),
    /// Llama 3's smooth change between two wavelengths.
    Llama3 {
        /// Division of low frequencies.
        factor: f64,
        /// Wavelength bounds, as fractions of the original length.
        low_freq_factor: f64,
        #[expect(missing_docs, reason = "see low_freq_factor")]
        high_freq_factor: f64,
        /// Length the model was first trained for.
        original_positions: usize,
    },
    /// A factor per frequency (YaRN) and one on sine and cosine.
    Factors {
        /// Division of each frequency.
        factors: Vec<f64>,
        /// Factor on sine and cosine.
        magnitude: f64,
    },
    /// LongRoPE (Ding et al. 2024): a factor per frequency for sequences of the original length, another for longer
    /// ones, and one on sine and cosine of both.
    Long {
        /// Division of each frequency up to the original length.
        short: Vec<f64>,
        /// Division of each frequency beyond it.
        long: Vec<f64>,
        /// Length the model was first trained for.
        original_positions: usize,
        /// Factor on sine and cosine.
        magnitude: f64,
    },
    /// Frequencies of a whole head, of which only the first pairs are rotated (Gemma 4).
    Proportional {
        /// Pairs that are rotated.
        pairs: usize,
        /// Division of their frequencies.
        factor: f64,
    },
    /// Dynamic NTK: nothing changes up to the original length; beyond it every length has frequencies of its own.
    Dynamic {
        /// Length the model was trained for.
        original_positions: usize,
    },
}

/// Frequencies that replace the others in longer sequences.
#[derive(Debug, Clone, PartialEq)]
pub struct LongFrequencies {
    /// They are for sequences of more tokens than this.
    pub above: usize,
    /// The angle per position of each pair of dimensions.
    pub frequencies: Vec<f64>,
}

impl Rope {
    /// The angle per position of each pair of dimensions; every value is one of f32, in which transformers
    /// computes them. LongRoPE has others for longer sequences: [`Rope::long_frequencies`].
    pub fn frequencies(&self) -> Vec<f64> {
        self.frequencies_at(0)
    }

    /// The angles for longer sequences, if they differ.
    pub fn long_frequencies(&self) -> Option<LongFrequencies> {
        let RopeScaling::Long { original_positions: above, .. } = self.scaling else { return None };
        Some(LongFrequencies { above, frequencies: self.frequencies_at(above + 1) })
    }

    /// The longest sequence whose frequencies do not depend on its own length, if there is one.
    pub fn fixed_up_to(&self) -> Option<usize> {
        match self.scaling {
            RopeScaling::Dynamic { original_positions } => Some(original_positions),
            _ => None,
        }
    }

    /// The factor on cosines and sines.
    pub fn magnitude(&self) -> f64 {
        match self.scaling {
            RopeScaling::Factors { magnitude, .. } | RopeScaling::Long { magnitude, .. } => magnitude,
            RopeScaling::None
            | RopeScaling::Linear(_)
            | RopeScaling::Llama3 { .. }
            | RopeScaling::Proportional { .. }
            | RopeScaling::Dynamic { .. } => 1.0,
        }
    }

    /// Cosines and sines of consecutive positions of a sequence of `seq_len` tokens, each `[positions, dims]` with
    /// the second half of a row equal to its first.
    pub fn table(&self, positions: Range<usize>, seq_len: usize) -> (Vec<f32>, Vec<f32>) {
        let frequencies: Vec<f32> =
            self.frequencies_at(seq_len).into_iter().map(|frequency| frequency as f32).collect();
        let magnitude = self.magnitude() as f32;
        let angles: Vec<f64> = positions
            .flat_map(|position| {
                let halves = frequencies.iter().chain(&frequencies);
                halves.map(move |frequency| f64::from(frequency * position as f32))
            })
            .collect();
        let scaled = |function: fn(f64) -> f64| {
            angles.iter().map(|&angle| function(angle) as f32 * magnitude).collect::<Vec<f32>>()
        };
        (scaled(f64::cos), scaled(f64::sin))
    }

    fn frequencies_at(&self, seq_len: usize) -> Vec<f64> {
        (0..self.dims / 2).map(|pair| f64::from(self.frequency(pair, seq_len))).collect()
    }

    fn frequency(&self, pair: usize, seq_len: usize) -> f32 {
        let exponent = (2 * pair) as f32 / self.dims as f32;
        let period = f64::from(self.base as f32).powf(f64::from(exponent)) as f32;
        let plain = 1.0 / period;
        let divided =
            |factors: &[f64]| 1.0 / (factors.get(pair).map_or(1.0, |&factor| factor as f32) * period);
        match &self.scaling {
            RopeScaling::None | RopeScaling::Dynamic { .. } => plain,
            RopeScaling::Linear(factor) => plain / *factor as f32,
            RopeScaling::Factors { factors, .. } => divided(factors),
            RopeScaling::Proportional { pairs, .. } if pair >= *pairs => 0.0,
            RopeScaling::Proportional { factor, .. } => plain / *factor as f32,
            RopeScaling::Long { short, long, original_positions, .. } => {
                divided(if seq_len > *original_positions { long } else { short })
            }
            RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_positions } => {
                let (factor, low, high) = (*factor as f32, *low_freq_factor as f32, *high_freq_factor as f32);
                let original = *original_positions as f32;
                let wavelength = (2.0 * PI) as f32 / plain;
                if wavelength > original / low {
                    plain / factor
                } else if wavelength < original / high {
                    plain
                } else {
                    let smooth = (original / wavelength - low) / (high - low);
                    (1.0 - smooth) * plain / factor + smooth * plain
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Dimension, frequency, and cosine and sine at the position.
    type Row = (usize, f64, f32, f32);

    fn check(rope: &Rope, position: usize, rows: &[Row]) {
        let frequencies = rope.frequencies();
        let (cos, sin) = rope.table(position..position + 2, position + 2);
        assert_eq!((frequencies.len(), cos.len(), sin.len()), (rope.dims / 2, 2 * rope.dims, 2 * rope.dims));
        for &(dim, frequency, c, s) in rows {
            let error = (frequencies[dim] / frequency - 1.0).abs();
            assert!(error < 2e-7, "{rope:?}: {dim} is {} not {frequency}", frequencies[dim]);
            for half in [dim, dim + rope.dims / 2] {
                assert!((cos[half] - c).abs() < 1e-4, "{rope:?}: cosine {half} is {} not {c}", cos[half]);
                assert!((sin[half] - s).abs() < 1e-4, "{rope:?}: sine {half} is {} not {s}", sin[half]);
            }
        }
    }

    // The expected numbers are those of transformers' rotary embeddings.

    #[test]
    fn plain_and_linear() {
        let plain = |dims| Rope { base: 10_000.0, dims, scaling: RopeScaling::None };
        let rows = [
            (0, 1.0, 0.562_379_06, 0.826_879_56),
            (1, 7.498_942_018e-1, -0.584_592_9, 0.811_326_8),
            (17, 7.498_942_316e-3, 0.347_627_16, 0.937_632_86),
            (31, 1.333_521_504e-4, 0.991_121_77, 0.132_957_27),
        ];
        check(&plain(64), 1000, &rows);
        let rows = [
            (17, 3.831_187_263e-2, 0.818_062_3, 0.575_129_57),
            (47, 1.211_527_488e-4, 0.992_67, 0.120_856_59),
        ];
        check(&plain(96), 1000, &rows);
        let rows = [
            (0, 0.125, -0.965_256_75, 0.261_303_4),
            (1, 1.007_302_776e-1, -0.963_130_5, 0.269_034_86),
            (63, 1.551_172_204e-7, 1.0, 0.000_120_526),
        ];
        check(&Rope { base: 1e6, dims: 128, scaling: RopeScaling::Linear(8.0) }, 777, &rows);
    }

    #[test]
    fn pairs_beyond_a_share_stand_still() {
        let scaling = RopeScaling::Proportional { pairs: 2, factor: 1.0 };
        let rope = Rope { base: 1e6, dims: 16, scaling };
        // The exponents are those of the whole head.
        check(&rope, 3, &[(1, 1.778_279_4e-1, 0.861_040_65, 0.508_536_1)]);
        assert_eq!(rope.frequencies()[2..], [0.0; 6]);
        let (cos, sin) = rope.table(5..6, 6);
        assert_eq!((&cos[2..8], &sin[10..16]), (&[1.0; 6][..], &[0.0; 6][..]));
    }

    #[test]
    fn llama3_changes_low_frequencies_smoothly() {
        let scaling = RopeScaling::Llama3 {
            factor: 32.0,
            low_freq_factor: 1.0,
            high_freq_factor: 4.0,
            original_positions: 8192,
        };
        let rows = [
            (1, 6.636_012_793e-1, -0.748_361_9, -0.663_290_7),
            (13, 4.839_421_250e-3, 0.126_690_91, -0.991_942_2),
            (15, 1.290_548_011e-3, 0.276_594_34, 0.960_986_8),
            (16, 4.295_567_051e-4, 0.909_150_5, 0.416_467_82),
            (17, 9.708_286_234e-5, 0.995_291_2, 0.096_930_43),
            (18, 1.946_163_866e-5, 0.999_810_64, 0.019_460_41),
            (31, 9.418_306_490e-8, 1.0, 0.000_094_183),
        ];
        check(&Rope { base: 500_000.0, dims: 64, scaling }, 1000, &rows);
    }

    #[test]
    fn factors_divide_frequencies_and_scale_the_table() {
        let factors = vec![1.0, 1.05, 1.2, 1.5, 2.0, 2.5];
        let rope = Rope {
            base: 10_000.0,
            dims: 12,
            scaling: RopeScaling::Factors { factors, magnitude: 1.190_238_071_423_808_3 },
        };
        let rows = [
            (0, 1.0, -0.026_300_24, -1.189_947_5),
            (1, 2.051_842_660e-1, 0.345_163_58, -1.139_091_3),
            (2, 3.867_990_151e-2, 0.680_283_25, -0.976_668_6),
            (5, 1.856_635_790e-4, 1.188_392_3, 0.066_260_88),
        ];
        check(&rope, 300, &rows);
        assert_eq!(rope.table(0..1, 1).0[0], 1.190_238_1);
    }

    #[test]
    fn long_factors_are_for_sequences_beyond_the_original_length() {
        let (short, long) = (vec![1.0, 1.05, 1.2, 1.5, 2.0, 2.5], vec![2.0, 3.0, 4.0, 5.0, 6.0, 7.0]);
        let magnitude = 1.190_238_071_423_808_3;
        let scaling = |factors: &[f64]| RopeScaling::Factors { factors: factors.to_vec(), magnitude };
        let plain = |factors: &[f64]| Rope { base: 10_000.0, dims: 12, scaling: scaling(factors) };
        let rope = Rope {
            scaling: RopeScaling::Long {
                short: short.clone(),
                long: long.clone(),
                original_positions: 64,
                magnitude,
            },
            ..plain(&short)
        };
        assert_eq!(rope.frequencies(), plain(&short).frequencies());
        let longer = LongFrequencies { above: 64, frequencies: plain(&long).frequencies() };
        assert_eq!(rope.long_frequencies(), Some(longer));
        // The length of the sequence decides, for its first positions too.
        assert_eq!(rope.table(0..64, 64), plain(&short).table(0..64, 64));
        assert_eq!(rope.table(0..64, 65), plain(&long).table(0..64, 65));
    }
}

//! Rotary positions from a configuration: `rope_parameters` or the older `rope_theta` and `rope_scaling`.

use std::f64::consts::PI;

use crate::model::keys::{Keys, Result, Size};
use crate::model::rope::{Rope, RopeScaling};

/// The base that most architectures take where none is given.
pub(super) const BASE: f64 = 10_000.0;

/// What an architecture takes where a configuration is silent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Defaults {
    pub(super) base: f64,
    /// Share of a head's dimensions that is rotated.
    pub(super) partial: f64,
}

/// Those of most architectures.
pub(super) const USUAL: Defaults = Defaults { base: BASE, partial: 1.0 };

/// Rotary positions and how many of them the model was trained for.
pub(super) struct Rotary {
    pub(super) rope: Rope,
    pub(super) max_positions: usize,
}

/// The rotary positions of all layers.
pub(super) fn read(keys: &Keys, head_dim: &Size, defaults: Defaults) -> Result<Rotary> {
    let section = match keys.section("rope_parameters")? {
        Some(section) => Some(section),
        None => keys.section("rope_scaling")?,
    };
    let base = keys.positive_or("rope_theta", defaults.base)?;
    scaled(keys, section.as_ref(), head_dim, Defaults { base, ..defaults })
}

/// Rotary positions of a section, or without change if there is none.
pub(super) fn scaled(
    keys: &Keys,
    section: Option<&Keys>,
    head_dim: &Size,
    defaults: Defaults,
) -> Result<Rotary> {
    let max_positions = keys.size("max_position_embeddings")?.value;
    let base = defaults.base;
    let partial = keys.positive_or("partial_rotary_factor", defaults.partial)?;
    let Some(section) = section else {
        let dims = rotated(keys, head_dim, partial)?;
        let rope = Rope { base, dims, scaling: RopeScaling::None };
        return finite(keys, Rotary { rope, max_positions });
    };
    let base = section.positive_or("rope_theta", base)?;
    let partial = section.positive_or("partial_rotary_factor", partial)?;
    if section.opt_text("rope_type")? == Some("proportional") {
        let rotary = proportional(keys, head_dim, (base, partial))?;
        return Ok(divided(rotary, section.positive_or("factor", 1.0)?));
    }
    let dims = rotated(keys, head_dim, partial)?;
    let context = Context { keys, section, base, dims, max_positions };
    finite(section, Rotary { rope: Rope { base, dims, scaling: context.scaling()? }, max_positions })
}

/// Refuses keys that are numbers each and an infinite angle together.
fn finite(keys: &Keys, rotary: Rotary) -> Result<Rotary> {
    let rope = &rotary.rope;
    let long = rope.long_frequencies().map(|long| long.frequencies).unwrap_or_default();
    let mut numbers = rope.frequencies().into_iter().chain(long).chain([rope.magnitude()]);
    match numbers.find(|number| !(*number as f32).is_finite()) {
        None => Ok(rotary),
        Some(bad) => {
            let problem = format!("gives, with the keys beside it, a rotation by {bad:e} a position");
            Err(keys.wrong("rope_theta", &problem))
        }
    }
}

/// Frequencies of whole heads, of which only a share of the pairs is rotated.
pub(super) fn proportional(keys: &Keys, head_dim: &Size, (base, share): (f64, f64)) -> Result<Rotary> {
    let max_positions = keys.size("max_position_embeddings")?.value;
    let dims = rotated(keys, head_dim, 1.0)?;
    if share > 1.0 {
        return Err(keys.wrong("partial_rotary_factor", &format!("is {share}, expected 1 at most")));
    }
    // transformers divides what the share makes of the whole width, and drops the remainder.
    let pairs = (dims as f64 * share / 2.0).floor() as usize;
    let scaling = RopeScaling::Proportional { pairs, factor: 1.0 };
    Ok(Rotary { rope: Rope { base, dims, scaling }, max_positions })
}

fn divided(rotary: Rotary, factor: f64) -> Rotary {
    let scaling = match rotary.rope.scaling {
        RopeScaling::Proportional { pairs, .. } => RopeScaling::Proportional { pairs, factor },
        other => other,
    };
    Rotary { rope: Rope { scaling, ..rotary.rope }, ..rotary }
}

/// More than any head has; keeps what is computed per dimension small before tensors confirm the sizes.
const MAX_DIMS: usize = 1 << 16;

fn rotated(keys: &Keys, head_dim: &Size, partial: f64) -> Result<usize> {
    let dims = (head_dim.value as f64 * partial) as usize;
    if dims > 0 && dims <= head_dim.value.min(MAX_DIMS) && dims.is_multiple_of(2) {
        return Ok(dims);
    }
    let Size { value, from } = head_dim;
    let found = format!("is {partial}, so that {dims} of {from} {value} dimensions are rotated");
    let problem = format!("{found}; expected an even number of them, {MAX_DIMS} at most");
    Err(keys.wrong("partial_rotary_factor", &problem))
}

struct Context<'a> {
    keys: &'a Keys,
    section: &'a Keys,
    base: f64,
    dims: usize,
    max_positions: usize,
}

impl Context<'_> {
    fn scaling(&self) -> Result<RopeScaling> {
        let section = self.section;
        let kind = match section.opt_text("rope_type")? {
            Some(kind) => kind,
            None => section.opt_text("type")?.unwrap_or("default"),
        };
        Ok(match kind {
            "default" => RopeScaling::None,
            "dynamic" => RopeScaling::Dynamic { original_positions: self.max_positions },
            "linear" => RopeScaling::Linear(section.positive("factor")?),
            "llama3" => self.llama3()?,
            "longrope" | "su" => self.long()?,
            // An early name of Phi-3's factors.
            "yarn" if section.has("short_factor") => self.long()?,
            "yarn" => self.yarn()?,
            other => {
                let known = "default, dynamic, linear, llama3, longrope, su or yarn";
                return Err(section.wrong("rope_type", &format!("is `{other}`, expected {known}")));
            }
        })
    }

    /// transformers prefers the key outside the section, too.
    fn original_positions(&self) -> Result<usize> {
        let key = "original_max_position_embeddings";
        let size = match self.keys.opt_size(key)? {
            Some(size) => Some(size),
            None => self.section.opt_size(key)?,
        };
        Ok(size.map_or(self.max_positions, |size| size.value))
    }

    fn llama3(&self) -> Result<RopeScaling> {
        let (low, high) =
            (self.section.positive("low_freq_factor")?, self.section.positive("high_freq_factor")?);
        if low >= high {
            let problem = format!("is {high}, expected more than low_freq_factor {low}");
            return Err(self.section.wrong("high_freq_factor", &problem));
        }
        Ok(RopeScaling::Llama3 {
            factor: self.section.positive("factor")?,
            low_freq_factor: low,
            high_freq_factor: high,
            original_positions: self.original_positions()?,
        })
    }

    /// The factors for sequences of the original length and for longer ones, by the rule of transformers.
    fn long(&self) -> Result<RopeScaling> {
        let original_positions = self.original_positions()?;
        let (short, long) = (self.factors("short_factor")?, self.factors("long_factor")?);
        let factor =
            self.section.positive_or("factor", self.max_positions as f64 / original_positions as f64)?;
        let inferred = if factor <= 1.0 {
            1.0
        } else {
            (1.0 + factor.ln() / (original_positions.max(2) as f64).ln()).sqrt()
        };
        let magnitude = self.section.positive_or("attention_factor", inferred)?;
        Ok(match short == long {
            true => RopeScaling::Factors { factors: short, magnitude },
            false => RopeScaling::Long { short, long, original_positions, magnitude },
        })
    }

    fn factors(&self, key: &str) -> Result<Vec<f64>> {
        let factors = self.section.floats(key)?;
        if factors.len() == self.dims / 2 && factors.iter().all(|&factor| factor > 0.0) {
            return Ok(factors);
        }
        let problem = format!("has {} entries, expected {} numbers above 0", factors.len(), self.dims / 2);
        Err(self.section.wrong(key, &problem))
    }

    fn yarn(&self) -> Result<RopeScaling> {
        let section = self.section;
        let original = self.original_positions()? as f64;
        let factor = section.positive_or("factor", self.max_positions as f64 / original)?;
        let dims = self.dims as f64;
        let pair_of =
            |rotations: f64| dims * (original / (rotations * 2.0 * PI)).ln() / (2.0 * self.base.ln());
        let (mut low, mut high) = (
            pair_of(section.positive_or("beta_fast", 32.0)?),
            pair_of(section.positive_or("beta_slow", 1.0)?),
        );
        if section.bool_or("truncate", true)? {
            (low, high) = (low.floor(), high.ceil());
        }
        (low, high) = (low.max(0.0), high.min(dims - 1.0));
        if low == high {
            high += 0.001;
        }
        let factors = (0..self.dims / 2).map(|pair| {
            let ramp = ((pair as f64 - low) / (high - low)).clamp(0.0, 1.0);
            1.0 / (ramp / factor + 1.0 - ramp)
        });
        let gain = |scale: f64| if factor <= 1.0 { 1.0 } else { 0.1 * scale * factor.ln() + 1.0 };
        let inferred = match (section.opt_positive("mscale")?, section.opt_positive("mscale_all_dim")?) {
            (Some(scale), Some(all)) => gain(scale) / gain(all),
            _ => gain(1.0),
        };
        let magnitude = section.positive_or("attention_factor", inferred)?;
        Ok(RopeScaling::Factors { factors: factors.collect(), magnitude })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::Config;

    fn rotary(head_dim: usize, config: &str) -> Result<Rotary> {
        let keys = Keys::new(&Config::new(serde_json::from_str(config).unwrap()), &[]);
        read(&keys, &Size { value: head_dim, from: "head_dim".to_owned() }, USUAL)
    }

    /// `xtask/python/rope_frequencies.py` writes them.
    const BY_TRANSFORMERS: &str = include_str!("../testdata/rope.json");

    #[test]
    fn frequencies_are_those_of_transformers_on_both_sides_of_every_boundary() {
        let entries: Vec<serde_json::Value> = serde_json::from_str(BY_TRANSFORMERS).unwrap();
        for entry in &entries {
            let rope = rotary(12, &entry["config"].to_string()).unwrap().rope;
            let seq_len = entry["seq_len"].as_u64().unwrap() as usize;
            if rope.fixed_up_to().is_some_and(|most| seq_len > most) {
                continue;
            }
            let found = match rope.long_frequencies() {
                Some(long) if seq_len > long.above => long.frequencies,
                _ => rope.frequencies(),
            };
            let expected = entry["frequencies"].as_array().unwrap();
            assert_eq!(found.len(), expected.len(), "{entry}");
            for (found, expected) in found.iter().zip(expected) {
                assert!((found / expected.as_f64().unwrap() - 1.0).abs() < 3e-7, "{found} in {entry}");
            }
            assert!((rope.magnitude() - entry["magnitude"].as_f64().unwrap()).abs() < 1e-12, "{entry}");
        }
    }

    #[test]
    fn both_spellings_give_the_same() {
        let llama3 = r#""factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192"#;
        let old = format!(
            r#"{{"max_position_embeddings": 131072, "rope_theta": 500000.0,
                "rope_scaling": {{"rope_type": "llama3", {llama3}}}}}"#
        );
        let new = format!(
            r#"{{"max_position_embeddings": 131072,
                "rope_parameters": {{"rope_type": "llama3", "rope_theta": 500000.0, {llama3}}}}}"#
        );
        let expected = Rope {
            base: 500_000.0,
            dims: 64,
            scaling: RopeScaling::Llama3 {
                factor: 8.0,
                low_freq_factor: 1.0,
                high_freq_factor: 4.0,
                original_positions: 8192,
            },
        };
        for config in [old, new] {
            let found = rotary(64, &config).unwrap();
            assert_eq!((found.rope, found.max_positions), (expected.clone(), 131_072));
        }
    }

    #[test]
    fn yarn_is_a_factor_per_frequency() {
        let config = r#"{"max_position_embeddings": 32768, "rope_theta": 1000000.0, "rope_scaling":
            {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}}"#;
        let rope = rotary(128, config).unwrap().rope;
        let frequencies = rope.frequencies();
        let expected = [
            (0, 1.0),
            (23, 6.978_305_988e-3),
            (24, 5.375_321_489e-3),
            (30, 1.064_360_957e-3),
            (39, 6.490_394_298e-5),
            (40, 4.445_698_505e-5),
            (63, 3.102_344_408e-7),
        ];
        for (pair, frequency) in expected {
            assert!((frequencies[pair] / frequency - 1.0).abs() < 3e-7, "{pair}: {}", frequencies[pair]);
        }
        assert!((rope.magnitude() - 1.138_629_436_111_989).abs() < 1e-12);
    }

    #[test]
    fn long_factors_are_kept_beside_the_short_ones() {
        let config = |long: &str| {
            format!(
                r#"{{"max_position_embeddings": 131072, "original_max_position_embeddings": 4096,
                "partial_rotary_factor": 0.75, "rope_scaling": {{"type": "su",
                "short_factor": [1.0, 1.05, 1.2, 1.5, 2.0, 2.5], "long_factor": {long}}}}}"#
            )
        };
        let found = rotary(16, &config("[2, 3, 4, 5, 6, 7]")).unwrap();
        assert_eq!((found.max_positions, found.rope.dims), (131_072, 12));
        assert!((found.rope.magnitude() - 1.190_238_071_423_808_3).abs() < 1e-12);
        let RopeScaling::Long { short, long, original_positions, .. } = &found.rope.scaling else {
            panic!("{:?}", found.rope.scaling)
        };
        assert_eq!((short[5], long[5], *original_positions), (2.5, 7.0, 4096));
        let same = rotary(16, &config("[1.0, 1.05, 1.2, 1.5, 2.0, 2.5]")).unwrap();
        assert_eq!(same.rope.long_frequencies(), None);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let cases = [
            (4, r#"{}"#, "`max_position_embeddings` is missing"),
            (4, r#"{"max_position_embeddings": 8, "rope_theta": -1}"#, "`rope_theta` is -1"),
            (
                4,
                r#"{"max_position_embeddings": 8, "rope_scaling": {"type": "linear"}}"#,
                "`rope_scaling.factor` is missing",
            ),
            (4, r#"{"max_position_embeddings": 8, "rope_scaling": {"rope_type": "ntk"}}"#, "is `ntk`"),
            (3, r#"{"max_position_embeddings": 8}"#, "3 of head_dim 3 dimensions"),
            (
                4,
                r#"{"max_position_embeddings": 8, "rope_scaling": {"type": "longrope", "short_factor": [1]}}"#,
                "`rope_scaling.short_factor` has 1 entries, expected 2",
            ),
            (
                4,
                r#"{"max_position_embeddings": 8, "rope_scaling": {"type": "longrope", "short_factor": [1, 2]}}"#,
                "`rope_scaling.long_factor` is missing",
            ),
            (
                4,
                r#"{"max_position_embeddings": 8, "rope_scaling": {"type": "llama3", "factor": 8,
                    "low_freq_factor": 4, "high_freq_factor": 4}}"#,
                "`rope_scaling.high_freq_factor` is 4, expected more than",
            ),
        ];
        for (head_dim, config, expected) in cases {
            let error = rotary(head_dim, config).err().unwrap().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}

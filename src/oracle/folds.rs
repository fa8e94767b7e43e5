//! What a program stores otherwise than its checkpoint does, so that compressed weights can be compared and taken: factors
//! that are part of a matrix, and rows of heads in another order. `docs/graph.md` says which.

use candle_core::{Device, Result, Tensor};

use crate::settings::{Defaults, Keys};
use anemeter_convert::checkpoint::{Config, ConfigError};

/// How the matrices of a program differ from the checkpoint's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Folds {
    /// Factor in the output projections of attention and MLP.
    pub(super) added: f64,
    /// Factor in the norm before the head, which a rotation multiplies into the head or the map before it.
    pub(super) logits: f64,
    /// Heads whose neighbouring dimensions form pairs, stored with the first of all pairs before the second.
    pub(super) pairs: Option<Pairs>,
}

/// Width of a head, and how many of its dimensions are rotated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pairs {
    pub(super) head_dim: usize,
    pub(super) dims: usize,
}

const NONE: Folds = Folds { added: 1.0, logits: 1.0, pairs: None };

/// Those of an architecture.
pub(super) fn of(architecture: &str, config: &Config) -> std::result::Result<Folds, ConfigError> {
    let pairs = |defaults: Defaults| -> std::result::Result<Folds, ConfigError> {
        let keys = Keys::new(config, defaults);
        let head_dim = match keys.opt_size("head_dim")? {
            Some(width) => width,
            None => keys.size("hidden_size")? / keys.size("num_attention_heads")?.max(1),
        };
        let section = keys.section("rope_parameters")?.or(keys.section("rope_scaling")?);
        let share = match section {
            Some(section) => section.opt_number("partial_rotary_factor")?,
            None => None,
        };
        let share = share.or(keys.opt_number("partial_rotary_factor")?).unwrap_or(1.0);
        let dims = (head_dim as f64 * share) as usize;
        Ok(Folds { pairs: Some(Pairs { head_dim, dims }), ..NONE })
    };
    Ok(match architecture {
        "cohere2" => {
            let logits = Keys::new(config, &[("logit_scale", 0.0625)]).number("logit_scale")?;
            Folds { logits, ..pairs(&[])? }
        }
        "ernie4_5" => pairs(&[("head_dim", 128.0)])?,
        "glm" | "glm4" => pairs(&[("head_dim", 128.0), ("partial_rotary_factor", 0.5)])?,
        "granite" | "granite4" => {
            let keys = Keys::new(config, &[("residual_multiplier", 1.0), ("logits_scaling", 1.0)]);
            let logits = 1.0 / keys.number("logits_scaling")?;
            Folds { added: keys.number("residual_multiplier")?, logits, ..NONE }
        }
        "minicpm" => {
            let keys = Keys::new(config, &[]);
            let depth = keys.number("num_hidden_layers")?.sqrt();
            let added = keys.number_unless_null("scale_depth", 1.4)?.unwrap_or(depth) / depth;
            let width = keys.number("hidden_size")?;
            let logits = keys.number_unless_null("dim_model_base", 256.0)?.unwrap_or(width) / width;
            Folds { added, logits, ..NONE }
        }
        _ => NONE,
    })
}

impl Pairs {
    /// The matrix with its rows as a program has them.
    pub(super) fn by_halves(self, matrix: &Tensor) -> Result<Tensor> {
        self.select(matrix, |to, from, order| order[to] = from)
    }

    /// The matrix with its rows as a checkpoint has them.
    pub(super) fn by_neighbours(self, matrix: &Tensor) -> Result<Tensor> {
        self.select(matrix, |to, from, order| order[from] = to)
    }

    fn select(self, matrix: &Tensor, put: impl Fn(usize, usize, &mut [usize])) -> Result<Tensor> {
        let Pairs { head_dim, dims } = self;
        let mut order = vec![0; matrix.dim(0)?];
        for head in (0..order.len()).step_by(head_dim.max(1)) {
            let firsts = (0..dims).step_by(2);
            let seconds = (1..dims).step_by(2);
            for (to, from) in firsts.chain(seconds).chain(dims..head_dim).enumerate() {
                put(head + to, head + from, &mut order);
            }
        }
        let order: Vec<u32> = order.into_iter().map(|row| u32::try_from(row).unwrap_or(u32::MAX)).collect();
        let count = order.len();
        matrix.index_select(&Tensor::from_vec(order, count, &Device::Cpu)?, 0)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rows_go_to_halves_and_back() {
        let pairs = Pairs { head_dim: 5, dims: 4 };
        let matrix = Tensor::arange(0f32, 10.0, &Device::Cpu).unwrap().reshape((10, 1)).unwrap();
        let rows = |matrix: &Tensor| matrix.flatten_all().unwrap().to_vec1::<f32>().unwrap();
        let halves = pairs.by_halves(&matrix).unwrap();
        assert_eq!(rows(&halves), [0.0, 2.0, 1.0, 3.0, 4.0, 5.0, 7.0, 6.0, 8.0, 9.0]);
        assert_eq!(rows(&pairs.by_neighbours(&halves).unwrap()), rows(&matrix));
    }

    #[test]
    fn folds_are_read_from_the_configuration() {
        let folds = |architecture: &str, config: serde_json::Value| {
            of(architecture, &Config::new(config.as_object().unwrap().clone())).unwrap()
        };
        assert_eq!(folds("llama", json!({})), NONE);
        let granite = folds("granite", json!({"residual_multiplier": 0.22, "logits_scaling": 8.0}));
        assert_eq!((granite.added, granite.logits), (0.22, 0.125));
        let minicpm = |scale_depth, dim_model_base| {
            let sizes = json!({"num_hidden_layers": 4, "hidden_size": 512, "scale_depth": scale_depth,
                "dim_model_base": dim_model_base});
            let found = folds("minicpm", sizes);
            (found.added, found.logits)
        };
        assert_eq!(minicpm(json!(1.4), json!(128)), (0.7, 0.25));
        assert_eq!(minicpm(json!(null), json!(null)), (1.0, 1.0));
        let half = Some(Pairs { head_dim: 128, dims: 64 });
        assert_eq!(folds("glm4", json!({"hidden_size": 64, "num_attention_heads": 2})).pairs, half);
        let whole = Some(Pairs { head_dim: 32, dims: 32 });
        let cohere2 = folds("cohere2", json!({"hidden_size": 64, "num_attention_heads": 2}));
        assert_eq!((cohere2.pairs, cohere2.logits), (whole, 0.0625));
    }
}

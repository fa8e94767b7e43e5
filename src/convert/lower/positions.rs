//! The inputs that tell a function where tokens are: attention masks, RoPE tables and factors of queries, one per kind the
//! layers use.

use crate::model::{Attention, Layer, QueryGrowth, Rope};

/// A mask that a function takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MaskInput {
    /// Name of the input.
    pub name: String,
    /// Only this many latest positions are seen through it.
    pub window: Option<usize>,
}

/// A pair of cosine and sine inputs.
#[derive(Debug, Clone, PartialEq)]
pub struct RotationInput {
    /// Name of the cosine input.
    pub cos: String,
    /// Name of the sine input.
    pub sin: String,
    /// The rotation they hold.
    pub rope: Rope,
}

/// An input with a factor of queries for each token.
#[derive(Debug, Clone, PartialEq)]
pub struct GrowthInput {
    /// Name of the input.
    pub name: String,
    /// How the factor grows with the position.
    pub growth: QueryGrowth,
}

/// The masks, rotations and factors of queries that some layers use.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Positions {
    /// Masks; the one without a window comes first.
    pub masks: Vec<MaskInput>,
    /// Rotations; those of layers without a window come first.
    pub rotations: Vec<RotationInput>,
    /// Factors of queries.
    pub growths: Vec<GrowthInput>,
}

impl Positions {
    /// Names the kinds of a whole model, so that they are called the same in all its parts.
    pub(super) fn of(layers: &[Layer]) -> Positions {
        Positions::of_attentions(&attentions(layers))
    }

    /// The same of whatever layers the attentions are in.
    pub(super) fn of_attentions(attentions: &[&Attention]) -> Positions {
        let mut positions = Positions::default();
        for windowed in [false, true] {
            for attention in attentions.iter().filter(|a| a.window.is_some() == windowed) {
                if positions.masks.iter().all(|mask| mask.window != attention.window) {
                    let name = format!("mask{}", suffix(positions.masks.len()));
                    positions.masks.push(MaskInput { name, window: attention.window });
                }
                if let Some(growth) = attention.growth
                    && positions.growths.iter().all(|input| input.growth != growth)
                {
                    let name = format!("query_scale{}", suffix(positions.growths.len()));
                    positions.growths.push(GrowthInput { name, growth });
                }
                let Some(rope) = &attention.rope else { continue };
                if positions.rotations.iter().all(|rotation| rotation.rope != *rope) {
                    let suffix = suffix(positions.rotations.len());
                    let (cos, sin) = (format!("cos{suffix}"), format!("sin{suffix}"));
                    positions.rotations.push(RotationInput { cos, sin, rope: rope.clone() });
                }
            }
        }
        positions
    }

    /// Those that some of the layers use.
    pub(super) fn used_by(&self, layers: &[Layer]) -> Positions {
        self.used_by_attentions(&attentions(layers))
    }

    /// Those that some of the attentions use.
    pub(super) fn used_by_attentions(&self, attentions: &[&Attention]) -> Positions {
        let mut used = self.clone();
        used.masks.retain(|mask| attentions.iter().any(|a| a.window == mask.window));
        used.growths.retain(|input| attentions.iter().any(|a| a.growth == Some(input.growth)));
        used.rotations.retain(|rotation| attentions.iter().any(|a| a.rope.as_ref() == Some(&rotation.rope)));
        used
    }
}

fn attentions(layers: &[Layer]) -> Vec<&Attention> {
    layers.iter().filter_map(Layer::attention).collect()
}

fn suffix(index: usize) -> String {
    match index {
        0 => String::new(),
        1 => "_local".to_owned(),
        more => format!("_local_{more}"),
    }
}

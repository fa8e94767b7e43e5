//! The inputs that tell a function where tokens are: attention masks and RoPE tables, one per kind the layers use.

use crate::model::{Attention, Layer, Rope};

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

/// The masks and rotations that some layers use.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Positions {
    /// Masks; the one without a window comes first.
    pub masks: Vec<MaskInput>,
    /// Rotations; those of layers without a window come first.
    pub rotations: Vec<RotationInput>,
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

//! The inputs that tell a function where tokens are: attention masks and RoPE tables, one per kind the layers use.

use crate::model::{Layer, Rope};

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
        let mut positions = Positions::default();
        for windowed in [false, true] {
            let attentions = layers.iter().map(|layer| &layer.attention);
            for attention in attentions.filter(|a| a.window.is_some() == windowed) {
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
        let mut used = self.clone();
        used.masks.retain(|mask| layers.iter().any(|layer| layer.attention.window == mask.window));
        used.rotations
            .retain(|rotation| layers.iter().any(|l| l.attention.rope.as_ref() == Some(&rotation.rope)));
        used
    }
}

fn suffix(index: usize) -> String {
    match index {
        0 => String::new(),
        1 => "_local".to_owned(),
        more => format!("_local_{more}"),
    }
}

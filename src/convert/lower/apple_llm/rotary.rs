//! Rotations looked up by position, and masks of sliding windows.

use half::f16;

use crate::lower::attention::Tokens;
use crate::lower::error::Result;
use crate::lower::graph::Graph;
use crate::model::{Decoder, Rope};
use anemeter_kernels::tensor::{DType, Tensor};
use anemeter_mil::{Literal, ValueId};

/// What a score gets that is not to count: fp16 holds it, and twice of it is far enough from infinity to be added once.
pub(super) const HIDDEN: f32 = -3e4;

/// Where the tokens of a function are.
pub(super) struct TokenPositions {
    /// The positions of the tokens, `[1, tokens]` int32.
    pub(super) positions: ValueId,
    /// How many tokens there are, unless that is open.
    pub(super) count: Option<usize>,
    /// The mask of layers that see everything before, `[1, 1, tokens, context]`.
    pub(super) mask: ValueId,
    /// The positions that keys have, `[1, 1, 1, context]` int32.
    pub(super) key_positions: ValueId,
    /// The longest context, whose rotations are used for every length.
    pub(super) context: usize,
}

impl TokenPositions {
    /// Masks and rotations of all layers.
    pub(super) fn tokens(&self, graph: &mut Graph<'_>, decoder: &Decoder) -> Result<Tokens> {
        let mut tokens = Tokens {
            batch: 1,
            count: self.count,
            masks: Vec::new(),
            rotations: Vec::new(),
            growths: Vec::new(),
        };
        for layer in &decoder.layers {
            let Some(attention) = layer.attention() else { continue };
            if tokens.masks.iter().all(|(window, _)| *window != attention.window) {
                let mask = match attention.window {
                    Some(window) if window < self.context => self.windowed(graph, window)?,
                    _ => self.mask,
                };
                tokens.masks.push((attention.window, mask));
            }
            let Some(rope) = &attention.rope else { continue };
            if tokens.rotations.iter().all(|(kind, ..)| kind != rope) {
                let (cos, sin) = self.rotation(graph, rope, tokens.rotations.len())?;
                tokens.rotations.push((rope.clone(), cos, sin));
            }
        }
        Ok(tokens)
    }

    /// Cosines and sines of the tokens, `[1, 1, dims, tokens]`.
    fn rotation(&self, graph: &mut Graph<'_>, rope: &Rope, index: usize) -> Result<(ValueId, ValueId)> {
        let (cos, sin) = rope.table(0..self.context, self.context);
        let mut look_up = |name: &str, values: &[f32]| {
            let halves: Vec<f16> = values.iter().map(|&value| f16::from_f32(value)).collect();
            let shape = [self.context, rope.dims];
            let table =
                Tensor::from_slice(&shape, &halves).expect("a table has as many numbers as its shape says");
            let label = format!("rotary_{name}_{index}");
            let table = graph.constant(&label, Literal::blob(&table));
            let rows = graph.gather(&format!("{label}_rows"), table, self.positions)?;
            let columns = graph.transpose(&format!("{label}_columns"), rows, [0, 2, 1])?;
            graph.reshape(
                &format!("{label}_by_head"),
                columns,
                [Some(1), Some(1), Some(rope.dims), self.count],
            )
        };
        Ok((look_up("cos", &cos)?, look_up("sin", &sin)?))
    }

    /// The mask of layers that see only the latest positions.
    fn windowed(&self, graph: &mut Graph<'_>, window: usize) -> Result<ValueId> {
        let window = i32::try_from(window).unwrap_or(i32::MAX);
        let rows = [Some(1), Some(1), self.count, Some(1)];
        graph.within(&format!("window_{window}"), |graph| {
            let rows = graph.reshape("rows", self.positions, rows)?;
            let first = graph.binary("sub", "first_seen", rows, window - 1)?;
            let is_before = graph.binary("less", "is_before", self.key_positions, first)?;
            let hidden = hidden_where(graph, "hidden", is_before)?;
            // Not a sum, which two masks would bring to infinity.
            graph.binary("minimum", "mask", self.mask, hidden)
        })
    }
}

/// Zero, or [`HIDDEN`] where a condition holds.
pub(super) fn hidden_where(graph: &mut Graph<'_>, label: &str, condition: ValueId) -> Result<ValueId> {
    graph.push("select", label, |op| {
        op.arg("cond", condition).arg("a", f16::from_f32(HIDDEN)).arg("b", f16::ZERO)
    })
}

/// Positions as int32.
pub(super) fn as_int32(graph: &mut Graph<'_>, label: &str, x: ValueId) -> Result<ValueId> {
    graph.push("cast", label, |op| op.arg("x", x).arg("dtype", DType::I32.to_string().as_str()))
}

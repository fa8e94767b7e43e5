//! What every reference network does, whoever wrote it.

use candle_core::{Result, Tensor};

use super::trace::Point;

/// Told the hidden states `[tokens, hidden]` at every point.
pub(super) type Watch<'a> = &'a mut dyn FnMut(Point, &Tensor) -> Result<()>;

/// A decoder with a cache.
pub(super) trait Network {
    /// Feeds tokens `[1, n]` whose first is at `offset`, and gives the logits after the last in any shape. With an
    /// offset above zero there is one token.
    fn forward(&mut self, ids: &Tensor, offset: usize) -> Result<Tensor>;

    /// Forgets all tokens.
    fn clear(&mut self);

    /// As [`Network::forward`], showing hidden states on the way. Only networks of this module can.
    fn forward_watched(&mut self, _: &Tensor, _: usize, _: Watch<'_>) -> Result<Tensor> {
        candle_core::bail!("this network does not show its hidden states")
    }
}

//! What every reference network does, whoever wrote it.

use candle_core::{Result, Tensor};

/// A decoder with a cache.
pub(super) trait Network {
    /// Feeds tokens `[1, n]` whose first is at `offset`, and gives the logits after the last in any shape. With an
    /// offset above zero there is one token.
    fn forward(&mut self, ids: &Tensor, offset: usize) -> Result<Tensor>;

    /// Forgets all tokens.
    fn clear(&mut self);
}

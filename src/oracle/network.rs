//! What every reference network does.

use candle_core::{Result, Tensor};

use anemeter_harness::verify::Point;

/// Told the hidden states `[tokens, hidden]` at every point.
pub(super) type Watch<'a> = &'a mut dyn FnMut(Point, &Tensor) -> Result<()>;

/// A decoder with a cache.
pub(super) trait Network {
    /// Feeds tokens `[1, n]` whose first is at `offset`, and gives the logits after the last in any shape. With an
    /// offset above zero there is one token.
    fn forward(&mut self, ids: &Tensor, offset: usize) -> Result<Tensor> {
        self.forward_watched(ids, offset, &mut |_, _| Ok(()))
    }

    /// The hidden states `[n, hidden]` of tokens `[1, n]` after the last norm; those on the way go to `watch`.
    fn hidden_states(&mut self, ids: &Tensor, watch: Watch<'_>) -> Result<Tensor>;

    /// Tokens in the vocabulary.
    fn vocabulary(&self) -> usize;

    /// A sequence that becomes longer than this is computed anew, because all of its positions change.
    fn boundary(&self) -> Option<usize>;

    /// Forgets all tokens.
    fn clear(&mut self);

    /// As [`Network::forward`], and passes the hidden states to `watch` on the way.
    fn forward_watched(&mut self, ids: &Tensor, offset: usize, watch: Watch<'_>) -> Result<Tensor>;
}

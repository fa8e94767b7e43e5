//! The kinds of predictions a bundle offers.

use std::ops::Range;

use smallvec::SmallVec;

use anemeter_base::vocabulary::FunctionRole;

/// What a prediction does with tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Call {
    /// A whole sequence of which nothing is kept.
    Whole,
    /// A whole sequence whose keys and values come out.
    Prefill,
    /// One token after those of the caches.
    Decode,
    /// Some tokens after those of a state.
    ExtendMany,
    /// One token after those of a state.
    ExtendOne,
}

impl Call {
    pub(super) fn role(self, context: usize, query: usize) -> FunctionRole {
        match self {
            Call::Whole => FunctionRole::Main,
            Call::Prefill => FunctionRole::Prefill,
            Call::Decode => FunctionRole::Decode,
            Call::ExtendMany => FunctionRole::PrefillState { context, query },
            Call::ExtendOne => FunctionRole::DecodeState { context },
        }
    }

    /// How many tokens it takes.
    pub(super) fn width(self, length: usize, query: usize) -> usize {
        match self {
            Call::Whole | Call::Prefill => length,
            Call::ExtendMany => query,
            Call::Decode | Call::ExtendOne => 1,
        }
    }

    /// Whether each sequence may be at a position of its own.
    pub(super) fn is_one(self) -> bool {
        matches!(self, Call::Decode | Call::ExtendOne)
    }

    /// Whether its tokens are always at the first positions.
    pub(super) fn starts_at_zero(self) -> bool {
        matches!(self, Call::Whole | Call::Prefill)
    }

    /// The keys that a query sees through a mask.
    pub(super) fn visible(self, position: usize, window: Option<usize>, keys: usize) -> Range<usize> {
        // A decoded token sees itself apart from the cache that its mask covers.
        let end = if self == Call::Decode { position } else { position + 1 };
        let end = end.min(keys);
        let start = window.map_or(0, |window| (position + 1).saturating_sub(window));
        start.min(end)..end
    }
}

/// The tokens of a prediction, sequence by sequence.
#[derive(Debug, Clone)]
pub(super) struct TokenBatch<'a> {
    pub(super) ids: SmallVec<[&'a [u32]; 4]>,
    /// The position of each sequence's first token.
    pub(super) starts: SmallVec<[usize; 4]>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_see_what_came_before_and_within_the_window() {
        assert_eq!(Call::Prefill.visible(3, None, 8), 0..4);
        assert_eq!(Call::Prefill.visible(3, Some(2), 8), 2..4);
        assert_eq!(Call::Decode.visible(3, None, 8), 0..3);
        assert_eq!(Call::Decode.visible(3, Some(2), 8), 2..3);
        assert_eq!(Call::Decode.visible(3, Some(1), 8), 3..3);
        assert_eq!(Call::ExtendOne.visible(9, Some(0), 8), 8..8);
    }
}

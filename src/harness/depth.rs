//! Prompts of one size after contexts of some depths, as llama-bench measures them, instead of prompts that fill a
//! sequence length.

use serde::{Deserialize, Serialize};

use super::plan::PlanError;

/// What a worker is to take in before and with each prompt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DepthUse {
    /// Tokens of a prompt.
    pub prompt_tokens: usize,
    /// Each depth with the lengths that belong to it.
    pub at: Vec<AtDepth>,
}

/// A context depth and the lengths that belong to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AtDepth {
    /// Tokens of context before the prompt.
    pub depth: usize,
    /// Context, prompt and generated tokens together, which names the requests.
    pub seq_len: usize,
    /// The length of the functions that run them.
    pub length: usize,
}

impl DepthUse {
    /// Finds a length for each depth among those that there are, shortest first.
    pub(super) fn plan(
        (prompt_tokens, generated_tokens): (usize, usize),
        depths: &[usize],
        lengths: &[usize],
    ) -> Result<DepthUse, PlanError> {
        let mut depths = depths.to_vec();
        depths.sort_unstable();
        depths.dedup();
        let at = depths.into_iter().map(|depth| {
            let seq_len = depth.saturating_add(prompt_tokens).saturating_add(generated_tokens);
            let length = lengths.iter().copied().find(|&length| length >= seq_len);
            let length = length.ok_or_else(|| PlanError {
                problem: format!(
                    "{depth} tokens of context, {prompt_tokens} of a prompt and {generated_tokens} generated need a \
                     length of {seq_len}, the longest is {}",
                    lengths.last().unwrap_or(&0)
                ),
                remedy: "lower the depth, the prompt or the generated tokens, or export with a longer length".into(),
            })?;
            Ok(AtDepth { depth, seq_len, length })
        });
        Ok(DepthUse { prompt_tokens, at: at.collect::<Result<_, PlanError>>()? })
    }

    /// The requests by their lengths in all, in order.
    pub(super) fn seq_lens(&self) -> Vec<usize> {
        self.at.iter().map(|at| at.seq_len).collect()
    }

    /// The lengths of the functions that run, in order.
    pub(super) fn lengths(&self) -> Vec<usize> {
        let mut lengths: Vec<usize> = self.at.iter().map(|at| at.length).collect();
        lengths.sort_unstable();
        lengths.dedup();
        lengths
    }

    /// What belongs to requests of a length in all.
    pub(super) fn of(&self, seq_len: usize) -> Option<AtDepth> {
        self.at.iter().copied().find(|at| at.seq_len == seq_len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_depth_runs_at_the_shortest_length_that_it_fits() {
        let found = DepthUse::plan((512, 128), &[4096, 0, 0], &[1024, 2048, 8192]).unwrap();
        assert_eq!((found.seq_lens(), found.lengths()), (vec![640, 4736], vec![1024, 8192]));
        assert_eq!(found.of(4736), Some(AtDepth { depth: 4096, seq_len: 4736, length: 8192 }));
        assert_eq!(found.of(512), None);
    }

    #[test]
    fn what_does_not_fit_is_told_with_the_longest_length() {
        let error = DepthUse::plan((512, 128), &[0, 4096], &[1024, 2048]).unwrap_err();
        insta::assert_snapshot!(error, @"4096 tokens of context, 512 of a prompt and 128 generated need a length of 4736, the longest is 2048");
        let huge = DepthUse::plan((1, 2), &[usize::MAX], &[64]).unwrap_err();
        assert!(huge.to_string().contains("the longest is 64"), "{huge}");
    }
}

//! How well a bundle predicts a text: each token is scored by the logits before it, then given to the model.
//!
//! A text longer than a window is read through windows that overlap by half, so that every token but the first is
//! scored exactly once, and from the second window on with half a window of text before it.

use std::ops::Range;

use crate::generate::{Driver, GenerateError, Generator, Input};
use anemeter_measure::stats::negative_log_likelihood;

/// What was scored and how surprising it was.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TextScore {
    /// Tokens of a window.
    pub window: usize,
    /// Tokens that were scored.
    pub tokens: usize,
    /// Sum of their negative log-likelihoods, in nats.
    pub nats: f64,
}

impl TextScore {
    /// Mean negative log-likelihood of a token, in nats.
    pub fn nats_per_token(&self) -> f64 {
        self.nats / self.tokens as f64
    }

    /// The exponential of the mean.
    pub fn perplexity(&self) -> f64 {
        self.nats_per_token().exp()
    }
}

/// A part of a text, the first tokens of which are context only.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Window {
    tokens: Range<usize>,
    context: usize,
}

/// The windows of a text: the first scores all but its first token, the others their second half.
fn windows(tokens: usize, length: usize) -> Vec<Window> {
    let half = length / 2;
    let mut windows = vec![Window { tokens: 0..tokens.min(length), context: 1 }];
    let mut start = length - half;
    while start + half < tokens {
        windows.push(Window { tokens: start..tokens.min(start + length), context: half });
        start += length - half;
    }
    windows
}

/// The tokens of a text as it is, of any length.
pub fn text_tokens(generator: &Generator, text: &str) -> Result<Vec<u32>, GenerateError> {
    let known = generator.text().ok_or_else(|| GenerateError::Request {
        problem: "the bundle has no tokenizer".to_owned(),
        remedy: Some("export a checkpoint that has one to score a text".into()),
    })?;
    known.tokens(Input::Raw(text), usize::MAX)
}

/// Scores a text in windows of `length` tokens. `progress` is told how many tokens of how many are scored.
pub fn score_text(
    driver: &mut Driver,
    ids: &[u32],
    length: usize,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<TextScore, GenerateError> {
    score_text_with(ids, length, progress, |given, context, score| {
        driver.teacher_force(given, context, Some(length), score)
    })
}

/// Takes the logits after a position of the tokens that were given.
pub type TakeLogits<'a> = dyn FnMut(usize, &[f32]) -> Result<(), GenerateError> + 'a;

/// The same by any model. `force` is given the tokens of a window and how many of them are context; it tells the logits
/// after the context and after each further token.
pub fn score_text_with<E: From<GenerateError>>(
    ids: &[u32],
    length: usize,
    progress: &mut dyn FnMut(usize, usize),
    mut force: impl FnMut(&[u32], usize, &mut TakeLogits<'_>) -> Result<(), E>,
) -> Result<TextScore, E> {
    if ids.len() < 2 || length < 2 {
        let problem = match ids.len() < 2 {
            true => {
                format!("a text of {} tokens has none that could be scored; at least 2 are needed", ids.len())
            }
            false => format!("a window of {length} tokens leaves none to score; at least 2 are needed"),
        };
        return Err(GenerateError::Request { problem, remedy: None }.into());
    }
    let mut found = TextScore { window: length, tokens: 0, nats: 0.0 };
    for Window { tokens, context } in windows(ids.len(), length) {
        let start = tokens.start;
        // The last token is scored, not given.
        let given = &ids[start..tokens.end - 1];
        force(given, context, &mut |position, logits| {
            let place = start + position + 1;
            found.nats += score(logits, ids[place], place)?;
            found.tokens += 1;
            progress(found.tokens, ids.len() - 1);
            Ok(())
        })?;
    }
    Ok(found)
}

/// Negative log-likelihood of a token.
fn score(logits: &[f32], id: u32, place: usize) -> Result<f64, GenerateError> {
    let bad = |problem: String| GenerateError::Logits { step: place, sequence: 0, problem };
    let index = id as usize;
    let logit = logits.get(index).ok_or_else(|| bad(format!("token {id} has no logit")))?;
    match negative_log_likelihood(logits, index) {
        nats if nats.is_finite() => Ok(nats),
        nats => {
            Err(bad(format!("the negative log-likelihood of token {id} with the logit {logit} is {nats}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn window(tokens: Range<usize>, context: usize) -> Window {
        Window { tokens, context }
    }

    #[test]
    fn windows_overlap_by_half() {
        assert_eq!(windows(3, 8), [window(0..3, 1)]);
        assert_eq!(windows(8, 8), [window(0..8, 1)]);
        assert_eq!(windows(9, 8), [window(0..8, 1), window(4..9, 4)]);
        assert_eq!(windows(14, 8), [window(0..8, 1), window(4..12, 4), window(8..14, 4)]);
        assert_eq!(windows(6, 5), [window(0..5, 1), window(3..6, 2)]);
    }

    #[test]
    fn likelihoods_that_are_no_numbers_are_errors() {
        assert!((score(&[0.0; 4], 2, 1).unwrap() - 4f64.ln()).abs() < 1e-12);
        for (logits, id, expected) in [
            (
                [0.0, f32::NAN],
                0,
                "step 7, sequence 0: the negative log-likelihood of token 0 with the logit 0 is NaN",
            ),
            (
                [0.0, f32::NEG_INFINITY],
                1,
                "the negative log-likelihood of token 1 with the logit -inf is inf",
            ),
            ([0.0, 0.0], 2, "token 2 has no logit"),
        ] {
            let error = score(&logits, id, 7).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    proptest! {
        #[test]
        fn every_token_but_the_first_is_scored_once(tokens in 2usize..400, length in 2usize..70) {
            let scored: Vec<usize> = windows(tokens, length)
                .into_iter()
                .flat_map(|window| {
                    assert!(window.tokens.len() <= length && window.context >= 1);
                    window.tokens.start + window.context..window.tokens.end
                })
                .collect();
            prop_assert_eq!(scored, (1..tokens).collect::<Vec<_>>());
        }
    }
}

//! Log-probabilities of tokens, from logits.

use anemeter_harness::generate::{Tokenizer, sample};
use anemeter_measure::stats::negative_log_likelihood;

/// A token and how likely it was.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Scored {
    /// The token's own text.
    pub(crate) text: String,
    /// The natural logarithm of its probability; the first token of a text has none.
    pub(crate) logprob: Option<f64>,
    /// The likeliest tokens in its place and their log-probabilities, likeliest first.
    pub(crate) top: Vec<(String, f64)>,
}

impl Scored {
    /// A token that nothing came before.
    pub(crate) fn first(id: u32, tokenizer: Option<&Tokenizer>) -> Scored {
        Scored { text: shown(id, tokenizer), logprob: None, top: Vec::new() }
    }

    /// A token by the logits before it, with the `top` likeliest.
    pub(crate) fn by_logits(id: u32, logits: &[f32], top: usize, tokenizer: Option<&Tokenizer>) -> Scored {
        // One pass over the vocabulary serves all of its tokens.
        let total = negative_log_likelihood(logits, 0) + f64::from(logits[0]);
        let logprob =
            |id: u32| logits.get(id as usize).map_or(f64::NEG_INFINITY, |&logit| f64::from(logit) - total);
        let likeliest = sample::top(logits, top).into_iter();
        Scored {
            text: shown(id, tokenizer),
            logprob: Some(logprob(id)),
            top: likeliest.map(|(id, _)| (shown(id, tokenizer), logprob(id))).collect(),
        }
    }
}

/// A token's text; its number where there is no tokenizer.
fn shown(id: u32, tokenizer: Option<&Tokenizer>) -> String {
    let text = tokenizer.and_then(|tokenizer| tokenizer.decode_all(&[id]).ok());
    text.unwrap_or_else(|| format!("<{id}>"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_are_those_computed_by_hand() {
        // A half, a quarter and a quarter.
        let logits = [2f32.ln(), 0.0, 0.0];
        let scored = Scored::by_logits(1, &logits, 1, None);
        assert!((scored.logprob.unwrap() - 0.25f64.ln()).abs() < 1e-7, "{scored:?}");
        assert_eq!((scored.text.as_str(), scored.top.len()), ("<1>", 1));
        assert!((scored.top[0].1 - 0.5f64.ln()).abs() < 1e-7 && scored.top[0].0 == "<0>", "{scored:?}");
        assert_eq!(Scored::by_logits(7, &logits, 0, None).logprob, Some(f64::NEG_INFINITY));
        assert_eq!(Scored::first(3, None).logprob, None);
    }
}

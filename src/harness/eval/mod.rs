//! Does a bundle call tools as it should, and how well does it predict a text? Cases are run through the generator at
//! every length, answers are read for calls and scored; a text is scored token by token. `docs/eval.md` defines the
//! figures.
//!
//! Everything but [`run()`] and [`score_text`] is a function of text and numbers.

mod call;
mod case;
mod format;
mod perplexity;
mod run;
mod score;

pub use call::{Call, same};
pub use case::{Case, CaseError, parse_cases};
pub use format::{CallMatch, find_calls};
pub use perplexity::{TakeLogits, TextScore, score_text, score_text_with, text_tokens};
pub use run::{Options, prompt, run};
pub use score::{Answer, CaseResult, Counts, Evaluation, SeqLenResult, evaluate, score};

//! JSON without a marker: the first value in the text that is a call.

use super::{CallMatch, Format, json_at};
use crate::eval::Call;

pub(super) const FORMAT: Format = Format { name: "bare", find };

/// Places that are tried, so that a text of brackets does not take forever.
const TRIED: usize = 64;

fn find(text: &str) -> Vec<CallMatch> {
    let places = text.char_indices().filter(|(_, c)| matches!(c, '{' | '[')).take(TRIED);
    for (begin, _) in places {
        let Some((value, _)) = json_at(&text[begin..]) else { continue };
        if let Some(calls) = Call::all_from_json(&value) {
            return calls.into_iter().map(|call| CallMatch { begin, call: Some(call) }).collect();
        }
    }
    Vec::new()
}

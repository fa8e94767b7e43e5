//! JSON behind a marker, as Hermes, Qwen, SmolLM, Phi, Llama, Granite and Cohere write calls.

use super::{CallMatch, Format, after_each, json_at};
use crate::eval::Call;

pub(super) const FORMAT: Format = Format { name: "tagged", find };

const MARKERS: &[&str] = &[
    "<tool_call>",
    "<|tool_call|>",
    "<|tool_call>",
    "<function_call>",
    "<functioncall>",
    "<|python_tag|>",
    "<|START_ACTION|>",
    "```json",
    "```tool_call",
];

fn find(text: &str) -> Vec<CallMatch> {
    let marked = MARKERS.iter().flat_map(|marker| after_each(text, marker));
    let mut found: Vec<CallMatch> = marked.flat_map(|(begin, rest)| calls(begin, rest)).collect();
    found.sort_by_key(|found| found.begin);
    found
}

fn calls(begin: usize, rest: &str) -> Vec<CallMatch> {
    let calls = json_at(rest).and_then(|(value, _)| Call::all_from_json(&value));
    match calls {
        Some(calls) => calls.into_iter().map(|call| CallMatch { begin, call: Some(call) }).collect(),
        None => vec![CallMatch { begin, call: None }],
    }
}

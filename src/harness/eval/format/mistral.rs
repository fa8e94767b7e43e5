//! `[TOOL_CALLS]` with a list of calls, or with a name and `[ARGS]`, as Mistral's models write calls.

use serde_json::Value;

use super::{CallMatch, Format, after_each, json_at};
use crate::eval::Call;

pub(super) const FORMAT: Format = Format { name: "mistral", find };

fn find(text: &str) -> Vec<CallMatch> {
    after_each(text, "[TOOL_CALLS]").flat_map(|(begin, rest)| calls(begin, rest)).collect()
}

fn calls(begin: usize, rest: &str) -> Vec<CallMatch> {
    let listed = json_at(rest).and_then(|(value, _)| Call::all_from_json(&value));
    match listed.or_else(|| named(rest).map(|call| vec![call])) {
        Some(calls) => calls.into_iter().map(|call| CallMatch { begin, call: Some(call) }).collect(),
        None => vec![CallMatch { begin, call: None }],
    }
}

fn named(rest: &str) -> Option<Call> {
    let (name, arguments) = rest.split_once("[ARGS]")?;
    let (Value::Object(arguments), _) = json_at(arguments)? else { return None };
    Some(Call { name: name.trim().to_owned(), arguments })
}

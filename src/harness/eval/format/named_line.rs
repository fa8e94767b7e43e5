//! A name on a line of its own with a JSON object below it, as GLM 4 writes calls.

use serde_json::Value;

use super::{CallMatch, Format, json_at};
use crate::eval::Call;

pub(super) const FORMAT: Format = Format { name: "named line", find };

fn find(text: &str) -> Vec<CallMatch> {
    let trimmed = text.trim_start();
    let begin = text.len() - trimmed.len();
    call(trimmed).map(|call| CallMatch { begin, call: Some(call) }).into_iter().collect()
}

fn call(text: &str) -> Option<Call> {
    let (name, rest) = text.split_once('\n')?;
    let name = name.trim_end();
    let begins_well = name.starts_with(|c: char| c.is_alphabetic() || c == '_');
    let is_name = name.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '.' | '-'));
    let (Value::Object(arguments), _) = json_at(rest)? else { return None };
    (begins_well && is_name).then(|| Call { name: name.to_owned(), arguments })
}

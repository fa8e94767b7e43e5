//! `<function=name>` around JSON or around `<parameter=key>` tags, as Llama and Qwen Coder write calls.

use serde_json::{Map, Value};

use super::{CallMatch, Format, after_each, json_at};
use crate::eval::Call;

pub(super) const FORMAT: Format = Format { name: "function_tag", find };

const OUTER: &str = "<tool_call>";

fn find(text: &str) -> Vec<CallMatch> {
    let found = after_each(text, "<function=").map(|(begin, rest)| {
        let before = text[..begin].trim_end();
        let begin = if before.ends_with(OUTER) { before.len() - OUTER.len() } else { begin };
        CallMatch { begin, call: call(rest) }
    });
    found.collect()
}

fn call(rest: &str) -> Option<Call> {
    let (name, rest) = rest.split_once('>')?;
    let name = name.trim().to_owned();
    if let Some((Value::Object(arguments), _)) = json_at(rest) {
        return Some(Call { name, arguments });
    }
    let (body, _) = rest.split_once("</function>")?;
    let mut arguments = Map::new();
    for (_, parameter) in after_each(body, "<parameter=") {
        let (key, value) = parameter.split_once('>')?;
        let (value, _) = value.split_once("</parameter>")?;
        let value = value.trim();
        // What is not JSON is text.
        let value = serde_json::from_str(value).unwrap_or_else(|_| Value::from(value));
        arguments.insert(key.trim().to_owned(), value);
    }
    Some(Call { name, arguments })
}

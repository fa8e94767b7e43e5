//! Calls with bare keys and quotes of their own, as Gemma 4 and FunctionGemma write them:
//! `<|tool_call>call:weather{city:<|"|>Oslo<|"|>,days:3}<tool_call|>`.

use serde_json::{Map, Value};

use super::{CallMatch, Format, after_each};
use crate::eval::Call;

pub(super) const FORMAT: Format = Format { name: "gemma", find };

/// What a call begins with, and what is around texts.
const FORMS: &[(&str, &str)] = &[("<|tool_call>", "<|\"|>"), ("<start_function_call>", "<escape>")];
/// Values deeper than this are not read.
const DEEPEST: usize = 32;

fn find(text: &str) -> Vec<CallMatch> {
    let marked = FORMS.iter().flat_map(|&(marker, quote)| {
        after_each(text, marker).filter_map(move |(begin, rest)| {
            let body = rest.trim_start().strip_prefix("call:")?;
            Some(CallMatch { begin, call: call(body, quote) })
        })
    });
    let mut found: Vec<CallMatch> = marked.collect();
    found.sort_by_key(|found| found.begin);
    found
}

fn call(body: &str, quote: &'static str) -> Option<Call> {
    let (name, rest) = body.split_at(body.find('{')?);
    let name = name.trim();
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || "_-.".contains(c));
    let mut reader = Reader { rest, quote };
    match reader.value(0)? {
        Value::Object(arguments) if is_name => Some(Call { name: name.to_owned(), arguments }),
        _ => None,
    }
}

/// Reads values from the front of a text.
struct Reader<'t> {
    rest: &'t str,
    quote: &'static str,
}

impl Reader<'_> {
    fn takes(&mut self, mark: &str) -> bool {
        self.rest = self.rest.trim_start();
        match self.rest.strip_prefix(mark) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    /// What comes before a mark, which is taken as well.
    fn until(&mut self, mark: &str) -> Option<String> {
        let (text, rest) = self.rest.split_once(mark)?;
        let text = text.to_owned();
        self.rest = rest;
        Some(text)
    }

    fn value(&mut self, depth: usize) -> Option<Value> {
        if depth > DEEPEST {
            return None;
        }
        if self.takes(self.quote) {
            return self.until(self.quote).map(Value::String);
        }
        if self.takes("{") {
            return self.object(depth).map(Value::Object);
        }
        if self.takes("[") {
            return self.list(depth).map(Value::Array);
        }
        self.bare()
    }

    fn object(&mut self, depth: usize) -> Option<Map<String, Value>> {
        let mut object = Map::new();
        while !self.takes("}") {
            let key = match self.takes(self.quote) {
                true => {
                    let key = self.until(self.quote)?;
                    self.takes(":").then_some(key)?
                }
                false => self.until(":")?,
            };
            object.insert(key.trim().to_owned(), self.value(depth + 1)?);
            if !self.takes(",") && !self.rest.trim_start().starts_with('}') {
                return None;
            }
        }
        Some(object)
    }

    fn list(&mut self, depth: usize) -> Option<Vec<Value>> {
        let mut list = Vec::new();
        while !self.takes("]") {
            list.push(self.value(depth + 1)?);
            if !self.takes(",") && !self.rest.trim_start().starts_with(']') {
                return None;
            }
        }
        Some(list)
    }

    /// A JSON text, a number, a truth value or nothing.
    fn bare(&mut self) -> Option<Value> {
        self.rest = self.rest.trim_start();
        if self.rest.starts_with('"') {
            let (value, len) = super::json_at(self.rest)?;
            self.rest = &self.rest[len..];
            return Some(value);
        }
        let end = self.rest.find([',', '}', ']'])?;
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        match word.trim() {
            "None" => Some(Value::Null),
            word => serde_json::from_str(word).ok(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn arguments(text: &str) -> Option<Value> {
        find(text).first()?.call.as_ref().map(|call| Value::Object(call.arguments.clone()))
    }

    #[test]
    fn values_of_every_kind() {
        let text = r#"<|tool_call>call:f{a:<|"|>x, {y}<|"|>,b:-1.5,c:true,d:null,e:[1,<|"|>z<|"|>],g:{h:<|"|><|"|>}}<tool_call|>"#;
        let expected = json!({"a": "x, {y}", "b": -1.5, "c": true, "d": null, "e": [1, "z"], "g": {"h": ""}});
        assert_eq!(arguments(text), Some(expected));
        assert_eq!(arguments("<start_function_call>call:f{a:<escape>x<escape>}"), Some(json!({"a": "x"})));
        assert_eq!(arguments("<|tool_call>call:now{}<tool_call|>"), Some(json!({})));
        assert_eq!(arguments(r#"<|tool_call>call:f{a:"x\n"}"#), Some(json!({"a": "x\n"})));
    }

    #[test]
    fn two_calls_and_broken_ones() {
        let text = "Yes. <|tool_call>call:a{}<tool_call|><|tool_call>call:b{x:1}<tool_call|>";
        let found = find(text);
        let names = found.iter().map(|found| found.call.as_ref().map(|call| call.name.as_str()));
        assert_eq!(names.collect::<Vec<_>>(), [Some("a"), Some("b")]);
        assert_eq!(found[0].begin, 5);
        for broken in [
            "<|tool_call>call:f{a:<|\"|>x}",
            "<|tool_call>call:f{a:1 b:2}",
            "<|tool_call>call:{}",
            "<|tool_call>call:f{a:yes}",
            "<|tool_call>call:f",
        ] {
            assert_eq!(find(broken).first().map(|found| found.call.is_none()), Some(true), "{broken}");
        }
        let deep = format!("<|tool_call>call:f{{a:{}", "[".repeat(100_000));
        assert!(find(&deep)[0].call.is_none());
        assert!(find("<|tool_call>{\"name\": \"f\"}").is_empty());
    }
}

//! Calls as Python writes them, in a list or in a block, as Llama, Gemma, OLMo, MiniCPM and LFM write calls.

use serde_json::{Map, Number, Value};

use super::{CallMatch, Format, after_each};
use crate::eval::Call;

pub(super) const FORMAT: Format = Format { name: "pythonic", find };

/// Values inside values that are followed.
const DEEPEST: usize = 32;

fn find(text: &str) -> Vec<CallMatch> {
    let trimmed = text.trim_start();
    let start = text.len() - trimmed.len();
    let listed = trimmed.strip_prefix('[').and_then(|rest| list(rest, ']')).map(|calls| (start, calls));
    let block = || {
        let mut blocks = after_each(text, "```tool_code").chain(after_each(text, "```python"));
        let fenced = blocks.find_map(|(begin, rest)| Some((begin, list(rest, '`')?)));
        let mut tagged = after_each(text, "<function_calls>");
        let tagged = || tagged.find_map(|(begin, rest)| Some((begin, list(rest, '<')?)));
        let mut started = after_each(text, "<|tool_call_start|>");
        let started = || {
            started.find_map(|(begin, rest)| Some((begin, list(rest.trim_start().strip_prefix('[')?, ']')?)))
        };
        fenced.or_else(tagged).or_else(started)
    };
    let Some((begin, calls)) = listed.or_else(block) else { return Vec::new() };
    calls.into_iter().map(|call| CallMatch { begin, call: Some(call) }).collect()
}

/// Calls up to a closing character, at least one.
fn list(text: &str, close: char) -> Option<Vec<Call>> {
    let mut reader = Reader { rest: text };
    let mut calls = vec![reader.call()?];
    while !reader.takes(close) {
        // Calls of a block may stand on lines of their own.
        if !reader.takes(',') && close == ']' {
            return None;
        }
        calls.push(reader.call()?);
    }
    Some(calls)
}

struct Reader<'t> {
    rest: &'t str,
}

impl<'t> Reader<'t> {
    fn takes(&mut self, expected: char) -> bool {
        self.rest = self.rest.trim_start();
        let rest = self.rest.strip_prefix(expected);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn name(&mut self) -> Option<&'t str> {
        self.rest = self.rest.trim_start();
        let end = self.rest.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '.'));
        let (name, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        let begins_well = name.chars().next().is_some_and(|c| c.is_alphabetic() || c == '_');
        begins_well.then_some(name)
    }

    /// `name(key=value, …)`.
    fn call(&mut self) -> Option<Call> {
        let name = self.name()?.to_owned();
        if !self.takes('(') {
            return None;
        }
        let mut arguments = Map::new();
        while !self.takes(')') {
            if !arguments.is_empty() && !self.takes(',') {
                return None;
            }
            let key = self.name()?.to_owned();
            if !self.takes('=') {
                return None;
            }
            arguments.insert(key, self.value(0)?);
        }
        Some(Call { name, arguments })
    }

    fn value(&mut self, depth: usize) -> Option<Value> {
        self.rest = self.rest.trim_start();
        match self.rest.chars().next().filter(|_| depth < DEEPEST)? {
            quote @ ('"' | '\'') => self.text(quote).map(Value::from),
            '[' => {
                let mut items = Vec::new();
                self.rest = &self.rest[1..];
                while !self.takes(']') {
                    if !items.is_empty() && !self.takes(',') {
                        return None;
                    }
                    items.push(self.value(depth + 1)?);
                }
                Some(Value::Array(items))
            }
            '{' => self.dictionary(depth),
            _ => self.word(),
        }
    }

    fn dictionary(&mut self, depth: usize) -> Option<Value> {
        let mut items = Map::new();
        self.rest = &self.rest[1..];
        while !self.takes('}') {
            if !items.is_empty() && !self.takes(',') {
                return None;
            }
            let Value::String(key) = self.value(depth + 1)? else { return None };
            if !self.takes(':') {
                return None;
            }
            items.insert(key, self.value(depth + 1)?);
        }
        Some(Value::Object(items))
    }

    fn text(&mut self, quote: char) -> Option<String> {
        let mut out = String::new();
        let mut characters = self.rest.char_indices().skip(1);
        while let Some((index, c)) = characters.next() {
            match c {
                c if c == quote => {
                    self.rest = &self.rest[index + 1..];
                    return Some(out);
                }
                '\\' => out.push(match characters.next()?.1 {
                    'n' => '\n',
                    't' => '\t',
                    'r' => '\r',
                    other => other,
                }),
                c => out.push(c),
            }
        }
        None
    }

    /// A number, a truth value or nothing.
    fn word(&mut self) -> Option<Value> {
        let end = self.rest.find(|c: char| !(c.is_ascii_alphanumeric() || "+-._".contains(c)));
        let (word, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        match word {
            "True" | "true" => Some(Value::Bool(true)),
            "False" | "false" => Some(Value::Bool(false)),
            "None" | "null" => Some(Value::Null),
            number => match number.parse::<i64>() {
                Ok(whole) => Some(Value::from(whole)),
                Err(_) => number.parse().ok().and_then(Number::from_f64).map(Value::Number),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_of_every_kind() {
        let text = r#"[f(a='it\'s', b="x\n", c=-1.5, d=True, e=None, g=[1, {"k": False}], h={})]"#;
        let expected = json!({"a": "it's", "b": "x\n", "c": -1.5, "d": true, "e": null,
            "g": [1, {"k": false}], "h": {}});
        let found = find(text);
        assert_eq!(Value::Object(found[0].call.clone().unwrap().arguments), expected);
    }

    #[test]
    fn what_is_no_call() {
        for text in ["[1, 2]", "[f(1)]", "[f(a=)]", "[f(a=1", "[f]", "[]", "f(a=1)", "[f(a='x)]"] {
            assert!(find(text).is_empty(), "{text}");
        }
        assert_eq!(find("```python\nf(a=1)\ng()\n```").len(), 2);
    }

    #[test]
    fn deep_values_are_refused() {
        assert!(find(&format!("[f(a={})]", "[".repeat(100_000))).is_empty());
    }
}

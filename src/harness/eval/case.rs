//! Cases: messages, tools and the calls that should come, one JSON object per line, read strictly.

use std::collections::HashSet;
use std::fmt;

use serde::Deserialize;
use serde_json::Value;

use super::Call;

/// A prompt with the tool calls that it should lead to.
#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    /// Its name, unique in its file.
    pub id: String,
    /// The conversation so far.
    pub messages: Vec<Value>,
    /// The tools on offer, as chat templates take them.
    pub tools: Vec<Value>,
    /// The calls that should come; none if the model should answer without one.
    pub expected: Vec<Call>,
}

/// What is wrong with a line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct CaseError {
    /// The line, from 1; 0 if it is about the file.
    pub line: usize,
    /// What is wrong; names the key.
    pub problem: String,
}

impl fmt::Display for CaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => f.write_str(&self.problem),
            line => write!(f, "line {line}: {}", self.problem),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CaseLine {
    id: String,
    messages: Vec<Value>,
    tools: Vec<Value>,
    /// A call, a list of them, or null.
    expected: Value,
}

/// Reads all cases; an error is about the first line that is wrong.
pub fn parse_cases(text: &str) -> Result<Vec<Case>, CaseError> {
    let mut ids = HashSet::new();
    let mut cases = Vec::new();
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let wrong = |problem: String| CaseError { line: index + 1, problem };
        let case = Case::parse(line).map_err(wrong)?;
        if !ids.insert(case.id.clone()) {
            return Err(wrong(format!("`id` {:?} occurs twice", case.id)));
        }
        cases.push(case);
    }
    match cases.is_empty() {
        true => Err(CaseError { line: 0, problem: "has no case".to_owned() }),
        false => Ok(cases),
    }
}

impl Case {
    fn parse(line: &str) -> Result<Case, String> {
        let CaseLine { id, messages, tools, expected } =
            serde_json::from_str(line).map_err(|e| e.to_string())?;
        if id.is_empty() {
            return Err("`id` is empty".to_owned());
        }
        if messages.is_empty() {
            return Err("`messages` is empty".to_owned());
        }
        for (index, message) in messages.iter().enumerate() {
            if message.get("role").and_then(Value::as_str).is_none() {
                return Err(format!("`messages[{index}]` has no `role`, expected such as \"user\""));
            }
        }
        let tools = tools.into_iter().enumerate().map(|(index, tool)| {
            wrapped(tool).ok_or_else(|| format!("`tools[{index}]` has no `function.name`"))
        });
        let tools = tools.collect::<Result<Vec<Value>, _>>()?;
        let expected = calls(expected)?;
        let case = Case { id, messages, tools, expected };
        match case.expected.iter().find(|call| !case.offers(&call.name)) {
            Some(call) => Err(format!("`expected` calls `{}`, which is not among `tools`", call.name)),
            None => Ok(case),
        }
    }

    /// Whether a tool is on offer.
    pub fn offers(&self, name: &str) -> bool {
        self.tools.iter().any(|tool| tool["function"]["name"] == name)
    }
}

/// A tool in the form that chat templates take; a bare function is wrapped.
fn wrapped(tool: Value) -> Option<Value> {
    let is_named = |function: &Value| function.get("name").is_some_and(Value::is_string);
    match tool.get("function") {
        Some(function) => is_named(function).then_some(tool),
        None => is_named(&tool).then(|| serde_json::json!({"type": "function", "function": tool})),
    }
}

fn calls(expected: Value) -> Result<Vec<Call>, String> {
    let call = |value: Value| serde_json::from_value(value).map_err(|e| format!("`expected`: {e}"));
    match expected {
        Value::Null => Ok(Vec::new()),
        Value::Array(list) => list.into_iter().map(call).collect(),
        one => Ok(vec![call(one)?]),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GOOD: &str = r#"{"id": "a", "messages": [{"role": "user", "content": "?"}], "tools": [{"name": "f"}], "expected": {"name": "f"}}"#;

    #[test]
    fn cases_of_every_kind() {
        let none = GOOD.replace("\"a\"", "\"b\"").replace("{\"name\": \"f\"}}", "null}");
        let two = GOOD.replace("\"a\"", "\"c\"").replace(
            "{\"name\": \"f\"}}",
            "[{\"name\": \"f\"}, {\"name\": \"f\", \"arguments\": {\"x\": 1}}]}",
        );
        let cases = parse_cases(&format!("{GOOD}\n\n{none}\n{two}\n")).unwrap();
        assert_eq!(cases.iter().map(|case| case.expected.len()).collect::<Vec<_>>(), [1, 0, 2]);
        assert_eq!(cases[0].tools[0]["type"], "function", "a bare function is wrapped");
        assert!(cases[0].offers("f") && !cases[0].offers("g"));
    }

    #[test]
    fn bad_lines_are_named_with_their_key() {
        for (text, expected) in [
            (String::new(), "has no case"),
            (format!("{GOOD}\n{{"), "line 2: EOF while parsing"),
            (format!("{GOOD}\n{GOOD}"), "line 2: `id` \"a\" occurs twice"),
            (GOOD.replace("\"id\"", "\"name\""), "line 1: unknown field `name`"),
            (GOOD.replace(", \"expected\": {\"name\": \"f\"}", ""), "line 1: missing field `expected`"),
            (GOOD.replace("\"role\"", "\"rule\""), "line 1: `messages[0]` has no `role`"),
            (GOOD.replace("[{\"name\": \"f\"}]", "[{}]"), "line 1: `tools[0]` has no `function.name`"),
            (
                GOOD.replace("{\"name\": \"f\"}}", "{\"name\": \"g\"}}"),
                "line 1: `expected` calls `g`, which is not among",
            ),
            (
                GOOD.replace("{\"name\": \"f\"}}", "{\"name\": \"f\", \"args\": {}}}"),
                "line 1: `expected`: unknown field `args`",
            ),
        ] {
            let problem = parse_cases(&text).unwrap_err().to_string();
            assert!(problem.starts_with(expected), "{expected}: {problem}");
        }
    }

    #[test]
    fn the_shipped_cases_are_sound() {
        let cases = parse_cases(include_str!("../configs/eval_cases.jsonl")).unwrap();
        assert!(cases.len() >= 20, "{}: enough for a 95th percentile", cases.len());
        assert!(cases.iter().any(|case| case.expected.is_empty()), "some expect no call");
        assert!(cases.iter().any(|case| case.expected.len() > 1), "some expect several");
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in ".{0,200}") {
            let _ = parse_cases(&text);
        }
    }
}

//! A call of a tool, and when two are the same.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A call of a tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Call {
    /// Name of the tool.
    pub name: String,
    /// Its arguments by name.
    #[serde(default)]
    pub arguments: Map<String, Value>,
}

impl Call {
    /// A call as models write it: `name`, or `tool_name`, with `arguments` or `parameters`, which may be JSON in a string,
    /// or the same inside `function`.
    pub(super) fn from_json(value: &Value) -> Option<Call> {
        let object = value.as_object()?;
        if let Some(inner) = object.get("function").filter(|inner| inner.is_object()) {
            return Call::from_json(inner);
        }
        let name = ["name", "function", "tool_name"].iter().find_map(|key| object.get(*key))?.as_str()?;
        let arguments = match object.get("arguments").or_else(|| object.get("parameters")) {
            None | Some(Value::Null) => Map::new(),
            Some(Value::Object(arguments)) => arguments.clone(),
            Some(Value::String(text)) => serde_json::from_str(text).ok()?,
            Some(_) => return None,
        };
        Some(Call { name: name.to_owned(), arguments })
    }

    /// All calls of a value: one, or those of a list, or those of `tool_calls`. `None` if anything in it is no call.
    pub(super) fn all_from_json(value: &Value) -> Option<Vec<Call>> {
        if let Some(list) = value.get("tool_calls").and_then(Value::as_array).or_else(|| value.as_array()) {
            let calls: Option<Vec<Call>> = list.iter().map(Call::from_json).collect();
            return calls.filter(|calls| !calls.is_empty());
        }
        Call::from_json(value).map(|call| vec![call])
    }

    /// How many arguments of another call are the same in this one.
    pub(super) fn shared_arguments(&self, other: &Call) -> usize {
        let same_in_other = |(key, value): &(&String, &Value)| {
            other.arguments.get(*key).is_some_and(|twin| same(value, twin))
        };
        self.arguments.iter().filter(same_in_other).count()
    }
}

/// Whether two values are the same: numbers by their value, so that 1 is 1.0; objects in any order; all else exactly.
pub fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| same(a, b)))
        }
        _ => a == b,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_compared_by_meaning() {
        assert!(same(&json!({"a": 1, "b": [2.0, "x"]}), &json!({"b": [2, "x"], "a": 1.0})));
        for (a, b) in
            [(json!("1"), json!(1)), (json!([1, 2]), json!([2, 1])), (json!({}), json!({"a": null}))]
        {
            assert!(!same(&a, &b), "{a} {b}");
        }
        assert!(!same(&json!("a"), &json!("A")));
    }

    #[test]
    fn calls_as_models_write_them() {
        let expected = Call { name: "f".to_owned(), arguments: Map::from_iter([("a".to_owned(), json!(1))]) };
        for value in [
            json!({"name": "f", "arguments": {"a": 1}}),
            json!({"name": "f", "parameters": {"a": 1}}),
            json!({"tool_name": "f", "parameters": {"a": 1}}),
            json!({"name": "f", "arguments": "{\"a\": 1}"}),
            json!({"type": "function", "function": {"name": "f", "arguments": {"a": 1}}}),
            json!([{"name": "f", "arguments": {"a": 1}}]),
            json!({"tool_calls": [{"function": {"name": "f", "arguments": "{\"a\": 1}"}}]}),
        ] {
            assert_eq!(Call::all_from_json(&value), Some(vec![expected.clone()]), "{value}");
        }
        for value in
            [json!(1), json!({}), json!([]), json!({"name": 1}), json!({"name": "f", "arguments": [1]})]
        {
            assert_eq!(Call::all_from_json(&value), None, "{value}");
        }
    }
}

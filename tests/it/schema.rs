//! The published schemas are what the types say, and a validator for the part of JSON Schema that they and SARIF's use. A
//! keyword it does not know is a fault.

use std::fs;
use std::path::{Path, PathBuf};

use anemeter::bundle::Manifest;
use anemeter::evaluate::compare::document::Document;
use anemeter::gate::Verdict;
use anemeter::report::Report;
use schemars::{Schema, schema_for};
use serde_json::{Map, Value};

use crate::support::checkpoints::write_text;
use crate::support::command::json;

fn path_of(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("docs/schemas/{name}.schema.json"))
}

/// Holds a document against a published schema.
pub(crate) fn assert_valid(name: &str, document: &Value) {
    let faults = faults(&json(&path_of(name)), document);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// `UPDATE_SCHEMAS=1` writes them.
#[test]
fn published_schemas_are_what_the_types_say() {
    let published: [(&str, Schema, &[&str]); 4] = [
        ("compare", schema_for!(Document), &["order", "speeds", "operations", "packages", "kind"]),
        ("export", schema_for!(Manifest), &["architecture", "chunks", "compression", "settings"]),
        ("report", schema_for!(Report), &["header", "launches", "figures", "soak", "residency", "machine"]),
        ("verdict", schema_for!(Verdict), &["outcome", "rule", "checks", "candidate", "baseline"]),
    ];
    for (name, schema, parts) in published {
        let text = serde_json::to_string_pretty(&schema).unwrap() + "\n";
        if std::env::var_os("UPDATE_SCHEMAS").is_some() {
            write_text(&path_of(name), &text);
        }
        let found = fs::read_to_string(path_of(name)).unwrap_or_default();
        assert!(found == text, "docs/schemas/{name}.schema.json is out of date: run with UPDATE_SCHEMAS=1");
        let objects = objects(schema.as_value());
        let known = |part: &&str| objects.iter().any(|object| object["properties"].get(part).is_some());
        assert!(!objects.is_empty() && parts.iter().all(known), "{name}");
        assert!(objects.iter().all(|object| object["additionalProperties"] == false), "{name}");
    }
}

/// The objects that a document may be: one, or one of several.
fn objects(schema: &Value) -> Vec<&Value> {
    let target = |alternative: &Value| {
        let place = alternative["$ref"].as_str().and_then(|place| place.strip_prefix('#'));
        schema.pointer(place.unwrap_or_default()).unwrap()
    };
    match &schema["anyOf"] {
        Value::Array(alternatives) => alternatives.iter().map(target).collect(),
        _ => vec![schema],
    }
}

/// Everything in a document that goes against a schema.
pub(crate) fn faults(schema: &Value, document: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    Validator { root: schema, faults: &mut faults }.check(schema, document, "$");
    faults
}

struct Validator<'a> {
    root: &'a Value,
    faults: &'a mut Vec<String>,
}

impl Validator<'_> {
    fn check(&mut self, schema: &Value, value: &Value, at: &str) {
        let keywords = schema.as_object().unwrap();
        for (keyword, rule) in keywords {
            let holds = match keyword.as_str() {
                "$ref" => {
                    let target = rule.as_str().unwrap().strip_prefix('#').unwrap();
                    let target = self.root.pointer(target).unwrap().clone();
                    self.check(&target, value, at);
                    true
                }
                "anyOf" | "oneOf" => self.alternatives(keyword, rule, value),
                "items" | "properties" | "additionalProperties" => {
                    self.children(keywords, keyword, value, at);
                    true
                }
                "$schema" | "$id" | "title" | "description" | "default" | "definitions" | "$defs" => true,
                _ => holds(keyword, rule, value),
            };
            if !holds {
                self.faults.push(format!("{at}: {keyword} {rule} against {value}"));
            }
        }
    }

    fn alternatives(&mut self, keyword: &str, rules: &Value, value: &Value) -> bool {
        let fits = |rule: &&Value| {
            let mut faults = Vec::new();
            Validator { root: self.root, faults: &mut faults }.check(rule, value, "");
            faults.is_empty()
        };
        let count = rules.as_array().unwrap().iter().filter(fits).count();
        if keyword == "oneOf" { count == 1 } else { count > 0 }
    }

    fn children(&mut self, keywords: &Map<String, Value>, keyword: &str, value: &Value, at: &str) {
        let rule = &keywords[keyword];
        match (keyword, value) {
            ("items", Value::Array(items)) => {
                for (i, item) in items.iter().enumerate() {
                    self.check(rule, item, &format!("{at}[{i}]"));
                }
            }
            ("properties", Value::Object(members)) => {
                for (name, rule) in rule.as_object().unwrap() {
                    if let Some(member) = members.get(name) {
                        self.check(rule, member, &format!("{at}.{name}"));
                    }
                }
            }
            ("additionalProperties", Value::Object(members)) => {
                let known = keywords.get("properties").and_then(Value::as_object);
                for (name, member) in
                    members.iter().filter(|(name, _)| !known.is_some_and(|k| k.contains_key(*name)))
                {
                    match rule {
                        Value::Bool(true) => {}
                        Value::Bool(false) => self.faults.push(format!("{at}: {name} is not allowed")),
                        rule => self.check(rule, member, &format!("{at}.{name}")),
                    }
                }
            }
            _ => {}
        }
    }
}

/// A keyword that concerns the value alone.
fn holds(keyword: &str, rule: &Value, value: &Value) -> bool {
    let number = |value: &Value| value.as_f64();
    match (keyword, value) {
        ("type", _) => match rule {
            Value::Array(types) => types.iter().any(|ty| is_of_type(ty.as_str().unwrap(), value)),
            ty => is_of_type(ty.as_str().unwrap(), value),
        },
        ("const", _) => rule == value,
        ("enum", _) => rule.as_array().unwrap().contains(value),
        ("required", Value::Object(members)) => {
            rule.as_array().unwrap().iter().all(|name| members.contains_key(name.as_str().unwrap()))
        }
        ("minItems", Value::Array(items)) => items.len() as u64 >= rule.as_u64().unwrap(),
        ("uniqueItems", Value::Array(items)) => {
            items.iter().enumerate().all(|(i, a)| !items[..i].contains(a))
        }
        ("minimum", Value::Number(_)) => number(value) >= number(rule),
        ("maximum", Value::Number(_)) => number(value) <= number(rule),
        // The widths of numbers are what serde reads and writes; ranges are given by `minimum` and `maximum`.
        ("format", Value::Number(_)) => true,
        ("format", Value::String(text)) => rule.as_str().unwrap().starts_with("uri") && is_uri(text),
        ("pattern", Value::String(_)) => false,
        ("required" | "minItems" | "uniqueItems" | "minimum" | "maximum" | "format" | "pattern", _) => true,
        (unknown, _) => panic!("the validator does not know {unknown}"),
    }
}

fn is_of_type(ty: &str, value: &Value) -> bool {
    match ty {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "number" => value.is_number(),
        "integer" => value.is_i64() || value.is_u64(),
        "null" => value.is_null(),
        unknown => panic!("the validator does not know the type {unknown}"),
    }
}

fn is_uri(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-._~:/?#[]@!$&'()*+,;=%".contains(c);
    !text.is_empty() && text.chars().all(allowed)
}

#[test]
fn faults_are_found() {
    let schema = serde_json::json!({
        "type": "object",
        "required": ["a"],
        "additionalProperties": false,
        "properties": { "a": { "$ref": "#/definitions/a" }, "b": { "type": "array", "uniqueItems": true } },
        "definitions": { "a": { "type": "integer", "minimum": 1, "maximum": 3 } },
    });
    let count = |document: Value| faults(&schema, &document).len();
    assert_eq!(count(serde_json::json!({ "a": 2, "b": [1, 2] })), 0);
    assert_eq!(count(serde_json::json!({ "b": [1, 1] })), 2, "a is missing, b repeats");
    assert_eq!(count(serde_json::json!({ "a": 4, "c": 0 })), 2, "a is too large, c unknown");
    assert_eq!(count(serde_json::json!({ "a": "2" })), 1);
}

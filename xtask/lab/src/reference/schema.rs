//! JSON schemas, as far as types of this project make them, as flat lists of keys.

use serde_json::Value;

/// A key of a document.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Key {
    /// Its path: dots between levels, `[]` after lists.
    pub(super) path: String,
    pub(super) kind: String,
    pub(super) required: bool,
    pub(super) description: String,
}

/// The keys of a schema down to some depth, in their order.
pub(super) fn keys(schema: &Value, depth: usize) -> Vec<Key> {
    let mut keys = Vec::new();
    Walk { root: schema, depth }.collect(schema, "", 1, &mut keys);
    keys
}

struct Walk<'a> {
    root: &'a Value,
    depth: usize,
}

impl<'a> Walk<'a> {
    fn collect(&self, object: &'a Value, prefix: &str, level: usize, keys: &mut Vec<Key>) {
        let Some(properties) = object["properties"].as_object() else { return };
        let required = object["required"].as_array().map_or(&[][..], Vec::as_slice);
        for (name, property) in properties {
            let inner = self.resolve(property);
            let (element, is_list) = match inner.get("items") {
                Some(items) => (self.resolve(items), true),
                None => (inner, false),
            };
            let path = format!("{prefix}{name}{}", if is_list { "[]" } else { "" });
            let described = [property, inner].into_iter().find_map(|schema| schema["description"].as_str());
            keys.push(Key {
                path: path.clone(),
                kind: self.kind(inner),
                required: required.iter().any(|key| key == name),
                description: described.unwrap_or_default().replace('\n', " "),
            });
            if level < self.depth {
                self.collect(element, &format!("{path}."), level + 1, keys);
            }
        }
    }

    /// What a reference or an optional value stands for.
    fn resolve(&self, schema: &'a Value) -> &'a Value {
        if let Some(target) = schema["$ref"].as_str().and_then(|target| target.strip_prefix('#')) {
            return self.root.pointer(target).map_or(schema, |target| self.resolve(target));
        }
        let alternatives = schema["anyOf"].as_array().map_or(&[][..], Vec::as_slice);
        let mut present = alternatives.iter().filter(|schema| schema["type"] != "null");
        match (present.next(), present.next()) {
            (Some(only), None) => self.resolve(only),
            _ => schema,
        }
    }

    fn kind(&self, schema: &'a Value) -> String {
        let words = words(schema);
        if !words.is_empty() {
            return words.join(", ");
        }
        if let Some(items) = schema.get("items") {
            return format!("list of {}", self.kind(self.resolve(items)));
        }
        if let Some(alternatives) = schema["anyOf"].as_array() {
            let kinds = alternatives.iter().filter(|schema| schema["type"] != "null");
            return kinds.map(|schema| self.kind(self.resolve(schema))).collect::<Vec<_>>().join(" or ");
        }
        let kind = match &schema["type"] {
            Value::Array(kinds) => kinds.iter().find(|kind| *kind != "null").and_then(Value::as_str),
            kind => kind.as_str(),
        };
        match kind {
            Some("object") => "map",
            Some("string") => "text",
            Some(other) => other,
            None => "any",
        }
        .to_owned()
    }
}

/// The words that a value may be.
fn words(schema: &Value) -> Vec<String> {
    let of = |schema: &Value| -> Vec<Value> {
        let listed = schema["enum"].as_array().cloned().unwrap_or_default();
        listed.into_iter().chain(schema.get("const").cloned()).collect()
    };
    let alternatives = schema["oneOf"].as_array().map_or(&[][..], Vec::as_slice);
    let all = of(schema).into_iter().chain(alternatives.iter().flat_map(of));
    all.filter_map(|word| Some(format!("`{}`", word.as_str()?))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_are_found_through_references_lists_and_options() {
        let schema = json!({
            "properties": {
                "kv": { "anyOf": [{ "$ref": "#/$defs/Kv" }, { "type": "null" }] },
                "rules": { "type": "array", "items": { "$ref": "#/$defs/Rule" }, "description": "Which." },
                "count": { "type": ["integer", "null"] },
            },
            "required": ["rules"],
            "$defs": {
                "Kv": { "description": "A form.", "oneOf": [{ "const": "io" }, { "enum": ["state", "none"] }] },
                "Rule": { "type": "object", "properties": { "of": { "type": "string" } }, "required": ["of"] },
            },
        });
        let key = |path: &str, kind: &str, required: bool, description: &str| Key {
            path: path.into(),
            kind: kind.into(),
            required,
            description: description.into(),
        };
        let mut expected = vec![
            key("kv", "`io`, `state`, `none`", false, "A form."),
            key("rules[]", "list of map", true, "Which."),
            key("rules[].of", "text", true, ""),
            key("count", "integer", false, ""),
        ];
        assert_eq!(keys(&schema, 2), expected);
        expected.remove(2);
        assert_eq!(keys(&schema, 1), expected);
    }
}

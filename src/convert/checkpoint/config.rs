//! The configuration of a checkpoint: JSON values by key, read with their types, so that a missing or
//! mistyped key is an error that names it.

use serde_json::{Map, Value};

/// The configuration, in the keys of `config.json`.
#[derive(Debug, Clone, Default)]
pub struct Config {
    values: Map<String, Value>,
}

/// A key that is missing or of the wrong type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("config key `{key}` {problem}")]
pub struct ConfigError {
    /// The key of the configuration.
    pub key: String,
    /// What is wrong with it.
    pub problem: String,
}

impl Config {
    /// A configuration from a JSON object.
    pub fn new(values: Map<String, Value>) -> Config {
        Config { values }
    }

    /// All values, by key.
    pub fn values(&self) -> &Map<String, Value> {
        &self.values
    }

    /// The raw value of a key; `null` counts as absent.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.values.get(key).filter(|value| !value.is_null())
    }

    /// A size that must be there.
    pub fn size(&self, key: &str) -> Result<usize, ConfigError> {
        self.opt_size(key)?.ok_or_else(|| error(key, "is missing"))
    }

    /// A size that may be left out.
    pub fn opt_size(&self, key: &str) -> Result<Option<usize>, ConfigError> {
        self.read(key, "a size", |value| value.as_u64().and_then(|n| usize::try_from(n).ok()))
    }

    /// A number that may be left out.
    pub fn opt_float(&self, key: &str) -> Result<Option<f64>, ConfigError> {
        self.read(key, "a number", Value::as_f64)
    }

    /// A boolean that may be left out.
    pub fn opt_bool(&self, key: &str) -> Result<Option<bool>, ConfigError> {
        self.read(key, "true or false", Value::as_bool)
    }

    /// A string that may be left out.
    pub fn opt_text(&self, key: &str) -> Result<Option<&str>, ConfigError> {
        self.read(key, "a string", Value::as_str)
    }

    /// An object that may be left out, as a configuration of its own.
    pub fn opt_section(&self, key: &str) -> Result<Option<Config>, ConfigError> {
        self.read(key, "an object", |value| value.as_object().cloned().map(Config::new))
    }

    /// A list of numbers that may be left out.
    pub fn opt_floats(&self, key: &str) -> Result<Option<Vec<f64>>, ConfigError> {
        self.read(key, "a list of numbers", |value| value.as_array()?.iter().map(Value::as_f64).collect())
    }

    /// A list of strings that may be left out.
    pub fn opt_texts(&self, key: &str) -> Result<Option<Vec<&str>>, ConfigError> {
        self.read(key, "a list of strings", |value| value.as_array()?.iter().map(Value::as_str).collect())
    }

    fn read<'a, T>(
        &'a self,
        key: &str,
        wanted: &str,
        convert: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, ConfigError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        convert(value).map(Some).ok_or_else(|| error(key, &format!("is {value}, expected {wanted}")))
    }
}

fn error(key: &str, problem: &str) -> ConfigError {
    ConfigError { key: key.to_owned(), problem: problem.to_owned() }
}

//! Configuration files: YAML, read strictly. A key nobody knows is an error that names the nearest known one.

mod nearest;

use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

use crate::advice::{Advice, Remedy};
use crate::files;
pub use nearest::nearest;

/// The most that a configuration file may take.
const LARGEST: u64 = 16 << 20;

/// A configuration file that cannot be used.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{}: {message}", path.display())]
pub struct ConfigFileError {
    path: PathBuf,
    message: String,
    remedy: Option<Remedy>,
}

impl ConfigFileError {
    /// An error about a file.
    pub fn new(path: &Path, message: impl Into<String>) -> ConfigFileError {
        ConfigFileError { path: path.to_owned(), message: message.into(), remedy: None }
    }

    /// The same with what to do about it.
    #[must_use]
    pub fn with_help(mut self, help: impl Into<Remedy>) -> ConfigFileError {
        self.remedy = Some(help.into());
        self
    }
}

impl Advice for ConfigFileError {
    fn remedy(&self) -> Option<Remedy> {
        self.remedy.clone()
    }
}

/// Reads a file into a type that denies unknown fields.
pub fn load<T: DeserializeOwned>(path: &Path) -> Result<T, ConfigFileError> {
    log::info!("reads {}", path.display());
    let unreadable = |e: std::io::Error| ConfigFileError::new(path, format!("cannot be read: {e}"));
    parse(&files::read_text(path, LARGEST).map_err(unreadable)?, path)
}

/// Reads text that came from a file.
pub fn parse<T: DeserializeOwned>(text: &str, path: &Path) -> Result<T, ConfigFileError> {
    serde_yaml::from_str(text).map_err(|error| explain(&error.to_string(), path))
}

/// Adds the nearest known key or value to a message about an unknown one.
fn explain(message: &str, path: &Path) -> ConfigFileError {
    let error = ConfigFileError::new(path, message.replace("unknown field", "unknown key"));
    let kinds = ["unknown field `", "unknown variant `"];
    let Some(rest) = kinds.iter().find_map(|kind| Some(message.split_once(kind)?.1)) else { return error };
    let mut words = rest.split('`');
    let unknown = words.next().unwrap_or_default();
    match nearest(unknown, words.skip(1).step_by(2)) {
        Some((near, distance)) if distance <= unknown.chars().count().div_ceil(2) => {
            error.with_help(format!("did you mean `{near}`?"))
        }
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Outer {
        coreml: Inner,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Inner {
        enumerate_shapes: Vec<usize>,
        #[serde(default)]
        compute_units: Option<Units>,
    }

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(rename_all = "lowercase")]
    enum Units {
        All,
        Cpu,
    }

    fn read(text: &str) -> Result<Outer, ConfigFileError> {
        parse(text, Path::new("convert.yaml"))
    }

    #[test]
    fn known_keys_are_read() {
        let outer = read("coreml:\n  enumerate_shapes: [1, 2]\n  compute_units: all\n").unwrap();
        assert_eq!(outer.coreml.enumerate_shapes, [1, 2]);
        assert_eq!(outer.coreml.compute_units, Some(Units::All));
    }

    #[test]
    fn unknown_words_name_the_nearest() {
        for (text, message, help) in [
            (
                "coreml:\n  enumerate_shape: [1]\n",
                "unknown key `enumerate_shape`",
                "did you mean `enumerate_shapes`?",
            ),
            (
                "coreml:\n  enumerate_shapes: []\n  compute_units: al\n",
                "unknown variant `al`",
                "did you mean `all`?",
            ),
            ("quux: 1\n", "unknown key `quux`", ""),
            ("coreml: [", "", ""),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.to_string().starts_with("convert.yaml: "), "{error}");
            assert!(error.to_string().contains(message), "{error}");
            assert_eq!(error.remedy().map(|remedy| remedy.to_string()).unwrap_or_default(), help, "{error}");
        }
    }
}

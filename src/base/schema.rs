//! JSON documents that say their format and version in the key `schema`.

use serde::Deserialize;
use serde::de::DeserializeOwned;

/// Why a text is not a document of a format.
#[derive(Debug, thiserror::Error)]
pub enum SchemaError {
    /// It is not JSON with a key `schema`.
    #[error("is not {what}: {error}")]
    NotOne {
        /// What was expected.
        what: String,
        /// What is wrong.
        error: serde_json::Error,
    },
    /// It is another format, or another version of it.
    #[error("has the schema `{found}`; this version reads `{expected}`")]
    Version {
        /// The one that it states.
        found: String,
        /// The one that can be read.
        expected: String,
    },
    /// A key or a value is wrong.
    #[error(transparent)]
    Content(#[from] serde_json::Error),
}

#[derive(Deserialize)]
struct Version {
    schema: String,
}

/// The format and version that a document states, if it is one.
pub fn stated(text: &[u8]) -> Option<String> {
    serde_json::from_slice(text).ok().map(|version: Version| version.schema)
}

/// Reads JSON of one version of a format.
pub fn parse<T: DeserializeOwned>(text: &str, schema: &str, what: &str) -> Result<T, SchemaError> {
    let version: Version =
        serde_json::from_str(text).map_err(|error| SchemaError::NotOne { what: what.to_owned(), error })?;
    if version.schema != schema {
        return Err(SchemaError::Version { found: version.schema, expected: schema.to_owned() });
    }
    Ok(serde_json::from_str(text)?)
}

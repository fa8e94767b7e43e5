//! `metadata.json`: the version of the asset, and what its author says about it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::{AssetError, ErrorKind, Result, quoted};

/// The version of the folder's layout; Apple's tools refuse others.
const ASSET_VERSION: &str = "2.0";

/// What an asset says about itself. Empty texts are left out.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AssetMetadata {
    /// Who made the model.
    pub author: String,
    /// What it may be used for.
    pub license: String,
    /// What it is.
    pub description: String,
    /// The program that wrote the asset; this one, if it is empty.
    pub producer: String,
    /// When it was made, such as `20261117T161634Z`. Without one, the same model gives the same bytes at any time; Apple's
    /// tools take it as optional.
    pub creation_date: String,
    /// Anything else, such as the checkpoint that it was made from.
    pub other: BTreeMap<String, Value>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    asset_version: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    producer: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    creation_date: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    author: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    license: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    description: String,
    #[serde(flatten)]
    other: BTreeMap<String, Value>,
}

impl AssetMetadata {
    pub(super) fn to_json(&self) -> Result<Vec<u8>> {
        let producer = match self.producer.as_str() {
            "" => concat!("anemeter ", env!("CARGO_PKG_VERSION")),
            given => given,
        };
        let document = Document {
            asset_version: ASSET_VERSION.to_owned(),
            producer: producer.to_owned(),
            creation_date: self.creation_date.clone(),
            author: self.author.clone(),
            license: self.license.clone(),
            description: self.description.clone(),
            other: self.other.clone(),
        };
        let json = serde_json::to_vec_pretty(&document);
        json.map_err(|e| AssetError::new(ErrorKind::Metadata, format!("cannot be written as JSON: {e}")))
    }
}

/// The JSON of a `metadata.json` that is there.
pub(super) fn parse(json: &[u8]) -> Result<AssetMetadata> {
    let invalid = |message: String| AssetError::new(ErrorKind::Metadata, message);
    let document: Document =
        serde_json::from_slice(json).map_err(|e| invalid(format!("is no metadata of an asset: {e}")))?;
    if document.asset_version != ASSET_VERSION {
        let found = quoted(&document.asset_version);
        let message = format!("expected `assetVersion` to be `{ASSET_VERSION}`, found {found}");
        return Err(AssetError::unsupported(message));
    }
    let Document { producer, creation_date, author, license, description, other, .. } = document;
    Ok(AssetMetadata { author, license, description, producer, creation_date, other })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let metadata = AssetMetadata {
            author: "A".to_owned(),
            license: "MIT".to_owned(),
            creation_date: "20261117T161634Z".to_owned(),
            other: [("source".to_owned(), Value::from("a/b"))].into(),
            ..AssetMetadata::default()
        };
        let json = metadata.to_json().unwrap();
        let text = String::from_utf8(json.clone()).unwrap();
        assert!(text.starts_with("{\n  \"assetVersion\": \"2.0\",\n  \"producer\": \"anemeter "), "{text}");
        assert!(!text.contains("description"), "{text}");
        let read = parse(&json).unwrap();
        assert!(read.producer.starts_with("anemeter "));
        assert_eq!(AssetMetadata { producer: String::new(), ..read }, metadata);
    }

    #[test]
    fn the_version_is_needed_and_known() {
        let refused = |json: &str| parse(json.as_bytes()).unwrap_err().to_string();
        assert!(refused("{}").contains("assetVersion"));
        assert!(refused(r#"{"assetVersion": "9.0"}"#).contains("to be `2.0`, found `9.0`"));
        assert!(refused("[").contains("is no metadata of an asset"));
        assert_eq!(parse(br#"{"assetVersion": "2.0"}"#).unwrap(), AssetMetadata::default());
    }
}

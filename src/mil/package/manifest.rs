//! `Manifest.json`: which files a package has and which of them is the model.

use std::fmt;
use std::path::{Component, Path};

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::ser::{PrettyFormatter, Serializer};
use xxhash_rust::xxh3::xxh3_128;

use super::error::{ErrorKind, PackageError, Result, quoted};

/// The manifest's file name.
pub(super) const FILE: &str = "Manifest.json";

/// The folder in `Data` that holds the model, and who made all items.
pub(super) const AUTHOR: &str = "com.apple.CoreML";
/// The model's file name.
pub(super) const MODEL: &str = "model.mlmodel";
/// The name of the folder of weights.
pub(super) const WEIGHTS: &str = "weights";

const FORMAT_VERSION: &str = "1.0.0";

/// The largest manifest that is read; real ones have less than a thousandth of it.
const LARGEST: usize = 1 << 20;

/// The list of a package's items.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Manifest {
    file_format_version: String,
    item_info_entries: Items,
    root_model_identifier: String,
}

/// Items by identifier, in file order.
#[derive(Debug)]
struct Items(Vec<(String, Item)>);

/// One item: a file or a folder.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Item {
    author: String,
    description: String,
    name: String,
    /// Where it is, relative to the package's `Data` folder.
    path: String,
}

/// The digest of a package: of its model, and of the digest of its weights.
pub(super) fn content_digest(model: &[u8], weights: u128) -> u128 {
    xxh3_128(model) ^ weights.rotate_left(1)
}

impl Manifest {
    /// Parses and checks a manifest; item paths are relative and stay below where they start.
    pub fn parse(bytes: &[u8]) -> Result<Manifest> {
        fail_if!(bytes.len() > LARGEST, manifest_error("has {} bytes, more than {LARGEST}", bytes.len()));
        let text = std::str::from_utf8(bytes)
            .map_err(|e| manifest_error("is not valid UTF-8").at_offset(e.valid_up_to() as u64))?;
        let manifest: Manifest = serde_json::from_str(text).map_err(|e| manifest_error(e.to_string()))?;
        manifest.check_version()?;
        manifest.check_items()?;
        Ok(manifest)
    }

    /// The manifest of a package with the given model and weights; its identifiers follow from them.
    pub(super) fn of(model: &[u8], weights_digest: u128) -> Manifest {
        let digest = content_digest(model, weights_digest).to_le_bytes();
        let item = |name: &str, description: &str| {
            let path = format!("{AUTHOR}/{name}");
            let item = Item {
                author: AUTHOR.to_owned(),
                description: description.to_owned(),
                name: name.to_owned(),
                path,
            };
            (identifier(xxh3_128(&[&digest, name.as_bytes()].concat())), item)
        };
        let model = item(MODEL, "CoreML Model Specification");
        let root_model_identifier = model.0.clone();
        let mut items = vec![item(WEIGHTS, "CoreML Model Weights"), model];
        items.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        Manifest {
            file_format_version: FORMAT_VERSION.to_owned(),
            item_info_entries: Items(items),
            root_model_identifier,
        }
    }

    /// The manifest as a file, laid out as coremltools does.
    pub fn to_json(&self) -> Result<Vec<u8>> {
        let mut json = Vec::new();
        let layout = PrettyFormatter::with_indent(b"    ");
        self.serialize(&mut Serializer::with_formatter(&mut json, layout))
            .map_err(|e| manifest_error(e.to_string()))?;
        json.push(b'\n');
        Ok(json)
    }

    /// Where the model is, relative to `Data`.
    pub fn model_path(&self) -> &str {
        self.root_item().map_or("", |item| &item.path)
    }

    /// Where every item is, relative to `Data`.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.item_info_entries.0.iter().map(|(_, item)| &*item.path)
    }

    fn root_item(&self) -> Option<&Item> {
        let items = &self.item_info_entries.0;
        items.iter().find(|(id, _)| *id == self.root_model_identifier).map(|(_, item)| item)
    }

    fn check_version(&self) -> Result<()> {
        if self.file_format_version == FORMAT_VERSION {
            return Ok(());
        }
        let found = quoted(&self.file_format_version);
        Err(manifest_error(format!("has fileFormatVersion {found}, supported is `{FORMAT_VERSION}`")))
    }

    fn check_items(&self) -> Result<()> {
        let items = &self.item_info_entries.0;
        let mut ids: Vec<&str> = items.iter().map(|(id, _)| &**id).collect();
        ids.sort_unstable();
        if let Some(pair) = ids.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(manifest_error(format!("item {} occurs twice", quoted(pair[0]))));
        }
        let mut names: Vec<_> = items.iter().map(|(_, item)| (&item.author, &item.name)).collect();
        names.sort_unstable();
        if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            let (author, name) = pair[0];
            let text = format!("two items have the author {} and the name {}", quoted(author), quoted(name));
            return Err(manifest_error(text));
        }
        items.iter().try_for_each(|(_, item)| check_path(&item.path))?;
        if self.root_item().is_none() {
            let root = quoted(&self.root_model_identifier);
            return Err(manifest_error(format!("rootModelIdentifier {root} is not an item")));
        }
        Ok(())
    }
}

/// 128 bits in the form of a UUID (version 8, which leaves their meaning open).
fn identifier(bits: u128) -> String {
    let bits = bits & !(0xf << 76) & !(0x3 << 62) | (0x8 << 76) | (0x2 << 62);
    let hex = format!("{bits:032x}");
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

fn check_path(path: &str) -> Result<()> {
    let wrong =
        |what: &str| Err(PackageError::new(ErrorKind::Path, format!("item path {} {what}", quoted(path))));
    if path.is_empty() || path.contains('\0') {
        return wrong("is not a path");
    }
    for component in Path::new(path).components() {
        match component {
            Component::Normal(_) | Component::CurDir => {}
            Component::ParentDir => return wrong("contains `..`"),
            Component::RootDir | Component::Prefix(_) => return wrong("is absolute"),
        }
    }
    Ok(())
}

fn manifest_error(message: impl Into<String>) -> PackageError {
    PackageError::new(ErrorKind::Manifest, message)
}

impl<'de> Deserialize<'de> for Items {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Items, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Items;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of items")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Items, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = map.next_entry()? {
                    items.push(item);
                }
                Ok(Items(items))
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

impl Serialize for Items {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(id, item)| (id, item)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layout_is_that_of_coremltools_and_follows_from_the_content() {
        let json = Manifest::of(b"model", 7).to_json().unwrap();
        assert_eq!(json, Manifest::of(b"model", 7).to_json().unwrap());
        assert_ne!(json, Manifest::of(b"model", 8).to_json().unwrap());
        assert_ne!(json, Manifest::of(b"other", 7).to_json().unwrap());
        let manifest = Manifest::parse(&json).unwrap();
        assert_eq!(manifest.model_path(), "com.apple.CoreML/model.mlmodel");
        assert_eq!(manifest.paths().count(), 2);

        let text = String::from_utf8(json).unwrap();
        let root = &manifest.root_model_identifier;
        assert!(
            text.starts_with(
                "{\n    \"fileFormatVersion\": \"1.0.0\",\n    \"itemInfoEntries\": {\n        \""
            )
        );
        assert!(text.ends_with(&format!("    }},\n    \"rootModelIdentifier\": \"{root}\"\n}}\n")));
        assert!(text.contains(&format!(
            "        \"{root}\": {{
            \"author\": \"com.apple.CoreML\",
            \"description\": \"CoreML Model Specification\",
            \"name\": \"model.mlmodel\",
            \"path\": \"com.apple.CoreML/model.mlmodel\"
        }}"
        )));
    }
}

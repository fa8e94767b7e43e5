//! Documents that carry the digest of their own bytes.
//!
//! A sealed document is JSON whose first lines are fixed: the schema and then the digest, which covers every byte
//! with zeros in the place of its own digits. So nothing depends on how numbers are written or read.

use std::fmt::Write;

use sha2::{Digest, Sha256};

/// Hexadecimal digits of a digest.
const DIGITS: usize = 64;

/// Bytes as hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // A string takes any text.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn head(schema: &str, digits: &str) -> String {
    format!("{{\n\"schema\": \"{schema}\",\n\"digest\": \"sha256:{digits}\",\n")
}

/// Puts schema and digest before the fields of a JSON object. Gives the document and its digest.
pub(super) fn sealed(schema: &str, object: &str) -> (Vec<u8>, String) {
    let fields = object.trim_start().strip_prefix('{').unwrap_or(object);
    let digits = digest_of(schema, fields.as_bytes());
    let document = head(schema, &digits) + fields;
    (document.into_bytes(), format!("sha256:{digits}"))
}

/// The digest that a sealed document states and the one that it has; none if it does not begin as one.
pub(super) fn digests(schema: &str, document: &[u8]) -> Option<(String, String)> {
    let digits_at = head(schema, "").len() - "\",\n".len();
    let digits = document.get(digits_at..digits_at + DIGITS)?;
    let digits = std::str::from_utf8(digits).ok()?;
    let rest = document.strip_prefix(head(schema, digits).as_bytes())?;
    Some((format!("sha256:{digits}"), format!("sha256:{}", digest_of(schema, rest))))
}

fn digest_of(schema: &str, rest: &[u8]) -> String {
    let mut hash = Sha256::new();
    hash.update(head(schema, &"0".repeat(DIGITS)));
    hash.update(rest);
    hex(&hash.finalize())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SCHEMA: &str = "anemeter.test/1";

    #[test]
    fn a_sealed_document_is_json_and_states_its_digest() {
        let (document, digest) = sealed(SCHEMA, r#"{"a": 0.1}"#);
        let value: serde_json::Value = serde_json::from_slice(&document).unwrap();
        assert_eq!((&value["schema"], &value["digest"]), (&SCHEMA.into(), &digest.as_str().into()));
        assert_eq!(digests(SCHEMA, &document), Some((digest.clone(), digest)));
        assert_eq!(digests("other", &document), None);
        assert_eq!(digests(SCHEMA, b"{}"), None);
    }

    proptest! {
        #[test]
        fn any_changed_byte_is_found(at in any::<prop::sample::Index>(), flip in 1u8..=255) {
            let (mut document, digest) = sealed(SCHEMA, r#"{"samples": [1.25, 2.5, 1e-7], "name": "x"}"#);
            let at = at.index(document.len());
            document[at] ^= flip;
            let found = digests(SCHEMA, &document);
            prop_assert!(found.is_none_or(|(stated, real)| stated != real || stated != digest));
        }
    }
}

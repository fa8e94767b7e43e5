//! The JSON schema of reports, generated from the types.

use super::Report;

/// The schema as a JSON document.
pub fn schema() -> String {
    let schema = schemars::schema_for!(Report);
    let mut text = serde_json::to_string_pretty(&schema).unwrap_or_default();
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/report.schema.json");

    /// Writes the file anew if `ANEMETER_WRITE_SCHEMAS` is set.
    #[test]
    fn the_published_schema_is_current() {
        if std::env::var_os("ANEMETER_WRITE_SCHEMAS").is_some() {
            std::io::Write::write_all(&mut std::fs::File::create(PATH).unwrap(), schema().as_bytes())
                .unwrap();
        }
        let published = std::fs::read_to_string(PATH).unwrap();
        assert!(
            published == schema(),
            "docs/report.schema.json is out of date: set ANEMETER_WRITE_SCHEMAS=1 and test"
        );
    }

    #[test]
    fn the_schema_describes_every_part() {
        let schema: serde_json::Value = serde_json::from_str(&schema()).unwrap();
        let properties = schema["properties"].as_object().unwrap();
        for part in ["header", "launches", "figures", "soak", "residency", "machine"] {
            assert!(properties.contains_key(part), "{part}");
        }
        assert_eq!(schema["additionalProperties"], false);
    }
}

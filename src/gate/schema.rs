//! The JSON schema of verdicts, generated from the types.

use super::Verdict;

/// The schema as a JSON document.
pub fn schema() -> String {
    let schema = schemars::schema_for!(Verdict);
    let mut text = serde_json::to_string_pretty(&schema).unwrap_or_default();
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/verdict.schema.json");

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
            "docs/verdict.schema.json is out of date: set ANEMETER_WRITE_SCHEMAS=1 and test"
        );
    }
}

//! The configuration file that a bundle was exported with: where findings of the bundle are shown.

use std::fs;
use std::path::{Component, Path, PathBuf};

/// More than any configuration takes; a bundle of others may name anything.
const LARGEST: u64 = 16 << 20;

/// The configuration file of an export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportConfig {
    /// Where it is, seen from where the bundle was looked at.
    pub path: String,
    text: String,
}

impl ExportConfig {
    /// The file that a bundle names, if it is there.
    pub(super) fn find(bundle: &Path, named: &str) -> Option<ExportConfig> {
        let path = bundle.join(named);
        let is_usable = |file: fs::Metadata| file.is_file() && file.len() <= LARGEST;
        if !fs::metadata(&path).is_ok_and(is_usable) {
            return None;
        }
        let text = fs::read_to_string(&path).ok()?;
        // Beyond a symbolic link `..` leads elsewhere than it seems.
        let real = path.canonicalize().ok()?;
        let plain = without_detours(&path);
        let plain = if plain.canonicalize().is_ok_and(|other| other == real) { plain } else { real };
        Some(ExportConfig { path: plain.to_str()?.to_owned(), text })
    }

    /// The line of a key, counted from 1; the first if the key is not there.
    pub(super) fn line_of(&self, key: Option<&str>) -> usize {
        let has = |line: &str, key: &str| {
            let quotes = ['\'', '"'];
            let rest = line.trim_start().trim_start_matches(quotes).strip_prefix(key);
            rest.is_some_and(|rest| rest.trim_start_matches(quotes).trim_start().starts_with(':'))
        };
        let found = key.and_then(|key| self.text.lines().position(|line| has(line, key)));
        found.map_or(1, |index| index + 1)
    }
}

/// A path without the parts that `..` takes back.
fn without_detours(path: &Path) -> PathBuf {
    let mut plain: Vec<Component<'_>> = Vec::new();
    for part in path.components() {
        match (part, plain.last()) {
            (Component::ParentDir, Some(Component::Normal(_))) => drop(plain.pop()),
            (Component::CurDir, _) => {}
            _ => plain.push(part),
        }
    }
    plain.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_where_they_are_set() {
        let text =
            "# precision: of all\ncoreml:\n  precision: int8\n  \"kv\" : [io]\n  enumerate_shapes_: 1\n";
        let config = ExportConfig { path: String::new(), text: text.to_owned() };
        assert_eq!(config.line_of(Some("precision")), 3);
        assert_eq!(config.line_of(Some("kv")), 4);
        assert_eq!(config.line_of(Some("enumerate_shapes")), 1);
        assert_eq!(config.line_of(None), 1);
    }

    #[test]
    fn paths_are_shown_without_detours() {
        for (path, plain) in [
            ("exports/model/../../configs/a.yaml", "configs/a.yaml"),
            ("./model/../a.yaml", "a.yaml"),
            ("../model/../../a.yaml", "../../a.yaml"),
            ("/model/../../a.yaml", "/../a.yaml"),
        ] {
            assert_eq!(without_detours(Path::new(path)), Path::new(plain), "{path}");
        }
    }

    #[test]
    fn only_files_of_text_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let bundle = folder.path().join("bundle");
        fs::create_dir(&bundle).unwrap();
        for named in ["../none.yaml", "..", "/dev/zero", ""] {
            assert_eq!(ExportConfig::find(&bundle, named), None, "{named}");
        }
        anemeter_base::atomic::write_file(&folder.path().join("a.yaml"), b"kv: [io]\n").unwrap();
        let found = ExportConfig::find(&bundle, "../a.yaml").unwrap();
        assert_eq!(Path::new(&found.path), folder.path().join("a.yaml"));
    }
}

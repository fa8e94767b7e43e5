//! Bundles that are wrong say how.

use std::fs;
use std::io::Write;

use super::*;
use anemeter_base::advice::Advice;

fn error(folder: &Path) -> (String, String) {
    let error = Bundle::open(folder).unwrap_err();
    (error.to_string(), error.remedy().map(|remedy| remedy.to_string()).unwrap_or_default())
}

#[test]
fn folders_that_are_no_bundle() {
    let folder = tempfile::tempdir().unwrap();
    let (message, help) = error(folder.path());
    assert!(message.ends_with("has no export.json, so it is not a bundle"), "{message}");
    assert!(help.contains("give a package, a folder of packages, or a bundle"), "{help}");
    assert!(error(&folder.path().join("none")).0.ends_with("none: there is no such bundle or package"));
    let file = folder.path().join("model.onnx");
    fs::File::create(&file).unwrap();
    assert!(error(&file).0.ends_with("model.onnx: is neither a bundle nor a package, which are folders"));
}

#[test]
fn descriptions_of_other_versions_or_none() {
    let folder = tempfile::tempdir().unwrap();
    for (text, expected) in [
        ("{", "is not the description of a bundle"),
        (r#"{"schema": "anemeter.export/9"}"#, "this version reads `anemeter.export/1`"),
        (r#"{"schema": "anemeter.export/1"}"#, "missing field"),
    ] {
        fs::File::create(folder.path().join(MANIFEST)).unwrap().write_all(text.as_bytes()).unwrap();
        let (message, _) = error(folder.path());
        assert!(message.contains(expected), "{message}");
    }
}

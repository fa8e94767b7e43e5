//! Damaged and malicious packages: each is refused with one message that says what is wrong, and none panics.

mod compiled;
mod model_rows;

use std::fs;
use std::path::{Path, PathBuf};

use anemeter::advice::Advice;
use anemeter::package::Package;
use anemeter::tensor::Bytes;

use crate::support::command::bounded_inspect;
use crate::support::damage::{
    FIRST, MANIFEST, MODEL, SECOND, WEIGHTS, edit_blob, edit_manifest, edit_weights, good, put,
    replace_by_folder, replace_by_link,
};
use model_rows::MODEL_ROWS;

/// What looking at a hostile package may take: the largest is 8 MiB, and reading takes at most 32 times that. Address
/// space counts the code of the program too, 45 MB where it is not optimised.
const MEMORY_LIMIT: u64 = 345 << 20;

/// What it is, how a good package becomes it, and a part of the message.
type Row = (&'static str, fn(&Path), &'static str);

const MANIFEST_ROWS: &[Row] = &[
    ("no manifest", |p| fs::remove_file(p.join(MANIFEST)).unwrap(), "has no Manifest.json"),
    ("empty manifest", |p| put(&p.join(MANIFEST), b""), "Manifest.json: EOF while parsing"),
    ("manifest is a folder", |p| replace_by_folder(&p.join(MANIFEST)), "is a folder, expected a file"),
    (
        "manifest leads out",
        |p| replace_by_link(&p.join(MANIFEST), Path::new("/etc/hostname")),
        "leads outside",
    ),
    ("manifest not UTF-8", |p| put(&p.join(MANIFEST), b"{\"\xff\":1}"), "is not valid UTF-8"),
    ("manifest nested", |p| put(&p.join(MANIFEST), "[".repeat(100_000).as_bytes()), "invalid type"),
    ("manifest huge", |p| put(&p.join(MANIFEST), &vec![b' '; 2 << 20]), "more than 1048576"),
];

/// What it is, a part of a good manifest, what stands there in its place, and a part of the message.
const MANIFEST_EDITS: &[(&str, &str, &str, &str)] = &[
    ("version", "1.0.0", "1.1.0", "has fileFormatVersion `1.1.0`"),
    ("missing key", r#""author": "com.apple.CoreML","#, "", "missing field `author`"),
    ("extra key", r#""author""#, r#""size": "1", "author""#, "unknown field `size`"),
    ("repeated key", r#""author""#, r#""name": "n", "author""#, "duplicate field `name`"),
    ("same name twice", r#""name": "weights""#, r#""name": "model.mlmodel""#, "two items have the author"),
    ("unknown root", r#"rootModelIdentifier": ""#, r#"rootModelIdentifier": "x"#, "is not an item"),
    ("path up", "com.apple.CoreML/model.mlmodel", "../model.mlmodel", "contains `..`"),
    ("path up inside", "CoreML/weights", "CoreML/../com.apple.CoreML/weights", "contains `..`"),
    ("absolute path", "com.apple.CoreML/model.mlmodel", "/etc/passwd", "`/etc/passwd` is absolute"),
    ("missing item", "com.apple.CoreML/weights", "com.apple.CoreML/elsewhere", "elsewhere: does not exist"),
    ("newline in a path", ".CoreML/weights", r"\n/weights", r"com.apple\n/weights: does not exist"),
];

const WEIGHT_ROWS: &[Row] = &[
    ("no weights", |p| fs::remove_file(p.join(WEIGHTS)).unwrap(), "weight.bin: "),
    ("weights are a folder", |p| replace_by_folder(&p.join(WEIGHTS)), "weight.bin: "),
    (
        "weights lead out",
        |p| replace_by_link(&p.join(WEIGHTS), Path::new("/etc/hostname")),
        "leads outside the package",
    ),
    ("empty weights", |p| put(&p.join(WEIGHTS), b""), "has 0 bytes, too few for the 64-byte header"),
    ("weight version", |p| edit_weights(p, |b| b[4] = 1), "has format version 1, supported is 2"),
    ("count", |p| edit_weights(p, |b| b[0] = 1), "header announces 1 blobs, the program refers to 2"),
    ("reserved header", |p| edit_weights(p, |b| b[40] = 1), "reserved part of its header"),
    ("sentinel", |p| edit_weights(p, |b| b[FIRST] = 0), "starts with 0xdeadbe00, not 0xdeadbeef"),
    ("dtype code", |p| edit_weights(p, |b| b[FIRST + 4] = 99), "the unknown data type code 99"),
    (
        "other dtype",
        |p| edit_weights(p, |b| b[FIRST + 4] = 14),
        "blob holds int32, the program declares tensor<fp32, [2, 3]>",
    ),
    (
        "size",
        |p| edit_weights(p, |b| b[FIRST + 8] = 20),
        "blob has 20 bytes, the program declares tensor<fp32, [2, 3]>",
    ),
    ("size past the end", |p| edit_weights(p, |b| b[FIRST + 11] = 1), "does not fit the file of 259 bytes"),
    ("size overflows", |p| edit_weights(p, |b| b[FIRST + 8..FIRST + 16].fill(0xff)), "does not fit the file"),
    ("data past the end", |p| edit_weights(p, |b| b[FIRST + 18] = 1), "does not fit the file of 259 bytes"),
    (
        "data overflows",
        |p| edit_weights(p, |b| b[FIRST + 16..FIRST + 24].copy_from_slice(&(u64::MAX - 63).to_le_bytes())),
        "does not fit the file",
    ),
    (
        "data misaligned",
        |p| edit_weights(p, |b| b[FIRST + 16] = 130),
        "blob data at byte 130 is not aligned to 64",
    ),
    ("data in the header", |p| edit_weights(p, |b| b[FIRST + 16] = 0), "is not aligned to 64"),
    (
        "overlap",
        |p| edit_weights(p, |b| b[FIRST + 16] = SECOND as u8),
        "the blobs at bytes 64 and 192 overlap",
    ),
    (
        "padding",
        |p| edit_weights(p, |b| b[SECOND + 24] = 3),
        "blob has 3 padding bits, tensor<int4, [5]> leaves 4",
    ),
    ("reserved record", |p| edit_weights(p, |b| b[SECOND + 40] = 1), "reserved part"),
    (
        "offset past the end",
        |p| edit_blob(p, |b| b.offset = 1 << 20),
        "blob offset lies outside the file of 259 bytes (at byte 1048576)",
    ),
    ("offset at the end", |p| edit_blob(p, |b| b.offset = 256), "blob offset lies outside the file"),
    ("offset overflows", |p| edit_blob(p, |b| b.offset = u64::MAX - 63), "blob offset lies outside the file"),
    ("offset misaligned", |p| edit_blob(p, |b| b.offset = 65), "must be a multiple of 64 behind the header"),
    (
        "offset in the header",
        |p| edit_blob(p, |b| b.offset = 0),
        "must be a multiple of 64 behind the header",
    ),
    ("offset of other data", |p| edit_blob(p, |b| b.offset = SECOND as u64), "blob holds int4"),
    ("offset of no record", |p| edit_blob(p, |b| b.offset = 128), "starts with"),
    (
        "file up",
        |p| edit_blob(p, |b| b.file_name = "@model_path/weights/../../x".to_owned()),
        "is not a file directly in @model_path/weights/",
    ),
    (
        "file absolute",
        |p| edit_blob(p, |b| b.file_name = "/etc/passwd".to_owned()),
        "`/etc/passwd` is not a file directly in",
    ),
    (
        "file nameless",
        |p| edit_blob(p, |b| b.file_name = "@model_path/weights/".to_owned()),
        "is not a file directly in",
    ),
    (
        "file of another name",
        |p| edit_blob(p, |b| b.file_name = "@model_path/weights/other.bin".to_owned()),
        "other.bin: function `main`: op 0 `const`: `val`: does not exist",
    ),
];

/// Damages a good package and looks at the message.
fn refused(name: &str, damage: impl Fn(&Path), expected: &str) {
    let folder = tempfile::tempdir().unwrap();
    let package = good(folder.path());
    Package::open(&package).unwrap();
    damage(&package);
    let error = match Package::open(&package) {
        Ok(_) => panic!("{name}: was accepted"),
        Err(error) => error.to_string(),
    };
    assert!(error.contains(expected), "{name}: {error}");
    assert!(!error.contains(char::is_control) && !error.ends_with('.'), "{name}: {error}");
    assert!(error.len() < 1000, "{name}: {} bytes of message", error.len());
    assert!(bounded_inspect(&package, MEMORY_LIMIT).refused().contains(expected), "{name}");
}

/// coremltools before 8 wrote whatever was in memory to the padding and reserved fields of a blob record.
#[test]
fn fields_that_coremltools_7_left_uninitialised_are_ignored() {
    let folder = tempfile::tempdir().unwrap();
    let package = good(folder.path());
    let model = Package::open(&package).unwrap().model().clone();
    edit_weights(&package, |b| b[FIRST + 24..FIRST + 64].fill(0x5a));
    assert_eq!(*Package::open(&package).unwrap().model(), model);
}

#[test]
fn pointers_of_git_lfs_are_called_so() {
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 259\n";
    for file in [WEIGHTS, MODEL] {
        let put_pointer = |package: &Path| put(&package.join(file), pointer.as_bytes());
        refused(file, put_pointer, "is a Git LFS pointer, not the file itself");
    }
}

#[test]
fn hostile_packages_are_refused_by_name() {
    for &(name, damage, expected) in [MANIFEST_ROWS, MODEL_ROWS, WEIGHT_ROWS].into_iter().flatten() {
        refused(name, damage, expected);
    }
    for &(name, from, to, expected) in MANIFEST_EDITS {
        refused(name, |package| edit_manifest(package, |text| text.replacen(from, to, 1)), expected);
    }
}

#[test]
fn things_that_are_no_packages_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::create_dir(path("empty.mlpackage")).unwrap();
    fs::create_dir(path("compiled.mlmodelc")).unwrap();
    put(&path("old.mlmodel"), b"");
    let cases = [
        ("none.mlpackage", "cannot open the package", None),
        ("empty.mlpackage", "has no Manifest.json", None),
        ("compiled.mlmodelc", "compiled.mlmodelc/coremldata.bin: does not exist", None),
        ("old.mlmodel", "is a file; a package is a folder", Some("re-convert")),
    ];
    for (name, expected, help) in cases {
        let error = Package::open(path(name)).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        let remedy = error.remedy().map(|remedy| remedy.to_string());
        assert_eq!(remedy.is_some(), help.is_some());
        assert!(remedy.unwrap_or_default().contains(help.unwrap_or_default()));
    }
}

/// Git keeps no empty folders, and coremltools writes a folder of weights for every package.
#[test]
fn a_folder_of_weights_is_needed_only_if_a_constant_is_in_it() {
    use anemeter::mil::{Builder, Model, Opset, TensorType};
    use anemeter::tensor::DType;
    let mut main = Builder::new("main", Opset::Ios18);
    let x = main.input("x", TensorType::fixed(DType::F16, &[2]));
    let y = main.op("relu").arg("x", x).named("y").push().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let model = Model::single(main.finish(&[y]));
    let package = crate::support::fixtures::write(model, folder.path(), "relu.mlpackage");
    let weights = package.join("Data/com.apple.CoreML/weights");
    if weights.exists() {
        fs::remove_dir_all(&weights).unwrap();
    }
    Package::open(&package).unwrap();
    let package = good(folder.path());
    fs::remove_dir_all(package.join("Data/com.apple.CoreML/weights")).unwrap();
    let error = Package::open(&package).unwrap_err().to_string();
    assert!(error.contains("weight.bin: ") && error.contains("does not exist"), "{error}");
}

/// The files of the tiny package in memory.
struct Parts([(PathBuf, Vec<u8>); 3]);

impl Parts {
    fn good() -> Parts {
        let folder = tempfile::tempdir().unwrap();
        let package = good(folder.path());
        Parts([MANIFEST, MODEL, WEIGHTS].map(|name| (name.into(), fs::read(package.join(name)).unwrap())))
    }

    /// Whether the package opens with one of its parts changed; a refusal must be one printable message.
    fn opens_with(&self, part: usize, changed: &[u8]) -> bool {
        let files = self.0.iter().enumerate().map(|(index, (path, bytes))| {
            let bytes = if index == part { changed } else { bytes };
            (path.clone(), Bytes::from(bytes.to_vec()))
        });
        match Package::from_files(files) {
            Ok(_) => true,
            Err(error) => {
                let text = error.to_string();
                assert!(!text.is_empty() && !text.contains(char::is_control), "{text:?}");
                false
            }
        }
    }
}

#[test]
fn files_cut_anywhere_are_refused() {
    let parts = Parts::good();
    for (part, (path, bytes)) in parts.0.iter().enumerate() {
        assert!(parts.opens_with(part, bytes));
        let whole = bytes.trim_ascii_end().len();
        for len in 0..whole {
            assert!(!parts.opens_with(part, &bytes[..len]), "{} cut to {len} bytes", path.display());
        }
    }
}

#[test]
fn flipped_bits_never_panic() {
    let parts = Parts::good();
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    };
    for (part, (_, bytes)) in parts.0.iter().enumerate() {
        for flips in 1..=800usize {
            let mut changed = bytes.clone();
            for _ in 0..flips.div_ceil(200) {
                changed[random(bytes.len())] ^= 1 << random(8);
            }
            parts.opens_with(part, &changed);
        }
    }
}

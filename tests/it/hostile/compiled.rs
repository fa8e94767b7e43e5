//! What can be wrong with a compiled model.

use std::fs;
use std::path::{Path, PathBuf};

use anemeter::package::Package;
use anemeter::tensor::Bytes;

use super::MEMORY_LIMIT;
use crate::support::command::bounded_inspect;
use crate::support::compile::{Dialect, frame};
use crate::support::damage::{FIRST, good, put, replace_by_folder, replace_by_link};
use crate::support::mlmodelc::{COMPILED_WEIGHTS, DESCRIPTION, TEXT, compiled};

/// What it is, how a good compiled model becomes it, and a part of the message.
type Row = (&'static str, fn(&Path), &'static str);

const ROWS: &[Row] = &[
    ("no text", |p| fs::remove_file(p.join(TEXT)).unwrap(), "model.mil: does not exist"),
    ("text is a folder", |p| replace_by_folder(&p.join(TEXT)), "model.mil: is a folder, expected a file"),
    (
        "text leads out",
        |p| replace_by_link(&p.join(TEXT), Path::new("/dev/zero")),
        "leads outside the package",
    ),
    (
        "empty text",
        |p| put(&p.join(TEXT), b""),
        "model.mil: expected `program`, found the end of the text (line 1, column 1)",
    ),
    (
        "not UTF-8",
        |p| put(&p.join(TEXT), b"program(1.0)\n\xff"),
        "model.mil: is not valid UTF-8 (line 2, column 1)",
    ),
    (
        "a string without end",
        |p| put(&p.join(TEXT), b"program(1.0)[a = string(\"b"),
        "a string does not end (line 1, column 25)",
    ),
    (
        "control characters",
        |p| put(&p.join(TEXT), b"program(\x1b[31m"),
        r"the character `\u{1b}` has no place",
    ),
    (
        "deep types",
        |p| put_value(p, &format!("{}int8", "list<".repeat(100_000))),
        "types nest deeper than 64 levels",
    ),
    ("deep blocks", |p| put_body(p, &"cond(){".repeat(100_000)), "blocks nest deeper than 64 levels"),
    (
        "high rank",
        |p| put_value(p, &format!("tensor<int8, [{}]>(1)", "1,".repeat(100_000))),
        "more than the 64 dimensions",
    ),
    (
        "claimed size",
        |p| put_value(p, "tensor<fp32, [99999999999]>([])"),
        "has 0 elements where 99999999999 are needed",
    ),
    (
        "repeated type",
        |p| {
            let ty = format!("list<list<tuple<{}>, ?>, ?>", vec!["int8"; 1 << 17].join(","));
            put_value(p, &format!("{ty}([{}])", vec!["[]"; 1 << 17].join(",")));
        },
        "constants repeat larger types than the text is long",
    ),
    (
        "many statements",
        |p| put_body(p, &"a();".repeat(1 << 18)),
        "expected an operation or `}`, found the end of the text",
    ),
    (
        "many arguments",
        |p| put_body(p, &format!("a({}", "b=int8(1),".repeat(1 << 17))),
        "expected the name of a parameter",
    ),
    (
        "many functions",
        |p| {
            put(
                &p.join(TEXT),
                format!(
                    "program(1.0){{{}",
                    (0..1 << 15).map(|i| format!("func f{i}<ios15>(){{}}->();")).collect::<String>()
                )
                .as_bytes(),
            );
        },
        "expected `func`, found the end",
    ),
    (
        "weight offset",
        |p| edit_text(p, "uint64(64)", "uint64(65)"),
        "must be a multiple of 64 behind the header (at byte 65)",
    ),
    (
        "weight file up",
        |p| edit_text(p, "weights/weight.bin", "weights/../../x"),
        "is not a file directly in @model_path/weights/",
    ),
    (
        "weight type",
        |p| edit_text(p, "tensor<fp32, [2, 3]>(BLOB", "tensor<fp16, [2, 3]>(BLOB"),
        "blob holds fp32, the program declares tensor<fp16",
    ),
    (
        "no weights",
        |p| fs::remove_file(p.join(COMPILED_WEIGHTS)).unwrap(),
        "weight.bin: function `main`: op 0 `const`: `val`: does not exist",
    ),
    (
        "weights damaged",
        |p| edit(p, COMPILED_WEIGHTS, |b| b[FIRST] = 0),
        "starts with 0xdeadbe00, not 0xdeadbeef",
    ),
    ("no description", |p| fs::remove_file(p.join(DESCRIPTION)).unwrap(), "coremldata.bin: does not exist"),
    (
        "empty description",
        |p| put(&p.join(DESCRIPTION), b""),
        "coremldata.bin: its kind takes 4 bytes where 0 are left (at byte 0)",
    ),
    (
        "unknown kind",
        |p| edit(p, DESCRIPTION, |b| b[0] = 1),
        "is a model of the unknown kind 257 (at byte 0)",
    ),
    (
        "long name",
        |p| edit(p, DESCRIPTION, |b| b[28] = 65),
        "has a name of 65 bytes where at most 64 are expected (at byte 28)",
    ),
    ("old", |p| edit(p, DESCRIPTION, |b| b[43] = 5), "has specification version 5; supported are 6 to 10"),
    ("claimed description", |p| edit(p, DESCRIPTION, |b| b[82] = 0xff), "the description takes "),
    ("other description", |p| put(&p.join(DESCRIPTION), &frame(502, 9, b"\x0a\x01\x07")), "coremldata.bin: "),
    (
        "no inputs described",
        |p| put(&p.join(DESCRIPTION), &frame(502, 9, b"\xaa\x01\x01x")),
        "names the default function `x` but describes none",
    ),
    (
        "Git LFS",
        |p| put(&p.join(TEXT), b"version https://git-lfs.github.com/spec/v1\n"),
        "is a Git LFS pointer",
    ),
];

fn edit(path: &Path, file: &str, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(path.join(file)).unwrap();
    change(&mut bytes);
    put(&path.join(file), &bytes);
}

fn edit_text(path: &Path, from: &str, to: &str) {
    let text = fs::read_to_string(path.join(TEXT)).unwrap();
    assert!(text.contains(from), "{from}");
    put(&path.join(TEXT), text.replacen(from, to, 1).as_bytes());
}

fn put_body(path: &Path, body: &str) {
    put(&path.join(TEXT), format!("program(1.0) {{ func main<ios18>() {{ {body}").as_bytes());
}

fn put_value(path: &Path, value: &str) {
    put_body(path, &format!("int8 a = const()[val = {value}"));
}

fn tiny(folder: &Path) -> PathBuf {
    compiled(&good(folder), Dialect::Scalars)
}

#[test]
fn hostile_compiled_models_are_refused_by_name() {
    for &(name, damage, expected) in ROWS {
        let folder = tempfile::tempdir().unwrap();
        let path = tiny(folder.path());
        Package::open(&path).unwrap();
        damage(&path);
        let error = match Package::open(&path) {
            Ok(_) => panic!("{name}: was accepted"),
            Err(error) => error.to_string(),
        };
        assert!(error.contains(expected), "{name}: {error}");
        assert!(!error.contains(char::is_control) && !error.ends_with('.'), "{name}: {error}");
        assert!(error.len() < 1000, "{name}: {} bytes of message", error.len());
        assert!(bounded_inspect(&path, MEMORY_LIMIT).refused().contains(expected), "{name}");
    }
}

/// Whether a compiled model opens with one of its files changed; a refusal must be one printable message.
fn opens(files: &[(PathBuf, Vec<u8>)], changed: usize, bytes: &[u8]) -> bool {
    let files = files.iter().enumerate().map(|(index, (path, good))| {
        let bytes = if index == changed { bytes } else { good };
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

#[test]
fn compiled_files_that_are_cut_or_flipped_never_panic() {
    let folder = tempfile::tempdir().unwrap();
    let path = tiny(folder.path());
    let files = [DESCRIPTION, TEXT, COMPILED_WEIGHTS]
        .map(|name| (PathBuf::from(name), fs::read(path.join(name)).unwrap()));
    // The last 16 bytes of the description are behind all that is read.
    let needed = [files[0].1.len() - 16, files[1].1.trim_ascii_end().len(), files[2].1.len()];
    for (part, (name, bytes)) in files.iter().enumerate() {
        assert!(opens(&files, part, bytes));
        for len in 0..needed[part] {
            assert!(!opens(&files, part, &bytes[..len]), "{} cut to {len} bytes", name.display());
        }
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << (at % 8);
            opens(&files, part, &flipped);
        }
    }
}

//! A writer that is killed leaves the old package, the new one or none, but never half of one.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anemeter::advice::Advice;
use anemeter::mil::verify::{Verified, verify, verify_rewritten};
use anemeter::mil::{Function, Literal, Model, Operation};
use anemeter::package::{Package, WriteOptions, write};
use anemeter::tensor::Tensor;

use crate::support::tiny;

/// Tells the test binary to be the writer, and where to write.
const WRITE_TO: &str = "ANEMETER_TEST_WRITE_TO";
const OVERWRITE: WriteOptions = WriteOptions { overwrite: true, staged: false };

fn verified() -> Verified {
    verify(tiny::model()).unwrap()
}

/// The tiny model with weights that take a while to write.
fn model(seed: u32) -> Model {
    let mut model = tiny::model();
    let function: &mut Function = &mut model.program.functions[0];
    let values: Vec<u32> = (0..1 << 20).map(|i: u32| i.wrapping_mul(seed | 1)).collect();
    for index in 0..4 {
        let weight = Literal::blob(&Tensor::from_slice(&[1 << 20], &values).unwrap());
        let id = function.add_value(&format!("large_{index}"), weight.ty.clone());
        let attributes = vec![("val".to_owned(), weight)];
        let kind = "const".to_owned();
        function.body.operations.push(Operation {
            kind,
            outputs: vec![id],
            attributes,
            ..Operation::default()
        });
    }
    model
}

/// Not a test of its own: the writer that the test below starts and kills.
#[test]
fn writer_child() {
    let Ok(path) = std::env::var(WRITE_TO) else { return };
    for seed in 0.. {
        write(&verify(model(seed)).unwrap(), &path, OVERWRITE).unwrap();
    }
}

fn hidden(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with('.')).collect()
}

#[test]
fn killed_writers_leave_whole_packages_or_none() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("killed.mlpackage");
    let (mut leftovers, mut whole) = (0, 0);
    for round in 0..50u64 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "atomic::writer_child", "--nocapture"])
            .env(WRITE_TO, &path)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(20 + round * 7919 % 180));
        child.kill().unwrap();
        child.wait().unwrap();
        leftovers += usize::from(!hidden(folder.path()).is_empty());
        if path.symlink_metadata().is_ok() {
            Package::open(&path).unwrap();
            whole += 1;
        }
    }
    assert!(leftovers > 0 && whole > 0, "{leftovers} rounds left something, {whole} a package");
    write(&verified(), &path, OVERWRITE).unwrap();
    assert_eq!(hidden(folder.path()), Vec::<PathBuf>::new());
    assert_eq!(Package::open(&path).unwrap().model(), &tiny::model());
}

#[test]
fn only_packages_are_replaced_and_only_on_request() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.mlpackage");
    write(&verified(), &path, WriteOptions::default()).unwrap();
    let refused = write(&verified(), &path, WriteOptions::default()).unwrap_err();
    assert!(refused.to_string().ends_with("a.mlpackage: already exists"), "{refused}");
    assert!(refused.remedy().is_some());
    write(&verified(), &path, OVERWRITE).unwrap();

    let precious = folder.path().join("precious");
    fs::create_dir(&precious).unwrap();
    fs::File::create(precious.join("thesis.txt")).unwrap();
    let refused = write(&verified(), &precious, OVERWRITE).unwrap_err();
    assert!(refused.to_string().contains("is not a Core ML package"), "{refused}");
    assert!(precious.join("thesis.txt").exists());
}

#[test]
fn failed_writes_leave_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bad.mlpackage");
    let mut model = tiny::model();
    model.program.functions[0].body.operations.swap(0, 5);
    let kept = verify_rewritten(&model, model.clone()).unwrap();
    let error = write(&kept, &path, WriteOptions::default()).unwrap_err();
    assert!(error.to_string().contains("value `flag` is not defined before its use"), "{error}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    let nowhere = folder.path().join("no/where.mlpackage");
    assert!(write(&verified(), nowhere, WriteOptions::default()).is_err());
}

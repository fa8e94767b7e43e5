//! Nothing that is there already is lost: measurements, bundles, checkpoints, devices.

use std::fs;

use crate::support::checkpoints::write_text;
use crate::support::command::{anemeter, arg, names};
use crate::support::fixtures::MIXED_WORKLOAD;
use crate::support::scene::Scene;

#[test]
fn a_bundle_with_something_else_in_it_is_not_replaced() {
    let scene = Scene::new();
    scene.export("out", &["--shapes", "16"]).good();
    for (name, expected) in [
        ("out/notes.txt", "out/notes.txt: is not from an export"),
        ("out/model.mlpackage/notes.txt", "out/model.mlpackage/notes.txt: is not from an export"),
    ] {
        write_text(&scene.path(name), "mine");
        let message = scene.export("out", &["--shapes", "32", "--overwrite"]).complaint();
        assert!(message.contains(expected), "{message}");
        assert_eq!(fs::read_to_string(scene.path(name)).unwrap(), "mine");
        fs::remove_file(scene.path(name)).unwrap();
    }
    write_text(&scene.path("out/verify.json"), "{}");
    scene.export("out", &["--shapes", "32", "--overwrite"]).good();
}

#[test]
fn a_folder_with_any_export_json_is_no_bundle() {
    let scene = Scene::new();
    fs::create_dir(scene.path("mine")).unwrap();
    write_text(&scene.path("mine/export.json"), "{}");
    let message = scene.export("mine", &["--shapes", "16", "--overwrite"]).complaint();
    assert!(message.contains("holds something else, so it is not replaced"), "{message}");
    assert_eq!(fs::read_to_string(scene.path("mine/export.json")).unwrap(), "{}");
}

#[test]
fn a_checkpoint_is_never_exported_over_itself() {
    let scene = Scene::new();
    let checkpoint = scene.path("tiny");
    for (output, expected) in [
        (checkpoint.clone(), "is the checkpoint itself"),
        (checkpoint.join("bundle"), "is inside the checkpoint"),
        (checkpoint.parent().unwrap().to_owned(), "is a folder that holds the checkpoint"),
    ] {
        let args = ["export", arg(&checkpoint), "-o", arg(&output), "--shapes", "16", "--overwrite"];
        let message = anemeter(&args).complaint();
        assert!(message.contains(expected), "{message}");
        assert!(checkpoint.join("config.json").is_file());
    }
    #[cfg(unix)]
    for (name, target, expected) in
        [("same", "", "is the checkpoint itself"), ("inside", "bundle", "is inside the checkpoint")]
    {
        let link = scene.path(name);
        std::os::unix::fs::symlink(checkpoint.join(target), &link).unwrap();
        let args = ["export", arg(&checkpoint), "-o", arg(&link), "--shapes", "16", "--overwrite"];
        let message = anemeter(&args).complaint();
        assert!(message.contains(expected), "through a link: {message}");
        assert!(checkpoint.join("config.json").is_file());
    }
}

#[test]
fn an_export_that_cannot_be_read_back_replaces_nothing() {
    let scene = Scene::new();
    scene.export("out", &["--shapes", "16"]).good();
    let before = fs::read(scene.path("out/export.json")).unwrap();
    let config = scene.path("tiny/config.json");
    let text = fs::read_to_string(&config).unwrap();
    let mut json: serde_json::Value = serde_json::from_str(&text).unwrap();
    // Its frequencies are infinite, which JSON has no number for.
    json["rope_theta"] = 1e-320.into();
    write_text(&config, &json.to_string());
    let message = scene.export("out", &["--shapes", "16", "--overwrite"]).complaint();
    assert!(!message.is_empty());
    assert_eq!(fs::read(scene.path("out/export.json")).unwrap(), before);
    assert_eq!(names(scene.folder()), ["out", "tiny"]);
}

#[test]
fn folders_on_the_way_to_a_bundle_are_made() {
    let scene = Scene::new();
    scene.export("a/b/bundle", &["--shapes", "16"]).good();
    assert!(scene.path("a/b/bundle/export.json").is_file());
}

#[test]
fn a_package_with_something_else_in_it_is_not_replaced() {
    let scene = Scene::new();
    scene.export("out", &["--shapes", "16"]).good();
    let (package, small) = (scene.path("out/model.mlpackage"), scene.path("small.mlpackage"));
    let compress = ["compress", arg(&package), "-o", arg(&small), "--precision", "int8", "--overwrite"];
    anemeter(&compress).good();
    write_text(&small.join("notes.txt"), "mine");
    let message = anemeter(&compress).complaint();
    assert!(message.contains("holds") && message.contains("notes.txt"), "{message}");
    assert_eq!(fs::read_to_string(small.join("notes.txt")).unwrap(), "mine");
}

#[test]
fn a_measurement_is_replaced_only_by_force() {
    let scene = Scene::new();
    scene.export("bundle", &["--shapes", "16,32"]).good();
    write_text(&scene.path("bench.yaml"), MIXED_WORKLOAD);
    let (bundle, workload, out) = (scene.path("bundle"), scene.path("bench.yaml"), scene.path("out"));
    let bench = ["bench", arg(&bundle), "--workload", arg(&workload), "-o", arg(&out), "--runtime", "cpu"];
    anemeter(&bench).good();
    let file = scene.path("out/report.json");
    let measured = fs::read(&file).unwrap();
    let kept = || assert_eq!(fs::read(&file).unwrap(), measured);

    let message = anemeter(&bench).complaint();
    assert!(message.contains("out/report.json: holds a measurement"), "{message}");
    assert!(message.contains("help: choose another path, or replace it: --force"), "{message}");
    kept();
    for format in ["json", "html", "csv"] {
        let message = anemeter(&["report", arg(&out), "--format", format, "-o", arg(&file)]).complaint();
        assert!(message.contains("holds a measurement"), "{message}");
        kept();
    }
    let page = scene.path("page.html");
    for _ in 0..2 {
        anemeter(&["report", arg(&out), "--format", "html", "-o", arg(&page)]).good();
    }
    anemeter(&["report", arg(&out), "--format", "md", "-o", "/dev/null"]).good();
    assert!(!fs::metadata("/dev/null").unwrap().is_file());
    // A pipe, which is a link that names no path.
    let piped = anemeter(&["report", arg(&out), "--format", "md", "-o", "/dev/stdout"]);
    assert!(piped.good().starts_with("# "), "{}", piped.stdout);
    anemeter(&[&bench[..], &["--force"]].concat()).good();
    assert_ne!(fs::read(&file).unwrap(), measured);
}

#[cfg(unix)]
#[test]
fn a_verification_that_cannot_be_recorded_is_not_silent() {
    let scene = Scene::new();
    scene.export("bundle", &["--shapes", "16"]).good();
    let (bundle, checkpoint) = (scene.path("bundle"), scene.path("tiny"));
    // A folder in the place of the record keeps it from being written, for root too.
    fs::create_dir(scene.path("bundle/verify.json")).unwrap();
    let verify = ["verify", arg(&bundle), "--checkpoint", arg(&checkpoint), "--tokens", "4"];
    let outcome = anemeter(&verify);
    assert_eq!(outcome.code, 2, "{}", outcome.stderr);
    assert!(outcome.stderr.contains("verify.json: cannot be written"), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("--no-record"), "{}", outcome.stderr);
    anemeter(&[&verify[..], &["--no-record"]].concat()).good();
}

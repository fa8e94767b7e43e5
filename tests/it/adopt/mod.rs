//! Packages that others made: adopted, measured, gated and compared, hostile ones among them.

mod hostile;

use std::fs;

use anemeter::bundle::{Bundle, Origin};
use anemeter::mil::{ColorSpace, Model};
use anemeter::package::Package;
use anemeter::runtime::{LoadOptions, Runtime, cpu};
use anemeter::tensor::Tensor;
use serde_json::Value;

use crate::schema::assert_valid;
use crate::support::checkpoints::write_text;
use crate::support::command::{Outcome, json, program, run};
use crate::support::fixtures::{accumulator, enumerated_mlp};
use crate::support::packages::{
    convolutions, of_images, pixels, write, write_pixels, write_samples, write_values,
};
use crate::support::scene::Scene;

/// Little work for a launch of a package.
const WORKLOAD: &str = "schema: anemeter.bench/1
prompts: { source: built-in }
generated_tokens: 4
launches: 2
requests_per_seq_len: 5
warm_up_rounds: 1
seed: 5
cool_down_s: 0
launch_limit_s: 120
predict: { predictions_per_case: 12 }
";

/// A scene with `resnet.mlpackage` and a workload.
fn scene() -> Scene {
    let scene = Scene::empty();
    write(&scene.path("resnet.mlpackage"), Model::single(convolutions("main", 16, 2)));
    write_text(&scene.path("bench.yaml"), WORKLOAD);
    scene
}

impl Scene {
    fn run(&self, args: &[&str]) -> Outcome {
        let mut program = program();
        // A repository around the temporary folder is none of the test's.
        let above = self.folder().parent().unwrap().to_owned();
        run(program.args(args).current_dir(self.folder()).env("GIT_CEILING_DIRECTORIES", above))
    }

    fn measured(&self, what: &str, args: &[&str]) -> Outcome {
        let fixed =
            ["bench", what, "--workload", "bench.yaml", "--runtime", "cpu", "--out", "out", "--force"];
        self.run(&[&fixed, args].concat())
    }
}

fn refused(outcome: &Outcome) -> &str {
    assert_eq!(outcome.code, 2, "{}{}", outcome.stdout, outcome.stderr);
    assert!(!outcome.stderr.contains("panicked"), "{}", outcome.stderr);
    &outcome.stderr
}

#[test]
fn a_bundle_is_written_around_packages_and_they_stay_as_they_are() {
    let scene = scene();
    let before = fs::read(scene.path("resnet.mlpackage/Manifest.json")).unwrap();
    let printed = scene.run(&["adopt", "resnet.mlpackage", "-o", "deep/bundle", "--name", "resnet18"]);
    assert!(printed.good().contains("wrote deep/bundle"), "{}", printed.stdout);
    let bundle = Bundle::open(scene.path("deep/bundle")).unwrap();
    let manifest = bundle.manifest();
    assert_eq!((manifest.origin, manifest.name.as_str()), (Origin::Adopted, "resnet18"));
    assert!(manifest.chunks[0].file.digest.starts_with("xxh3:") && manifest.exported().is_none());
    let document = json(&scene.path("deep/bundle/export.json"));
    assert_eq!((&document["origin"], &document["architecture"]), (&Value::from("adopted"), &Value::Null));
    assert_valid("export", &document);
    assert_eq!(fs::read(scene.path("resnet.mlpackage/Manifest.json")).unwrap(), before);
    let opened = Bundle::open_any(scene.path("resnet.mlpackage")).unwrap();
    assert_eq!(opened.manifest().chunks, manifest.chunks, "what is adopted in memory is the same");
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let inode = |path: &str| fs::metadata(scene.path(path)).unwrap().ino();
        let (a, b) = ("resnet.mlpackage/Manifest.json", "deep/bundle/resnet.mlpackage/Manifest.json");
        assert_eq!(inode(a), inode(b), "files are linked where they can be");
    }
}

#[test]
fn nothing_but_a_bundle_is_replaced() {
    let scene = scene();
    scene.run(&["adopt", "resnet.mlpackage", "-o", "bundle"]).good();
    let again = scene.run(&["adopt", "resnet.mlpackage", "-o", "bundle"]);
    assert!(refused(&again).contains("holds a bundle already"), "{}", again.stderr);
    scene.run(&["adopt", "resnet.mlpackage", "-o", "bundle", "--overwrite"]).good();
    write_text(&scene.path("bundle/notes.txt"), "mine");
    let foreign = scene.run(&["adopt", "resnet.mlpackage", "-o", "bundle", "--overwrite"]);
    assert!(refused(&foreign).contains("notes.txt"), "{}", foreign.stderr);
    // A folder of packages is a bundle to those who measure, and none to those who write.
    fs::create_dir(scene.path("packages")).unwrap();
    write(&scene.path("packages/a.mlpackage"), Model::single(convolutions("main", 8, 1)));
    let others = scene.run(&["adopt", "resnet.mlpackage", "-o", "packages", "--overwrite"]);
    assert!(refused(&others).contains("holds something else"), "{}", others.stderr);
    for inside in ["resnet.mlpackage", "resnet.mlpackage/bundle"] {
        let overlap = scene.run(&["adopt", "resnet.mlpackage", "-o", inside, "--overwrite"]);
        assert!(refused(&overlap).contains("the package"), "{}", overlap.stderr);
    }
    assert!(scene.path("packages/a.mlpackage/Manifest.json").exists());
    assert!(Bundle::open(scene.path("bundle")).is_ok());
}

#[test]
fn what_cannot_be_adopted_is_told_and_leaves_nothing() {
    let scene = scene();
    fs::create_dir_all(scene.path("empty")).unwrap();
    fs::create_dir_all(scene.path("b")).unwrap();
    write(&scene.path("b/resnet.mlpackage"), Model::single(convolutions("main", 8, 1)));
    write_text(
        &scene.path("contract.yaml"),
        "name: custom\ncontext_length: 8\nvocabulary: 4\npackages: []\ntokeniser: x\n",
    );
    write_text(
        &scene.path("other.yaml"),
        "name: custom\ncontext_length: 8\nvocabulary: 4\npackages: [{ package: gpt.mlpackage, functions: [] }]\n",
    );
    for (args, expected) in [
        (&["empty"][..], "holds no package"),
        (&["none.mlpackage"], "none.mlpackage"),
        (&["resnet.mlpackage", "b/resnet.mlpackage"], "has the name of another package"),
        (&["resnet.mlpackage", "--contract", "contract.yaml"], "unknown key `tokeniser`"),
        (&["resnet.mlpackage", "--contract", "other.yaml"], "`gpt.mlpackage`, which is not among"),
        (&["resnet.mlpackage", "--tokenizer", "bench.yaml"], "bench.yaml"),
        (&["resnet.mlpackage", "--tokenizer", "none.json"], "none.json"),
    ] {
        let outcome = scene.run(&[&["adopt", "-o", "out"], args].concat());
        assert!(refused(&outcome).contains(expected), "{args:?}: {}", outcome.stderr);
        assert!(!scene.path("out").exists(), "{args:?}");
    }
    let left = fs::read_dir(scene.folder()).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(left.into_iter().all(|name| !name.to_string_lossy().contains("anemeter-tmp")));
}

#[test]
fn a_package_is_measured_and_shown_in_every_format() {
    let scene = scene();
    let printed = scene.measured("resnet.mlpackage", &["--soak", "60"]);
    let text = printed.good().to_owned();
    for word in ["Latency", "main 1x3x16x16", "What the machine allows", "Cases", "Long run"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    let report = json(&scene.path("out/report.json"));
    assert_valid("report", &report);
    assert_eq!(report["workload"]["kind"], "predict");
    assert_eq!(report["subject"]["origin"], "adopted");
    assert_eq!(report["workload"]["cases"][0]["name"], "main 1x3x16x16");
    assert!(report["workload"]["cases"][0]["flops"].as_u64().unwrap() > 0);
    assert!(report["rooflines"][0]["share_of_bound"].as_f64().unwrap() > 0.0);
    assert_eq!(report["soak"]["case"], "main 1x3x16x16");
    for launch in report["launches"].as_array().unwrap() {
        assert_eq!(launch["outcome"], "completed");
        let predictions = launch["predictions"].as_array().unwrap();
        assert_eq!(predictions.len(), 1 + 12);
        assert_eq!((&predictions[0]["first"], &predictions[1]["first"]), (&Value::from(true), &Value::Null));
        assert!(launch["requests"].as_array().unwrap().is_empty());
    }
    for format in ["md", "html", "csv"] {
        let shown = scene.run(&["report", "out", "--format", format]);
        let shown = shown.good();
        assert!(shown.contains("main 1x3x16x16"), "{format}: {shown}");
        for word in ["TTFT", "TPS", "seq_len 0"] {
            assert!(!shown.contains(word), "{format} speaks of {word}");
        }
    }
    scene.run(&["report", "out", "--format", "svg", "--out", "charts"]).good();
    assert!(scene.path("charts/prediction-latency.svg").exists());
}

#[test]
fn inputs_shapes_functions_and_states_are_as_asked_for() {
    let scene = Scene::empty();
    write_text(&scene.path("bench.yaml"), WORKLOAD);
    write(&scene.path("mlp.mlpackage"), enumerated_mlp());
    let cases = |args: &[&str]| -> Vec<String> {
        scene.measured("mlp.mlpackage", &[&["--launches", "1"], args].concat()).good();
        let report = json(&scene.path("out/report.json"));
        let cases = report["workload"]["cases"].as_array().unwrap().clone();
        cases.iter().map(|case| case["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(cases(&[]), ["main 1x1x8", "main 1x4x8", "main 1x8x8"]);
    assert_eq!(cases(&["--shape", "x=1x4x8"]), ["main 1x4x8"]);
    write_samples(&scene.path("x.safetensors"), "x", &[&[1, 8, 8], &[1, 1, 8], &[1, 8, 8]]);
    assert_eq!(cases(&["--inputs", "x.safetensors"]), ["main 1x8x8", "main 1x1x8"]);
    let report = json(&scene.path("out/report.json"));
    let source = &report["workload"]["inputs"]["file"];
    assert!(source["digest"].as_str().unwrap().starts_with("xxh3:"), "{source}");
    assert_eq!(report["workload"]["cases"][0]["samples"], 2);
    let predictions = report["launches"][0]["predictions"].as_array().unwrap();
    assert!(predictions.iter().any(|one| one["sample"] == 1));
    for (args, expected) in [
        (&["--shape", "x=1x5x8"][..], "no function takes the shape 1x5x8 for `x`"),
        (&["--shape", "y=1x4x8"], "`y`, which is not an input; is `x` meant?"),
        (&["--functions", "mean"], "no function `mean`; is `main` meant?"),
        (&["--inputs", "none.safetensors"], "none.safetensors"),
        (&["--inputs", "bench.yaml"], "not a safetensors file"),
        (&["--kind", "generate"], "nothing says how the packages are driven as a language model"),
        (&["--shape", "x=1x0x8"], "a dimension of 0"),
        (&["--range", "x=9..1"], "not a range"),
    ] {
        let outcome = scene.measured("mlp.mlpackage", args);
        assert!(refused(&outcome).contains(expected), "{args:?}: {}", outcome.stderr);
    }
}

#[test]
fn images_are_measured_at_each_size_made_up_and_as_pixels() {
    let scene = Scene::empty();
    write_text(&scene.path("bench.yaml"), WORKLOAD);
    write_pixels(&scene.path("pixels.safetensors"), &[[16, 32], [8, 16], [16, 32]]);
    for (package, color) in [("rgb.mlpackage", ColorSpace::Rgb), ("bgr.mlpackage", ColorSpace::Bgr)] {
        write(&scene.path(package), of_images(color));
        let cases = |args: &[&str]| -> Vec<(String, u64, u64)> {
            scene.measured(package, &[&["--launches", "1"], args].concat()).good();
            let report = json(&scene.path("out/report.json"));
            let rooflines = report["rooflines"].as_array().unwrap();
            assert!(rooflines.iter().all(|of| of["share_of_bound"].as_f64().unwrap() > 0.0), "{rooflines:?}");
            let cases = report["workload"]["cases"].as_array().unwrap().clone();
            let number = |case: &Value, key: &str| case[key].as_u64().unwrap();
            let name = |case: &Value| case["name"].as_str().unwrap().to_owned();
            cases.iter().map(|case| (name(case), number(case, "flops"), number(case, "samples"))).collect()
        };
        let both = cases(&[]);
        let (small, large) = (&both[0], &both[1]);
        assert_eq!((small.0.as_str(), large.0.as_str(), both.len()), ("main 8x16", "main 16x32", 2));
        // 27 products and sums per score of a pixel, and little else.
        let conv = 2 * 27 * 8 * 8 * 16;
        assert!((conv..conv + conv / 4).contains(&small.1), "{} {conv}", small.1);
        assert!((4 * conv..5 * conv).contains(&large.1), "{} {conv}", large.1);
        assert_eq!(cases(&["--shape", "image=16x32"]), std::slice::from_ref(large));
        let given = cases(&["--inputs", "pixels.safetensors"]);
        assert_eq!(given, [(large.0.clone(), large.1, 2), (small.0.clone(), small.1, 1)]);
        let other = scene.measured(package, &["--shape", "image=9x9"]);
        assert!(refused(&other).contains("no function takes the shape 9x9 for `image`"), "{}", other.stderr);
    }
    let rgb = pixels([8, 16]);
    let bgr: Vec<u8> = rgb.chunks(3).flat_map(|pixel| pixel.iter().rev().copied()).collect();
    let scores = |package: &str, bytes: &[u8]| {
        let package = Package::open(scene.path(package)).unwrap();
        let mut session = cpu().load(&package, &LoadOptions::default()).unwrap().session();
        let pixels = Tensor::from_slice(&[8, 16, 3], bytes).unwrap();
        session.predict("main", &[("image", pixels.view())]).unwrap();
        session.output("scores").unwrap().bytes().to_vec()
    };
    assert_eq!(scores("rgb.mlpackage", &rgb), scores("bgr.mlpackage", &bgr));
    assert_ne!(scores("rgb.mlpackage", &rgb), scores("rgb.mlpackage", &bgr));
}

#[test]
fn states_are_fresh_or_kept() {
    let scene = Scene::empty();
    write_text(&scene.path("bench.yaml"), WORKLOAD);
    write(&scene.path("sum.mlpackage"), accumulator());
    // A sum of infinities of both signs is no number; either alone is infinite.
    let infinite = |value: f32| (&[1, 4][..], vec![value; 4]);
    let samples = [infinite(f32::INFINITY), infinite(f32::NEG_INFINITY)];
    write_values(&scene.path("x.safetensors"), "x", &samples);
    for (states, code, said) in [("fresh", 0, None), ("kept", 1, Some("output `sum` of main 1x4 holds NaN"))]
    {
        let args = ["--states", states, "--inputs", "x.safetensors", "--launches", "1", "--soak", "8"];
        let outcome = scene.measured("sum.mlpackage", &args);
        assert_eq!(outcome.code, code, "{states}: {}{}", outcome.stdout, outcome.stderr);
        let report = json(&scene.path("out/report.json"));
        assert_eq!(report["workload"]["states"], states);
        let found = report["soak"]["not_finite"].as_str();
        assert_eq!(found.is_some(), said.is_some(), "{states}: {found:?}");
        assert!(found.zip(said).is_none_or(|(found, said)| found.contains(said)), "{found:?}");
    }
}

#[test]
fn a_package_is_blessed_gated_rerun_and_compared() {
    let scene = scene();
    let bench = |out: &str, more: &[&str]| {
        let fixed = [
            "bench",
            "resnet.mlpackage",
            "--launches",
            "6",
            "--requests",
            "25",
            "--runtime",
            "cpu",
            "--out",
            out,
        ];
        scene.run(&[&fixed, more].concat()).good().to_owned()
    };
    bench("first", &[]);
    let blessed = scene.run(&["bless", "first", "--scratch", "--accept-noise", "a test"]);
    assert!(blessed.good().contains("latency p50 at main 1x3x16x16"), "{}", blessed.stdout);
    bench("second", &[]);
    let verdict = scene.run(&["gate", "second", "--json"]);
    assert!([0, 1, 3].contains(&verdict.code), "{}{}", verdict.stdout, verdict.stderr);
    let verdict: Value = serde_json::from_str(&verdict.stdout).unwrap();
    assert_valid("verdict", &verdict);
    let checks = verdict["checks"].as_array().unwrap();
    let latency = checks.iter().find(|check| check["measure"] == "latency").unwrap();
    assert_eq!(latency["case"], "main 1x3x16x16");
    assert_eq!(latency["limit"]["regression_pct"], 5.0);
    for measure in ["ttft", "tps", "kv_bytes", "perplexity", "f1_drift", "ttfa"] {
        assert!(checks.iter().all(|check| check["measure"] != measure), "{measure}");
    }
    let rerun = scene.run(&["gate", "second", "--rerun", "resnet.mlpackage", "--budget", "1s"]);
    assert!([0, 1, 3].contains(&rerun.code), "{}{}", rerun.stdout, rerun.stderr);
    bench("slower", &["--slow-down", "300"]);
    let slower = scene.run(&["gate", "slower"]);
    // Whether it can be told depends on what else the machine does.
    assert!([1, 3].contains(&slower.code), "{}{}", slower.stdout, slower.stderr);
    assert!(slower.stdout.contains("latency p50 at main 1x3x16x16"), "{}", slower.stdout);
    let reports = scene.run(&["compare", "first", "slower"]);
    assert!(
        reports.stdout.contains("latency") && reports.stdout.contains("main 1x3x16x16"),
        "{}",
        reports.stdout
    );

    write(&scene.path("other.mlpackage"), Model::single(convolutions("main", 16, 3)));
    let compared = ["compare", "resnet.mlpackage", "other.mlpackage", "--measure", "--requests", "25"];
    let compared = scene.run(&[&compared[..], &["--runtime", "cpu", "--budget", "1s"]].concat());
    assert!([0, 1, 3].contains(&compared.code), "{}{}", compared.stdout, compared.stderr);
    let gone = scene.run(&["gate", "second", "--rerun", "other.mlpackage", "--budget", "1s"]);
    assert!(refused(&gone).contains("its packages are not those of the report"), "{}", gone.stderr);
}

#[test]
fn folders_bundles_and_sweeps_are_taken_alike() {
    let scene = scene();
    fs::create_dir(scene.path("parts")).unwrap();
    write(&scene.path("parts/a.mlpackage"), Model::single(convolutions("main", 8, 1)));
    write(&scene.path("parts/b.mlpackage"), enumerated_mlp());
    scene.run(&["adopt", "parts", "-o", "bundle"]).good();
    for what in ["parts", "bundle"] {
        let text = scene.measured(what, &["--launches", "1"]).good().to_owned();
        assert!(text.contains("a main 1x3x8x8") && text.contains("b main 1x4x8"), "{what}: {text}");
        scene.run(&["doctor", what]).good();
        assert!(scene.run(&["lint", what]).code <= 1);
        let inspected = scene.run(&["inspect", what]);
        assert!(inspected.good().contains("a.mlpackage") && inspected.stdout.contains("b.mlpackage"));
    }
    let same = scene.run(&["verify", "parts", "--against", "bundle"]);
    assert!(same.good().contains("function a.mlpackage main: outputs"), "{}", same.stdout);
    let other = scene.run(&["verify", "parts", "--against", "resnet.mlpackage"]);
    assert!(refused(&other).contains("has the packages resnet.mlpackage"), "{}", other.stderr);
    write_text(
        &scene.path("sweep.yaml"),
        "schema: anemeter.sweep/1\nbundles: [{ name: x, path: resnet.mlpackage }]\nthreads: [1, 2]\n",
    );
    let sweep =
        ["bench", "--sweep", "sweep.yaml", "--workload", "bench.yaml", "--launches", "1", "--out", "swept"];
    let swept = scene.run(&[&sweep[..], &["--runtime", "cpu"]].concat());
    assert!(swept.good().contains("predictions per second"), "{}", swept.stdout);
    assert_eq!(json(&scene.path("swept/sweep.json"))["case"], "main 1x3x16x16");
    for command in ["generate", "eval"] {
        let outcome = scene.run(&[command, "resnet.mlpackage", "--prompt", "x"]);
        assert_eq!(outcome.code, 2, "{command}: {}{}", outcome.stdout, outcome.stderr);
    }
}

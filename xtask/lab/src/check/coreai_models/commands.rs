//! Every command on a bundle of Core AI assets without packages.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::program::Anemeter;
use super::text;

const PROMPT: &str = "Once upon a time";
/// What every result of the interpreter says.
const CAUTION: &str = "Apple's CPU interpreter";

/// Exports assets alone, and a twin with packages, and gives both to every command.
pub(super) fn all(anemeter: &Anemeter, checkpoint: &Path, folder: &Path, length: usize) -> Result<()> {
    let scene = Scene {
        anemeter,
        checkpoint: text(checkpoint),
        assets: text(&folder.join("assets")),
        both: text(&folder.join("both")),
        folder: folder.to_owned(),
        length: length.to_string(),
    };
    for (bundle, format) in [(&scene.assets, "coreai"), (&scene.both, "coreml,coreai")] {
        let export = ["export", &scene.checkpoint, "-o", bundle, "--format", format, "--activations", "fp32"];
        anemeter.good(&[&export[..], &["--shapes", &format!("32,{length}"), "--kv", "io,state"]].concat())?;
    }
    ensure!(!Path::new(&scene.assets).join("model.mlpackage").exists(), "assets alone have a package");
    let steps: &[(&str, fn(&Scene<'_>) -> Result<()>)] = &[
        ("inspect and lint", inspect_and_lint),
        ("doctor", doctor),
        ("run", run),
        ("generate", generate),
        ("verify", verify),
        ("eval", eval),
        ("compare", compare),
        ("bench, gate and bless", bench),
        ("refusals", refusals),
    ];
    for (name, step) in steps {
        step(&scene).with_context(|| format!("{name}, of assets alone"))?;
        println!("  {name}: as of packages");
    }
    Ok(())
}

struct Scene<'a> {
    anemeter: &'a Anemeter,
    checkpoint: String,
    /// A bundle of assets alone.
    assets: String,
    /// The same with packages.
    both: String,
    folder: PathBuf,
    length: String,
}

impl Scene<'_> {
    fn file(&self, name: &str) -> String {
        text(&self.folder.join(name))
    }
}

fn inspect_and_lint(scene: &Scene<'_>) -> Result<()> {
    let Scene { anemeter, assets, both, .. } = scene;
    let shown = anemeter.good(&["inspect", assets])?.stdout;
    ensure!(shown.contains("Core AI asset") && shown.contains("prefill_32"), "{shown}");
    let shown = anemeter.good(&["inspect", both])?.stdout;
    ensure!(shown.contains("model.mlpackage") && shown.contains("model.aimodel"), "{shown}");
    // Rules are broken: activations are fp32.
    let linted = anemeter.run(&["lint", assets])?;
    ensure!(linted.code <= 1 && linted.stdout.contains("Core AI 27"), "{}{}", linted.stdout, linted.stderr);
    Ok(())
}

fn doctor(scene: &Scene<'_>) -> Result<()> {
    let shown = scene.anemeter.good(&["doctor", &scene.assets])?.stdout;
    ensure!(shown.contains("coreai-core") && shown.contains(CAUTION), "{shown}");
    Ok(())
}

fn run(scene: &Scene<'_>) -> Result<()> {
    let asset = text(&Path::new(&scene.assets).join("model.aimodel"));
    let ran = scene.anemeter.good(&["run", &asset, "--function", "decode_32", "--time", "20"])?;
    ensure!(ran.stdout.contains("without its prediction"), "{}", ran.stdout);
    println!("{}", ran.stdout.trim_end());
    Ok(())
}

/// The tokens of a bundle on a runtime, or on the one that it takes by itself.
fn tokens(scene: &Scene<'_>, bundle: &str, runtime: &str, form: &str) -> Result<Value> {
    let generate = ["generate", bundle, "--prompt", PROMPT, "--max-tokens", "24", "--kv", form, "--json"];
    let document = scene.anemeter.json(&[&generate[..], &["--runtime", runtime]].concat())?;
    let ids = document.pointer("/sequences/0/ids").or(document.pointer("/sequences/0/token_ids"));
    ids.cloned().with_context(|| format!("`generate --json` has no tokens: {document}"))
}

fn generate(scene: &Scene<'_>) -> Result<()> {
    let expected = tokens(scene, &scene.both, "cpu", "io")?;
    for form in ["io", "state"] {
        for (bundle, runtime) in [(&scene.assets, "auto"), (&scene.assets, "coreai"), (&scene.both, "coreai")]
        {
            let found = tokens(scene, bundle, runtime, form)?;
            ensure!(found == expected, "{form} on {runtime}: {found}, not {expected}");
        }
    }
    Ok(())
}

fn verify(scene: &Scene<'_>) -> Result<()> {
    let Scene { anemeter, assets, checkpoint, .. } = scene;
    let verify = ["verify", assets, "--checkpoint", checkpoint, "--shapes", &scene.length, "--tokens", "4"];
    let ran = anemeter.good(&verify)?;
    let said = format!("{}{}", ran.stdout, ran.stderr);
    ensure!(said.contains("with fp32 activations") && said.contains(CAUTION), "{said}");
    let record = fs::read_to_string(Path::new(assets).join("verify.json")).context("read verify.json")?;
    let record: Value = serde_json::from_str(&record)?;
    let digest = record.pointer("/package_digests/0").and_then(Value::as_str).unwrap_or_default();
    ensure!(digest.starts_with("sha256:") && record["numerics"] == "coreai", "the record is {record}");
    Ok(())
}

fn perplexity(scene: &Scene<'_>, bundle: &str, runtime: &str, story: &str) -> Result<f64> {
    let eval =
        ["eval", bundle, "--text", story, "--shapes", "32", "--runtime", runtime, "--no-record", "--json"];
    let document = scene.anemeter.json(&eval)?;
    let found = document.pointer("/quality/perplexity/perplexity").and_then(Value::as_f64);
    found.with_context(|| format!("`eval --json` has no perplexity: {document}"))
}

fn eval(scene: &Scene<'_>) -> Result<()> {
    let story = scene.file("story.txt");
    fs::write(
        &story,
        "Once upon a time there was a little girl who had a red ball. She liked to play with it.",
    )?;
    let cpu = perplexity(scene, &scene.both, "cpu", &story)?;
    let coreai = perplexity(scene, &scene.assets, "coreai", &story)?;
    ensure!((cpu - coreai).abs() < 1e-3 * cpu, "the perplexity is {coreai}, and {cpu} on the CPU runtime");
    Ok(())
}

fn compare(scene: &Scene<'_>) -> Result<()> {
    for runtimes in ["cpu,coreai", "coreai,cpu"] {
        let command = ["compare", &scene.both, "--runtime", runtimes, "--calls", "2"];
        let shown = scene.anemeter.good(&command)?.stdout;
        ensure!(shown.contains("pass:"), "{shown}");
    }
    Ok(())
}

/// A report of the interpreter is no baseline, whatever it shows.
fn bench(scene: &Scene<'_>) -> Result<()> {
    let Scene { anemeter, assets, .. } = scene;
    let out = scene.file("report");
    let bench = ["bench", assets, "-p", "8", "-g", "8", "--launches", "6", "--requests", "2", "--out", &out];
    let ran = anemeter.good(&bench)?;
    let said = format!("{}{}", ran.stdout, ran.stderr);
    ensure!(said.contains(CAUTION), "{said}");
    let report = fs::read_to_string(Path::new(&out).join("report.json")).context("read report.json")?;
    let report: Value = serde_json::from_str(&report)?;
    ensure!(report["runtime"]["engine"]["kind"] == "cpu_interpreter", "{}", report["runtime"]);
    let digest = report.pointer("/subject/package_digests/0").and_then(Value::as_str).unwrap_or_default();
    ensure!(digest.starts_with("sha256:"), "the report is about {digest:?}");
    let overheads = report["runtime"]["engine"]["overheads"].as_array().cloned().unwrap_or_default();
    ensure!(!overheads.is_empty(), "no overhead of calls is in the report");
    for overhead in &overheads {
        println!("  call without prediction: {overhead}");
    }
    let baselines = scene.file("baselines");
    let refused = anemeter.ends_with(
        1,
        &["bless", &out, "--scratch", "--accept-noise", "a check", "--baselines", &baselines],
    )?;
    ensure!(refused.stdout.contains(CAUTION), "{}", refused.stdout);
    let gated = anemeter.run(&["gate", &out, "--baselines", &baselines])?;
    ensure!(gated.code != 0, "a report of an interpreter passed a gate without a baseline: {}", gated.stdout);
    Ok(())
}

/// What other runtimes do not take is one error with a way out.
fn refusals(scene: &Scene<'_>) -> Result<()> {
    let Scene { anemeter, assets, .. } = scene;
    for command in [
        &["generate", assets, "--prompt", PROMPT, "--runtime", "cpu"][..],
        &["bench", assets, "--runtime", "cpu", "--out", &scene.file("refused")],
        &["verify", assets, "--checkpoint", &scene.checkpoint, "--runtime", "cpu"],
        &["eval", assets, "--text", &scene.file("story.txt"), "--runtime", "cpu"],
        &["compare", assets, "--runtime", "cpu,coreai"],
    ] {
        let refused = anemeter.ends_with(2, command)?.stderr;
        ensure!(refused.contains("is a Core AI asset") && refused.contains("help:"), "{refused}");
    }
    Ok(())
}

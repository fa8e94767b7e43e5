//! SmolLM2 in fp16: our export, the same model by coremltools, and a copy of what was written.

use std::fs;
use std::path::{Path, PathBuf};

use anemeter::checkpoint::{self, Checkpoint};
use anyhow::{Context, Result};
use half::f16;
use safetensors::tensor::{Dtype, TensorView};
use serde::Deserialize;

use super::Line;
use super::measured::{Measured, parse, run, time_copy};
use crate::fetch_smollm2::{Fetched, fetch};
use crate::python;
use xtask::median;
use xtask::project::Project;

const SEQ_LENS: [&str; 2] = ["128", "512"];
const LEAST_SPEEDUP: f64 = 100.0;
const LEAST_MEMORY_RATIO: f64 = 10.0;
const MOST_COPIES: f64 = 1.5;

/// What coremltools took, from reading the checkpoint to the saved package, and what of it `convert` and `save` took.
#[derive(Deserialize)]
struct Peer {
    #[serde(flatten)]
    whole: Measured,
    convert_seconds: f64,
    convert_cpu_seconds: f64,
}

/// Measures, or says why it cannot.
pub(super) fn measure(project: &Project, folder: &Path, rounds: usize) -> Result<Result<Vec<Line>, String>> {
    let model = match fetch(project)? {
        Fetched::There(path) => path,
        Fetched::NotAvailable(why) => return Ok(Err(why)),
    };
    let Some(python) = python::interpreter_with_torch(project)? else {
        return Ok(Err("there is no python3".to_owned()));
    };
    println!("building for speed");
    let program = project.release("anemeter")?;
    let checkpoint = folder.join("checkpoint");
    write_fp16(&checkpoint::open(&model)?, &checkpoint)?;

    println!("converting with coremltools");
    let mut convert = project.command(&python);
    convert
        .arg("xtask/python/convert_llama.py")
        .arg(&checkpoint)
        .arg(folder.join("peer.mlpackage"))
        .args(SEQ_LENS);
    let peer: Peer = parse(&mut convert)?;
    println!("coremltools: {}", text(&peer.whole));

    let coreai = as_asset(project, &program, &checkpoint, folder)?;
    let mut ours = Vec::new();
    let mut copies = Vec::new();
    for round in 1..=rounds {
        let (export, copy) = one_round(project, &program, &checkpoint, folder)?;
        println!("round {round}: {}; copy {copy:.3} s", text(&export));
        ours.push(export);
        copies.push(copy);
    }
    let mut lines = lines(&peer, &ours, &copies);
    lines.extend(coreai);
    Ok(Ok(lines))
}

/// The same checkpoint as a Core AI asset, by this program and by Apple's converter.
fn as_asset(project: &Project, program: &Path, checkpoint: &Path, folder: &Path) -> Result<Vec<Line>> {
    const WHAT: &str = "of a Core AI asset: coreai-torch / anemeter";
    let Some(python) = python::interpreter_with_coreai_torch(project)? else {
        return Ok(vec![Line {
            what: format!("CPU time and peak memory {WHAT}"),
            measured: "NOT MEASURED: coreai-torch cannot be installed here".to_owned(),
            target: "none".to_owned(),
            met: true,
        }]);
    };
    println!("converting with coreai-torch");
    let mut convert = project.command(&python);
    convert
        .arg("xtask/python/convert_llama_coreai.py")
        .arg(checkpoint)
        .arg(folder.join("peer.aimodel"))
        .args(SEQ_LENS);
    let peer: Peer = parse(&mut convert)?;
    println!("coreai-torch: {}", text(&peer.whole));
    let (output, seq_lens) = (folder.join("asset"), SEQ_LENS.join(","));
    let arguments: [&Path; 8] = [
        "export".as_ref(),
        checkpoint,
        "-o".as_ref(),
        &output,
        "--shapes".as_ref(),
        seq_lens.as_ref(),
        "--format".as_ref(),
        "coreai".as_ref(),
    ];
    let ours = run(project, &[&[program][..], &arguments].concat())?;
    let line = |what: &str, peer: f64, ours: f64, unit: &str| Line {
        what: format!("{what} {WHAT}"),
        measured: format!("{:.1} × ({peer:.2} {unit} / {ours:.2} {unit})", peer / ours),
        target: "none".to_owned(),
        met: true,
    };
    Ok(vec![
        line("CPU time", peer.whole.cpu_seconds, ours.cpu_seconds, "s"),
        line("peak memory", peer.whole.peak_bytes as f64 / 1e6, ours.peak_bytes as f64 / 1e6, "MB"),
    ])
}

fn one_round(project: &Project, program: &Path, checkpoint: &Path, folder: &Path) -> Result<(Measured, f64)> {
    let output = folder.join("ours");
    if output.exists() {
        fs::remove_dir_all(&output)?;
    }
    let seq_lens = SEQ_LENS.join(",");
    let arguments =
        ["export".as_ref(), checkpoint, "-o".as_ref(), &output, "--shapes".as_ref(), seq_lens.as_ref()];
    let export = run(project, &[&[program][..], &arguments].concat())?;
    let weights: PathBuf = output.join("model.mlpackage/Data/com.apple.CoreML/weights/weight.bin");
    let copy = time_copy(project, &[weights], folder)?;
    Ok((export, copy))
}

fn lines(peer: &Peer, ours: &[Measured], copies: &[f64]) -> Vec<Line> {
    let of = |value: fn(&Measured) -> f64| median(ours.iter().map(value).collect());
    let (seconds, cpu) = (of(|m| m.seconds), of(|m| m.cpu_seconds));
    let peak = of(|m| m.peak_bytes as f64);
    let against_copy = median(ours.iter().zip(copies).map(|(export, copy)| export.seconds / copy).collect());
    let ratio = |what: &str, peer: f64, ours: f64, least: f64, unit: &str| Line {
        what: format!("{what}: coremltools / anemeter"),
        measured: format!("{:.1} × ({peer:.2} {unit} / {ours:.2} {unit})", peer / ours),
        target: format!("at least {least} ×"),
        met: peer / ours >= least,
    };
    let Peer { whole, convert_seconds, convert_cpu_seconds } = peer;
    vec![
        ratio("wall time", whole.seconds, seconds, LEAST_SPEEDUP, "s"),
        ratio("CPU time", whole.cpu_seconds, cpu, LEAST_SPEEDUP, "s"),
        Line {
            what: "the same with `ct.convert` and `save` alone, against the whole of anemeter".to_owned(),
            measured: format!(
                "{:.1} × in wall time, {:.1} × in CPU time",
                convert_seconds / seconds,
                convert_cpu_seconds / cpu
            ),
            target: "none".to_owned(),
            met: true,
        },
        ratio("peak memory", whole.peak_bytes as f64 / 1e6, peak / 1e6, LEAST_MEMORY_RATIO, "MB"),
        Line {
            what: "wall time of the whole command, against a copy of the weights with fsync".to_owned(),
            measured: format!("{against_copy:.2} × ({seconds:.2} s / {:.2} s)", median(copies.to_vec())),
            target: format!("at most {MOST_COPIES} ×"),
            met: against_copy <= MOST_COPIES,
        },
    ]
}

fn text(measured: &Measured) -> String {
    let Measured { seconds, cpu_seconds, peak_bytes, .. } = measured;
    format!("{seconds:.2} s, {cpu_seconds:.2} s of CPU, {:.0} MB", *peak_bytes as f64 / 1e6)
}

/// Writes the checkpoint as a Hugging Face folder in fp16, so that both sides read the same file.
pub(crate) fn write_fp16(checkpoint: &Checkpoint, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder)?;
    let tensors: Vec<(&String, Vec<usize>, Vec<u8>)> = checkpoint
        .tensors
        .iter()
        .map(|(name, stored)| {
            let mut floats = vec![0.0; stored.shape.iter().product()];
            stored.read(0..floats.len(), &mut floats);
            let bytes = floats.iter().flat_map(|&float| f16::from_f32(float).to_le_bytes()).collect();
            (name, stored.shape.to_vec(), bytes)
        })
        .collect();
    let views: Vec<(&String, TensorView<'_>)> = tensors
        .iter()
        .map(|(name, shape, bytes)| Ok((*name, TensorView::new(Dtype::F16, shape.clone(), bytes)?)))
        .collect::<Result<_>>()?;
    safetensors::serialize_to_file(views, None, &folder.join("model.safetensors"))?;
    let config = serde_json::to_string(checkpoint.config.values()).context("write config.json")?;
    fs::write(folder.join("config.json"), config)?;
    if let Some(tokenizer) = &checkpoint.tokenizer {
        fs::write(folder.join("tokenizer.json"), tokenizer)?;
    }
    Ok(())
}

//! `cargo xtask check coreai-llm`: bundles for Apple's programs for language models, executed by Apple's runtime as those
//! programs do, against the same functions on the CPU runtime: both layouts, all kinds of weights, in fp32 and in fp16.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use pico_args::Arguments;
use serde_json::{Value, json};

use super::coreai_assets;
use crate::made_up::Sizes;
use crate::mil_packages::for_a_package;
use crate::python;
use anemeter::checkpoint;
use anemeter::compress::{self, Plan, Precision, Rule};
use anemeter::export::{ExportOptions, PrecisionPlan, Request, export_apple_llm};
use anemeter::lower::{AppleLlm, ROTARY_TABLES, lower_apple_llm};
use anemeter::mil::op::Numerics;
use anemeter::mil::verify::verify;
use anemeter::mil::widen::widened;
use anemeter::model::{self, Decoder};
use anemeter::package::{self, Package, WriteOptions};
use anemeter::runtime::{self, LoadOptions, Runtime};
use anemeter::stats;
use anemeter::tensor::{Tensor, TensorView};
use anemeter::vocabulary::{Activations, Layout};
use xtask::outcome::Outcome;
use xtask::process::succeed;
use xtask::project::{Project, make_empty};

const WHAT: &str = "bundles for Apple's programs";
const SCRIPT: &str = "xtask/python/coreai_llm.py";
const SIZES: Sizes =
    Sizes { hidden: 256, wide: 320, kv: 128, layers: 3, vocabulary: 96, layers_per_shard: 3 };
const CONTEXT: usize = 32;
const IDS: [i32; 11] = [5, 9, 2, 30, 11, 7, 36, 1, 0, 77, 95];
/// How the tokens come, of the layout of open sizes: as the CPU runtime gets them, all at once, and one at a time.
const CHUNKS: [&[usize]; 3] = [&[6, 5], &[11], &[1; 11]];
/// As Apple's engine gets them: eight, and the rest.
const STATIC_CHUNKS: [&[usize]; 2] = [&[8, 3], &[11]];
const PRECISIONS: [&str; 5] = ["fp16", "int8", "int4", "lut4:group=8", "lut6"];

/// A bundle that is held against the CPU runtime.
struct Subject<'a> {
    layout: Layout,
    precision: &'a str,
    activations: Activations,
}

impl Subject<'_> {
    fn name(&self) -> String {
        let layout = if self.layout == Layout::AppleLlm { "static" } else { "dynamic" };
        let activations = if self.activations == Activations::Fp32 { "fp32" } else { "fp16" };
        format!("{layout} {} in {activations}", self.precision)
    }

    fn form(&self) -> AppleLlm {
        match self.layout {
            Layout::AppleLlmDynamic => AppleLlm::Dynamic { context: CONTEXT },
            _ => AppleLlm::Static { contexts: vec![CONTEXT], queries: vec![8, 16] },
        }
    }

    fn chunks(&self) -> &'static [&'static [usize]] {
        if self.layout == Layout::AppleLlm { &STATIC_CHUNKS } else { &CHUNKS }
    }

    /// The least cosine of logits. Apple's interpreter rounds every fp16 product and sum. Caches that lie in surfaces are not
    /// cleared by Apple's module, and nobody else can: functions that take them are executed, and nothing is said of what they
    /// give.
    fn least(&self) -> Option<f64> {
        match (self.activations, self.layout) {
            (Activations::Fp32, _) => Some(0.999_999),
            (Activations::Fp16, Layout::AppleLlm) => None,
            (Activations::Fp16, _) => Some(0.999),
        }
    }
}

pub(crate) fn run(project: &Project, arguments: Arguments) -> Result<Outcome> {
    xtask::finish(arguments)?;
    let Some(pythons) = python::interpreters_with_coreai(project)? else {
        return Ok(Outcome::not_checked(WHAT, "Apple's wheels coreai-core cannot be installed here"));
    };
    let folder = project.target.join("coreai/llm");
    make_empty(&folder)?;
    let checkpoint = folder.join("checkpoint");
    SIZES.write(&checkpoint)?;
    let decoder = model::build(&checkpoint::open(&checkpoint)?)?;
    let mut runs: Vec<(Value, String, Vec<f32>, Option<f64>)> = Vec::new();
    let mut assets = Vec::new();
    for layout in [Layout::AppleLlm, Layout::AppleLlmDynamic] {
        for activations in [Activations::Fp32, Activations::Fp16] {
            for precision in PRECISIONS {
                let subject = Subject { layout, precision, activations };
                let (asset, expected) =
                    prepare(&subject, &decoder, &checkpoint, &folder).with_context(|| subject.name())?;
                for (index, chunks) in subject.chunks().iter().enumerate() {
                    let logits = asset.with_extension(format!("{index}.logits"));
                    let run = json!({
                        "asset": asset, "ids": IDS, "chunks": chunks, "context": CONTEXT, "logits": logits,
                        "fills": index == 0,
                    });
                    runs.push((run, subject.name(), expected.clone(), subject.least()));
                }
                assets.push(asset);
            }
        }
    }
    let plan: Vec<&Value> = runs.iter().map(|(run, ..)| run).collect();
    let path = folder.join("plan.json");
    fs::write(&path, serde_json::to_string(&plan)?)?;
    succeed(project.command(&pythons[1]).arg(project.root.join(SCRIPT)).arg(&path))?;
    let mut least_of_all = [1.0f64; 2];
    for (run, name, expected, least) in &runs {
        let bytes = fs::read(run["logits"].as_str().context("a run has no logits")?)?;
        let found: Vec<f32> = bytes.as_chunks::<4>().0.iter().map(|&b| f32::from_le_bytes(b)).collect();
        // Where calls only fill the caches, the last ones give logits.
        ensure!(!found.is_empty() && found.len() <= expected.len(), "{name}: {} logits", found.len());
        let Some(least) = least else {
            println!("  {name}, calls of {}: executed, NOT COMPARED", run["chunks"]);
            continue;
        };
        let expected = &expected[expected.len() - found.len()..];
        let rows = found.chunks(SIZES.vocabulary).zip(expected.chunks(SIZES.vocabulary));
        let worst = stats::least(rows.map(|(a, b)| stats::cosine(a, b))).context("no logits")?;
        println!("  {name}, calls of {}: cosine {worst:.8}", run["chunks"]);
        ensure!(worst >= *least, "{name}: cosine {worst} is below {least}");
        let kind = usize::from(*least < 0.9999);
        least_of_all[kind] = least_of_all[kind].min(worst);
    }
    let versions = coreai_assets::read_by_all(project, &pythons, &assets)?;
    Ok(Outcome::Checked(format!(
        "{} bundles, {} sequences of calls by Apple's runtime: least cosine to the CPU runtime {:.8} in fp32, {:.6} in \
         fp16; accepted by {versions}",
        assets.len(),
        runs.len(),
        least_of_all[0],
        least_of_all[1]
    )))
}

/// Exports a bundle, and computes the logits of its functions on the CPU runtime.
fn prepare(
    subject: &Subject<'_>,
    decoder: &Decoder,
    checkpoint: &Path,
    folder: &Path,
) -> Result<(PathBuf, Vec<f32>)> {
    let name = subject.name().replace([' ', ':', '='], "-");
    let output = folder.join(&name);
    let precision: Precision = subject.precision.parse()?;
    let request = Request {
        checkpoint: checkpoint.to_owned(),
        output: output.clone(),
        overwrite: false,
        name: Some(name.clone()),
        options: ExportOptions {
            contexts: Some(vec![CONTEXT]),
            layout: Some(subject.layout),
            activations: Some(subject.activations),
            precision: Some(precision.into()),
            ..ExportOptions::default()
        },
        training_lengths: None,
        config: None,
        precision: PrecisionPlan::Fixed,
    };
    export_apple_llm(&request, &())?;
    let lowered = lower_apple_llm(decoder, &subject.form(), &Arc::default())?;
    let rotary = Rule { pattern: ROTARY_TABLES.to_owned(), precision: Precision::Keep };
    let plan = Plan { default: precision, rules: vec![rotary] };
    let (model, _) = compress::apply(lowered.model, &plan)?;
    let model = if subject.activations == Activations::Fp32 { widened(model) } else { model };
    let package = output.with_extension("mlpackage");
    package::write(&verify(for_a_package(model))?, &package, WriteOptions::default())?;
    let package = Package::open(&package)?;
    let options = LoadOptions { numerics: Numerics::Fp16Exact, ..LoadOptions::default() };
    let loaded = runtime::cpu().load(&package, &options)?;
    let mut session = loaded.session();
    let expected = match subject.layout {
        Layout::AppleLlm => by_static(&mut *session, subject.activations)?,
        _ => by_dynamic(&mut *session)?,
    };
    Ok((output.join(format!("{name}.aimodel")), expected))
}

fn by_dynamic(session: &mut dyn runtime::Session) -> Result<Vec<f32>> {
    let mut logits = Vec::new();
    for range in [0..6, 6..11] {
        let positions: Vec<i32> = (0..range.end as i32).collect();
        let ids = Tensor::from_slice(&[1, range.len()], &IDS[range.clone()])?;
        let positions = Tensor::from_slice(&[1, range.end], &positions)?;
        session.predict("main", &[("input_ids", ids.view()), ("position_ids", positions.view())])?;
        logits.extend(floats(session.output("logits").context("no logits")?));
    }
    Ok(logits)
}

fn by_static(session: &mut dyn runtime::Session, activations: Activations) -> Result<Vec<f32>> {
    let take =
        |session: &mut dyn runtime::Session, function: &str, inputs: &[(&str, &Tensor)], output: &str| {
            let views: Vec<(&str, TensorView<'_>)> =
                inputs.iter().map(|(name, x)| (*name, x.view())).collect();
            session.predict(function, &views)?;
            let found = session.output(output).context("an output is missing")?;
            let bytes = anemeter::tensor::AlignedBuf::from_slice(found.bytes());
            anyhow::Ok(Tensor::new(found.dtype(), found.shape().iter().copied().collect(), bytes.into())?)
        };
    let table = take(session, "load_embeddings", &[], "embedding_table")?;
    let mut logits = Vec::new();
    for (start, count) in [(0, 8), (8, 3)] {
        let ids: Vec<i32> = (0..8).map(|at| if at < count { IDS[start + at] } else { 0 }).collect();
        let ids = Tensor::from_slice(&[1, 8], &ids)?;
        let inputs = [("in_new_token_ids", &ids), ("embedding_table", &table)];
        let vectors = take(session, "gather_embeddings_8", &inputs, "gathered_embeddings")?;
        let positions: Vec<i32> = (0..8).map(|at| (start + at) as i32).collect();
        let mask: Vec<f32> = (0..CONTEXT)
            .flat_map(|key| (0..8).map(move |at| if key <= start + at { 0.0 } else { -4e4 }))
            .collect();
        let shape = [1, CONTEXT, 1, 8];
        let mask = match activations {
            Activations::Fp32 => Tensor::from_slice(&shape, &mask)?,
            Activations::Fp16 => {
                Tensor::from_slice(&shape, &mask.iter().map(|&x| half::f16::from_f32(x)).collect::<Vec<_>>())?
            }
        };
        let positions = Tensor::from_slice(&[1, 8], &positions)?;
        let step = Tensor::from_slice(&[1], &[start as i32])?;
        let inputs = [
            ("transformer_input", &vectors),
            ("position_ids", &positions),
            ("in_step", &step),
            ("causal_mask", &mask),
            ("embedding_table", &table),
        ];
        let found = take(session, &format!("extend_{CONTEXT}_8"), &inputs, "out_logits")?;
        logits.extend(floats(found.view()).into_iter().take(count * SIZES.vocabulary));
    }
    Ok(logits)
}

fn floats(view: TensorView<'_>) -> Vec<f32> {
    let mut values = vec![0.0; view.len()];
    anemeter::kernels::convert::to_f32(&view, 0..view.len(), &mut values);
    values
}

//! Codes for the linear maps of a checkpoint, layer after layer.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::error::CalibrateError;
use super::held_out::{HeldOut, Table};
use super::hidden::{Hidden, read_range};
use super::in_pool;
use super::layer::{head_input, run_layer};
use super::linear::{Inputs, LoadedLinear, Observer, product};
use crate::compress::{
    Correction, Gram, Plan, PlannedWeight, Precision, SolutionWriter, Solutions, Solver, check_weight,
};
use crate::lower;
use crate::model::{Decoder, Weight};
use anemeter_kernels::gemm::{Extents, Matrix, multiply};

/// By how much every error of a tied embedding counts besides that of the head: its rows are looked up as well.
pub(super) const TIED_RIDGE: f32 = 0.1;

/// Bits from which a tied embedding is rounded without data: there is nothing to gain that is worth a pass.
const WIDE: f64 = 8.0;

/// Tokens to choose by, and tokens to judge by.
#[derive(Debug, Clone, Copy)]
pub struct Text<'a> {
    /// Codes are chosen by what is lost on these.
    pub calibration: &'a [Vec<u32>],
    /// The loss of the whole model is measured on these, which no code is chosen by; there may be none.
    pub held_out: &'a [Vec<u32>],
}

/// What is done besides carrying errors on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Method {
    /// How much of what layers before have lost a layer makes up for, if there are many tokens; 0 for nothing.
    pub correction: f32,
    /// What is added to the statistics' diagonal for that, as a share of its mean.
    pub ridge: f32,
}

impl Default for Method {
    fn default() -> Method {
        Method { correction: 1.0, ridge: 0.1 }
    }
}

/// Tokens per input at which half of what was lost is made up for. With fewer, more of it would be made up for on these
/// tokens only.
const HALF: f32 = 5.0;

/// Codes, and what they cost.
#[derive(Debug)]
pub struct Quantized {
    /// The codes of all weights that a plan stores as integers or palettes.
    pub solutions: Solutions,
    /// What the model loses by them on the text that was held out.
    pub held_out: Option<HeldOut>,
}

/// Chooses the codes of all weights that a plan stores as integers or palettes. A tied embedding of few bits comes first, by
/// what the head of the uncompressed model takes; then each layer, by what the layers before it give with their codes; then the head.
/// Codes are kept in a file in `scratch`.
pub fn quantize(
    decoder: &Decoder,
    plan: &Plan,
    text: &Text<'_>,
    method: Method,
    scratch: &Path,
    began: &dyn Fn(&str),
) -> Result<Quantized, CalibrateError> {
    let calibrated: usize = text.calibration.iter().map(Vec::len).sum();
    let mut quantizer = Quantizer::new(plan, calibrated, method, scratch)?;
    let sequences = [text.calibration, text.held_out].concat();
    let mut changed = BTreeMap::new();
    if decoder.head.tied
        && let Some(precision) = quantizer.precision("embedding_weight", &decoder.embedding, true)
        && precision.bits() < WIDE
    {
        let mut hidden = Hidden::embed(decoder, text.calibration, |_, _| ())?;
        began("activations of the head");
        for (index, layer) in decoder.layers.iter().enumerate() {
            in_pool(|| run_layer(&mut hidden, index, layer, &mut ()))?;
        }
        began("codes of the embedding");
        let wanted = (&decoder.embedding, "embedding_weight", precision, TIED_RIDGE);
        let inputs = in_pool(|| head_input(&hidden, decoder, &mut ()))?;
        changed = in_pool(|| quantizer.table(&inputs, wanted, &sequences.concat()))?;
    }
    let change = |id: u32, row: &mut [f32]| {
        if let Some(read) = changed.get(&id) {
            row.copy_from_slice(read);
        }
    };
    let mut hidden = Hidden::twins(decoder, &sequences, change)?;
    for (index, layer) in decoder.layers.iter().enumerate() {
        began(&format!("codes of layer {index}"));
        in_pool(|| run_layer(&mut hidden, index, layer, &mut quantizer))?;
    }
    began("codes of the head");
    let inputs = in_pool(|| head_input(&hidden, decoder, &mut quantizer))?;
    let (exact, given) = inputs.split_at(hidden.exact * hidden.width);
    if !decoder.head.tied
        && let Some(precision) = quantizer.precision("head_weight", &decoder.head.weight, false)
    {
        let wanted = (&decoder.head.weight, "head_weight", precision, 0.0);
        in_pool(|| quantizer.table(&given[..calibrated * hidden.width], wanted, &[]))?;
    }
    let solutions = quantizer.finish()?;
    let name = if decoder.head.tied { "embedding_weight" } else { "head_weight" };
    let table = Table { decoder, solution: solutions.reader(name) };
    let rows = calibrated * hidden.width..;
    let held_out = match text.held_out {
        [] => None,
        sequences => {
            began("loss on the text held out");
            Some(in_pool(|| table.loss(sequences, (&exact[rows.clone()], &given[rows]))))
        }
    };
    Ok(Quantized { solutions, held_out })
}

/// A weight of so many output channels as the exported program has it.
fn planned(name: &str, elements: usize, channels: usize) -> PlannedWeight<'_> {
    let opset = lower::Options::default().opset;
    PlannedWeight { name, elements, channels, opset, is_looked_up: false, is_depthwise: false }
}

/// Chooses codes for the linear maps that it sees, and replaces their weights by what is read back.
pub struct Quantizer<'a> {
    plan: &'a Plan,
    /// Tokens that codes are chosen by; those after them are only judged by.
    calibrated: usize,
    method: Method,
    writer: SolutionWriter,
}

impl<'a> Quantizer<'a> {
    /// Stores weights as a plan says, by the first tokens. Codes are kept in a file in `scratch`.
    pub fn new(
        plan: &'a Plan,
        calibrated: usize,
        method: Method,
        scratch: &Path,
    ) -> Result<Quantizer<'a>, CalibrateError> {
        Ok(Quantizer { plan, calibrated, method, writer: SolutionWriter::new(scratch)? })
    }

    /// All codes.
    pub fn finish(self) -> Result<Solutions, CalibrateError> {
        Ok(self.writer.finish()?)
    }

    /// How the plan stores a weight, if data can choose its codes.
    fn precision(&self, name: &str, weight: &Weight, is_looked_up: bool) -> Option<Precision> {
        let planned = planned(name, weight.element_count(), weight.shape[0]);
        let planned = PlannedWeight { is_looked_up, ..planned };
        Some(self.plan.precision(&planned)).filter(Precision::is_solvable)
    }

    /// Chooses the codes of a large table strip by strip; gives back what is read for some of its rows. `ridge` is the share of
    /// the inputs' mean weight by which every error counts besides.
    pub fn table(
        &mut self,
        inputs: &[f32],
        (weight, name, precision, ridge): (&Weight, &str, Precision, f32),
        wanted: &[u32],
    ) -> Result<BTreeMap<u32, Vec<f32>>, CalibrateError> {
        let (rows, columns) = (weight.shape[0], weight.shape[1]);
        let mut gram = Gram::new(columns);
        gram.add(inputs);
        let mut solver = Solver::new(&gram, ridge);
        let strip = solver.strip(precision, rows);
        self.writer.begin(name, precision)?;
        let wanted: BTreeSet<u32> = wanted.iter().copied().collect();
        let mut found = BTreeMap::new();
        for first in (0..rows).step_by(strip) {
            let last = rows.min(first + strip);
            let elements = read_range(weight, first * columns..last * columns);
            let solved = solver.solve(name, &elements, precision)?;
            self.writer.push(&solved, last - first)?;
            for &row in wanted.range(first as u32..last as u32) {
                let start = (row as usize - first) * columns;
                found.insert(row, solved.read[start..start + columns].to_vec());
            }
        }
        Ok(found)
    }
}

impl Quantizer<'_> {
    /// The weight that codes are chosen for: it makes up for what the layers before have lost.
    fn target(
        &self,
        map: &LoadedLinear,
        seen: &LinearInputs<'_>,
        correction: Option<&Correction>,
    ) -> Vec<f32> {
        let mut wanted = map.weight.clone();
        if let Some(correction) = correction {
            let more = correction.of(&seen.lacking(map));
            let (tokens, inputs) = (self.calibrated as f32, map.inputs as f32);
            let share = self.method.correction * tokens / (tokens + HALF * inputs);
            wanted.iter_mut().zip(more).for_each(|(weight, more)| *weight += share * more);
        }
        wanted
    }
}

impl Observer for Quantizer<'_> {
    fn before(&mut self, inputs: &Inputs<'_>, maps: &mut [LoadedLinear]) -> Result<(), CalibrateError> {
        let plan = self.plan;
        let precision = |map: &LoadedLinear| {
            let planned = planned(&map.name, map.weight.len(), map.outputs);
            Some(plan.precision(&planned)).filter(Precision::is_solvable)
        };
        let precisions: Vec<Option<Precision>> = maps.iter().map(precision).collect();
        if precisions.iter().all(Option::is_none) {
            return Ok(());
        }
        // Before what layers have lost is made up for, which spreads an infinite element as NaN.
        for (map, _) in maps.iter().zip(&precisions).filter(|(_, precision)| precision.is_some()) {
            check_weight(&map.name, &map.weight)?;
        }
        let seen = LinearInputs::new(inputs, &maps[0], self.calibrated);
        let mut gram = Gram::new(maps[0].inputs);
        gram.add(seen.given);
        let mut solver = Solver::new(&gram, 0.0);
        solver.check(&maps[0].name)?;
        // One for all maps; it goes before codes have a factor of their own.
        let correction =
            (self.method.correction > 0.0 && inputs.exact > 0).then(|| solver.correction(self.method.ridge));
        let target = |(map, precision): (&LoadedLinear, &Option<Precision>)| {
            precision.map(|precision| (precision, self.target(map, &seen, correction.as_ref())))
        };
        let targets: Vec<_> = maps.iter().zip(&precisions).map(target).collect();
        drop((correction, seen));
        for (map, target) in maps.iter_mut().zip(targets) {
            let Some((precision, mut wanted)) = target else { continue };
            self.writer.begin(&map.name, precision)?;
            let strip = solver.strip(precision, map.outputs) * map.inputs;
            for (rows, before) in wanted.chunks_mut(strip).zip(map.weight.chunks(strip)) {
                let solved = solver.solve(&map.name, rows, precision)?.against(before);
                self.writer.push(&solved, rows.len() / map.inputs)?;
                rows.copy_from_slice(&solved.read);
            }
            map.exact = Some(std::mem::replace(&mut map.weight, wanted));
        }
        Ok(())
    }
}

/// What some maps take on the calibration text.
struct LinearInputs<'a> {
    /// From the uncompressed layers before, and from the compressed ones.
    exact: &'a [f32],
    given: &'a [f32],
    /// What the compressed stream has lost that the maps write to.
    lost: Option<Vec<f32>>,
}

impl<'a> LinearInputs<'a> {
    fn new(inputs: &Inputs<'a>, map: &LoadedLinear, tokens: usize) -> LinearInputs<'a> {
        let LoadedLinear { inputs: width, outputs, .. } = map;
        let given = &inputs.rows[inputs.exact * width..][..tokens * width];
        if inputs.exact == 0 {
            return LinearInputs { exact: given, given, lost: None };
        }
        let lost = inputs.stream.map(|stream| {
            let (before, after) = stream.split_at(inputs.exact * outputs);
            before[..tokens * outputs].iter().zip(after).map(|(a, b)| a - b).collect()
        });
        LinearInputs { exact: &inputs.rows[..tokens * width], given, lost }
    }

    /// Sums of what the outputs of a map lack with the inputs given, times each of these (GPTAQ, Li et al. 2025, with what
    /// the residual stream lacks as in Qronos, Zhang et al. 2025).
    fn lacking(&self, map: &LoadedLinear) -> Vec<f32> {
        let (width, outputs) = (map.inputs, map.outputs);
        let differences: Vec<f32> = self.exact.iter().zip(self.given).map(|(a, b)| a - b).collect();
        let mut lacking = product(&differences, &map.weight, (width, outputs));
        if let Some(lost) = &self.lost {
            lacking.iter_mut().zip(lost).for_each(|(x, lost)| *x += lost);
        }
        let extents = Extents { m: outputs, k: lacking.len() / outputs.max(1), n: width };
        let mut sums = vec![0.0; outputs * width];
        let lacking = Matrix::row_major(&lacking, outputs).transposed();
        multiply(extents, lacking, Matrix::row_major(self.given, width), &mut sums);
        sums
    }
}

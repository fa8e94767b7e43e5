//! Codes for the linear maps of a checkpoint, layer after layer.

use std::collections::BTreeMap;
use std::path::Path;

use super::error::CalibrateError;
use super::hidden::{Hidden, read_range};
use super::layer::{head_input, run_layer};
use super::linear::{LoadedLinear, Observer};
use crate::compress::{Gram, Plan, PlannedWeight, Precision, SolutionWriter, Solutions, Solver};
use crate::lower;
use crate::model::{Decoder, Weight};

/// By how much every error of a tied embedding counts besides that of the head: its rows are looked up as well.
const TIED_RIDGE: f32 = 0.1;

/// Bits from which a tied embedding is rounded without data: there is nothing to gain that is worth a pass.
const WIDE: f64 = 8.0;

/// Chooses the codes of all weights that a plan stores as integers or palettes. A tied embedding of few bits comes first, by
/// what the head of the uncompressed model takes; then each layer, by what the layers before it give with their codes; then the head.
/// Codes are kept in a file in `scratch`.
pub fn quantize(
    decoder: &Decoder,
    plan: &Plan,
    sequences: &[Vec<u32>],
    scratch: &Path,
    began: &dyn Fn(&str),
) -> Result<Solutions, CalibrateError> {
    let mut quantizer = Quantizer::new(plan, scratch)?;
    let mut changed = BTreeMap::new();
    if decoder.head.tied
        && let Some(precision) = quantizer.precision("embedding_weight", &decoder.embedding, true)
        && precision.bits() < WIDE
    {
        let mut hidden = Hidden::embed(decoder, sequences, |_, _| ())?;
        began("activations of the head");
        for (index, layer) in decoder.layers.iter().enumerate() {
            in_pool(|| run_layer(&mut hidden, index, layer, &mut ()))?;
        }
        began("codes of the embedding");
        let rows: Vec<u32> = sequences.concat();
        let wanted = (&decoder.embedding, "embedding_weight", precision, TIED_RIDGE);
        changed = in_pool(|| quantizer.table(&head_input(&hidden, decoder), wanted, &rows))?;
    }
    let change = |id: u32, row: &mut [f32]| {
        if let Some(read) = changed.get(&id) {
            row.copy_from_slice(read);
        }
    };
    let mut hidden = Hidden::embed(decoder, sequences, change)?;
    for (index, layer) in decoder.layers.iter().enumerate() {
        began(&format!("codes of layer {index}"));
        in_pool(|| run_layer(&mut hidden, index, layer, &mut quantizer))?;
    }
    if !decoder.head.tied
        && let Some(precision) = quantizer.precision("head_weight", &decoder.head.weight, false)
    {
        began("codes of the head");
        let wanted = (&decoder.head.weight, "head_weight", precision, 0.0);
        in_pool(|| quantizer.table(&head_input(&hidden, decoder), wanted, &[]))?;
    }
    quantizer.finish()
}

/// A weight of so many output channels as the exported program has it.
fn planned(name: &str, elements: usize, channels: usize) -> PlannedWeight<'_> {
    let opset = lower::Options::default().opset;
    PlannedWeight { name, elements, channels, opset, is_looked_up: false }
}

/// Runs something on a thread of the pool: kernels share work among the threads of the pool that they are called from.
fn in_pool<T: Send>(run: impl FnOnce() -> T + Send) -> T {
    rayon::scope(|_| run())
}

/// Chooses codes for the linear maps that it sees, and replaces their weights by what is read back.
pub struct Quantizer<'a> {
    plan: &'a Plan,
    writer: SolutionWriter,
}

impl<'a> Quantizer<'a> {
    /// Stores weights as a plan says. Codes are kept in a file in `scratch`.
    pub fn new(plan: &'a Plan, scratch: &Path) -> Result<Quantizer<'a>, CalibrateError> {
        Ok(Quantizer { plan, writer: SolutionWriter::new(scratch)? })
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
        let wanted: std::collections::BTreeSet<u32> = wanted.iter().copied().collect();
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

impl Observer for Quantizer<'_> {
    fn before(&mut self, inputs: &[f32], maps: &mut [LoadedLinear]) -> Result<(), CalibrateError> {
        let plan = self.plan;
        let precision = |map: &LoadedLinear| {
            let planned = planned(&map.name, map.weight.len(), map.outputs);
            Some(plan.precision(&planned)).filter(Precision::is_solvable)
        };
        if maps.iter().all(|map| precision(map).is_none()) {
            return Ok(());
        }
        let mut gram = Gram::new(maps[0].inputs);
        gram.add(inputs);
        let mut solver = Solver::new(&gram, 0.0);
        for map in maps {
            let Some(precision) = precision(map) else { continue };
            self.writer.begin(&map.name, precision)?;
            let strip = solver.strip(precision, map.outputs) * map.inputs;
            for rows in map.weight.chunks_mut(strip) {
                let solved = solver.solve(&map.name, rows, precision)?;
                self.writer.push(&solved, rows.len() / map.inputs)?;
                rows.copy_from_slice(&solved.read);
            }
        }
        Ok(())
    }
}

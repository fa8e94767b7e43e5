//! What a model loses when one part of it alone has fewer bits, for all parts and precisions in one pass over the checkpoint.
//!
//! A text goes through the layers once. Before a layer, the streams in which an earlier layer was compressed are there
//! already; the layer adds one for each precision that it may have itself. So every layer is read once, and what it is
//! worth is measured at the logits.

use std::collections::BTreeMap;
use std::path::Path;

use super::error::CalibrateError;
use super::held_out::divergences;
use super::hidden::{Hidden, read_range};
use super::in_pool;
use super::layer::{head_input, run_layer};
use super::linear::{Inputs, LoadedLinear, Observer};
use crate::compress::{Gram, Precision, SolutionReader, SolutionWriter, Solutions, Solver};
use crate::model::{Decoder, Weight};

/// A text to measure on.
#[derive(Debug, Clone, Copy)]
pub struct Probe<'a> {
    /// Its tokens.
    pub tokens: &'a [u32],
    /// At how many of the last positions logits are compared.
    pub compared: usize,
    /// Codes are chosen by what is lost on these; by the weights alone if there are none.
    pub calibration: &'a [Vec<u32>],
}

/// A part of a model that gets one precision.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    /// Such as `layer 3`.
    pub name: String,
    /// A pattern of the names of its weights.
    pub pattern: String,
    /// The rows and columns of each of its weights.
    pub weights: Vec<[usize; 2]>,
    /// Mean divergence of the logits in nats, by precision.
    pub losses: Vec<f64>,
}

/// Measures what each part loses at each precision.
pub fn sensitivities(
    decoder: &Decoder,
    candidates: &[Precision],
    probe: &Probe<'_>,
    scratch: &Path,
    began: &dyn Fn(&str),
) -> Result<Vec<Part>, CalibrateError> {
    Measurement { decoder, candidates, probe }.run(scratch, began)
}

struct Measurement<'a> {
    decoder: &'a Decoder,
    candidates: &'a [Precision],
    probe: &'a Probe<'a>,
}

/// What is at the ends of a model.
struct Ends {
    name: &'static str,
    pattern: &'static str,
    /// Whether its rows are looked up, and whether it is the head.
    is_embedding: bool,
    is_head: bool,
    solutions: Vec<Solutions>,
}

impl Measurement<'_> {
    fn run(&self, scratch: &Path, began: &dyn Fn(&str)) -> Result<Vec<Part>, CalibrateError> {
        let Measurement { decoder, candidates, probe } = *self;
        let tokens = probe.tokens.len();
        let ends = self.ends(scratch, began)?;
        let sequences: Vec<Vec<u32>> =
            probe.calibration.iter().cloned().chain([probe.tokens.to_vec()]).collect();
        let mut hidden = Hidden::embed(decoder, &sequences, |_, _| ())?;
        let calibrated = hidden.rows.len() / hidden.width.max(1) - tokens;
        for end in ends.iter().filter(|end| end.is_embedding) {
            for solutions in &end.solutions {
                let reader = solutions.reader("table").expect("it was just solved");
                let change = |id: u32, row: &mut [f32]| {
                    row.copy_from_slice(&reader.rows(id as usize..id as usize + 1));
                };
                hidden.append(Hidden::embed(decoder, &[probe.tokens.to_vec()], change)?);
            }
        }
        let mut parts = Vec::new();
        for (index, layer) in decoder.layers.iter().enumerate() {
            began(&format!("sensitivity of layer {index}"));
            let rows = calibrated * hidden.width..(calibrated + tokens) * hidden.width;
            let before = Hidden {
                width: hidden.width,
                lengths: vec![tokens],
                rows: hidden.rows[rows].to_vec(),
                aside: hidden
                    .aside
                    .tokens(calibrated..calibrated + tokens, hidden.rows.len() / hidden.width.max(1)),
                exact: 0,
            };
            let mut observer = GramObserver { calibrated, grams: BTreeMap::new() };
            in_pool(|| run_layer(&mut hidden, index, layer, &mut observer))?;
            let mut weights = Vec::new();
            for &precision in candidates {
                let mut turned = before.clone();
                let mut coder = Coder { precision, grams: &observer.grams, weights: Vec::new() };
                in_pool(|| run_layer(&mut turned, index, layer, &mut coder))?;
                weights = coder.weights;
                hidden.append(turned);
            }
            let (name, pattern) = (format!("layer {index}"), format!("layers_{index}_*_weight"));
            parts.push(Part { name, pattern, weights, losses: Vec::new() });
        }
        began("logits");
        in_pool(|| self.losses(&hidden, calibrated, &ends, &mut parts))?;
        Ok(parts)
    }

    /// The codes of embedding and head.
    fn ends(&self, scratch: &Path, began: &dyn Fn(&str)) -> Result<Vec<Ends>, CalibrateError> {
        let Measurement { decoder, candidates, probe } = *self;
        let tied = decoder.head.tied;
        let mut gram = None;
        if !probe.calibration.is_empty() {
            began("activations of the head");
            let mut hidden = Hidden::embed(decoder, probe.calibration, |_, _| ())?;
            for (index, layer) in decoder.layers.iter().enumerate() {
                in_pool(|| run_layer(&mut hidden, index, layer, &mut ()))?;
            }
            let mut sums = Gram::new(decoder.hidden);
            let inputs = in_pool(|| head_input(&hidden, decoder, &mut ()))?;
            in_pool(|| sums.add(&inputs));
            gram = Some(sums);
        }
        let solve = |which: &str, weight, gram: Option<&Gram>, ridge: f32| {
            began(&format!("codes of {which}"));
            candidates
                .iter()
                .enumerate()
                .map(|(at, &precision)| {
                    let folder = scratch.join(format!("{which}-{at}"));
                    std::fs::create_dir(&folder)?;
                    in_pool(|| table(weight, precision, (gram, ridge), &folder))
                })
                .collect::<Result<Vec<_>, CalibrateError>>()
        };
        if tied {
            let solutions =
                solve("embedding", &decoder.embedding, gram.as_ref(), super::quantizer::TIED_RIDGE)?;
            return Ok(vec![Ends {
                name: "embedding and head",
                pattern: "embedding_weight*",
                is_embedding: true,
                is_head: true,
                solutions,
            }]);
        }
        let embedding = solve("embedding", &decoder.embedding, None, 0.0)?;
        let head = solve("head", &decoder.head.weight, gram.as_ref(), 0.0)?;
        Ok(vec![
            Ends {
                name: "embedding",
                pattern: "embedding_weight*",
                is_embedding: true,
                is_head: false,
                solutions: embedding,
            },
            Ends {
                name: "head",
                pattern: "head_weight*",
                is_embedding: false,
                is_head: true,
                solutions: head,
            },
        ])
    }

    /// Compares the logits of all streams with those of the uncompressed one.
    fn losses(
        &self,
        hidden: &Hidden,
        calibrated: usize,
        ends: &[Ends],
        parts: &mut Vec<Part>,
    ) -> Result<(), CalibrateError> {
        let Measurement { decoder, candidates, probe } = *self;
        let (tokens, width, count) = (probe.tokens.len(), hidden.width, candidates.len());
        let rows = head_input(hidden, decoder, &mut ())?;
        let compared = probe.compared.min(tokens);
        let stream = |index: usize| {
            let last = (calibrated + (index + 1) * tokens) * width;
            &rows[last - compared * width..last]
        };
        let tables =
            |end: &Ends| -> Vec<Option<usize>> { (0..count).map(|at| end.is_head.then_some(at)).collect() };
        let head: Vec<SolutionReader<'_>> = ends
            .iter()
            .filter(|end| end.is_head)
            .flat_map(|end| &end.solutions)
            .map(|solutions| solutions.reader("table").expect("it was just solved"))
            .collect();
        // Each stream with the table that gives its logits: first those of embedding and head, then those of layers.
        let mut streams: Vec<(&[f32], Option<usize>)> = Vec::new();
        let mut next = 1;
        for end in ends {
            for table in tables(end) {
                streams.push((stream(if end.is_embedding { next } else { 0 }), table));
                next += usize::from(end.is_embedding);
            }
        }
        for index in 0..parts.len() * count {
            streams.push((stream(next + index), None));
        }
        let found = divergences(decoder, &head, stream(0), &streams);
        let (of_ends, of_layers) = found.split_at(ends.len() * count);
        for (part, losses) in parts.iter_mut().zip(of_layers.chunks(count)) {
            part.losses = losses.to_vec();
        }
        let shape = [decoder.vocabulary, decoder.hidden];
        parts.extend(ends.iter().zip(of_ends.chunks(count)).map(|(end, losses)| Part {
            name: end.name.to_owned(),
            pattern: end.pattern.to_owned(),
            weights: vec![shape],
            losses: losses.to_vec(),
        }));
        Ok(())
    }
}

/// The codes of a large table, under the name `table`.
fn table(
    weight: &Weight,
    precision: Precision,
    (gram, ridge): (Option<&Gram>, f32),
    folder: &Path,
) -> Result<Solutions, CalibrateError> {
    let (rows, columns) = (weight.shape[0], weight.shape[1]);
    let mut solver = match gram {
        Some(gram) => Solver::new(gram, ridge),
        None => Solver::blind(columns),
    };
    let strip = solver.strip(precision, rows);
    let mut writer = SolutionWriter::new(folder)?;
    writer.begin("table", precision)?;
    for first in (0..rows).step_by(strip) {
        let last = rows.min(first + strip);
        let elements = read_range(weight, first * columns..last * columns);
        writer.push(&solver.solve(&weight.name, &elements, precision)?, last - first)?;
    }
    Ok(writer.finish()?)
}

/// Keeps the statistics of what maps take, by the first of those that take the same.
struct GramObserver {
    calibrated: usize,
    grams: BTreeMap<String, Gram>,
}

impl Observer for GramObserver {
    fn before(&mut self, inputs: &Inputs<'_>, maps: &mut [LoadedLinear]) -> Result<(), CalibrateError> {
        if self.calibrated > 0 {
            let mut gram = Gram::new(maps[0].inputs);
            gram.add(&inputs.rows[..self.calibrated * maps[0].inputs]);
            self.grams.insert(maps[0].name.clone(), gram);
        }
        Ok(())
    }
}

/// Stores all maps in one precision.
struct Coder<'a> {
    precision: Precision,
    grams: &'a BTreeMap<String, Gram>,
    weights: Vec<[usize; 2]>,
}

impl Observer for Coder<'_> {
    fn before(&mut self, _: &Inputs<'_>, maps: &mut [LoadedLinear]) -> Result<(), CalibrateError> {
        let mut solver = match self.grams.get(&maps[0].name) {
            Some(gram) => Solver::new(gram, 0.0),
            None => Solver::blind(maps[0].inputs),
        };
        for map in maps {
            self.weights.push([map.outputs, map.inputs]);
            let strip = solver.strip(self.precision, map.outputs) * map.inputs;
            for rows in map.weight.chunks_mut(strip) {
                let solved = solver.solve(&map.name, rows, self.precision)?;
                rows.copy_from_slice(&solved.read);
            }
        }
        Ok(())
    }
}

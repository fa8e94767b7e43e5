//! What a host does around lowered functions: inputs, caches, the order of chunks.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use anemeter::lower::{Chunk, Options, lower};
use anemeter::mil::op::Numerics;
use anemeter::mil::verify::verify;
use anemeter::mil::{ArrayType, Feature, FeatureType};
use anemeter::model::{Decoder, Position, Weight};
use anemeter::package::{self, Package, WriteOptions};
use anemeter::runtime::{self, LoadOptions, Runtime, Session};
use anemeter::tensor::{DType, Tensor};
use anemeter::vocabulary::KvForm;
use half::f16;

/// A lowered model with a session per chunk.
pub(crate) struct Host<'d> {
    decoder: &'d Decoder,
    options: Options,
    batch: usize,
    chunks: Vec<Loaded>,
    /// Token that fills up what a function does not need.
    pub(crate) padding: i32,
}

struct Loaded {
    chunk: Chunk,
    session: Box<dyn Session>,
    /// Keys and values by position, then batch and channel.
    cache: BTreeMap<&'static str, Vec<Vec<f16>>>,
}

/// One prediction.
#[derive(Clone)]
pub(crate) struct Step<'a> {
    pub(crate) function: &'a str,
    /// Tokens of each sequence.
    pub(crate) ids: &'a [&'a [i32]],
    /// Position of the first token of each sequence.
    pub(crate) starts: &'a [usize],
    /// Tokens the function takes.
    pub(crate) width: usize,
    /// Keys the function sees through its mask.
    pub(crate) context: usize,
}

impl<'d> Host<'d> {
    /// Lowers, verifies, writes, opens and loads.
    pub(crate) fn new(
        decoder: &'d Decoder,
        options: &Options,
        numerics: Numerics,
        folder: &Path,
    ) -> Host<'d> {
        let load = |chunk: Chunk| {
            let verified = verify(chunk.model.clone()).unwrap();
            let path = folder.join(format!("{}.mlpackage", chunk.name));
            package::write(&verified, &path, WriteOptions::default()).unwrap();
            let package = Package::open(&path).unwrap();
            let session = runtime::cpu()
                .load(&package, &LoadOptions { numerics, threads: Some(1), ..LoadOptions::default() })
                .unwrap()
                .session();
            Loaded { chunk, session, cache: BTreeMap::new() }
        };
        let chunks = lower(decoder, options).unwrap().into_iter().map(load).collect();
        Host { decoder, options: options.clone(), batch: options.batch, chunks, padding: 0 }
    }

    /// Logits after the first tokens of a sequence and after each further one, in the shortest lengths that fit.
    pub(crate) fn generate(&mut self, form: KvForm, ids: &[i32], prompt: usize) -> Vec<Vec<f32>> {
        let fitting = |lengths: &[usize], needed: usize| {
            lengths.iter().copied().filter(|&length| length >= needed).min().unwrap()
        };
        let Options { seq_lens, contexts, query, .. } = self.options.clone();
        let mut predict = |function: &str, range: Range<usize>, width: usize, context: usize| {
            let step = Step { function, ids: &[&ids[range.clone()]], starts: &[range.start], width, context };
            self.predict(&step).remove(0)
        };
        let mut logits = Vec::new();
        match form {
            KvForm::Io => {
                let (short, long) = (fitting(&seq_lens, prompt), fitting(&seq_lens, ids.len()));
                logits.push(predict("prefill", 0..prompt, short, short));
                logits.extend((prompt..ids.len()).map(|p| predict("decode", p..p + 1, 1, long)));
            }
            KvForm::State => {
                let context = fitting(&contexts, ids.len());
                let prefill = format!("prefill_c{context}_q{query}");
                let decode = format!("decode_c{context}");
                let starts = (0..prompt).step_by(query);
                let parts = starts.map(|p| predict(&prefill, p..prompt.min(p + query), query, context));
                logits.extend(parts.last());
                logits.extend((prompt..ids.len()).map(|p| predict(&decode, p..p + 1, 1, context)));
            }
            KvForm::None => {
                for end in prompt..=ids.len() {
                    let width = fitting(&seq_lens, end);
                    logits.push(predict("main", 0..end, width, width));
                }
            }
        }
        logits
    }

    /// Logits of the last token of each sequence.
    pub(crate) fn predict(&mut self, step: &Step<'_>) -> Vec<Vec<f32>> {
        let mut hidden = None;
        for index in 0..self.chunks.len() {
            let interface = self.chunks[index].chunk.model.interface(step.function).unwrap().clone();
            let mut inputs = Vec::new();
            for feature in &interface.inputs {
                inputs.push((feature.name.as_str(), self.input(index, feature, step, &mut hidden)));
            }
            let views: Vec<_> = inputs.iter().map(|(name, tensor)| (*name, tensor.view())).collect();
            let loaded = &mut self.chunks[index];
            loaded.session.predict(step.function, &views).unwrap();
            loaded.keep(step);
            hidden = loaded.session.output("hidden_out").map(|view| view.to_tensor());
        }
        let last = self.chunks.last().unwrap();
        let outputs = &last.chunk.model.interface(step.function).unwrap().outputs;
        let mut logits = vec![Vec::new(); self.batch];
        for feature in outputs.iter().filter(|f| f.name.starts_with("logits")) {
            let part = last.session.output(&feature.name).unwrap();
            let part = part.slice::<f16>().unwrap();
            for (logits, part) in logits.iter_mut().zip(part.chunks(part.len() / self.batch)) {
                logits.extend(part.iter().map(|v| v.to_f32()));
            }
        }
        logits
    }

    fn input(
        &mut self,
        index: usize,
        feature: &Feature,
        step: &Step<'_>,
        hidden: &mut Option<Tensor>,
    ) -> Tensor {
        let FeatureType::Array(ArrayType { dtype, .. }) = &feature.ty else { panic!("not an array") };
        let width = step.width;
        let id = |b: usize, s: usize| step.ids[b].get(s).copied().unwrap_or(self.padding);
        let place = |b: usize, s: usize| i32::try_from(step.starts[b] + s).unwrap();
        let shared = |rows: usize| if width == 1 { self.batch } else { rows };
        match feature.name.as_str() {
            "input_ids" => ints([self.batch, width], id),
            "position_ids" => ints([self.batch, width], |b, s| place(b, s).min(self.last_position())),
            "position" => Tensor::from_slice(&[1], &[place(0, 0)]).unwrap(),
            "hidden" => hidden.take().unwrap_or_else(|| self.embed(step)),
            "select" => {
                halves([self.batch, 1, 1, width], |[b, _, _, s]| f32::from(s + 1 == step.ids[b].len()))
            }
            "k_cache" | "v_cache" => {
                let rows = &self.chunks[index].cache[feature.name.as_str()];
                let channels = rows[0].len() / self.batch;
                halves([self.batch, channels, 1, step.context], |[b, c, _, s]| {
                    rows.get(s).map_or(0.0, |row| row[b * channels + c].to_f32())
                })
            }
            name => {
                assert_eq!(*dtype, DType::F16);
                let positions = &self.chunks[index].chunk.positions;
                if let Some(mask) = positions.masks.iter().find(|mask| mask.name == name) {
                    let own = usize::from(step.function == "decode");
                    let sees = |query: usize, key: usize| {
                        key + own <= query && mask.window.is_none_or(|window| query - key < window)
                    };
                    return halves([shared(1), 1, width, step.context], |[b, _, q, k]| {
                        if sees(step.starts[b] + q, k) { 0.0 } else { -1e4 }
                    });
                }
                let rotation = positions.rotations.iter().find(|r| r.cos == name || r.sin == name).unwrap();
                let dims = rotation.rope.dims;
                let ends = step.starts.iter().zip(step.ids).map(|(start, ids)| start + ids.len());
                let seq_len = ends.max().unwrap();
                let tables: Vec<Vec<f32>> = step
                    .starts
                    .iter()
                    .map(|&start| {
                        let (cos, sin) = rotation.rope.table(start..start + width, seq_len);
                        if rotation.cos == name { cos } else { sin }
                    })
                    .collect();
                halves([shared(1), dims, 1, width], |[b, d, _, s]| tables[b][s * dims + d])
            }
        }
    }

    /// Padding after the last position has no position of its own.
    fn last_position(&self) -> i32 {
        i32::try_from(self.decoder.max_positions).unwrap() - 1
    }

    /// Vectors by the function `embed`, or by the host where there is none.
    fn embed(&mut self, step: &Step<'_>) -> Tensor {
        if let Some(interface) = self.chunks[0].chunk.model.interface("embed").cloned() {
            let mut inputs = Vec::new();
            for feature in &interface.inputs {
                inputs.push((feature.name.as_str(), self.input(0, feature, step, &mut None)));
            }
            let views: Vec<_> = inputs.iter().map(|(name, tensor)| (*name, tensor.view())).collect();
            let session = &mut self.chunks[0].session;
            session.predict("embed", &views).unwrap();
            return session.output("hidden").unwrap().to_tensor();
        }
        halves([self.batch, self.decoder.hidden, 1, step.width], |[b, c, _, s]| {
            let id = step.ids[b].get(s).copied().unwrap_or(self.padding);
            let position = (step.starts[b] + s).min(self.decoder.max_positions - 1);
            embed(self.decoder, id, position)[c]
        })
    }
}

/// The vector of a token at a position.
pub(crate) fn embed(decoder: &Decoder, id: i32, position: usize) -> Vec<f32> {
    let row = |weight: &Weight, row: usize| {
        let mut values = vec![0.0; decoder.hidden];
        weight.read(row * decoder.hidden..(row + 1) * decoder.hidden, &mut values);
        values
    };
    let id = usize::try_from(id).unwrap();
    let mut x: Vec<f32> = row(&decoder.embedding, id).iter().map(|v| v * decoder.embedding_scale).collect();
    if let Position::Learned(table) = &decoder.position {
        x.iter_mut().zip(row(table, position)).for_each(|(x, y)| *x += y);
    }
    x
}

impl Loaded {
    /// Puts new keys and values into the host's caches.
    fn keep(&mut self, step: &Step<'_>) {
        for (input, output) in [("k_cache", "k_new"), ("v_cache", "v_new")] {
            let Some(new) = self.session.output(output) else { continue };
            let (rows, width) = (new.shape()[0] * new.shape()[1], new.shape()[3]);
            let channels = new.shape()[1];
            let new = new.slice::<f16>().unwrap();
            let cache = self.cache.entry(input).or_default();
            for row in 0..rows {
                let b = row / channels;
                for s in 0..step.ids[b].len() {
                    let position = step.starts[b] + s;
                    while cache.len() <= position {
                        cache.push(vec![f16::ZERO; rows]);
                    }
                    cache[position][row] = new[row * width + s];
                }
            }
        }
    }
}

fn ints(shape: [usize; 2], value: impl Fn(usize, usize) -> i32) -> Tensor {
    let values: Vec<i32> = (0..shape[0] * shape[1]).map(|i| value(i / shape[1], i % shape[1])).collect();
    Tensor::from_slice(&shape, &values).unwrap()
}

fn halves(shape: [usize; 4], value: impl Fn([usize; 4]) -> f32) -> Tensor {
    let [_, b, c, d] = shape;
    let at = |i: usize| [i / (b * c * d), i / (c * d) % b, i / d % c, i % d];
    let count = shape.iter().product();
    let values: Vec<f16> = (0..count).map(|i| f16::from_f32(value(at(i)))).collect();
    Tensor::from_slice(&shape, &values).unwrap()
}

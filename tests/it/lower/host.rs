//! What a host does around lowered functions: inputs, caches, the order of chunks.

use std::collections::BTreeMap;

use anemeter::lower::{Chunk, Options, lower};
use anemeter::mil::op::Numerics;
use anemeter::mil::verify::verify;
use anemeter::mil::{ArrayType, Feature, FeatureType};
use anemeter::model::Decoder;
use anemeter::package::{self, Package, WriteOptions};
use anemeter::runtime::{self, LoadOptions, Runtime, Session};
use anemeter::tensor::{DType, Tensor};
use half::f16;

use super::reference;

/// A lowered model with a session per chunk.
pub(crate) struct Host<'d> {
    decoder: &'d Decoder,
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
    pub(crate) fn new(decoder: &'d Decoder, options: &Options) -> Host<'d> {
        Host::with_numerics(decoder, options, Numerics::Fast)
    }

    pub(crate) fn with_numerics(decoder: &'d Decoder, options: &Options, numerics: Numerics) -> Host<'d> {
        let folder = tempfile::tempdir().unwrap();
        let load = |chunk: Chunk| {
            let verified = verify(chunk.model.clone()).unwrap();
            let path = folder.path().join(format!("{}.mlpackage", chunk.name));
            package::write(&verified, &path, WriteOptions::default()).unwrap();
            let package = Package::open(&path).unwrap();
            let session = runtime::cpu()
                .load(&package, &LoadOptions { numerics, threads: Some(1), memory: None })
                .unwrap()
                .session();
            Loaded { chunk, session, cache: BTreeMap::new() }
        };
        let chunks = lower(decoder, options).unwrap().into_iter().map(load).collect();
        Host { decoder, batch: options.batch, chunks, padding: 0 }
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
            "position_ids" => ints([self.batch, width], |b, s| place(b, s).min(63)),
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
                halves([shared(1), dims, 1, width], |[b, d, _, s]| {
                    let (cos, sin) = reference::rotation(rotation.rope.base, dims, step.starts[b] + s);
                    if rotation.cos == name { cos[d] } else { sin[d] }
                })
            }
        }
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
            reference::embed(self.decoder, id, (step.starts[b] + s).min(63))[c]
        })
    }
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

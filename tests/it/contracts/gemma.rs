//! The decoder in the shape of CoreML-LLM's Gemma 4: four chunks, keys and values of a window and of the whole context, token
//! vectors and positions in files. The first layer sees a window only.

use std::path::Path;

use anemeter::mil::{Function, Model, ValueId};
use anemeter::tensor::{DType, TensorView};
use half::f16;

use super::decoder::{CONTEXT, Decoder, HIDDEN, VOCABULARY};
use super::graph::{Graph, Part};
use super::packages::Packages;

/// Positions that the first layer sees.
pub(crate) const WINDOW: usize = 6;
/// Tokens of a prefill.
const PIECE: usize = 3;
const H: i32 = HIDDEN as i32;

/// How keys and values are kept.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kept {
    /// In caches that go in and come out; one token at a time.
    Caches,
    /// In states that are written round and round; a prefill, too.
    States,
}

/// A file beside the packages.
type Beside = (&'static str, Vec<u8>);

/// The decoder, and what its tables are as files.
pub(crate) fn decoder(seed: u64) -> (Decoder, Vec<Beside>) {
    let mut random = fastrand::Rng::with_seed(seed);
    let half = |value: f32| f16::from_f32(value).to_f32();
    // Token vectors are the sums of two tables of codes, positions those of two arrays.
    let mut table = |factor: f32| -> (Vec<u8>, Vec<u8>, Vec<f32>) {
        let codes: Vec<i8> = (0..VOCABULARY * HIDDEN).map(|_| random.i8(-127..)).collect();
        let scales: Vec<f16> = (0..VOCABULARY).map(|_| f16::from_f32(0.2 + 0.2 * random.f32())).collect();
        let values = codes
            .iter()
            .enumerate()
            .map(|(i, &code)| half(f32::from(code) * (scales[i / HIDDEN].to_f32() / 127.0 * factor)));
        let values = values.collect();
        (bytemuck::cast_slice(&codes).to_vec(), bytemuck::cast_slice(&scales).to_vec(), values)
    };
    let (codes, scales, vectors) = table(2.0);
    let (raw_codes, raw_scales, raw) = table(1.5);
    let mut rotation =
        || -> Vec<f16> { (0..CONTEXT * HIDDEN).map(|_| f16::from_f32(random.f32() - 0.5)).collect() };
    let (cos, sin) = (rotation(), rotation());
    let array = |values: &[f16]| {
        let view = TensorView::new(DType::F16, &[CONTEXT, HIDDEN], bytemuck::cast_slice(values)).unwrap();
        let document =
            anemeter::tensor_files::Document { tensors: [("x".to_owned(), view)].into(), texts: None };
        anemeter::tensor_files::Format::of(Path::new("x.npy")).encode(&document).unwrap()
    };
    let sum = |a: f32, b: f32| half(a + b);
    let decoder = Decoder {
        table: vectors.iter().zip(&raw).map(|(&a, &b)| sum(a, b)).collect(),
        places: cos.iter().zip(&sin).map(|(a, b)| sum(a.to_f32(), b.to_f32())).collect(),
        window: WINDOW,
        ..Decoder::new(seed)
    };
    let config = format!(
        r#"{{"architecture": "gemma4", "vocab_size": {VOCABULARY}, "context_length": {CONTEXT},
            "hidden_size": {HIDDEN}, "per_layer_dim": 4, "num_layers": 2, "sliding_window": {WINDOW},
            "embed_scale": 2.0, "per_layer_embed_scale": 1.5}}"#
    );
    let files = vec![
        ("model_config.json", config.into_bytes()),
        ("embed_tokens_q8.bin", codes),
        ("embed_tokens_scales.bin", scales),
        ("embed_tokens_per_layer_q8.bin", raw_codes),
        ("embed_tokens_per_layer_scales.bin", raw_scales),
        ("cos_sliding.npy", array(&sin)),
        ("sin_sliding.npy", array(&cos)),
        ("cos_full.npy", array(&cos)),
        ("sin_full.npy", array(&sin)),
    ];
    (decoder, files)
}

pub(crate) fn chunks(decoder: &Decoder, kept: Kept) -> Packages {
    let makers: [fn(&Decoder, &str, usize, Kept) -> Function; 4] = [first, second, third, last];
    let names = match kept {
        Kept::Caches => ["chunk1.mlpackage", "chunk2.mlpackage", "chunk3.mlpackage", "chunk4.mlpackage"],
        Kept::States => ["chunk_1.mlpackage", "chunk_2.mlpackage", "chunk_3.mlpackage", "chunk_4.mlpackage"],
    };
    let model = |make: fn(&Decoder, &str, usize, Kept) -> Function| match kept {
        Kept::Caches => Model::single(make(decoder, "main", 1, kept)),
        Kept::States => Model::multi(vec![
            make(decoder, "infer", 1, kept),
            make(decoder, &format!("prefill_b{PIECE}"), PIECE, kept),
        ]),
    };
    names.into_iter().zip(makers.map(model)).collect()
}

/// What all chunks take.
struct Common {
    x: ValueId,
    full: ValueId,
    window: ValueId,
    rotations: [ValueId; 4],
}

fn common(graph: &mut Graph<'_>, count: usize) -> Common {
    let half = DType::F16;
    let x = graph.input("hidden_states", half, &[1, count, HIDDEN]);
    let full = graph.input("causal_mask_full", half, &[1, 1, count, CONTEXT]);
    let window = graph.input("causal_mask_sliding", half, &[1, 1, count, WINDOW]);
    let rotations =
        ["cos_s", "sin_s", "cos_f", "sin_f"].map(|name| graph.input(name, half, &[1, 1, count, HIDDEN]));
    let [full, window] = [full, window].map(|mask| graph.squeeze(mask, &[1]));
    Common { x, full, window, rotations }
}

fn add(graph: &mut Graph<'_>, x: ValueId, y: ValueId) -> ValueId {
    graph.op("add", [("x", x.into()), ("y", y.into())])
}

fn identity(graph: &mut Graph<'_>, name: &str, x: ValueId) -> ValueId {
    graph.named(name, "identity", [("x", x.into())])
}

/// Rows `[1, 1, length, hidden]` of a state after new ones are written from a position on, keys and then values.
fn written(
    graph: &mut Graph<'_>,
    (state, length): (&str, usize),
    position: ValueId,
    (count, new): (usize, [ValueId; 2]),
) -> [ValueId; 2] {
    let state = graph.state(state, &[2, 1, length, HIDDEN]);
    let end = graph.op("add", [("x", position.into()), ("y", i32::try_from(count).unwrap().into())]);
    let mut cache = graph.read(state);
    for (row, new) in [0, 1].into_iter().zip(new) {
        let new = graph.expand(new, &[1]);
        let begin = graph.vector(&[[row, 0].into(), position.into(), [0].into()]);
        let end = graph.vector(&[[row + 1, 1].into(), end.into(), [H].into()]);
        cache = graph.update(cache, new, begin, end);
    }
    graph.write(state, cache);
    let length = i32::try_from(length).unwrap();
    [0, 1].map(|row| {
        let begin: [Part; 1] = [[row, 0, 0, 0].into()];
        let begin = graph.vector(&begin);
        let end = graph.vector(&[[row + 1, 1, length, H].into()]);
        graph.slice(cache, begin, end)
    })
}

/// The first layer, which sees a window.
fn first(decoder: &Decoder, name: &str, count: usize, kept: Kept) -> Function {
    let mut graph = Graph::new(name, decoder);
    let Common { x, window, rotations, .. } = common(&mut graph, count);
    let raw = graph.input("per_layer_raw", DType::F16, &[1, count, HIDDEN]);
    let mut x = add(&mut graph, x, raw);
    for rotation in &rotations[2..] {
        let places = graph.squeeze(*rotation, &[1]);
        x = add(&mut graph, x, places);
    }
    let new = [1, 2].map(|which| graph.project(x, 0, which));
    let mut outputs = Vec::new();
    let contents = match kept {
        Kept::States => {
            graph.input("current_pos", DType::I32, &[1]);
            let slot = graph.input("ring_pos", DType::I32, &[1]);
            written(&mut graph, ("kv_cache_sliding", WINDOW), slot, (count, new))
        }
        Kept::Caches => {
            graph.input("update_mask", DType::F16, &[1, 1, CONTEXT, 1]);
            let names = [("K_sliding_in", "K_sliding_out"), ("V_sliding_in", "V_sliding_out")];
            let mut contents = [x; 2];
            for ((to, (input, output)), new) in contents.iter_mut().zip(names).zip(new) {
                let cache = graph.input(input, DType::F16, &[1, 1, WINDOW, HIDDEN]);
                let (begin, end) = ([0, 0, 1, 0], [1, 1, i32::try_from(WINDOW).unwrap(), H]);
                let (begin, end) = (graph.vector(&[begin.into()]), graph.vector(&[end.into()]));
                let old = graph.slice(cache, begin, end);
                let new = graph.expand(new, &[1]);
                *to = graph.concat(output, &[old, new], 2);
                outputs.push(*to);
            }
            contents
        }
    };
    let [keys, values] = contents.map(|content| graph.squeeze(content, &[1]));
    let x = graph.attend(x, 0, [keys, values, window]);
    // What the next chunk adds again.
    let given = graph.named("hidden_states_out", "sub", [("x", x.into()), ("y", raw.into())]);
    let combined = identity(&mut graph, "per_layer_combined_out", raw);
    outputs.extend([given, combined]);
    graph.finish(&outputs)
}

/// Keys and values of the second layer, which sees everything.
fn second(decoder: &Decoder, name: &str, count: usize, kept: Kept) -> Function {
    let mut graph = Graph::new(name, decoder);
    let Common { x, .. } = common(&mut graph, count);
    let combined = graph.input("per_layer_combined", DType::F16, &[1, count, HIDDEN]);
    let x = add(&mut graph, x, combined);
    let new = [1, 2].map(|which| graph.project(x, 1, which));
    let mut outputs = Vec::new();
    let contents = match kept {
        Kept::States => {
            let position = graph.input("current_pos", DType::I32, &[1]);
            graph.input("ring_pos", DType::I32, &[1]);
            written(&mut graph, ("kv_cache_full", CONTEXT), position, (count, new))
        }
        Kept::Caches => {
            let update = graph.input("update_mask", DType::F16, &[1, 1, CONTEXT, 1]);
            let stays = graph.op("sub", [("x", f16::ONE.into()), ("y", update.into())]);
            let names = [("K_full_in", "K_full_out"), ("V_full_in", "V_full_out")];
            let mut contents = [x; 2];
            for ((to, (input, output)), new) in contents.iter_mut().zip(names).zip(new) {
                let cache = graph.input(input, DType::F16, &[1, 1, CONTEXT, HIDDEN]);
                let old = graph.op("mul", [("x", cache.into()), ("y", stays.into())]);
                let new = graph.expand(new, &[1]);
                let new = graph.op("mul", [("x", new.into()), ("y", update.into())]);
                *to = graph.named(output, "add", [("x", old.into()), ("y", new.into())]);
                outputs.push(*to);
            }
            contents
        }
    };
    let names = ["kv14_k", "kv13_v"];
    outputs
        .extend(names.into_iter().zip(contents).map(|(name, content)| identity(&mut graph, name, content)));
    outputs.push(identity(&mut graph, "hidden_states_out", x));
    graph.finish(&outputs)
}

/// The second layer, with the keys and values of the chunk before.
fn third(decoder: &Decoder, name: &str, count: usize, _: Kept) -> Function {
    let mut graph = Graph::new(name, decoder);
    let Common { x, full, .. } = common(&mut graph, count);
    graph.input("per_layer_combined", DType::F16, &[1, count, HIDDEN]);
    let contents = ["kv14_k", "kv13_v"].map(|name| graph.input(name, DType::F16, &[1, 1, CONTEXT, HIDDEN]));
    let [keys, values] = contents.map(|content| graph.squeeze(content, &[1]));
    let x = graph.attend(x, 1, [keys, values, full]);
    let given = identity(&mut graph, "hidden_states_out", x);
    graph.finish(&[given])
}

/// The token after the last.
fn last(decoder: &Decoder, name: &str, count: usize, _: Kept) -> Function {
    let mut graph = Graph::new(name, decoder);
    let Common { x, .. } = common(&mut graph, count);
    let count = i32::try_from(count).unwrap();
    let (begin, end) = (graph.vector(&[[0, count - 1, 0].into()]), graph.vector(&[[1, count, H].into()]));
    let x = graph.slice(x, begin, end);
    let logits = graph.logits("scores", x, 0..VOCABULARY);
    let logits = graph.op("reshape", [("x", logits.into()), ("shape", [VOCABULARY as i32].into())]);
    let arguments = |axis| [("x", logits.into()), axis, ("keep_dims", true.into())];
    let token = graph.named("token_id", "reduce_argmax", arguments(("axis", 0.into())));
    let value = graph.named("token_logit", "reduce_max", arguments(("axes", [0].into())));
    graph.finish(&[token, value])
}

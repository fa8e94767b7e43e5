//! The decoder in the shapes that others export.

use anemeter::mil::{ArrayType, FeatureType, Flexibility, Function, Model, ValueId};
use anemeter::tensor::DType;

use super::decoder::{CONTEXT, Decoder, HIDDEN, LAYERS, VOCABULARY};
use super::graph::{Graph, Part, Span};

/// Packages by name.
pub(crate) type Packages = Vec<(&'static str, Model)>;

/// Ids of the whole sequence to logits, at two lengths, with a mask of padding.
pub(crate) fn whole_sequence(decoder: &Decoder) -> Packages {
    let mut graph = Graph::new("main", decoder);
    let ids = graph.input("input_ids", DType::I32, &[1, 0]);
    let padding = graph.input("attention_mask", DType::I32, &[1, 0]);
    let end = graph.size(ids, 1);
    let begin = graph.vector(&[[0].into()]);
    let x = graph.embed("", ids);
    let mut x = graph.place_span(x, Span { begin, end });
    let causal = graph.causal(end);
    let padding = graph.op("cast", [("x", padding.into()), ("dtype", "fp16".into())]);
    let shown = graph.op("sub", [("x", padding.into()), ("y", half::f16::ONE.into())]);
    let hidden = graph.op("mul", [("x", shown.into()), ("y", half::f16::from_f32(10_000.0).into())]);
    let hidden = graph.expand(hidden, &[1]);
    let mask = graph.op("add", [("x", causal.into()), ("y", hidden.into())]);
    for layer in 0..LAYERS {
        let (keys, values) = (graph.project(x, layer, 1), graph.project(x, layer, 2));
        x = graph.attend(x, layer, [keys, values, mask]);
    }
    let logits = graph.all_logits(x);
    let mut model = Model::single(graph.finish(&[logits]));
    let shapes = || Flexibility::Enumerated(vec![vec![1, 8], vec![1, CONTEXT as u64]]);
    for name in ["input_ids", "attention_mask"] {
        declare(&mut model, name, DType::I32, &[1, CONTEXT as u64], shapes());
    }
    vec![("model.mlpackage", model)]
}

/// Ids padded to one length, as older swift-transformers drive it.
pub(crate) fn stateless(decoder: &Decoder) -> Packages {
    let mut graph = Graph::new("main", decoder);
    let ids = graph.input("inputIds", DType::I32, &[1, CONTEXT]);
    let end = graph.size(ids, 1);
    let begin = graph.vector(&[[0].into()]);
    let x = graph.embed("", ids);
    let mut x = graph.place_span(x, Span { begin, end });
    let mask = graph.causal(end);
    for layer in 0..LAYERS {
        let (keys, values) = (graph.project(x, layer, 1), graph.project(x, layer, 2));
        x = graph.attend(x, layer, [keys, values, mask]);
    }
    let logits = graph.all_logits(x);
    vec![("model.mlpackage", Model::single(graph.finish(&[logits])))]
}

/// Keys and values in two states; the mask's last size says how many tokens there are.
pub(crate) fn stateful(decoder: &Decoder) -> Packages {
    let mut graph = Graph::new("main", decoder);
    let caches = ["keyCache", "valueCache"];
    let states = caches.map(|name| graph.state(name, &[LAYERS, 1, 1, CONTEXT, HIDDEN]));
    let contents = states.map(|state| graph.read(state));
    let (logits, contents) = swift_transformers(&mut graph, contents);
    for (state, content) in states.into_iter().zip(contents) {
        graph.write(state, content);
    }
    let mut model = Model::single(graph.finish(&[logits]));
    declare_open(&mut model);
    vec![("model.mlpackage", model)]
}

/// The same with caches that go in and come out.
pub(crate) fn caches(decoder: &Decoder) -> Packages {
    let mut graph = Graph::new("main", decoder);
    let caches = ["keyCache", "valueCache"];
    let inputs = caches.map(|name| graph.input(name, DType::F16, &[LAYERS, 1, 1, CONTEXT, HIDDEN]));
    let (logits, contents) = swift_transformers(&mut graph, inputs);
    let outputs = ["presentKeys", "presentValues"];
    let outputs: Vec<ValueId> = outputs
        .iter()
        .zip(contents)
        .map(|(name, content)| graph.named(name, "identity", [("x", content.into())]))
        .collect();
    let mut model = Model::single(graph.finish(&[logits, outputs[0], outputs[1]]));
    declare_open(&mut model);
    vec![("model.mlpackage", model)]
}

/// Logits of some tokens after those in caches, and the caches after them.
fn swift_transformers(graph: &mut Graph<'_>, mut caches: [ValueId; 2]) -> (ValueId, [ValueId; 2]) {
    let ids = graph.input("inputIds", DType::I32, &[1, 0]);
    let mask = graph.input("causalMask", DType::F16, &[1, 1, 0, 0]);
    let (end, count) = (graph.size(mask, 3), graph.size(ids, 1));
    let begin = graph.op("sub", [("x", end.into()), ("y", count.into())]);
    let x = graph.embed("", ids);
    let mut x = graph.place_span(x, Span { begin, end });
    let mask = graph.squeeze(mask, &[1]);
    for layer in 0..LAYERS {
        let at = i32::try_from(layer).unwrap();
        let begin = graph.vector(&[[at, 0, 0].into(), begin.into(), [0].into()]);
        let end = graph.vector(&[[at + 1, 1, 1].into(), end.into(), [HIDDEN as i32].into()]);
        let first = graph.vector(&[[at, 0, 0, 0, 0].into()]);
        for (which, cache) in [1, 2].into_iter().zip(&mut caches) {
            let new = graph.project(x, layer, which);
            let new = graph.expand(new, &[0, 1]);
            *cache = graph.update(*cache, new, begin, end);
        }
        let [keys, values] = caches.map(|cache| {
            let seen = graph.slice(cache, first, end);
            graph.op("reshape", [("x", seen.into()), ("shape", [1, -1, HIDDEN as i32].into())])
        });
        x = graph.attend(x, layer, [keys, values, mask]);
    }
    (graph.all_logits(x), caches)
}

/// What a head of ANEMLL gives.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Head {
    Logits,
    Largest,
}

/// Token vectors, two chunks with one state, a head in two slices.
pub(crate) fn anemll(decoder: &Decoder, head: Head) -> Packages {
    let mut graph = Graph::new("main", decoder);
    let ids = graph.input("input_ids", DType::I32, &[1, 0]);
    let vectors = graph.embed("hidden_states", ids);
    let mut embeddings = Model::single(graph.finish(&[vectors]));
    let shapes = Flexibility::Enumerated(vec![vec![1, 1], vec![1, 4]]);
    declare(&mut embeddings, "input_ids", DType::I32, &[1, 1], shapes);
    let chunk = |layer: usize| {
        let functions = vec![chunk(decoder, "infer", 1, layer), chunk(decoder, "prefill", 4, layer)];
        Model::multi(functions)
    };
    vec![
        ("tiny_lm_head.mlpackage", split_head(decoder, head)),
        ("tiny_FFN_PF_chunk_02of02.mlpackage", chunk(1)),
        ("tiny_FFN_PF_chunk_01of02.mlpackage", chunk(0)),
        ("tiny_embeddings.mlpackage", embeddings),
    ]
}

/// All of it in one package, whose functions take ids.
pub(crate) fn anemll_monolithic(decoder: &Decoder) -> Packages {
    let function = |name: &str, count: usize| {
        let mut graph = Graph::new(name, decoder);
        let ids = graph.input("input_ids", DType::I32, &[1, count]);
        let cached = Cached::new(&mut graph, count);
        let x = graph.embed("", ids);
        let mut x = graph.place(x, cached.positions);
        for layer in 0..LAYERS {
            x = cached.attend(&mut graph, x, layer);
        }
        let first = first_token(&mut graph, x);
        let logits = logits_in_slices(&mut graph, first);
        graph.finish(&logits)
    };
    let functions = vec![function("infer", 1), function("prefill", 4)];
    vec![("tiny_monolithic_full.mlpackage", Model::multi(functions))]
}

fn chunk(decoder: &Decoder, name: &str, count: usize, layer: usize) -> Function {
    let mut graph = Graph::new(name, decoder);
    let x = graph.input("hidden_states", DType::F16, &[1, count, HIDDEN]);
    let cached = Cached::new(&mut graph, count);
    // The first chunk adds positions; the others take them all the same.
    let placed = graph.place(x, cached.positions);
    let x = if layer == 0 { placed } else { x };
    let x = cached.attend(&mut graph, x, layer);
    let first = first_token(&mut graph, x);
    let given = if name == "prefill" && layer == LAYERS - 1 { first } else { x };
    let given = graph.named("output_hidden_states", "identity", [("x", given.into())]);
    graph.finish(&[given])
}

/// What ANEMLL's functions of layers take, and the state that all of them share.
#[derive(Clone, Copy)]
struct Cached {
    positions: ValueId,
    mask: ValueId,
    position: ValueId,
    state: ValueId,
    /// The position after the tokens.
    end: ValueId,
}

impl Cached {
    fn new(graph: &mut Graph<'_>, count: usize) -> Cached {
        let positions = graph.input("position_ids", DType::I32, &[count]);
        let mask = graph.input("causal_mask", DType::F16, &[1, 1, count, CONTEXT]);
        let position = graph.input("current_pos", DType::I32, &[1]);
        let state = graph.state("model_model_kv_cache_0", &[2 * LAYERS, 1, CONTEXT, HIDDEN]);
        let end = graph.op("add", [("x", position.into()), ("y", i32::try_from(count).unwrap().into())]);
        Cached { positions, mask, position, state, end }
    }

    /// A layer, which keeps its keys and values.
    fn attend(self, graph: &mut Graph<'_>, x: ValueId, layer: usize) -> ValueId {
        let mut cache = graph.read(self.state);
        let rows = [layer, LAYERS + layer].map(|row| i32::try_from(row).unwrap());
        for (which, row) in [1, 2].into_iter().zip(rows) {
            let new = graph.project(x, layer, which);
            let new = graph.expand(new, &[1]);
            let begin = graph.vector(&[[row, 0].into(), self.position.into(), [0].into()]);
            let end = graph.vector(&[[row + 1, 1].into(), self.end.into(), [HIDDEN as i32].into()]);
            cache = graph.update(cache, new, begin, end);
        }
        graph.write(self.state, cache);
        let [keys, values] = rows.map(|row| {
            let begin: [Part; 1] = [[row, 0, 0, 0].into()];
            let begin = graph.vector(&begin);
            let end = graph.vector(&[[row + 1, 1, CONTEXT as i32, HIDDEN as i32].into()]);
            let seen = graph.slice(cache, begin, end);
            graph.squeeze(seen, &[1])
        });
        let mask = graph.squeeze(self.mask, &[1]);
        graph.attend(x, layer, [keys, values, mask])
    }
}

fn first_token(graph: &mut Graph<'_>, x: ValueId) -> ValueId {
    let (begin, end) = (graph.vector(&[[0, 0, 0].into()]), graph.vector(&[[1, 1, HIDDEN as i32].into()]));
    graph.slice(x, begin, end)
}

fn logits_in_slices(graph: &mut Graph<'_>, x: ValueId) -> [ValueId; 2] {
    let half = VOCABULARY / 2;
    let slices = [("logits1", 0..half), ("logits2", half..VOCABULARY)];
    slices.map(|(name, tokens)| graph.logits(name, x, tokens))
}

fn split_head(decoder: &Decoder, head: Head) -> Model {
    let mut graph = Graph::new("main", decoder);
    let x = graph.input("hidden_states", DType::F16, &[1, 1, HIDDEN]);
    let slices = logits_in_slices(&mut graph, x);
    if head == Head::Logits {
        return Model::single(graph.finish(&slices));
    }
    let mut of_all = |name: &str, kind: &str, axes: &str| {
        let parts = slices.map(|slice| {
            let axis = match axes {
                "axis" => (axes, (-1).into()),
                _ => (axes, [-1].into()),
            };
            let best = graph.op(kind, [("x", slice.into()), axis, ("keep_dims", false.into())]);
            graph.squeeze(best, &[0])
        });
        let joined = graph.vector(&parts.map(Part::Value));
        graph.named(name, "identity", [("x", joined.into())])
    };
    let indices = of_all("argmax_idx", "reduce_argmax", "axis");
    let values = of_all("argmax_val", "reduce_max", "axes");
    Model::single(graph.finish(&[indices, values]))
}

/// One token at a time, the position by masks, the token that is picked as output.
pub(crate) fn coreml_llm(decoder: &Decoder) -> Packages {
    let mut graph = Graph::new("main", decoder);
    let ids = graph.input("input_ids", DType::I32, &[1, 1]);
    let positions = graph.input("position_ids", DType::I32, &[1]);
    let mask = graph.input("causal_mask", DType::F16, &[1, 1, 1, CONTEXT]);
    let update = graph.input("update_mask", DType::F16, &[1, 1, CONTEXT, 1]);
    let state = graph.state("kv_cache_0", &[2 * LAYERS, 1, CONTEXT, HIDDEN]);
    let x = graph.embed("", ids);
    let mut x = graph.place(x, positions);
    let mask = graph.squeeze(mask, &[1]);
    let update = graph.squeeze(update, &[1]);
    let kept = graph.op("sub", [("x", half::f16::ONE.into()), ("y", update.into())]);
    let mut rows = Vec::new();
    for layer in 0..LAYERS {
        let [keys, values] = [(layer, 1), (LAYERS + layer, 2)].map(|(row, which)| {
            let cache = graph.read(state);
            let row = i32::try_from(row).unwrap();
            let begin = graph.vector(&[[row, 0, 0, 0].into()]);
            let end = graph.vector(&[[row + 1, 1, CONTEXT as i32, HIDDEN as i32].into()]);
            let old = graph.slice(cache, begin, end);
            let old = graph.squeeze(old, &[1]);
            let old = graph.op("mul", [("x", old.into()), ("y", kept.into())]);
            let new = graph.project(x, layer, which);
            let new = graph.op("mul", [("x", new.into()), ("y", update.into())]);
            let content = graph.op("add", [("x", old.into()), ("y", new.into())]);
            rows.push((begin, end, content));
            content
        });
        x = graph.attend(x, layer, [keys, values, mask]);
    }
    let mut cache = graph.read(state);
    for (begin, end, content) in rows {
        let content = graph.expand(content, &[1]);
        cache = graph.update(cache, content, begin, end);
    }
    graph.write(state, cache);
    let logits = graph.logits("scores", x, 0..VOCABULARY);
    let logits = graph.op("reshape", [("x", logits.into()), ("shape", [VOCABULARY as i32].into())]);
    let arguments = |axis| [("x", logits.into()), axis, ("keep_dims", true.into())];
    let token = graph.named("token_id", "reduce_argmax", arguments(("axis", 0.into())));
    let value = graph.named("token_logit", "reduce_max", arguments(("axes", [0].into())));
    vec![("model.mlpackage", Model::single(graph.finish(&[token, value])))]
}

/// Ids and masks of any number of tokens up to the context.
fn declare_open(model: &mut Model) {
    let context = (1, Some(CONTEXT as u64));
    declare(model, "inputIds", DType::I32, &[1, 1], Flexibility::Ranges(vec![(1, Some(1)), context]));
    let one = (1, Some(1));
    let ranges = Flexibility::Ranges(vec![one, one, context, context]);
    declare(model, "causalMask", DType::F16, &[1, 1, 1, 1], ranges);
}

fn declare(model: &mut Model, name: &str, dtype: DType, shape: &[u64], flexibility: Flexibility) {
    let interface = model.interface_mut("main").unwrap();
    let feature = interface.inputs.iter_mut().find(|feature| feature.name == name).unwrap();
    feature.ty = FeatureType::Array(ArrayType { dtype, shape: shape.to_vec(), flexibility, default: None });
}

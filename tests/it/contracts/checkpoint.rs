//! `verify --checkpoint` of packages that others made: GPT-2 as its trace gives it, against the checkpoint.

use std::path::Path;

use anemeter::mil::{Arg, Builder, Literal, Model, Opset, TensorType, ValueId};
use anemeter::tensor::{DType, Tensor};
use half::f16;
use serde_json::{Value, json};

use super::adopt;
use crate::support::architectures::{self, Tiny};
use crate::support::command::{anemeter, arg, names};
use crate::support::packages::write as write_package;
use crate::support::scene::Scene;

const LENGTH: usize = 24;
const HEADS: usize = 4;

/// A checkpoint as MIL in fp16, ids of the whole sequence to `logits`.
struct Trace<'a> {
    function: Builder,
    tiny: &'a Tiny,
    constants: usize,
}

impl Trace<'_> {
    fn op<const N: usize>(&mut self, kind: &str, arguments: [(&str, Arg); N]) -> ValueId {
        let op = arguments.into_iter().fold(self.function.op(kind), |op, (key, value)| op.arg(key, value));
        op.push().unwrap()
    }

    fn halves(&mut self, shape: &[usize], values: &[f16]) -> ValueId {
        self.constants += 1;
        let tensor = Tensor::from_slice(shape, values).unwrap();
        self.function.constant(&format!("constant_{}", self.constants), Literal::blob(&tensor))
    }

    fn tensor(&mut self, name: &str) -> ValueId {
        let (shape, values) = &self.tiny.tensors[&format!("transformer.{name}")];
        self.halves(shape, values)
    }

    fn add(&mut self, x: ValueId, y: ValueId) -> ValueId {
        self.op("add", [("x", x.into()), ("y", y.into())])
    }

    fn norm(&mut self, name: &str, x: ValueId) -> ValueId {
        let [gamma, beta] = ["weight", "bias"].map(|part| self.tensor(&format!("{name}.{part}")));
        let epsilon = f16::from_f32(1e-5);
        self.op(
            "layer_norm",
            [
                ("x", x.into()),
                ("axes", [-1].into()),
                ("gamma", gamma.into()),
                ("beta", beta.into()),
                ("epsilon", epsilon.into()),
            ],
        )
    }

    /// GPT-2's linear maps have their weights the other way round.
    fn linear(&mut self, name: &str, x: ValueId) -> ValueId {
        let [weight, bias] = ["weight", "bias"].map(|part| self.tensor(&format!("{name}.{part}")));
        let y = self.op("matmul", [("x", x.into()), ("y", weight.into())]);
        self.add(y, bias)
    }

    /// A third of queries, keys and values as `[1, heads, length, width]`.
    fn heads(&mut self, qkv: ValueId, part: usize, hidden: usize) -> ValueId {
        let [begin, end] = [part, part + 1].map(|at| i32::try_from(at * hidden).unwrap());
        let length = i32::try_from(LENGTH).unwrap();
        let [begin, end] = [[0, 0, begin], [1, length, end]];
        let part =
            self.op("slice_by_index", [("x", qkv.into()), ("begin", begin.into()), ("end", end.into())]);
        let split = [1, length, i32::try_from(HEADS).unwrap(), -1];
        let split = self.op("reshape", [("x", part.into()), ("shape", split.into())]);
        self.op("transpose", [("x", split.into()), ("perm", [0, 2, 1, 3].into())])
    }

    fn attention(&mut self, at: &str, x: ValueId, hidden: usize) -> ValueId {
        let normed = self.norm(&format!("{at}.ln_1"), x);
        let qkv = self.linear(&format!("{at}.attn.c_attn"), normed);
        let [query, key, value] = [0, 1, 2].map(|part| self.heads(qkv, part, hidden));
        let scale = f16::from_f32(((hidden / HEADS) as f32).sqrt().recip());
        let query = self.op("mul", [("x", query.into()), ("y", scale.into())]);
        let scores =
            self.op("matmul", [("x", query.into()), ("y", key.into()), ("transpose_y", true.into())]);
        let causal = |at: usize| if at % LENGTH > at / LENGTH { f16::NEG_INFINITY } else { f16::ZERO };
        let causal: Vec<f16> = (0..LENGTH * LENGTH).map(causal).collect();
        let causal = self.halves(&[1, 1, LENGTH, LENGTH], &causal);
        let scores = self.add(scores, causal);
        let weights = self.op("softmax", [("x", scores.into()), ("axis", (-1).into())]);
        let mixed = self.op("matmul", [("x", weights.into()), ("y", value.into())]);
        let mixed = self.op("transpose", [("x", mixed.into()), ("perm", [0, 2, 1, 3].into())]);
        let joined = [1, i32::try_from(LENGTH).unwrap(), i32::try_from(hidden).unwrap()];
        let mixed = self.op("reshape", [("x", mixed.into()), ("shape", joined.into())]);
        let mixed = self.linear(&format!("{at}.attn.c_proj"), mixed);
        self.add(x, mixed)
    }

    fn mlp(&mut self, at: &str, x: ValueId) -> ValueId {
        let normed = self.norm(&format!("{at}.ln_2"), x);
        let inner = self.linear(&format!("{at}.mlp.c_fc"), normed);
        let inner = self.op("gelu", [("x", inner.into()), ("mode", "TANH_APPROXIMATION".into())]);
        let outer = self.linear(&format!("{at}.mlp.c_proj"), inner);
        self.add(x, outer)
    }
}

/// The package of a checkpoint.
fn package(tiny: &Tiny) -> Model {
    let (layers, hidden) = (3, 24);
    let mut trace = Trace { function: Builder::new("main", Opset::Ios18), tiny, constants: 0 };
    let ids = trace.function.input("input_ids", TensorType::fixed(DType::I32, &[1, LENGTH]));
    let table = trace.tensor("wte.weight");
    let x = trace.op("gather", [("x", table.into()), ("indices", ids.into()), ("axis", 0.into())]);
    let places = &tiny.tensors["transformer.wpe.weight"].1[..LENGTH * hidden];
    let places = trace.halves(&[1, LENGTH, hidden], places);
    let mut x = trace.add(x, places);
    for at in (0..layers).map(|layer| format!("h.{layer}")) {
        x = trace.attention(&at, x, hidden);
        x = trace.mlp(&at, x);
    }
    let x = trace.norm("ln_f", x);
    let head = trace.function.op("linear").arg("x", x).arg("weight", table);
    let logits = head.named("logits").push().unwrap();
    Model::single(trace.function.finish(&[logits]))
}

fn verify(what: &Path, checkpoint: &Path) -> (i32, Value, String) {
    let outcome =
        anemeter(&["verify", arg(what), "--checkpoint", arg(checkpoint), "--tokens", "4", "--json"]);
    let report = serde_json::from_str(&outcome.stdout).unwrap_or_default();
    (outcome.code, report, outcome.stderr)
}

#[test]
fn logits_of_a_contract_are_those_of_the_checkpoint() {
    let scene = Scene::empty();
    let tiny = architectures::gpt2("gpt2", &json!({}));
    let checkpoint = tiny.write(scene.folder());
    let (source, bundle) = (scene.path("source"), scene.path("bundle"));
    std::fs::create_dir(&source).unwrap();
    let path = source.join("gpt2.mlpackage");
    write_package(&path, package(&tiny));
    assert_eq!(anemeter(&["adopt", arg(&path), "-o", arg(&bundle)]).code, 0);
    for what in [&bundle, &path] {
        let (code, report, said) = verify(what, &checkpoint);
        assert_eq!((code, &report["passed"]), (0, &json!(true)), "{said}{report:#}");
        let cells = report["cells"].as_array().unwrap();
        assert!(!cells.is_empty());
        for cell in cells {
            assert!(cell["positions"].as_u64().unwrap() > 0, "{cell}");
            assert!(cell["cosine_min"].as_f64().unwrap() >= 0.9999, "{cell}");
        }
    }
    assert!(bundle.join("verify.json").exists(), "a bundle keeps what was found");
    assert_eq!(names(&source), ["gpt2.mlpackage"], "nothing is written beside packages");

    // One weight of the checkpoint is another: the packages no longer compute it.
    let mut other = tiny.clone();
    other.name = "other";
    let (_, values) = other.tensors.get_mut("transformer.h.1.mlp.c_fc.bias").unwrap();
    values.iter_mut().for_each(|value| *value = f16::from_f32(value.to_f32() + 1.0));
    let (code, report, said) = verify(&bundle, &other.write(scene.folder()));
    assert_eq!((code, &report["passed"]), (1, &json!(false)), "{said}");
}

#[test]
fn checkpoints_of_another_vocabulary_and_heads_that_pick_are_refused() {
    let scene = Scene::empty();
    let tiny = architectures::gpt2("gpt2", &json!({}));
    let checkpoint = tiny.write(scene.folder());
    let decoder = super::Decoder::new(5);
    adopt(&scene, "picks", &super::SHAPES[5], &decoder);
    let (code, _, said) = verify(&scene.path("picks"), &checkpoint);
    assert_eq!(code, 2);
    assert!(said.contains("has the vocabulary 37, the packages' is 24"), "{said}");
    let mut same = tiny;
    same.name = "same";
    same.config["vocab_size"] = 24.into();
    let (shape, values) = same.tensors.get_mut("transformer.wte.weight").unwrap();
    values.truncate(24 * shape[1]);
    shape[0] = 24;
    let (code, _, said) = verify(&scene.path("picks"), &same.write(scene.folder()));
    assert_eq!(code, 2);
    assert!(said.contains("pick the next token themselves"), "{said}");
}

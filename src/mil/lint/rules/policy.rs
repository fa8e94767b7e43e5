//! The export checklist: format, precision, system.

use super::pattern::{LinearMap, linear_maps};
use super::*;
use anemeter_base::vocabulary::Choice;

pub(super) static NOT_ML_PROGRAM: Rule = Rule {
    title: "not an ML program",
    why: "Only ML programs (.mlpackage) have fp16 types, states and functions. Models in the older single-file format \
          have none of them and are not looked into. A package that holds another kind of model is refused when it is \
          opened.",
    evidence: &[CHECKLIST, "apple/coremltools, comparing ML programs and neural networks"],
    remedy: "convert with convert_to=\"mlprogram\" and save as .mlpackage",
    check: Check::Subject(|subject, _, sink| {
        for name in &subject.files {
            sink.report(Place::package(name), "is a single-file model");
        }
    }),
    #[cfg(test)]
    examples: (|| examples::with_file(true), || examples::with_file(false)),
    ..Rule::error("C01", "not-ml-program", Policy)
};

const SENSITIVE: &[&str] = &["layer_norm", "instance_norm", "batch_norm", "l2_norm", "softmax"];

pub(super) static NORM_NOT_FP16: Rule = Rule {
    title: "a norm or softmax that is not fp16",
    why: "Converters keep norms and softmax in fp32 when told to guard precision. Each is then an island off the Neural \
          Engine in the middle of every layer.",
    evidence: &[CHECKLIST, "apple/coreai-models, neural_engine_rules: fp32 falls back to GPU or CPU"],
    remedy: "convert with compute_precision FLOAT16 for all operations, and scale norms so that fp16 holds them",
    check: Check::Shape(|graph, _, sink| {
        for op in graph.runtime_ops().filter(|op| SENSITIVE.contains(&op.kind())) {
            if let Some(ty) = graph.arg_ty(&op, "x").filter(|ty| ty.dtype != DType::F16) {
                sink.op(graph, &op, format!("computes in {}", ty.dtype));
            }
        }
    }),
    #[cfg(test)]
    examples: (|| examples::softmax_in(DType::F32), || examples::softmax_in(DType::F16)),
    ..Rule::error("C03", "norm-not-fp16", Policy).off_ane()
};

pub(super) static UNCOMPRESSED_WEIGHTS: Rule = Rule {
    title: "most weights are not compressed",
    why: "Decoding reads every weight at every token: int8 weights with fp16 activations halve the bytes, palettes \
          divide them by up to four. Reported where more than half of the bytes of linear maps are plain.",
    evidence: &[
        CHECKLIST,
        "Anemll/anemll-bench: 6-bit palettes made a head 2.2 to 2.5 times as fast",
        "john-rocky/CoreML-LLM: int8 2.3 times the tokens/s of fp16 on M4",
    ],
    remedy: "export at int8, or with a palette, and check the quality",
    check: Check::Package(|package, _, sink| {
        let (mut plain, mut all) = (0u64, 0u64);
        for function in &package.model.program.functions {
            let graph = Graph::new(function, package.model.interface(&function.name), 0);
            for LinearMap { weight, .. } in linear_maps(&graph) {
                let bytes = graph.stored_bytes(weight);
                all = all.saturating_add(bytes);
                if graph.produced_by(weight, &["const"]).is_some() {
                    plain = plain.saturating_add(bytes);
                }
            }
        }
        if plain > all / 2 {
            let share = plain as f64 / all as f64 * 100.0;
            sink.report(Place::package(""), format!("{share:.0} % of the bytes of linear maps are plain"));
        }
    }),
    #[cfg(test)]
    examples: (
        || convolved(|b| b.constant("w", big(&[64, 64, 1, 1]))),
        || convolved(|b| scaled(b, DType::I8, (64, 64), 1)),
    ),
    ..Rule::info("C04", "uncompressed-weights", Policy).decided_by("precision")
};

pub(super) static OPSET_NEWER_THAN_TARGET: Rule = Rule {
    title: "a function needs a newer system than the target",
    why: "Each opset belongs to a release: a system does not load functions of a later one.",
    evidence: &["apple/coremltools: opset CoreML8 is iOS 18 and macOS 15, CoreML9 is iOS and macOS 26"],
    remedy: "export with the opset of the target, or name a later target",
    check: Check::Function(|graph, setting, sink| {
        if graph.function.opset > setting.target.opset() {
            let message = format!(
                "is written in {}, {} reads {}",
                graph.function.opset,
                setting.target.name(),
                setting.target.opset()
            );
            sink.report(Place::function(&graph.function.name), message);
        }
    }),
    #[cfg(test)]
    examples: (|| examples::opset(crate::Opset::Ios26), || examples::opset(crate::Opset::Ios18)),
    ..Rule::error("C07", "opset-newer-than-target", Documented).decided_by("target")
};

#[cfg(test)]
mod examples {
    use super::*;
    use crate::{Builder, Model, Opset};

    pub(super) fn with_file(file: bool) -> Case {
        let mut case = plain();
        case.subject.files = if file { vec!["old.mlmodel".to_owned()] } else { Vec::new() };
        case
    }

    pub(super) fn softmax_in(dtype: DType) -> Case {
        case(|b| {
            let x = input(b, "x", dtype, &[1, 64, 1, 32]);
            vec![softmax(b, x, 1)]
        })
    }

    pub(super) fn opset(opset: Opset) -> Case {
        let mut main = Builder::new("main", opset);
        let x = x(&mut main, &[1, 64]);
        let y = unary(&mut main, "relu", x);
        Case::of(Model::single(main.finish(&[y])))
    }
}

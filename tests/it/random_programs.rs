//! Random programs: the planned runtime and an evaluator that keeps every value agree to the bit.

use std::collections::BTreeMap;

use anemeter::mil::arguments::{Arguments, Source};
use anemeter::mil::op::{KnownArguments, Numerics, apply};
use anemeter::mil::{Builder, Function, Model, Opset, TensorType, ValueId, ops};
use anemeter::runtime::{self, LoadOptions};
use anemeter::tensor::{DType, Tensor};
use proptest::prelude::*;

use crate::support::fixtures::numbers;

/// Choices drawn from the bytes of a test case.
struct Choices<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Choices<'_> {
    fn below(&mut self, limit: usize) -> usize {
        self.at += 1;
        usize::from(self.bytes[(self.at - 1) % self.bytes.len()]).wrapping_add(self.at / self.bytes.len())
            % limit
    }
}

/// A function of random operations over two inputs; every value that nothing else uses is an output.
fn random_function(bytes: &[u8], dtype: DType) -> Function {
    let mut choices = Choices { bytes, at: 0 };
    let mut main = Builder::new("main", Opset::Ios18);
    let mut values = vec![
        main.input("a", TensorType::fixed(dtype, &[2, 3, 4])),
        main.input("b", TensorType::fixed(dtype, &[1, 3, 4])),
    ];
    for _ in 0..bytes.len() {
        let x = values[choices.below(values.len())];
        let y = values[choices.below(values.len())];
        if let Some(value) = random_operation(&mut main, &mut choices, x, y) {
            values.push(value);
        }
    }
    let outputs: Vec<ValueId> = values[2..].iter().copied().rev().step_by(3).collect();
    let outputs = if outputs.is_empty() { vec![values[1]] } else { outputs };
    main.finish(&outputs)
}

fn random_operation(
    main: &mut Builder,
    choices: &mut Choices<'_>,
    x: ValueId,
    y: ValueId,
) -> Option<ValueId> {
    let rank = main.ty(x).tensor()?.rank()? as i32;
    if rank == 0 {
        return None;
    }
    let axis = choices.below(rank as usize) as i32;
    let binary = ["add", "sub", "mul", "maximum", "minimum"];
    let unary = ["relu", "abs", "tanh", "sigmoid", "square", "identity"];
    let op = match choices.below(10) {
        0 | 1 => main.op(binary[choices.below(binary.len())]).arg("x", x).arg("y", y),
        2 => main.op(unary[choices.below(unary.len())]).arg("x", x),
        3 => main.op("softmax").arg("x", x).arg("axis", axis),
        4 => main.op("concat").args("values", &[x, y]).arg("axis", axis),
        5 => {
            let mut perm: Vec<i32> = (0..rank).collect();
            perm.rotate_left(choices.below(rank as usize));
            main.op("transpose").arg("x", x).arg("perm", &perm[..])
        }
        6 => main.op("reduce_sum").arg("x", x).arg("axes", [axis]).arg("keep_dims", true),
        7 => main.op("matmul").arg("x", x).arg("y", y).arg("transpose_y", true),
        8 => main.op("reshape").arg("x", x).arg("shape", [-1]),
        _ => main.op("expand_dims").arg("x", x).arg("axes", [axis]),
    };
    let value = op.push().ok()?;
    let elements: usize = main.ty(value).tensor()?.concrete()?.iter().product();
    let shape_rank = main.ty(value).tensor()?.shape.len();
    (elements <= 4096 && shape_rank <= 5).then_some(value)
}

/// Evaluates operation by operation and keeps everything.
fn naive(function: &Function, inputs: &[(&str, Tensor)]) -> BTreeMap<String, Tensor> {
    let mut values: BTreeMap<ValueId, Tensor> = BTreeMap::new();
    for &id in &function.inputs {
        let (_, tensor) = inputs.iter().find(|(name, _)| *name == function.value(id).name).unwrap();
        values.insert(id, tensor.clone());
    }
    for op in &function.body.operations {
        if op.kind == "const" {
            values.insert(op.outputs[0], op.attribute("val").unwrap().tensor().unwrap());
            continue;
        }
        let def = ops::find(&op.kind, function.opset).unwrap();
        let (resolved, _) = Arguments::resolve(op, def);
        let mut arguments = KnownArguments::new(def);
        for (param, sources) in resolved.iter() {
            for source in sources {
                let Source::Value(id) = source else { panic!("a literal") };
                arguments.bind(param, values[id].clone());
            }
        }
        let results = apply(def, function.opset, Numerics::Fast, &arguments, op.outputs.len()).unwrap();
        values.extend(op.outputs.iter().copied().zip(results));
    }
    function.body.outputs.iter().map(|id| (function.value(*id).name.clone(), values[id].clone())).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]
    #[test]
    fn the_planned_runtime_agrees_with_keeping_everything(
        bytes in proptest::collection::vec(any::<u8>(), 1..40),
        half in any::<bool>(),
    ) {
        let dtype = if half { DType::F16 } else { DType::F32 };
        let function = random_function(&bytes, dtype);
        let input = |shape: &[usize], seed| {
            let halves = numbers(shape.iter().product(), seed);
            let floats: Vec<f32> = halves.iter().map(|h| h.to_f32()).collect();
            if half { Tensor::from_slice(shape, &halves) } else { Tensor::from_slice(shape, &floats) }.unwrap()
        };
        let inputs = [("a", input(&[2, 3, 4], 5)), ("b", input(&[1, 3, 4], 6))];
        let expected = naive(&function, &inputs);
        let options = LoadOptions { threads: Some(1), ..LoadOptions::default() };
        let mut session = runtime::cpu().load_model(Model::single(function), &options).unwrap().session();
        let views: Vec<_> = inputs.iter().map(|(name, tensor)| (*name, tensor.view())).collect();
        for _ in 0..2 {
            session.predict("main", &views).unwrap();
            for (name, tensor) in &expected {
                let found = session.output(name).unwrap();
                prop_assert_eq!(found.shape(), tensor.shape());
                prop_assert_eq!(found.bytes(), &**tensor.bytes());
            }
        }
    }
}

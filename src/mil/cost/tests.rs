//! Costs against figures worked out by hand.

use half::f16;

use super::*;
use crate::graph::graphs;
use crate::{Builder, Literal, Model, Opset, TensorType, Type, ValueId};
use anemeter_kernels::tensor::{DType, Tensor};

const HIDDEN: usize = 64;
const WIDE: usize = 160;
const TOKENS: usize = 32;
const HEADS: usize = 4;
const WIDTH: usize = HIDDEN / HEADS;

fn conv(main: &mut Builder, name: &str, x: ValueId, (out, into): (usize, usize)) -> ValueId {
    let weight = Tensor::from_slice(&[out, into, 1, 1], &vec![f16::ONE; out * into]).unwrap();
    let weight = main.constant(&format!("{name}_weight"), Literal::blob(&weight));
    main.op("conv").arg("x", x).arg("weight", weight).named(name).push().unwrap()
}

/// One block without norms: attention of 4 heads and a gated MLP, in the layout (1, C, 1, S).
fn block() -> Model {
    let mut main = Builder::new("main", Opset::Ios18);
    let x = main.input("hidden", TensorType::fixed(DType::F16, &[1, HIDDEN, 1, TOKENS]));
    let [q, k, v] = ["q", "k", "v"].map(|name| {
        let projected = conv(&mut main, name, x, (HIDDEN, HIDDEN));
        let shape = [1, HEADS as i32, WIDTH as i32, TOKENS as i32];
        main.op("reshape").arg("x", projected).arg("shape", shape).push().unwrap()
    });
    let scores = main.op("matmul").arg("x", q).arg("y", k).arg("transpose_x", true).push().unwrap();
    let shares = main.op("softmax").arg("x", scores).arg("axis", -1).push().unwrap();
    let mixed = main.op("matmul").arg("x", v).arg("y", shares).arg("transpose_y", true).push().unwrap();
    let shape = [1, HIDDEN as i32, 1, TOKENS as i32];
    let mixed = main.op("reshape").arg("x", mixed).arg("shape", shape).push().unwrap();
    let mixed = conv(&mut main, "o", mixed, (HIDDEN, HIDDEN));
    let x = main.op("add").arg("x", x).arg("y", mixed).push().unwrap();
    let gate = conv(&mut main, "gate", x, (WIDE, HIDDEN));
    let up = conv(&mut main, "up", x, (WIDE, HIDDEN));
    let product = main.op("mul").arg("x", gate).arg("y", up).push().unwrap();
    let down = conv(&mut main, "down", product, (HIDDEN, WIDE));
    Model::single(main.finish(&[down]))
}

#[test]
fn a_transformer_block_costs_what_it_does_on_paper() {
    let model = block();
    let cost = of(&graphs(&model).next().unwrap());
    let (c, w, s, h) = (HIDDEN as u64, WIDE as u64, TOKENS as u64, HEADS as u64);
    let weights = 4 * c * c + 3 * c * w;
    let scores = h * s * s;
    let flops = 2 * s * weights + 2 * (2 * scores * WIDTH as u64) + 5 * scores + s * c + s * w;
    assert_eq!(cost.total.flops, flops);
    assert_eq!(cost.total.flops, 3_304_448);
    assert_eq!(cost.total.weight_bytes, 2 * weights);
    let linear = 4 * (c + c) * s + 2 * (c + w) * s + (w + c) * s;
    let attention = (2 * c * s + scores) + 2 * scores + (c * s + scores + c * s);
    let elementwise = 3 * c * s + 3 * w * s;
    assert_eq!(cost.total.activation_bytes, 2 * (linear + attention + elementwise));
    assert_eq!(cost.tokens, Some(s));
    assert_eq!(cost.kinds[0].kind, "conv");
    assert!((cost.intensity - flops as f64 / cost.total.bytes() as f64).abs() < 1e-9);
}

#[test]
fn compressed_weights_count_as_stored_and_tables_by_the_rows_read() {
    let mut main = Builder::new("main", Opset::Ios18);
    let ids = main.input("input_ids", TensorType::fixed(DType::I32, &[1, 4]));
    let table = Tensor::from_slice(&[100, 8], &[1i8; 800]).unwrap();
    let scale = Tensor::from_slice(&[100, 1], &[f16::ONE; 100]).unwrap();
    let table = main
        .op("constexpr_blockwise_shift_scale")
        .arg("data", Literal::blob(&table))
        .arg("scale", Literal::blob(&scale))
        .push()
        .unwrap();
    let rows = main.op("gather").arg("x", table).arg("indices", ids).arg("axis", 0).push().unwrap();
    let model = Model::single(main.finish(&[rows]));
    let cost = of(&graphs(&model).next().unwrap());
    assert_eq!(cost.total, Cost { flops: 0, weight_bytes: 1000 * 4 / 100, activation_bytes: 64 });

    let chip = Bandwidth { chip: "M4".to_owned(), bytes_per_second: 64e9, source: "by hand".to_owned() };
    let bound = &bounds(&cost, &[chip])[0];
    assert_eq!(bound.predictions_per_second, Some(1.6e9));
    assert_eq!(bound.tokens_per_second, Some(6.4e9));
}

#[test]
fn einsum_and_states_are_counted() {
    let mut main = Builder::new("main", Opset::Ios18);
    let state = main.input("kv", Type::State(TensorType::fixed(DType::F16, &[1, 4, 16, 8])));
    let q = main.input("q", TensorType::fixed(DType::F16, &[1, 8, 4, 2]));
    let kv = main.op("read_state").arg("input", state).push().unwrap();
    let kv = main.op("transpose").arg("x", kv).arg("perm", [0, 2, 1, 3]).push().unwrap();
    let scores =
        main.op("einsum").args("values", &[q, kv]).arg("equation", "bchq,bkhc->bkhq").push().unwrap();
    let model = Model::single(main.finish(&[scores]));
    let cost = of(&graphs(&model).next().unwrap());
    assert_eq!(cost.total.flops, 2 * 8 * 4 * 2 * 16);
    let kinds: Vec<_> = cost.kinds.iter().map(|k| (k.kind.as_str(), k.cost.activation_bytes)).collect();
    assert_eq!(kinds, [("transpose", 2048), ("einsum", 1408), ("read_state", 0)]);
}

//! Prefill attention, head by head: `value x softmax(query^T x key + mask)^T` of several tokens becomes one step
//! without a matrix of all scores (`kernels::prefill_attention`).

use half::f16;
use smallvec::{SmallVec, smallvec};

use super::graph::Graph;
use super::{FusedStep, PRODUCT, fused_op};
use crate::cpu::plan::Operand;
use anemeter_kernels::gemm::Matrix;
use anemeter_kernels::parallel::for_each_chunk;
use anemeter_kernels::prefill_attention::{Head, VisibleKeys};
use anemeter_mil::op::domain::{BOOL, FLOAT};
use anemeter_mil::op::{Call, OpDef, OpError, Outputs, Param};

const KIND: &str = "prefill attention (fused)";

static PREFILL_ATTENTION: OpDef = fused_op(KIND, PRODUCT, &PARAMS, eval);

/// What attention takes, of however many tokens.
pub(super) const PARAMS: [Param; 6] = [
    Param::value("query", FLOAT),
    Param::value("key", FLOAT),
    Param::value("value", FLOAT),
    Param::value("mask", FLOAT),
    Param::constant("transpose_key", BOOL).or_bool(false),
    Param::constant("transpose_value", BOOL).or_bool(false),
];

/// Looks for `value x softmax(query^T x key + mask)^T` of several queries, with one mask for all heads.
pub(super) fn find(graph: &Graph<'_>, out: usize) -> Option<FusedStep> {
    if !graph.is(out, "matmul") || !graph.is_set(out, "transpose_y") {
        return None;
    }
    let once = |operand: Operand, kind: &str| {
        graph.made_by(operand, kind).filter(|&step| graph.is_used(step, 1) && step < out)
    };
    let softmax = once(graph.argument(out, "y")?, "softmax")?;
    let sum = once(graph.argument(softmax, "x")?, "add")?;
    let scores = once(graph.argument(sum, "x")?, "matmul")?;
    let [query, key] = [graph.argument(scores, "x")?, graph.argument(scores, "y")?];
    let [value, mask] = [graph.argument(out, "x")?, graph.argument(sum, "y")?];
    let [rows, group, _, queries] = graph.half_shape(query)?[..] else { return None };
    let [key_rows, key_group, a, b] = graph.half_shape(key)?[..] else { return None };
    let [value_rows, value_group, ..] = graph.half_shape(value)?[..] else { return None };
    let keys = if graph.is_set(scores, "transpose_y") { a } else { b };
    let seen = graph.half_shape(mask)?;
    let fits = graph.is_along(softmax, 3, 4)
        && graph.is_set(scores, "transpose_x")
        && [key_rows, value_rows] == [rows, rows]
        && [key_group, value_group].iter().all(|&size| size == 1 || size == group)
        && queries > 1
        && keys > 0
        && seen.ends_with(&[queries, keys])
        && seen.iter().product::<usize>() == queries * keys;
    if !fits || graph.changes_memory(scores..out) {
        return None;
    }
    let flag = |step, name| graph.argument(step, name).into_iter().collect::<SmallVec<[Operand; 1]>>();
    let arguments = vec![
        smallvec![query],
        smallvec![key],
        smallvec![value],
        smallvec![mask],
        flag(scores, "transpose_y"),
        flag(out, "transpose_x"),
    ];
    Some(FusedStep::new(&PREFILL_ATTENTION, graph, out, arguments, vec![scores, sum, softmax, out]))
}

fn eval(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result<(), OpError> {
    let [query, key, value] = [call.tensor("query")?, call.tensor("key")?, call.tensor("value")?];
    let mask: &[f16] = call.tensor("mask")?.slice()?;
    let out = outputs.tensor(0)?;
    let (shape, by_position) = (query.shape(), call.bool("transpose_key")?);
    let (group, width, queries) = (shape[1], shape[2], shape[3]);
    let keys = mask.len() / queries;
    let features = out.shape()[2];
    let seen = VisibleKeys::of_mask(mask, queries, keys);
    let [query, queried]: [&[f16]; 2] = [query.slice()?, key.slice()?];
    let values: &[f16] = value.slice()?;
    let shared = |shape: &[usize], head: usize| if shape[1] == 1 { head / group } else { head };
    let columns = |data, transposed: bool, rows| match transposed {
        true => Matrix::row_major(data, rows).transposed(),
        false => Matrix::row_major(data, keys),
    };
    let by_value = call.bool("transpose_value")?;
    let work = query.len().saturating_mul(keys).saturating_mul(2);
    for_each_chunk(out.slice()?, features * queries, work, |head, out: &mut [f16]| {
        let key_at = shared(key.shape(), head) * width * keys;
        let value_at = shared(value.shape(), head) * features * keys;
        let head = Head {
            query: Matrix::row_major(&query[head * width * queries..], queries).transposed(),
            key: columns(&queried[key_at..], by_position, width),
            value: columns(&values[value_at..], by_value, features),
            mask,
            width,
            queries,
            keys,
        };
        head.attend(&seen, out);
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::testing::{counted_with, halves};
    use super::*;
    use anemeter_kernels::tensor::DType;
    use anemeter_mil::{Builder, Function, Opset, TensorType};

    struct Form {
        key: [usize; 4],
        by_position: bool,
        shown: bool,
    }

    fn attention(form: &Form) -> Function {
        let mut f = Builder::new("main", Opset::Ios18);
        let query = f.input("query", TensorType::fixed(DType::F16, &[2, 3, 8, 10]));
        let key = f.input("key", TensorType::fixed(DType::F16, &form.key));
        let value = f.input("value", TensorType::fixed(DType::F16, &form.key));
        let mask = f.input("mask", TensorType::fixed(DType::F16, &[1, 1, 10, 12]));
        let matmul = |f: &mut Builder, x: (_, bool), y: (_, bool)| {
            let op = f.op("matmul").arg("x", x.0).arg("y", y.0);
            op.arg("transpose_x", x.1).arg("transpose_y", y.1).push().unwrap()
        };
        let scores = matmul(&mut f, (query, true), (key, form.by_position));
        let sum = f.op("add").arg("x", scores).arg("y", mask).push().unwrap();
        let shares = f.op("softmax").arg("x", sum).arg("axis", -1).push().unwrap();
        let out = matmul(&mut f, (value, form.by_position), (shares, true));
        let outputs = [out, shares];
        f.finish(&outputs[..if form.shown { 2 } else { 1 }])
    }

    #[test]
    fn prefill_attention_in_one_step_gives_what_the_steps_give() {
        let query = halves(&[2, 3, 8, 10], |i| ((i * 37 % 101) as f32 - 50.0) * 0.02);
        let mask = halves(&[1, 1, 10, 12], |i| if i % 12 > i / 12 + 2 { -1e4 } else { 0.0 });
        for (key, by_position) in
            [([2, 1, 8, 12], false), ([2, 3, 8, 12], false), ([2, 1, 12, 8], true), ([2, 3, 12, 8], true)]
        {
            let keys = halves(&key, |i| ((i * 53 % 97) as f32 - 48.0) * 0.02);
            let values = halves(&key, |i| ((i * 29 % 89) as f32 - 44.0) * 0.02);
            let inputs = [("query", &query), ("key", &keys), ("value", &values), ("mask", &mask)];
            let run = |shown| {
                let (values, steps) = counted_with(attention(&Form { key, by_position, shown }), &inputs);
                let (kinds, flops): (Vec<String>, Vec<usize>) = steps.into_iter().unzip();
                (values, kinds, flops.iter().sum::<usize>())
            };
            let (fused, kinds, flops) = run(false);
            assert_eq!(kinds, [KIND], "{key:?}");
            // Two products over keys, also those that no query of a block sees; a sum and a softmax of the scores.
            assert_eq!(flops, (2 * 3) * 10 * 12 * (2 * 2 * 8 + 1 + 5));
            let (plain, kinds, flops_of_steps) = run(true);
            assert_eq!(kinds, ["matmul", "masked softmax (fused)", "matmul"]);
            assert_eq!(flops_of_steps, flops);
            for (a, b) in fused.iter().zip(&plain) {
                assert!((a - b).abs() < 2e-3, "{key:?}: {a} is not {b}");
            }
        }
    }
}

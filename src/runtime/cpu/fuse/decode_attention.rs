//! Decode attention (`kernels::decode_attention`): one token, its queries in groups that share keys and values (GQA).
//!
//! ```text
//! `state`  query x key -- add mask -- softmax -- x value              own key and value are among the others
//! `io`     query x key -- add mask --+                  +-- x value --+
//!          query x own key ----------+ concat, softmax, +-- x own ----+ add    they are beside the cache
//! ```

use smallvec::{SmallVec, smallvec};

use super::graph::{Graph, SLICE};
use super::prefill_attention::PARAMS;
use super::{FusedStep, PRODUCT, fused_op};
use crate::cpu::plan::Operand;
use anemeter_kernels::decode_attention::{DecodeAttention, KvRows, MAX_QUERIES, OwnKv};
use anemeter_mil::op::domain::FLOAT;
use anemeter_mil::op::{Call, OpDef, OpError, Outputs, Param};

const KIND: &str = "decode attention (fused)";

static DECODE_ATTENTION: OpDef = fused_op(KIND, PRODUCT, &WITH_OWN, eval);

const WITH_OWN: [Param; 8] = {
    let [query, key, value, mask, transpose_key, transpose_value] = PARAMS;
    let own_key = Param::value("own_key", FLOAT).optional();
    let own_value = Param::value("own_value", FLOAT).optional();
    [query, key, value, mask, own_key, own_value, transpose_key, transpose_value]
};

const RANK: usize = 4;
const LAST: usize = RANK - 1;

/// Looks for `softmax(query x key + mask) x value`, or for the same with a key and a value more.
pub(super) fn find(graph: &Graph<'_>, out: usize) -> Option<FusedStep> {
    let found = if graph.is(out, "add") { with_own(graph, out)? } else { without_own(graph, out)? };
    let AttentionMatch { scores, sum, attended, own, mut steps } = found;
    let [query, key] = [graph.argument(scores, "x")?, graph.argument(scores, "y")?];
    let [value, mask] = [graph.argument(attended, "y")?, graph.argument(sum, "y")?];
    let &[batch, heads, queries, width] = &graph.half_shape(query)?[..] else { return None };
    let &[masks, 1, 1, keys] = &graph.half_shape(mask)?[..] else { return None };
    let features = *graph.half_shape(Operand::Value(graph.steps[out].outputs[0]))?.get(LAST)?;
    let is = |operand, shape: [usize; 2]| {
        graph.half_shape(operand).is_some_and(|found| found[..] == [batch, heads, shape[0], shape[1]])
    };
    let turned = |step, [a, b]: [usize; 2]| if graph.is_set(step, "transpose_y") { [b, a] } else { [a, b] };
    let fits = (1..=MAX_QUERIES).contains(&queries)
        && keys > 0
        && (masks == 1 || masks == batch)
        && is(key, turned(scores, [width, keys]))
        && is(value, turned(attended, [keys, features]))
        && own.is_none_or(|[key, value]| is(key, [width, 1]) && is(value, [1, features]))
        && ![scores, attended].iter().any(|&step| graph.is_set(step, "transpose_x"))
        && !graph.changes_memory(scores..out);
    let given = |operand: Option<Operand>| operand.into_iter().collect::<SmallVec<[Operand; 1]>>();
    steps.extend([scores, sum, attended, out]);
    let arguments = vec![
        smallvec![query],
        smallvec![key],
        smallvec![value],
        smallvec![mask],
        given(own.map(|[key, _]| key)),
        given(own.map(|[_, value]| value)),
        given(graph.argument(scores, "transpose_y")),
        given(graph.argument(attended, "transpose_y")),
    ];
    fits.then(|| FusedStep::new(&DECODE_ATTENTION, graph, out, arguments, steps))
}

/// The steps of an attention: `sum` is scores and mask, `attended` probabilities times values, `steps` the others.
struct AttentionMatch {
    scores: usize,
    sum: usize,
    attended: usize,
    /// The token's own key and value.
    own: Option<[Operand; 2]>,
    steps: Vec<usize>,
}

fn without_own(graph: &Graph<'_>, out: usize) -> Option<AttentionMatch> {
    if !graph.is(out, "matmul") {
        return None;
    }
    let softmax = graph.made_for(1, graph.argument(out, "x")?, "softmax")?;
    let (scores, sum) = masked(graph, graph.argument(softmax, "x")?)?;
    let found = AttentionMatch { scores, sum, attended: out, own: None, steps: vec![softmax] };
    graph.is_along(softmax, LAST, RANK).then_some(found)
}

fn with_own(graph: &Graph<'_>, out: usize) -> Option<AttentionMatch> {
    let attended = graph.made_for(1, graph.argument(out, "x")?, "matmul")?;
    let weighted = graph.made_for(1, graph.argument(out, "y")?, "mul")?;
    let (past, own) = (graph.argument(attended, "x")?, graph.argument(weighted, "x")?);
    let softmax = match graph.made_for(1, past, SLICE) {
        Some(slice) => graph.made_by(graph.argument(slice, "x")?, "softmax")?,
        None => graph.made_by(past, "softmax")?,
    };
    let joined = graph.made_for(1, graph.argument(softmax, "x")?, "concat")?;
    let &[first, second] = graph.arguments(joined, "values")? else { return None };
    let (scores, sum) = masked(graph, first)?;
    let own_scores = graph.made_for(1, second, "matmul")?;
    let keys = *graph.half_shape(first)?.get(LAST)?;
    let shares = Operand::Value(graph.steps[softmax].outputs[0]);
    let mut steps = vec![softmax, joined, own_scores, weighted];
    steps.extend(graph.cut_from(shares, (LAST, 0..keys), past)?);
    steps.extend(graph.cut_from(shares, (LAST, keys..keys + 1), own)?);
    let fits = graph.is_used(softmax, 2)
        && [softmax, joined].iter().all(|&step| graph.is_along(step, LAST, RANK))
        && !graph.is_set(joined, "interleave")
        && !["transpose_x", "transpose_y"].iter().any(|flag| graph.is_set(own_scores, flag))
        && Graph::same(graph.argument(own_scores, "x")?, graph.argument(scores, "x")?);
    let own = [graph.argument(own_scores, "y")?, graph.argument(weighted, "y")?];
    fits.then_some(AttentionMatch { scores, sum, attended, own: Some(own), steps })
}

/// The product and the sum that make masked scores.
fn masked(graph: &Graph<'_>, operand: Operand) -> Option<(usize, usize)> {
    let sum = graph.made_for(1, operand, "add")?;
    Some((graph.made_for(1, graph.argument(sum, "x")?, "matmul")?, sum))
}

fn eval(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result<(), OpError> {
    let [query, key, value] = [call.tensor("query")?, call.tensor("key")?, call.tensor("value")?];
    let (mask, out) = (call.tensor("mask")?, outputs.tensor(0)?);
    let (shape, by_channel) = (query.shape(), call.bool("transpose_value")?);
    let own = match (call.opt_tensor("own_key")?, call.opt_tensor("own_value")?) {
        (Some(key), Some(value)) => Some(OwnKv { key: key.slice()?, value: value.slice()? }),
        _ => None,
    };
    let groups = DecodeAttention {
        query: query.slice()?,
        key: KvRows { data: key.slice()?, width: shape[3], by_position: call.bool("transpose_key")? },
        value: KvRows { data: value.slice()?, width: out.shape()[3], by_position: !by_channel },
        mask: mask.slice()?,
        sharing: shape[0] / mask.shape()[0] * shape[1],
        own,
        queries: shape[2],
        keys: mask.shape()[3],
    };
    groups.attend(out.slice()?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::testing::{counted_with, halves};
    use super::*;
    use anemeter_kernels::tensor::{DType, Tensor};
    use anemeter_mil::{Arg, Builder, Function, Opset, TensorType, ValueId};

    #[derive(Debug, Clone, Copy)]
    struct Form {
        /// Batch, heads, queries, width.
        query: [usize; 4],
        keys: usize,
        masks: usize,
        by_position: bool,
        has_own: bool,
        axis: i32,
    }

    impl Form {
        fn kept(&self) -> [usize; 4] {
            let [batch, heads, _, width] = self.query;
            match self.by_position {
                true => [batch, heads, self.keys, width],
                false => [batch, heads, width, self.keys],
            }
        }
    }

    const FORM: Form =
        Form { query: [2, 3, 3, 8], keys: 21, masks: 1, by_position: false, has_own: true, axis: -1 };

    fn matmul(f: &mut Builder, x: ValueId, (y, transposed): (ValueId, bool)) -> ValueId {
        f.op("matmul").arg("x", x).arg("y", y).arg("transpose_y", transposed).push().unwrap()
    }

    fn binary(f: &mut Builder, kind: &str, x: ValueId, y: impl Into<Arg>) -> ValueId {
        f.op(kind).arg("x", x).arg("y", y).push().unwrap()
    }

    fn slice(f: &mut Builder, x: ValueId, range: [usize; 2]) -> ValueId {
        let open = Tensor::from_bools(&[4], &[true, true, true, false]).unwrap();
        let [begin, end] = range.map(|at| [0, 0, 0, at as i32]);
        let op = f.op(SLICE).arg("x", x).arg("begin", begin).arg("end", end);
        op.arg("begin_mask", &open).arg("end_mask", &open).push().unwrap()
    }

    /// Attention as an export writes it; with `shown`, the shares leave the function.
    fn attention(form: &Form, shown: bool) -> Function {
        let Form { query: [batch, heads, _, width], keys, masks, by_position, has_own, axis } = *form;
        let mut f = Builder::new("main", Opset::Ios18);
        let mut input = |name: &str, shape: [usize; 4]| f.input(name, TensorType::fixed(DType::F16, &shape));
        let query = input("query", form.query);
        let (key, value) = (input("key", form.kept()), input("value", form.kept()));
        let mask = input("mask", [masks, 1, 1, keys]);
        let own_key = input("own_key", [batch, heads, width, 1]);
        let own_value = input("own_value", [batch, heads, 1, width]);
        let scores = matmul(&mut f, query, (key, by_position));
        let mut scores = binary(&mut f, "add", scores, mask);
        if has_own {
            let own = matmul(&mut f, query, (own_key, false));
            scores = f.op("concat").args("values", &[scores, own]).arg("axis", 3).push().unwrap();
        }
        let shares = f.op("softmax").arg("x", scores).arg("axis", axis).push().unwrap();
        let mut past = shares;
        if has_own {
            past = slice(&mut f, shares, [0, keys]);
        }
        let mut out = matmul(&mut f, past, (value, !by_position));
        if has_own {
            let own = slice(&mut f, shares, [keys, keys + 1]);
            let own = binary(&mut f, "mul", own, own_value);
            out = binary(&mut f, "add", out, own);
        }
        let outputs = [out, shares];
        f.finish(&outputs[..if shown { 2 } else { 1 }])
    }

    fn run(form: &Form, shown: bool, mask: impl Fn(usize) -> f32) -> (Vec<f32>, Vec<String>, usize) {
        let [batch, heads, _, width] = form.query;
        let query = halves(&form.query, |i| ((i * 37 % 101) as f32 - 50.0) * 0.02);
        let keys = halves(&form.kept(), |i| ((i * 53 % 97) as f32 - 48.0) * 0.02);
        let values = halves(&form.kept(), |i| ((i * 29 % 89) as f32 - 44.0) * 0.02);
        let mask = halves(&[form.masks, 1, 1, form.keys], |i| mask(i % form.keys));
        let own_key = halves(&[batch, heads, width, 1], |i| (i % 7) as f32 * 0.2 - 0.5);
        let own_value = halves(&[batch, heads, 1, width], |i| (i % 5) as f32 * 0.3 - 0.6);
        let inputs = [
            ("query", &query),
            ("key", &keys),
            ("value", &values),
            ("mask", &mask),
            ("own_key", &own_key),
            ("own_value", &own_value),
        ];
        let (values, steps) = counted_with(attention(form, shown), &inputs);
        let (kinds, flops): (Vec<String>, Vec<usize>) = steps.into_iter().unzip();
        (values, kinds, flops.iter().sum())
    }

    fn assert_same(form: &Form, mask: impl Fn(usize) -> f32 + Copy) {
        let (fused, kinds, flops) = run(form, false, mask);
        assert_eq!(kinds, [KIND], "{form:?}");
        let (plain, kinds, flops_of_steps) = run(form, true, mask);
        assert!(!kinds.contains(&KIND.to_owned()), "{form:?}");
        assert_eq!(flops, flops_of_steps, "{form:?}");
        for (a, b) in fused.iter().zip(&plain) {
            assert!((a - b).abs() < 2e-3, "{form:?}: {a} is not {b}");
        }
    }

    #[test]
    fn decode_attention_in_one_step_gives_what_the_steps_give() {
        for (query, keys, masks) in [
            ([1, 3, 3, 64], 512, 1),
            ([2, 3, 3, 8], 21, 1),
            ([2, 2, 1, 7], 9, 2),
            ([1, 1, 1, 16], 40, 1),
            ([1, 1, 20, 6], 33, 1),
        ] {
            for (by_position, has_own) in [(false, true), (true, true), (true, false), (false, false)] {
                let form = Form { query, keys, masks, by_position, has_own, axis: 3 };
                assert_same(&form, |_| 0.0);
                // A sum of score and mask that is stored is a multiple of 8: steps do so if masks differ.
                if has_own || masks == 1 {
                    assert_same(&form, |_| -1e4);
                }
                assert_same(&form, |k| if k > 4 { -1e4 } else { 0.0 });
                assert_same(&form, |k| if k < 4 { -1e4 } else { 0.0 });
            }
        }
    }

    #[test]
    fn what_has_another_form_is_left_alone() {
        let fused = |form: Form| run(&form, false, |_| 0.0).1.contains(&KIND.to_owned());
        assert!(fused(FORM));
        assert!(!fused(Form { axis: 2, ..FORM }));
        assert!(!fused(Form { axis: 2, has_own: false, ..FORM }));
        assert!(!fused(Form { query: [1, 1, MAX_QUERIES + 1, 4], ..FORM }));
        assert!(!fused(Form { query: [1, 1, MAX_QUERIES + 1, 4], has_own: false, ..FORM }));
    }
}

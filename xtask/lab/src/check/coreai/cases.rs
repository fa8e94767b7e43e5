//! The cases: a few of every operation that has an aicode form.

use anyhow::Result;
use fastrand::Rng;

use super::made::{CLOSE, Case, Making};
use super::{compressed, products, schemes};
use anemeter::mil::{Arg, Literal};
use anemeter::tensor::Tensor;

/// Cases of an operation.
const EACH: usize = 4;

/// Makes one case of an operation.
type Maker = fn(Making<'_>, &str) -> Result<Case>;

/// Every operation with the way its cases are made.
const MAKERS: &[(&[&str], Maker)] = &[
    (
        &[
            "abs", "atan", "ceil", "cos", "cosh", "erf", "exp", "exp2", "floor", "identity", "relu", "relu6",
            "round", "sigmoid", "sign", "silu", "sin", "sinh", "softplus", "softsign", "square", "tan",
            "tanh",
        ],
        |m, op| unary(m, op, (-1.4, 1.4)),
    ),
    (&["acos", "asin", "atanh"], |m, op| unary(m, op, (-0.9, 0.9))),
    (&["inverse", "log", "rsqrt", "sqrt"], |m, op| unary(m, op, (0.1, 8.0))),
    (&["add", "maximum", "minimum", "mul", "sub"], |m, op| binary(m, op, (-3.0, 3.0))),
    (&["floor_div", "mod", "real_div"], divided),
    (&["pow"], |m, op| binary(m, op, (0.3, 3.0))),
    (&["equal", "greater", "greater_equal", "less", "less_equal", "not_equal"], compared),
    (&["logical_and", "logical_or", "logical_xor"], logic),
    (&["logical_not"], negated),
    (&["elu", "leaky_relu", "thresholded_relu", "threshold"], |m, op| scaled(m, op, false)),
    (&["clamped_relu", "clip", "linear_activation", "scaled_tanh", "sigmoid_hard"], |m, op| {
        scaled(m, op, true)
    }),
    (&["gelu"], gelu),
    (
        &[
            "reduce_l1_norm",
            "reduce_l2_norm",
            "reduce_max",
            "reduce_mean",
            "reduce_min",
            "reduce_prod",
            "reduce_sum",
            "reduce_sum_square",
            "reduce_log_sum_exp",
        ],
        |m, op| reduced(m, op, (-2.0, 2.0)),
    ),
    (&["reduce_log_sum"], |m, op| reduced(m, op, (0.1, 2.0))),
    (&["softmax"], softmax),
    (&["cast"], cast),
    (&["constexpr_cast"], constexpr_cast),
    (&["select"], select),
    (&["reshape", "expand_dims", "squeeze", "flatten2d", "reshape_like", "tile", "transpose"], arranged),
    (&["pad"], pad),
    (&["depth_to_space"], depth_to_space),
    (&["concat", "stack"], joined),
    (&["split"], split),
    (&["slice_by_index", "slice_by_size", "slice_update"], sliced),
    (&["gather", "gather_along_axis", "gather_nd"], gathered),
    (&["matmul"], matmul),
    (&["linear"], linear),
    (&["avg_pool", "max_pool"], pooled),
    (&["argsort", "reduce_argmax", "reduce_argmin"], ordered),
    (&["reverse"], reversed),
    (&["conv"], conv),
    (&["batch_norm", "instance_norm", "l2_norm", "layer_norm"], normalized),
    (&["scaled_dot_product_attention"], attention),
    (&["read_state", "write_state", "coreml_update_state"], state),
    (&["constexpr_affine_dequantize"], compressed::affine),
    (&["constexpr_blockwise_shift_scale"], compressed::blockwise),
    (&["constexpr_lut_to_dense"], compressed::palette),
    (
        &["constexpr_sparse_to_dense", "constexpr_sparse_blockwise_shift_scale", "constexpr_lut_to_sparse"],
        compressed::sparse,
    ),
    (&["dequantize"], compressed::given),
    (&[PRODUCTS], products::make),
    (schemes::NAMES, schemes::make),
];

/// What products with compressed weights are called, which are no operation of their own.
const PRODUCTS: &str = "products of compressed weights";

/// All cases of a seed.
pub(super) fn all(seed: u64) -> Result<Vec<Case>> {
    let mut rng = Rng::with_seed(seed);
    let mut cases = Vec::new();
    for (ops, maker) in MAKERS {
        for op in *ops {
            let count = match *op {
                PRODUCTS => 8 * EACH,
                "conv" | "matmul" => 3 * EACH,
                op if op.starts_with("constexpr_") => 3 * EACH,
                _ => EACH,
            };
            for _ in 0..count {
                cases.push(maker(Making::new(&mut rng), op)?);
            }
        }
    }
    Ok(cases)
}

/// A tensor of any rank.
fn any_shape(m: &mut Making<'_>) -> Vec<usize> {
    let rank = m.rng.usize(1..=4);
    m.shape(rank, 6)
}

fn unary(mut m: Making<'_>, op: &str, range: (f32, f32)) -> Result<Case> {
    let shape = any_shape(&mut m);
    let x = m.input("x", &shape, range)?;
    m.done(op, CLOSE, |op| op.arg("x", x))
}

/// Two shapes that broadcast.
fn two_shapes(m: &mut Making<'_>) -> (Vec<usize>, Vec<usize>) {
    let x = any_shape(m);
    let kept = m.rng.usize(0..=x.len());
    let y = x[x.len() - kept..].iter().map(|&size| if m.rng.bool() { size } else { 1 }).collect();
    (x, y)
}

fn binary(mut m: Making<'_>, op: &str, range: (f32, f32)) -> Result<Case> {
    let (a, b) = two_shapes(&mut m);
    let (x, y) = (m.input("x", &a, range)?, m.input("y", &b, range)?);
    m.done(op, CLOSE, |op| op.arg("x", x).arg("y", y))
}

/// Numbers of both signs, of which the divisor is not near zero.
fn divided(mut m: Making<'_>, op: &str) -> Result<Case> {
    let (a, b) = two_shapes(&mut m);
    let divisor = if m.rng.bool() { (0.3, 3.0) } else { (-3.0, -0.3) };
    let (x, y) = (m.input("x", &a, (-3.0, 3.0))?, m.input("y", &b, divisor)?);
    m.done(op, CLOSE, |op| op.arg("x", x).arg("y", y))
}

fn compared(mut m: Making<'_>, op: &str) -> Result<Case> {
    let (a, b) = two_shapes(&mut m);
    let (x, y) = (m.ints(&a, -2..3)?, m.ints(&b, -2..3)?);
    let (x, y) = (m.given("x", x), m.given("y", y));
    m.done(op, 0.0, |op| op.arg("x", x).arg("y", y))
}

fn logic(mut m: Making<'_>, op: &str) -> Result<Case> {
    let (a, b) = two_shapes(&mut m);
    let (x, y) = (m.bools("x", &a)?, m.bools("y", &b)?);
    m.done(op, 0.0, |op| op.arg("x", x).arg("y", y))
}

fn negated(mut m: Making<'_>, op: &str) -> Result<Case> {
    let shape = any_shape(&mut m);
    let x = m.bools("x", &shape)?;
    m.done(op, 0.0, |op| op.arg("x", x))
}

fn scaled(mut m: Making<'_>, op: &str, has_beta: bool) -> Result<Case> {
    let shape = any_shape(&mut m);
    let x = m.input("x", &shape, (-3.0, 3.0))?;
    let alpha = m.rng.f32();
    let beta = alpha + m.rng.f32() + 0.1;
    m.done(op, CLOSE, |op| {
        let op = op.arg("x", x).arg("alpha", alpha);
        if has_beta { op.arg("beta", beta) } else { op }
    })
}

fn gelu(mut m: Making<'_>, op: &str) -> Result<Case> {
    let shape = any_shape(&mut m);
    let x = m.input("x", &shape, (-4.0, 4.0))?;
    let mode = ["EXACT", "TANH_APPROXIMATION", "SIGMOID_APPROXIMATION"][m.rng.usize(0..3)];
    m.note(mode);
    m.done(op, CLOSE, |op| op.arg("x", x).arg("mode", mode))
}

fn reduced(mut m: Making<'_>, op: &str, range: (f32, f32)) -> Result<Case> {
    let shape = any_shape(&mut m);
    let x = m.input("x", &shape, range)?;
    let mut axes: Vec<i32> = (0..shape.len() as i32).filter(|_| m.rng.bool()).collect();
    if axes.is_empty() {
        axes.push(-1);
    }
    let keep = m.rng.bool();
    m.note(&format!("axes {axes:?} keep {keep}"));
    m.done(op, CLOSE, |op| op.arg("x", x).arg("axes", &axes[..]).arg("keep_dims", keep))
}

fn softmax(mut m: Making<'_>, op: &str) -> Result<Case> {
    let shape = any_shape(&mut m);
    let x = m.input("x", &shape, (-30.0, 30.0))?;
    let axis = m.rng.i32(0..shape.len() as i32);
    m.note(&format!("axis {axis}"));
    m.done(op, CLOSE, |op| op.arg("x", x).arg("axis", axis))
}

fn cast(mut m: Making<'_>, op: &str) -> Result<Case> {
    let shape = any_shape(&mut m);
    let x = m.input("x", &shape, (-5.0, 5.0))?;
    let to = ["int32", "fp16", "bool", "fp32"][m.rng.usize(0..4)];
    m.note(to);
    m.done(op, 1e-3, |op| op.arg("x", x).arg("dtype", to))
}

/// A stored fp16 constant that is used as fp32.
fn constexpr_cast(mut m: Making<'_>, op: &str) -> Result<Case> {
    let shape = any_shape(&mut m);
    let x = m.input("x", &shape, (-1.0, 1.0))?;
    let count = shape.iter().product();
    let halves: Vec<half::f16> = (0..count).map(|_| half::f16::from_f32(m.rng.f32() - 0.5)).collect();
    let stored = Literal::blob(&Tensor::from_slice(&shape, &halves)?);
    let weight =
        m.builder.op(op).arg("source_val", stored).arg("output_dtype", "fp32").named("weight").push()?;
    let y = m.builder.op("add").arg("x", x).arg("y", weight).named("y").push()?;
    Ok(m.end(op, CLOSE, &[y]))
}

fn select(mut m: Making<'_>, op: &str) -> Result<Case> {
    let (shape, other) = two_shapes(&mut m);
    let cond = m.bools("cond", &shape)?;
    let (a, b) = (m.input("a", &shape, (-1.0, 1.0))?, m.input("b", &other, (-1.0, 1.0))?);
    m.done(op, 0.0, |op| op.arg("cond", cond).arg("a", a).arg("b", b))
}

fn arranged(mut m: Making<'_>, op: &str) -> Result<Case> {
    let mut shape = m.shape(3, 5);
    if op == "squeeze" {
        shape[1] = 1;
    }
    let x = m.input("x", &shape, (-1.0, 1.0))?;
    let sizes: Vec<i32> = shape.iter().map(|&size| size as i32).collect();
    if op == "reshape_like" {
        let like = m.input("like", &[shape[2], shape[0] * shape[1]], (-1.0, 1.0))?;
        let end_mask = Tensor::from_bool(true);
        return m.done(op, 0.0, |op| {
            op.arg("x", x)
                .arg("ref_tensors", like)
                .arg("begins", 0)
                .arg("ends", 0)
                .arg("end_masks", &end_mask)
        });
    }
    let mut order = [0, 1, 2];
    m.rng.shuffle(&mut order);
    let reps = [m.rng.i32(1..4), m.rng.i32(1..4), m.rng.i32(1..4)];
    m.done(op, 0.0, |pending| match op {
        "reshape" => pending.arg("x", x).arg("shape", [sizes[2], sizes[0] * sizes[1]]),
        "expand_dims" => pending.arg("x", x).arg("axes", [1, 3]),
        "squeeze" => pending.arg("x", x).arg("axes", [1]),
        "flatten2d" => pending.arg("x", x).arg("axis", 1),
        "tile" => pending.arg("x", x).arg("reps", reps),
        _ => pending.arg("x", x).arg("perm", order),
    })
}

fn pad(mut m: Making<'_>, op: &str) -> Result<Case> {
    let shape = m.shape(3, 5);
    let x = m.input("x", &shape, (-1.0, 1.0))?;
    let margins = [m.rng.i32(0..3), m.rng.i32(0..3), m.rng.i32(0..3), m.rng.i32(0..3)];
    m.note(&format!("{margins:?}"));
    m.done(op, 0.0, |op| op.arg("x", x).arg("pad", margins).arg("constant_val", 0.5f32))
}

fn depth_to_space(mut m: Making<'_>, op: &str) -> Result<Case> {
    let (block, shape) = (m.rng.usize(2..4), m.shape(4, 3));
    let x = m.input("x", &[shape[0], shape[1] * block * block, shape[2], shape[3]], (-1.0, 1.0))?;
    m.done(op, 0.0, |op| op.arg("x", x).arg("block_size", block as i32))
}

fn joined(mut m: Making<'_>, op: &str) -> Result<Case> {
    let shape = m.shape(3, 4);
    let axis = m.rng.usize(0..3);
    let interleave = op == "concat" && m.rng.bool();
    let mut values = Vec::new();
    for index in 0..3 {
        let mut shape = shape.clone();
        if op == "concat" && !interleave {
            shape[axis] += index;
        }
        values.push(m.input(&format!("x{index}"), &shape, (-1.0, 1.0))?);
    }
    m.note(&format!("axis {axis} interleave {interleave}"));
    let is_stack = op == "stack";
    m.done(op, 0.0, |op| {
        let op = op.args("values", &values).arg("axis", axis as i32);
        if is_stack { op } else { op.arg("interleave", interleave) }
    })
}

fn split(mut m: Making<'_>, op: &str) -> Result<Case> {
    let (axis, mut shape) = (m.rng.usize(0..3), m.shape(3, 4));
    let sizes = [m.rng.i32(1..4), m.rng.i32(1..4)];
    shape[axis] = (sizes[0] + sizes[1]) as usize;
    let x = m.input("x", &shape, (-1.0, 1.0))?;
    m.note(&format!("axis {axis}"));
    m.done(op, 0.0, |op| {
        op.arg("x", x).arg("split_sizes", sizes).arg("axis", axis as i32).outputs(&["y0", "y1"])
    })
}

/// Parts whose corners are constants, or inputs where `is_runtime`.
fn sliced(mut m: Making<'_>, op: &str) -> Result<Case> {
    let shape: Vec<usize> = m.shape(3, 4).iter().map(|size| size + 2).collect();
    let x = m.input("x", &shape, (-1.0, 1.0))?;
    let begin: Vec<i32> = shape.iter().map(|&size| m.rng.i32(0..size as i32 - 1)).collect();
    let end: Vec<i32> =
        begin.iter().zip(&shape).map(|(&at, &size)| m.rng.i32(at + 1..=size as i32)).collect();
    let part: Vec<i32> = begin.iter().zip(&end).map(|(begin, end)| end - begin).collect();
    if op == "slice_by_size" {
        return m.done(op, 0.0, |op| op.arg("x", x).arg("begin", &begin[..]).arg("size", &part[..]));
    }
    if op == "slice_by_index" {
        let stride = [1, m.rng.i32(1..3), 1];
        let mask = Tensor::from_bools(&[3], &[m.rng.bool(), false, false])?;
        m.note(&format!("{begin:?} to {end:?} by {stride:?}"));
        return m.done(op, 0.0, |op| {
            op.arg("x", x)
                .arg("begin", &begin[..])
                .arg("end", &end[..])
                .arg("stride", stride)
                .arg("end_mask", &mask)
        });
    }
    let is_runtime = m.rng.bool();
    let sizes: Vec<usize> = part.iter().map(|&size| size as usize).collect();
    let update = m.input("update", &sizes, (2.0, 3.0))?;
    m.note(&format!("{begin:?} to {end:?}, at run time: {is_runtime}"));
    if !is_runtime {
        return m.done(op, 0.0, |op| {
            op.arg("x", x).arg("update", update).arg("begin", &begin[..]).arg("end", &end[..])
        });
    }
    let (begin, end) = (Tensor::from_slice(&[3], &begin)?, Tensor::from_slice(&[3], &end)?);
    let (begin, end) = (m.given("begin", begin), m.given("end", end));
    m.done(op, 0.0, |op| op.arg("x", x).arg("update", update).arg("begin", begin).arg("end", end))
}

fn gathered(mut m: Making<'_>, op: &str) -> Result<Case> {
    let shape = m.shape(3, 5);
    let x = m.input("x", &shape, (-1.0, 1.0))?;
    let axis = m.rng.usize(0..3);
    let most = shape[axis] as i32;
    m.note(&format!("axis {axis}"));
    match op {
        "gather" => {
            let at = m.shape(2, 3);
            let indices = m.ints(&at, 0..most)?;
            let indices = m.given("indices", indices);
            m.done(op, 0.0, |op| op.arg("x", x).arg("indices", indices).arg("axis", axis as i32))
        }
        "gather_along_axis" => {
            let mut at = shape.clone();
            at[axis] = m.rng.usize(1..4);
            let indices = m.ints(&at, 0..most)?;
            let indices = m.given("indices", indices);
            m.done(op, 0.0, |op| op.arg("x", x).arg("indices", indices).arg("axis", axis as i32))
        }
        _ => {
            let least = *shape[..2].iter().min().unwrap_or(&1) as i32;
            let indices = m.ints(&[4, 2], 0..least)?;
            let indices = m.given("indices", indices);
            m.done(op, 0.0, |op| op.arg("x", x).arg("indices", indices))
        }
    }
}

fn matmul(mut m: Making<'_>, op: &str) -> Result<Case> {
    let (batch, sizes) = (m.shape(2, 3), m.shape(3, 9));
    let [rows, inner, columns] = [sizes[0], sizes[1], sizes[2]];
    let (tx, ty) = (m.rng.bool(), m.rng.bool());
    let x = if tx { [inner, rows] } else { [rows, inner] };
    let y = if ty { [columns, inner] } else { [inner, columns] };
    let x = m.input("x", &[&batch[..], &x].concat(), (-1.0, 1.0))?;
    let shared = if m.rng.bool() { vec![1, batch[1]] } else { Vec::new() };
    let y = m.input("y", &[&shared[..], &y].concat(), (-1.0, 1.0))?;
    m.note(&format!("transposed {tx} {ty}"));
    m.done(op, CLOSE, |op| op.arg("x", x).arg("y", y).arg("transpose_x", tx).arg("transpose_y", ty))
}

fn linear(mut m: Making<'_>, op: &str) -> Result<Case> {
    let sizes = m.shape(4, 9);
    let x = m.input("x", &[sizes[0], sizes[1], sizes[2]], (-1.0, 1.0))?;
    let weight = m.floats(&[sizes[3], sizes[2]], (-1.0, 1.0))?;
    let bias = m.floats(&[sizes[3]], (-1.0, 1.0))?;
    m.done(op, CLOSE, |op| op.arg("x", x).arg("weight", &weight).arg("bias", &bias))
}

fn conv(mut m: Making<'_>, op: &str) -> Result<Case> {
    let spatial = m.rng.usize(1..=2);
    let groups = m.rng.usize(1..=2);
    let (into, out) = (groups * m.rng.usize(1..4), groups * m.rng.usize(1..4));
    let kernel: Vec<usize> = m.shape(spatial, 3);
    let sizes: Vec<usize> = m.shape(spatial, 5).iter().map(|size| size + 4).collect();
    let x = m.input("x", &[&[1, into][..], &sizes].concat(), (-1.0, 1.0))?;
    let weight = m.floats(&[&[out, into / groups][..], &kernel].concat(), (-1.0, 1.0))?;
    let bias = m.floats(&[out], (-1.0, 1.0))?;
    let strides: Vec<i32> = (0..spatial).map(|_| m.rng.i32(1..3)).collect();
    let dilations: Vec<i32> = (0..spatial).map(|_| m.rng.i32(1..3)).collect();
    let pad: Vec<i32> = (0..2 * spatial).map(|_| m.rng.i32(0..3)).collect();
    let pad_type = ["valid", "same", "same_lower", "custom"][m.rng.usize(0..4)];
    m.note(&format!(
        "kernel {kernel:?} stride {strides:?} dilation {dilations:?} {pad_type} {pad:?} groups {groups}"
    ));
    m.done(op, CLOSE, |op| {
        op.arg("x", x)
            .arg("weight", &weight)
            .arg("bias", &bias)
            .arg("strides", &strides[..])
            .arg("dilations", &dilations[..])
            .arg("pad_type", pad_type)
            .arg("pad", &pad[..])
            .arg("groups", groups as i32)
    })
}

fn normalized(mut m: Making<'_>, op: &str) -> Result<Case> {
    let shape: Vec<usize> = m.shape(4, 4).iter().map(|size| size + 1).collect();
    let x = m.input("x", &shape, (-2.0, 2.0))?;
    let channels = [if op == "layer_norm" { shape[3] } else { shape[1] }];
    let (gamma, beta) = (m.floats(&channels, (0.5, 2.0))?, m.floats(&channels, (-1.0, 1.0))?);
    let (mean, variance) = (m.floats(&channels, (-1.0, 1.0))?, m.floats(&channels, (0.5, 2.0))?);
    m.done(op, 1e-4, |pending| {
        let pending = pending.arg("x", x).arg("epsilon", 1e-3f32);
        match op {
            "l2_norm" => pending,
            "batch_norm" => {
                pending.arg("gamma", &gamma).arg("beta", &beta).arg("mean", &mean).arg("variance", &variance)
            }
            "layer_norm" => pending.arg("gamma", &gamma).arg("beta", &beta).arg("axes", [-1]),
            _ => pending.arg("gamma", &gamma).arg("beta", &beta),
        }
    })
}

fn attention(mut m: Making<'_>, op: &str) -> Result<Case> {
    let sizes = m.shape(4, 5);
    let [heads, queries, keys, width] = [sizes[0], sizes[1], sizes[2], sizes[3]];
    let query = m.input("query", &[1, heads, queries, width], (-1.0, 1.0))?;
    let key = m.input("key", &[1, heads, keys, width], (-1.0, 1.0))?;
    let value = m.input("value", &[1, heads, keys, width], (-1.0, 1.0))?;
    let mask = m.input("mask", &[1, 1, queries, keys], (-4.0, 0.0))?;
    m.done(op, CLOSE, |op| op.arg("query", query).arg("key", key).arg("value", value).arg("attn_mask", mask))
}

fn state(mut m: Making<'_>, op: &str) -> Result<Case> {
    let shape = any_shape(&mut m);
    let x = m.input("x", &shape, (-1.0, 1.0))?;
    let state = m.state("kept", &shape)?;
    let kept = m.builder.op("read_state").arg("input", state).named("before").push()?;
    let sum = m.builder.op("add").arg("x", x).arg("y", kept).named("sum").push()?;
    let y = match op {
        "read_state" => sum,
        "write_state" => {
            m.builder.op("write_state").arg("input", state).arg("data", sum).push_all()?;
            let after = m.builder.op("read_state").arg("input", state).named("after").push()?;
            m.builder.op("mul").arg("x", after).arg("y", Arg::from(2.0f32)).named("y").push()?
        }
        _ => m.builder.op(op).arg("state", state).arg("value", sum).named("y").push()?,
    };
    Ok(m.end(op, CLOSE, &[y]))
}

fn ordered(mut m: Making<'_>, op: &str) -> Result<Case> {
    let shape = any_shape(&mut m);
    let x = m.input("x", &shape, (-3.0, 3.0))?;
    let axis = m.rng.i32(0..shape.len() as i32);
    let flag = m.rng.bool();
    m.note(&format!("axis {axis} {flag}"));
    let parameter = if op == "argsort" { "ascending" } else { "keep_dims" };
    m.done(op, 0.0, |op| op.arg("x", x).arg("axis", axis).arg(parameter, flag))
}

fn reversed(mut m: Making<'_>, op: &str) -> Result<Case> {
    let shape = m.shape(3, 5);
    let x = m.input("x", &shape, (-3.0, 3.0))?;
    let axes = [m.rng.i32(0..2), 2];
    m.done(op, 0.0, |op| op.arg("x", x).arg("axes", axes))
}

fn pooled(mut m: Making<'_>, op: &str) -> Result<Case> {
    let spatial = m.rng.usize(1..=2);
    let sizes: Vec<usize> = m.shape(spatial, 5).iter().map(|size| size + 3).collect();
    let x = m.input("x", &[&[1, 3][..], &sizes].concat(), (-1.0, 1.0))?;
    let kernel: Vec<i32> = (0..spatial).map(|_| m.rng.i32(2..4)).collect();
    let strides: Vec<i32> = (0..spatial).map(|_| m.rng.i32(1..3)).collect();
    let pad: Vec<i32> = (0..2 * spatial).map(|_| m.rng.i32(0..2)).collect();
    let pad_type = ["valid", "same", "custom"][m.rng.usize(0..3)];
    let (is_average, excludes) = (op == "avg_pool", m.rng.bool());
    m.note(&format!("kernel {kernel:?} stride {strides:?} {pad_type} {pad:?} exclude {excludes}"));
    m.done(op, CLOSE, |op| {
        let op = op.arg("x", x).arg("kernel_sizes", &kernel[..]).arg("strides", &strides[..]);
        let op = op.arg("pad_type", pad_type).arg("pad", &pad[..]);
        if is_average { op.arg("exclude_padding_from_average", excludes) } else { op }
    })
}

//! `linear` and `matmul`: products over the last two dimensions, with numpy batches.

use std::ops::Range;

use super::prelude::*;
use anemeter_kernels::floats::Sink;
use anemeter_kernels::gemm::{Extents, Matrix, Weights, weight_gemm};
use anemeter_kernels::int_gemm::int_gemm;
use anemeter_kernels::streamed_gemm::{self, Layout, OperandSource, RightOperand, StreamedGemm};

pub(super) const OPS: &[OpDef] = &[
    define(OpClass::Product(linear_flops), "linear", Ios15, infer_linear, eval_linear)
        .takes(&linear_params('T')),
    define(OpClass::Product(linear_flops), "linear", Ios17, infer_linear, eval_linear)
        .takes(&linear_params('U')),
    define(OpClass::Product(matmul_flops), "matmul", Ios15, infer_matmul, eval_matmul)
        .takes(&matmul_params('T')),
    define(OpClass::Product(matmul_flops), "matmul", Ios17, infer_matmul, eval_matmul)
        .takes(&matmul_params('U')),
];

/// The weight shares the type of `x` only if its group is T.
const fn linear_params(group: char) -> [Param; 3] {
    [
        Param::value("x", FLOAT_INT).group('T'),
        Param::constant("weight", FLOAT_INT).group(group).packed().weight(WeightAxes::OutputInput),
        Param::constant("bias", FLOAT_INT).group(group).optional().packed(),
    ]
}

/// `y` shares the type of `x` only if its group is T.
const fn matmul_params(group: char) -> [Param; 4] {
    [
        Param::value("x", FLOAT_INT).group('T').packed().weight(WeightAxes::Left("transpose_x")),
        Param::value("y", FLOAT_INT).group(group).packed().weight(WeightAxes::Right("transpose_y")),
        Param::constant("transpose_x", BOOL).or_bool(false),
        Param::constant("transpose_y", BOOL).or_bool(false),
    ]
}

fn linear_flops(call: &Call<'_>, out: &[usize]) -> Option<u64> {
    let weight = call.ty("weight").ok()?.concrete()?;
    Some(products(call, out, elements(out).saturating_mul(*weight.last()? as u64)))
}

fn matmul_flops(call: &Call<'_>, out: &[usize]) -> Option<u64> {
    let x = call.ty("x").ok()?.concrete()?;
    let reduced = match x[..] {
        [.., rows, _] if call.bool("transpose_x").unwrap_or(false) => rows,
        [.., columns] => columns,
        [] => 1,
    };
    Some(elements(out).saturating_mul(reduced as u64).saturating_mul(2))
}

fn infer_linear(call: &Call<'_>) -> Result<Vec<Type>> {
    let (x, weight) = (call.ty("x")?, call.ty("weight")?);
    let [outputs, inputs] = weight.shape[..] else { refuse!("`weight` is a {weight}, not a matrix") };
    if let Some(bias) = call.opt_ty("bias")? {
        match bias.shape[..] {
            [size] if !differ(size, outputs) => {}
            _ => refuse!("`bias` is a {bias}, `weight` has {outputs} rows"),
        }
    }
    let Some(rank) = x.rank() else { return Ok(vec![x.clone().into()]) };
    let Some(last) = rank.checked_sub(1) else { refuse!("`x` is a scalar") };
    if differ(x.shape[last], inputs) {
        refuse!("`x` has {} in its last dimension, `weight` takes {inputs}", x.shape[last]);
    }
    let mut shape = x.shape.clone();
    shape[last] = outputs;
    Ok(dims::one(x.dtype, shape))
}

fn differ(a: Dim, b: Dim) -> bool {
    matches!((a, b), (Dim::Fixed(a), Dim::Fixed(b)) if a != b)
}

fn infer_matmul(call: &Call<'_>) -> Result<Vec<Type>> {
    let (x, y) = (call.ty("x")?, call.ty("y")?);
    let dtype = matmul_dtype(call, x, y)?;
    if x.rank().is_none() || y.rank().is_none() {
        return Ok(dims::unranked(dtype));
    }
    let transpose_x = call.bool("transpose_x")?;
    refuse_if!(x.shape.len() == 1 && transpose_x, "`transpose_x` is set and `x` has one dimension only");
    let one = Dim::Fixed(1);
    let (x_batch, m, x_inner) = match x.shape[..] {
        [] => refuse!("`x` is a scalar"),
        [k] => (&[][..], one, k),
        [ref batch @ .., k, m] if transpose_x => (batch, m, k),
        [ref batch @ .., m, k] => (batch, m, k),
    };
    let (y_batch, y_inner, n) = match y.shape[..] {
        [] => refuse!("`y` is a scalar"),
        [k] => (&[][..], k, one),
        [ref batch @ .., n, k] if call.bool("transpose_y")? => (batch, k, n),
        [ref batch @ .., k, n] => (batch, k, n),
    };
    refuse_if!(differ(x_inner, y_inner), "{x} times {y}: {x_inner} columns against {y_inner} rows");
    let batch = |dims: &[Dim]| TensorType::new(dtype, dims.to_vec());
    let mut shape = broadcast::dims(&batch(x_batch), &batch(y_batch))?;
    shape.extend((x.shape.len() > 1).then_some(m));
    shape.extend((y.shape.len() > 1).then_some(n));
    Ok(dims::one(dtype, shape))
}

/// Operands of different types are allowed if one of them is constant; the other then gives the type.
fn matmul_dtype(call: &Call<'_>, x: &TensorType, y: &TensorType) -> Result<DType> {
    if x.dtype == y.dtype {
        return Ok(x.dtype);
    }
    let constant = |name| matches!(call.value_at(name, 0), Some(ArgValue::Shared(_) | ArgValue::Packed(_)));
    match (constant("x"), constant("y")) {
        (true, false) => Ok(y.dtype),
        (false, true) => Ok(x.dtype),
        _ => refuse!(
            "`x` is {} and `y` is {}, which needs exactly one of them to be constant",
            x.dtype,
            y.dtype
        ),
    }
}

fn eval_linear(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
    done_if!(outputs.tensor(0)?.shape().contains(&0));
    let x = call.tensor("x")?;
    let weight = call.weight("weight")?;
    let bias = if call.has("bias") { Some(call.weight("bias")?) } else { None };
    let &[n, k] = weight.shape() else {
        refuse!("`weight` has shape {:?}, not that of a matrix", weight.shape())
    };
    let m = x.shape()[..x.rank() - 1].iter().product();
    let none: &[usize] = &[];
    let x = Operand { elements: Weight::Dense(x), batch: none, transposed: false };
    let y = Operand { elements: weight, batch: none, transposed: true };
    Multiplication { x, y, bias, extents: Extents { m, k, n } }.evaluate(call, outputs)
}

fn eval_matmul(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
    done_if!(outputs.tensor(0)?.shape().contains(&0));
    let (x, y) = (call.weight("x")?, call.weight("y")?);
    let (transpose_x, transpose_y) = (call.bool("transpose_x")?, call.bool("transpose_y")?);
    let (mut x_batch, mut m, k) = match x.shape() {
        [batch @ .., k, m] if transpose_x => (batch, *m, *k),
        [batch @ .., m, k] => (batch, *m, *k),
        vector => (&[][..], 1, vector.iter().product()),
    };
    let (y_batch, n) = match y.shape() {
        [batch @ .., n, _] if transpose_y => (batch, *n),
        [batch @ .., _, n] => (batch, *n),
        _ => (&[][..], 1),
    };
    // Rows of several matrices against the same right operand are rows of one larger matrix.
    if !transpose_x && y_batch.iter().all(|&d| d == 1) {
        m *= x_batch.iter().product::<usize>();
        x_batch = &[];
    }
    let transposed = transpose_y && y.shape().len() > 1;
    let x = Operand { elements: x, batch: x_batch, transposed: transpose_x };
    let y = Operand { elements: y, batch: y_batch, transposed };
    Multiplication { x, y, bias: None, extents: Extents { m, k, n } }.evaluate(call, outputs)
}

/// A batch of matrices.
struct Operand<'a> {
    elements: Weight<'a>,
    batch: &'a [usize],
    transposed: bool,
}

impl<'a> Operand<'a> {
    /// The elements, if they are in memory in this type.
    fn dense<T: Element>(&self) -> Option<&'a [T]> {
        match self.elements {
            Weight::Dense(view) => view.slice().ok(),
            Weight::Packed(_) => None,
        }
    }

    /// Matrix `at`, if it can be used as it lies in memory. A single column of fp16 is better converted.
    fn in_memory(&self, at: usize, Extents { k, n, .. }: Extents) -> Option<OperandSource<'a>> {
        match self.elements {
            Weight::Dense(view) => OperandSource::in_memory(&view, at * k * n..(at + 1) * k * n)
                .filter(|source| n > 1 || matches!(source, OperandSource::F32(_))),
            Weight::Packed(_) => None,
        }
    }
}

/// Rows or columns up to which products are better taken one by one than in tiles.
const FEW: usize = 16;

struct Multiplication<'a> {
    x: Operand<'a>,
    y: Operand<'a>,
    bias: Option<Weight<'a>>,
    extents: Extents,
}

impl Multiplication<'_> {
    fn evaluate(&self, call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
        if let (Some(x), Some(y)) = (self.x.dense::<i32>(), self.y.dense::<i32>()) {
            return self.integers(x, y, outputs);
        }
        let Extents { m, n, .. } = self.extents;
        let large = m.min(n) > FEW && self.bias.is_none() && !call.rounds(DType::F16);
        match (self.x.dense::<f16>(), self.y.dense::<f16>()) {
            (Some(x), Some(y)) if large => self.halves(x, y, outputs),
            _ => self.floats(call, outputs),
        }
    }

    /// Matrices of fp16 that are read, multiplied and stored without a copy in f32.
    fn halves(&self, x: &[f16], y: &[f16], outputs: &mut Outputs<'_, '_>) -> Result {
        let Extents { m, k, n } = self.extents;
        let out = outputs.tensor(0)?.slice::<f16>()?;
        self.each_matrix(|in_x, in_y, in_out| {
            let (x, y) = (&x[in_x * m * k..][..m * k], &y[in_y * k * n..][..k * n]);
            let left = oriented(x, (m, k), self.x.transposed);
            let right = oriented(y, (k, n), self.y.transposed);
            weight_gemm(self.extents, Weights::Dense(left), right, None, &mut out[in_out * m * n..][..m * n]);
        })
    }

    /// Calls `f` with the index of the matrix in x, in y and in the output.
    fn each_matrix(&self, mut f: impl FnMut(usize, usize, usize)) -> Result {
        let (x, y) = (self.x.batch, self.y.batch);
        let batch =
            shape::broadcast(x, y).ok_or_else(|| op_error!("batches {x:?} and {y:?} do not broadcast"))?;
        broadcast::runs(x, y, &batch, |at_x, at_y, at, run, step_x, step_y| {
            for i in 0..run {
                f(at_x + i * step_x, at_y + i * step_y, at + i);
            }
        });
        Ok(())
    }

    fn floats(&self, call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
        let Extents { m, k, n } = self.extents;
        let (out, scratch) = outputs.with_scratch(0)?;
        let round_steps = call.rounds(out.dtype());
        let mut sink = Sink::new(out)?;
        let dense_x = self.x.dense::<f32>();
        let layout = if self.y.transposed { Layout::ColumnMajor } else { Layout::RowMajor };
        let [x, bias, work] = scratch.floats([
            if dense_x.is_some() { 0 } else { m * k },
            if self.bias.is_some() { n } else { 0 },
            streamed_gemm::scratch_len(self.extents, layout, self.y.in_memory(0, self.extents).is_some()),
        ]);
        if let Some(given) = self.bias {
            given.read(0..n, bias);
        }
        self.each_matrix(|in_x, in_y, in_out| {
            let left = match dense_x {
                Some(all) => &all[in_x * m * k..][..m * k],
                None => {
                    self.x.elements.read(in_x * m * k..(in_x + 1) * m * k, x);
                    &*x
                }
            };
            let left = oriented(left, (m, k), self.x.transposed);
            let read = |columns: Range<usize>, block: &mut [f32]| {
                read_columns(&self.y, in_y * k * n, self.extents, columns, block);
            };
            let source = self.y.in_memory(in_y, self.extents).unwrap_or(OperandSource::Decode(&read));
            let right = RightOperand { layout, source };
            let product = StreamedGemm { extents: self.extents, left, right, round_steps };
            product.compute(work, |mut block| {
                if self.bias.is_some() {
                    block.add_bias(bias, round_steps);
                }
                for (row, values) in block.rows.zip(block.values.chunks_exact(block.columns.len())) {
                    sink.write((in_out * m + row) * n + block.columns.start, values);
                }
            });
        })
    }

    fn integers(&self, x: &[i32], y: &[i32], outputs: &mut Outputs<'_, '_>) -> Result {
        let Extents { m, k, n } = self.extents;
        let out = outputs.tensor(0)?.slice::<i32>()?;
        match &self.bias {
            Some(Weight::Dense(bias)) => fill_rows(out, bias)?,
            _ => out.fill(0),
        }
        self.each_matrix(|in_x, in_y, in_out| {
            let (x, y) = (&x[in_x * m * k..][..m * k], &y[in_y * k * n..][..k * n]);
            let x = oriented(x, (m, k), self.x.transposed);
            let y = oriented(y, (k, n), self.y.transposed);
            int_gemm(self.extents, x, y, &mut out[in_out * m * n..][..m * n]);
        })
    }
}

/// A matrix of `rows` by `columns` that lies in memory as it is or transposed.
fn oriented<T>(data: &[T], (rows, columns): (usize, usize), transposed: bool) -> Matrix<'_, T> {
    if transposed { Matrix::row_major(data, rows).transposed() } else { Matrix::row_major(data, columns) }
}

fn fill_rows(out: &mut [i32], row: &TensorView<'_>) -> Result {
    let row = row.slice::<i32>()?;
    for out in out.chunks_exact_mut(row.len().max(1)) {
        out.copy_from_slice(row);
    }
    Ok(())
}

fn read_columns(y: &Operand<'_>, at: usize, extents: Extents, columns: Range<usize>, block: &mut [f32]) {
    let Extents { k, n, .. } = extents;
    if y.transposed {
        y.elements.read(at + columns.start * k..at + columns.end * k, block);
    } else if columns.len() == n {
        y.elements.read(at..at + k * n, block);
    } else {
        for (row, values) in block.chunks_exact_mut(columns.len()).enumerate() {
            let start = at + row * n;
            y.elements.read(start + columns.start..start + columns.end, values);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linear_multiplies_by_the_transposed_weight() {
        let x = floats(&[1, 2, 2], &[1.0, 2.0, 3.0, 4.0]);
        let weight = floats(&[3, 2], &[1.0, 0.0, 0.0, 1.0, 1.0, 1.0]);
        let bias = floats(&[3], &[10.0, 20.0, 30.0]);
        let args = [("x", x), ("weight", weight), ("bias", bias)];
        gives::<f32>(run("linear", Ios15, &args), &[1, 2, 3], &[11.0, 22.0, 33.0, 13.0, 24.0, 37.0]);
        assert_eq!(output::<f32>(run("linear", Ios15, &args[..2])), [1.0, 2.0, 3.0, 3.0, 4.0, 7.0]);
    }

    #[test]
    fn integers_are_exact() {
        let x = tensor(&[1, 2], &[16_777_217, 1]);
        let y = tensor(&[2, 1], &[1, 2]);
        assert_eq!(output::<i32>(run("matmul", Ios15, &[("x", x.clone()), ("y", y)])), [16_777_219]);
        let args = [("x", x), ("weight", tensor(&[1, 2], &[1, 2])), ("bias", tensor(&[1], &[-1]))];
        assert_eq!(output::<i32>(run("linear", Ios15, &args)), [16_777_218]);
    }

    #[test]
    fn matrices_broadcast_and_transpose() {
        let x = floats(&[2, 1, 1, 2], &[1.0, 2.0, 3.0, 4.0]);
        let y = floats(&[2, 2, 1], &[1.0, 0.0, 0.0, 1.0]);
        let out = run("matmul", Ios15, &[("x", x.clone()), ("y", y.clone())]);
        gives::<f32>(out, &[2, 2, 1, 1], &[1.0, 2.0, 3.0, 4.0]);
        let args = [
            ("x", x),
            ("y", y),
            ("transpose_x", Tensor::from_bool(true)),
            ("transpose_y", Tensor::from_bool(true)),
        ];
        let out = run("matmul", Ios15, &args).unwrap();
        assert_eq!(out[0].shape(), [2, 2, 2, 2]);
        let expected =
            [[1.0, 0.0, 2.0, 0.0], [0.0, 1.0, 0.0, 2.0], [3.0, 0.0, 4.0, 0.0], [0.0, 3.0, 0.0, 4.0]];
        assert_eq!(out[0].view().slice::<f32>().unwrap(), expected.concat());
    }

    #[test]
    fn vectors_lose_the_dimension_they_are_given() {
        let (vector, matrices) = (floats(&[2], &[1.0, 2.0]), floats(&[2, 2, 2], &[1.0; 8]));
        for (x, y, shape) in
            [(&vector, &vector, &[][..]), (&vector, &matrices, &[2, 2]), (&matrices, &vector, &[2, 2])]
        {
            let out = run("matmul", Ios15, &[("x", x.clone()), ("y", y.clone())]).unwrap();
            assert_eq!(out[0].shape(), shape);
        }
    }

    #[test]
    fn fp16_exact_rounds_every_sum() {
        let args = [
            ("x", halves(&[1, 3], &[2048.0, 1.0, 1.0]).into()),
            ("weight", halves(&[1, 3], &[1.0, 1.0, 1.0]).into()),
        ];
        let value = |numerics| call("linear", numerics, &args).unwrap().view().slice::<f16>().unwrap()[0];
        assert_eq!(value(Numerics::Fast).to_f32(), 2050.0);
        assert_eq!(value(Numerics::Fp16Exact).to_f32(), 2048.0);
    }

    #[test]
    fn compressed_weights_are_streamed_to_the_same_result() {
        let (m, k, n) = (3, 300, 700);
        let values = |len: usize| -> Vec<f32> { (0..len).map(|i| (i * 7 % 11) as f32 - 5.0).collect() };
        let (x, weight) = (values(m * k), values(n * k));
        let expected: Vec<f32> =
            (0..m * n).map(|at| (0..k).map(|i| x[at / n * k + i] * weight[at % n * k + i]).sum()).collect();
        let transposed: Vec<f32> = (0..k * n).map(|at| weight[at % n * k + at / n]).collect();
        let x = KnownValue::from(floats(&[m, k], &x));
        let linear = [("x", x.clone()), ("weight", compressed(floats(&[n, k], &weight)))];
        let matmul = [("x", x), ("y", compressed(floats(&[k, n], &transposed)))];
        for (name, args) in [("linear", linear), ("matmul", matmul)] {
            let out = call(name, Numerics::Fast, &args).unwrap();
            assert_eq!(out.view().slice::<f32>().unwrap(), expected, "{name}");
        }
    }

    #[test]
    fn unknown_dimensions_stay_unknown() {
        let ty = |shape: &[Dim]| TensorType::new(DType::F16, shape.to_vec());
        let (two, unknown) = (Dim::Fixed(2), Dim::Unknown);
        let types = [("x", ty(&[unknown, unknown, two])), ("y", ty(&[Dim::Fixed(3), two, unknown]))];
        assert_eq!(infer_tensor("matmul", &types, &[]).unwrap().shape, [Dim::Fixed(3), unknown, unknown]);
    }

    #[test]
    fn a_constant_of_another_type_leaves_the_type_to_the_other_operand() {
        let x = TensorType::fixed(DType::F16, &[2, 3]);
        let y = tensor(&[3, 1], &[0i32; 3]);
        let out = infer_tensor("matmul", &[("x", x)], &[("y", y)]).unwrap();
        assert_eq!(out, TensorType::fixed(DType::F16, &[2, 1]));
    }

    #[test]
    fn mismatches_are_named() {
        let (x, y) = (floats(&[2, 3], &[0.0; 6]), floats(&[2, 3], &[0.0; 6]));
        let error = run("matmul", Ios15, &[("x", x.clone()), ("y", y)]).unwrap_err();
        let text = "tensor<fp32, [2, 3]> times tensor<fp32, [2, 3]>: 3 columns against 2 rows";
        assert_eq!(error.to_string(), text);
        let mixed = [("x", x.clone()), ("y", tensor(&[3, 1], &[0i32; 3]))];
        assert!(run("matmul", Ios17, &mixed).is_err());
        let error = run("linear", Ios15, &[("x", x), ("weight", floats(&[1, 2], &[0.0; 2]))]).unwrap_err();
        assert_eq!(error.to_string(), "`x` has 3 in its last dimension, `weight` takes 2");
    }
}

//! `einsum` of two operands: batch, contracted, summed and diagonal labels, and ellipses.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use smallvec::SmallVec;

use super::prelude::*;
use anemeter_kernels::convert::{round_f16, to_f32};
use anemeter_kernels::floats::Sink;
use anemeter_kernels::gemm::{Extents, Matrix, gemm};

pub(super) const OPS: &[OpDef] = &[define(OpClass::Product(flops), "einsum", Ios15, infer, eval)
    .takes(&[Param::value("values", FLOAT).group('T').many(), Param::constant("equation", TEXT)])];

/// A multiplication and an addition for every choice of all labels.
fn flops(call: &Call<'_>, _: &[usize]) -> Option<u64> {
    let (x, y) = (call.ty_at("values", 0).ok()?.concrete()?, call.ty_at("values", 1).ok()?.concrete()?);
    let equation = Equation::parse(call.text("equation").ok()?, x.len(), y.len()).ok()?;
    let mut sizes: BTreeMap<Label, u64> = BTreeMap::new();
    let labels = equation.x.iter().zip(&x).chain(equation.y.iter().zip(&y));
    for (&label, &size) in labels {
        let known = sizes.entry(label).or_default();
        *known = (*known).max(size as u64);
    }
    Some(sizes.values().fold(2, |product, &size| product.saturating_mul(size)))
}

/// A dimension of an operand: a character of the equation, or one that an ellipsis stands for, counted from
/// the right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Label {
    Ellipsis(Reverse<usize>),
    Named(char),
}

type Labels = SmallVec<[Label; 8]>;

#[derive(Debug)]
struct Equation {
    x: Labels,
    y: Labels,
    out: Labels,
}

impl Equation {
    fn parse(text: &str, x_rank: usize, y_rank: usize) -> Result<Equation> {
        let wrong = |why: &str| op_error!("`equation` is `{text}`, {why}");
        let (inputs, out) = match text.split_once("->") {
            Some((inputs, out)) => (inputs, Some(out)),
            None => (text, None),
        };
        let Some((x, y)) = inputs.split_once(',').filter(|(_, y)| !y.contains(',')) else {
            return Err(wrong("which does not name two operands"));
        };
        let x = labels(x, Some(x_rank)).map_err(|why| wrong(&why))?;
        let y = labels(y, Some(y_rank)).map_err(|why| wrong(&why))?;
        let depth = |labels: &Labels| labels.iter().filter(|l| matches!(l, Label::Ellipsis(_))).count();
        let ellipsis = depth(&x).max(depth(&y));
        let out = match out {
            Some(out) => labels_of_output(out, ellipsis).map_err(|why| wrong(&why))?,
            None => implied_output(&x, &y, ellipsis),
        };
        for (i, label) in out.iter().enumerate() {
            if out[..i].contains(label) {
                return Err(wrong("whose output repeats a label"));
            }
            if !x.contains(label) && !y.contains(label) {
                return Err(wrong("whose output has a label that no operand has"));
            }
        }
        Ok(Equation { x, y, out })
    }
}

fn ellipsis_labels(count: usize) -> impl Iterator<Item = Label> {
    (0..count).rev().map(|i| Label::Ellipsis(Reverse(i)))
}

fn labels_of_output(text: &str, ellipsis: usize) -> Result<Labels, String> {
    let named = text.chars().filter(|c| !c.is_whitespace() && *c != '.').count();
    labels(text, text.contains("...").then_some(named + ellipsis))
}

/// The labels of one term; an ellipsis fills up to `rank`, which otherwise must be met exactly.
fn labels(term: &str, rank: Option<usize>) -> Result<Labels, String> {
    let named = |text: &str| -> Result<Labels, String> {
        text.chars()
            .filter(|c| !c.is_whitespace())
            .map(|c| match c {
                '.' | ',' | '-' | '>' => Err(format!("where `{c}` is out of place")),
                letter => Ok(Label::Named(letter)),
            })
            .collect()
    };
    let Some((before, after)) = term.split_once("...") else {
        let labels = named(term)?;
        return match rank {
            Some(rank) if rank != labels.len() => {
                Err(format!("where `{}` does not fit an operand of rank {rank}", term.trim()))
            }
            _ => Ok(labels),
        };
    };
    let (mut labels, after) = (named(before)?, named(after)?);
    let Some(rest) = rank.unwrap_or(0).checked_sub(labels.len() + after.len()) else {
        return Err(format!("where `{}` does not fit an operand of rank {}", term.trim(), rank.unwrap_or(0)));
    };
    labels.extend(ellipsis_labels(rest));
    labels.extend(after);
    Ok(labels)
}

/// Without an output term, labels that occur once are kept, in alphabetical order.
fn implied_output(x: &Labels, y: &Labels, ellipsis: usize) -> Labels {
    let all = || x.iter().chain(y);
    let mut named: Labels = all()
        .filter(|&&l| matches!(l, Label::Named(_)) && all().filter(|&&other| other == l).count() == 1)
        .copied()
        .collect();
    named.sort_unstable();
    ellipsis_labels(ellipsis).chain(named).collect()
}

fn infer(call: &Call<'_>) -> Result<Vec<Type>> {
    refuse_if!(call.count("values") != 2, "`values` holds {} tensors, not two", call.count("values"));
    let (x, y) = (call.ty_at("values", 0)?, call.ty_at("values", 1)?);
    refuse_if!(x.dtype != y.dtype, "`values` are of different types, {} and {}", x.dtype, y.dtype);
    let (Some(x_rank), Some(y_rank)) = (x.rank(), y.rank()) else {
        return Ok(dims::unranked(x.dtype));
    };
    let equation = Equation::parse(call.text("equation")?, x_rank, y_rank)?;
    for &label in equation.x.iter().chain(&equation.y) {
        size(&equation, label, x, y)?;
    }
    let shape = equation.out.iter().map(|&label| size(&equation, label, x, y)).collect::<Result<_, _>>()?;
    Ok(dims::one(x.dtype, shape))
}

/// The size of a label. One operand may have 1 where the other has more, unless the label is contracted.
fn size(equation: &Equation, label: Label, x: &TensorType, y: &TensorType) -> Result<Dim> {
    let own = |labels: &Labels, ty: &TensorType| -> Result<Option<Dim>> {
        let mut found: Option<Dim> = None;
        for (_, &dim) in labels.iter().zip(&ty.shape).filter(|(l, _)| **l == label) {
            match (found, dim) {
                (Some(Dim::Fixed(a)), Dim::Fixed(b)) if a != b => {
                    refuse!("the diagonal of {a} by {b} in {ty} is not square");
                }
                (Some(Dim::Fixed(_)), _) => {}
                _ => found = Some(dim),
            }
        }
        Ok(found)
    };
    let broadcasts = equation.out.contains(&label);
    match (own(&equation.x, x)?, own(&equation.y, y)?) {
        (Some(Dim::Fixed(a)), Some(Dim::Fixed(b))) => match (a, b) {
            _ if a == b => Ok(Dim::Fixed(a)),
            (1, other) | (other, 1) if broadcasts => Ok(Dim::Fixed(other)),
            _ => refuse!("{x} and {y} do not fit the equation: {a} against {b}"),
        },
        (Some(Dim::Fixed(_)), Some(unknown)) => Ok(unknown),
        (Some(dim), _) | (None, Some(dim)) => Ok(dim),
        (None, None) => Ok(Dim::Unknown),
    }
}

/// Dimensions by size and stride.
type Axes = SmallVec<[(usize, usize); 8]>;

/// An operand as `[batch, free, contracted]`, and what is summed away.
struct Packing {
    batch: Shape,
    axes: Axes,
    summed: Axes,
    free: usize,
    contracted: usize,
}

impl Packing {
    /// `other` are the labels of the other operand; the right operand has its contracted labels first.
    fn new(own: &Labels, view: &TensorView<'_>, other: &Labels, out: &Labels, right: bool) -> Packing {
        let strides = shape::strides(view.shape());
        let axis = |label: Label| {
            let mine = || own.iter().enumerate().filter(move |(_, l)| **l == label);
            let stride = mine().map(|(i, _)| strides[i]).sum();
            (mine().next().map_or(1, |(i, _)| view.shape()[i]), stride)
        };
        // Contracted labels are taken in the left operand's order on both sides.
        let order = if right { other } else { own };
        let mut contracted = Axes::new();
        let mut seen = Labels::new();
        for &label in order {
            if own.contains(&label)
                && other.contains(&label)
                && !out.contains(&label)
                && !seen.contains(&label)
            {
                seen.push(label);
                contracted.push(axis(label));
            }
        }
        let kept = |shared: bool| -> Axes {
            let mine = out.iter().filter(|l| own.contains(l) && other.contains(l) == shared);
            mine.map(|&label| axis(label)).collect()
        };
        let (batch, free) = (kept(true), kept(false));
        let mut summed = Axes::new();
        for &label in own {
            if !other.contains(&label) && !out.contains(&label) && !seen.contains(&label) {
                seen.push(label);
                summed.push(axis(label));
            }
        }
        let (first, last) = if right { (&contracted, &free) } else { (&free, &contracted) };
        Packing {
            batch: batch.iter().map(|a| a.0).collect(),
            axes: batch.iter().chain(first).chain(last).copied().collect(),
            summed,
            free: free.iter().map(|a| a.0).product(),
            contracted: contracted.iter().map(|a| a.0).product(),
        }
    }

    fn len(&self) -> usize {
        self.axes.iter().map(|a| a.0).product()
    }
}

/// Calls `f` with the offset of each element, outermost axis slowest.
fn walk(axes: &[(usize, usize)], mut f: impl FnMut(usize)) {
    if axes.iter().any(|a| a.0 == 0) {
        return;
    }
    let mut index: Shape = smallvec::smallvec![0; axes.len()];
    let mut at = 0;
    loop {
        f(at);
        let mut axis = axes.len();
        loop {
            if axis == 0 {
                return;
            }
            axis -= 1;
            index[axis] += 1;
            at += axes[axis].1;
            if index[axis] < axes[axis].0 {
                break;
            }
            at -= axes[axis].1 * axes[axis].0;
            index[axis] = 0;
        }
    }
}

/// Copies elements in the order of `axes`, each summed over `summed`.
fn pack(data: &[f32], axes: &Axes, summed: &Axes, round_steps: bool, out: &mut [f32]) {
    let mut out = out.iter_mut();
    walk(axes, |at| {
        let Some(out) = out.next() else { return };
        if summed.is_empty() {
            *out = data[at];
            return;
        }
        let mut sum = 0.0;
        walk(summed, |offset| {
            sum += data[at + offset];
            if round_steps {
                sum = round_f16(sum);
            }
        });
        *out = sum;
    });
}

fn eval(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
    let (x, y) = (call.tensor_at("values", 0)?, call.tensor_at("values", 1)?);
    let equation = Equation::parse(call.text("equation")?, x.rank(), y.rank())?;
    let (out, scratch) = outputs.with_scratch(0)?;
    if x.shape().contains(&0) || y.shape().contains(&0) {
        out.bytes().fill(0);
        return Ok(());
    }
    let out_shape = out.shape();
    let out_len = out_shape.iter().product();
    let round_steps = call.rounds(x.dtype());
    let left = Packing::new(&equation.x, &x, &equation.y, &equation.out, false);
    let right = Packing::new(&equation.y, &y, &equation.x, &equation.out, true);
    let [work, packed_x, packed_y, product, result] =
        scratch.floats([x.len().max(y.len()), left.len(), right.len(), out_len, out_len]);

    to_f32(&x, 0..x.len(), work);
    pack(work, &left.axes, &left.summed, round_steps, packed_x);
    to_f32(&y, 0..y.len(), work);
    pack(work, &right.axes, &right.summed, round_steps, packed_y);
    let extents = Extents { m: left.free, k: left.contracted, n: right.free };
    let Extents { m, k, n } = extents;
    let batch = shape::broadcast(&left.batch, &right.batch)
        .ok_or_else(|| op_error!("{:?} and {:?} do not broadcast", left.batch, right.batch))?;
    broadcast::runs(&left.batch, &right.batch, &batch, |at_x, at_y, at, run, step_x, step_y| {
        for i in 0..run {
            let a = Matrix::row_major(&packed_x[(at_x + i * step_x) * m * k..], k);
            let b = Matrix::row_major(&packed_y[(at_y + i * step_y) * k * n..], n);
            gemm(extents, a, b, &mut product[(at + i) * m * n..][..m * n], round_steps);
        }
    });
    pack(product, &product_axes(&equation, out_shape), &Axes::new(), false, result);
    Sink::new(out)?.write(0, result);
    Ok(())
}

/// The output's dimensions with their strides in a product laid out as `[batch, left free, right free]`.
fn product_axes(equation: &Equation, out_shape: &[usize]) -> Axes {
    let (in_x, in_y) = (|l: &Label| equation.x.contains(l), |l: &Label| equation.y.contains(l));
    let mut axes: Axes = out_shape.iter().map(|&size| (size, 0)).collect();
    let mut stride = 1;
    for group in [(false, true), (true, false), (true, true)] {
        for (i, label) in equation.out.iter().enumerate().rev() {
            if (in_x(label), in_y(label)) == group {
                axes[i].1 = stride;
                stride *= out_shape[i];
            }
        }
    }
    axes
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn einsum(equation: &str, x: &Tensor, y: &Tensor) -> Result<Tensor> {
        let equation = Tensor::from_text(equation);
        let args = [("values", x.clone()), ("values", y.clone()), ("equation", equation)];
        Ok(run("einsum", Ios15, &args)?.remove(0))
    }

    fn counting(shape: &[usize]) -> Tensor {
        let values: Vec<f32> = (0..shape.iter().product()).map(|i: usize| (i % 7) as f32 - 2.0).collect();
        tensor(shape, &values)
    }

    /// The definition itself: a sum over all labels.
    fn defined(equation: &str, x: &Tensor, y: &Tensor) -> Vec<f32> {
        let (inputs, out) = equation.split_once("->").unwrap();
        let (a, b) = inputs.split_once(',').unwrap();
        let mut sizes = BTreeMap::new();
        for (labels, tensor) in [(a, x), (b, y)] {
            for (label, &size) in labels.chars().zip(tensor.shape()) {
                let entry = sizes.entry(label).or_insert(size);
                *entry = size.max(*entry);
            }
        }
        let labels: Vec<char> = sizes.keys().copied().collect();
        let mut result = vec![0.0; out.chars().map(|c| sizes[&c]).product()];
        for mut number in 0..sizes.values().product() {
            let mut index = BTreeMap::new();
            for label in &labels {
                index.insert(*label, number % sizes[label]);
                number /= sizes[label];
            }
            let at = |term: &str, shape: Option<&[usize]>| {
                term.chars().enumerate().fold(0, |at, (i, c)| {
                    let size = shape.map_or(sizes[&c], |shape| shape[i]);
                    at * size + index[&c].min(size - 1)
                })
            };
            let value = |term: &str, tensor: &Tensor| {
                tensor.view().slice::<f32>().unwrap()[at(term, Some(tensor.shape()))]
            };
            result[at(out, None)] += value(a, x) * value(b, y);
        }
        result
    }

    #[test]
    fn equations_mean_what_they_say() {
        for (equation, x, y) in [
            ("nchw,nwhu->nchu", &[2, 3, 2, 4][..], &[1, 4, 2, 3][..]),
            ("chw,whr->chr", &[2, 1, 3], &[3, 4, 2]),
            ("bhqd,bhkd->bhqk", &[1, 2, 3, 4], &[1, 2, 2, 4]),
            ("ij,jk->ki", &[2, 3], &[3, 4]),
            ("ij,ij->", &[2, 3], &[2, 3]),
            ("ij,kl->li", &[2, 3], &[4, 2]),
            ("iji,ji->j", &[3, 2, 3], &[2, 3]),
        ] {
            let (x, y) = (counting(x), counting(y));
            let out = einsum(equation, &x, &y).unwrap();
            assert_eq!(out.view().slice::<f32>().unwrap(), defined(equation, &x, &y), "{equation}");
        }
    }

    #[test]
    fn ellipses_and_implied_outputs_follow_numpy() {
        let (x, y) = (counting(&[2, 1, 3, 4]), counting(&[5, 4, 2]));
        let out = einsum("...ij, ...jk -> k...i", &x, &y).unwrap();
        assert_eq!(out.shape(), [2, 2, 5, 3]);
        assert_eq!(out.view().slice::<f32>().unwrap(), defined("abij,bjk->kabi", &x, &y));
        let (x, y) = (counting(&[2, 3]), counting(&[3, 4]));
        let out = einsum("zb,ba", &x, &y).unwrap();
        assert_eq!(out.view().slice::<f32>().unwrap(), defined("zb,ba->az", &x, &y));
    }

    #[test]
    fn bad_equations_are_refused() {
        let (x, y) = (counting(&[2, 3]), counting(&[3, 4]));
        for (equation, why) in [
            ("ij,jk,kl->il", "which does not name two operands"),
            ("ijk,jk->i", "where `ijk` does not fit an operand of rank 2"),
            ("ij,jk->iz", "whose output has a label that no operand has"),
            ("ij,jk->ii", "whose output repeats a label"),
        ] {
            refused(einsum(equation, &x, &y), &format!("`equation` is `{equation}`, {why}"));
        }
        assert!(einsum("ij,ij->ij", &x, &y).is_err());
        assert!(einsum("ij,jk->ik", &counting(&[2, 3]), &counting(&[1, 4])).is_err());
    }
}

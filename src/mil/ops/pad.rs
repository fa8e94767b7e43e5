//! `pad`: a margin around the last dimensions, of a constant or of what lies inside.

use smallvec::SmallVec;

use super::prelude::*;
use anemeter_kernels::copy::{self, StridedCopy};

pub(super) const OPS: &[OpDef] = &[define(OpClass::Movement, "pad", Ios15, infer, eval).takes(&[
    Param::value("x", FLOAT).group('T'),
    Param::value("pad", INT),
    Param::constant("mode", TEXT).or_text("constant"),
    Param::constant("constant_val", FLOAT).group('T').or_float(0.0),
])];

#[derive(Clone, Copy, PartialEq)]
enum Mode {
    Constant,
    Reflect,
    Replicate,
}

fn mode(call: &Call<'_>) -> Result<Mode> {
    match call.text("mode")? {
        "constant" => Ok(Mode::Constant),
        "reflect" => Ok(Mode::Reflect),
        "replicate" => Ok(Mode::Replicate),
        other => refuse!("`mode` is \"{other}\", not constant, reflect or replicate"),
    }
}

/// The margins before and after dimension `axis`; `pad` covers the last dimensions.
fn margins(pad: &Ints, axis: usize, rank: usize) -> Result<[usize; 2]> {
    let Some(at) = (2 * axis + pad.len()).checked_sub(2 * rank) else { return Ok([0, 0]) };
    Ok([dims::size("pad", pad[at])?, dims::size("pad", pad[at + 1])?])
}

fn check_length(length: usize, rank: usize) -> Result {
    done_if!(length.is_multiple_of(2) && length <= 2 * rank);
    Err(op_error!("`pad` has {length} elements for a tensor of rank {rank}"))
}

fn infer(call: &Call<'_>) -> Result<Vec<Type>> {
    let (x, mode) = (call.ty("x")?, mode(call)?);
    let length = dims::of_rank("pad", call.ty("pad")?, 1)?[0].size();
    let Some(rank) = x.rank() else { return Ok(dims::unranked(x.dtype)) };
    let pad = call.known_ints("pad")?;
    if let Some(length) = pad.as_ref().map(SmallVec::len).or(length) {
        check_length(length, rank)?;
    }
    let Some(pad) = pad else {
        let padded = length.unwrap_or(2 * rank) / 2;
        let mut dims = x.shape.clone();
        dims[rank - padded..].fill(Dim::Unknown);
        return Ok(dims::one(x.dtype, dims));
    };
    let dims = x.shape.iter().enumerate().map(|(axis, &dim)| {
        let [before, after] = margins(&pad, axis, rank)?;
        dims::map(dim, |size| {
            let most = match mode {
                Mode::Reflect => size.saturating_sub(1),
                Mode::Replicate if size == 0 => 0,
                Mode::Constant | Mode::Replicate => usize::MAX,
            };
            match before.max(after) {
                wide if wide > most => {
                    refuse!("dimension {axis} has {size} elements, too few for a margin of {wide}")
                }
                _ => dims::plus(size, dims::plus(before, after)?),
            }
        })
    });
    Ok(dims::one(x.dtype, dims.collect::<Result<_, _>>()?))
}

fn eval(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
    let (x, mode) = (call.tensor("x")?, mode(call)?);
    let pad = call.ints("pad")?;
    let before = (0..x.rank()).map(|axis| Ok(margins(&pad, axis, x.rank())?[0]));
    let before = before.collect::<Result<Shape>>()?;
    let out = outputs.tensor(0)?;
    done_if!(out.shape().contains(&0));
    if mode != Mode::Constant {
        extend(x, out, &before, mode);
        return Ok(());
    }
    let to = shape::strides(out.shape());
    let start = before.iter().zip(&to).map(|(before, stride)| before * stride).sum();
    let mut copy = StridedCopy::new(0, start);
    for ((&len, from), to) in x.shape().iter().zip(shape::strides(x.shape())).zip(to) {
        copy.push(len, from.cast_signed(), to.cast_signed());
    }
    let bytes = out.bytes();
    match call.opt_tensor("constant_val")? {
        Some(value) => copy::fill(bytes, value.bytes()),
        None => bytes.fill(0),
    }
    copy.run(x.dtype(), x.bytes(), bytes);
    Ok(())
}

/// Fills the output region by region: along each padded dimension, inside, before or after the original.
fn extend(x: TensorView<'_>, out: TensorMut<'_>, before: &[usize], mode: Mode) {
    let (from, to) = (shape::strides(x.shape()), shape::strides(out.shape()));
    let padded = out.shape();
    let bytes = out.bytes();
    let reflect = usize::from(mode == Mode::Reflect);
    let mut region = 0usize;
    loop {
        let (mut source, mut target) = (0, 0);
        let mut axes: SmallVec<[(usize, isize, isize); 8]> = SmallVec::new();
        let mut place = region;
        for (axis, &size) in x.shape().iter().enumerate() {
            let (margin, whole) = (before[axis], padded[axis]);
            let side = if whole == size { 0 } else { place % 3 };
            place = if whole == size { place } else { place / 3 };
            let (first, at, len) = match side {
                0 => (0, margin, size),
                1 => (margin * reflect, 0, margin),
                _ => (size.saturating_sub(1 + reflect), margin + size, whole - size - margin),
            };
            let step = if side == 0 { 1 } else { -reflect.cast_signed() };
            source += first * from[axis];
            target += at * to[axis];
            axes.push((len, from[axis].cast_signed() * step, to[axis].cast_signed()));
        }
        if place > 0 {
            return;
        }
        let mut copy = StridedCopy::new(source, target);
        axes.into_iter().for_each(|(len, from, to)| copy.push(len, from, to));
        copy.run(x.dtype(), x.bytes(), bytes);
        region += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pad(mode: &str, pad: &[i32]) -> Result<Vec<Tensor>> {
        let args = [
            ("x", tensor(&[2, 3], &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0])),
            ("pad", tensor(&[pad.len()], pad)),
            text("mode", mode),
            ("constant_val", Tensor::scalar(0.5f32)),
        ];
        run("pad", Ios15, &args)
    }

    #[test]
    fn margins_are_constant_mirrored_or_stretched() {
        let wanted = [[0.5, 0.5, 1.0, 2.0, 3.0], [0.5, 0.5, 4.0, 5.0, 6.0], [0.5; 5]];
        gives::<f32>(pad("constant", &[0, 1, 2, 0]), &[3, 5], &wanted.concat());
        let (odd, even) = ([6.0, 5.0, 4.0, 5.0, 6.0, 5.0, 4.0], [3.0, 2.0, 1.0, 2.0, 3.0, 2.0, 1.0]);
        assert_eq!(output::<f32>(pad("reflect", &[1, 1, 2, 2])), [odd, even, odd, even].concat());
        let (top, bottom) = ([1.0, 1.0, 1.0, 2.0, 3.0, 3.0], [4.0, 4.0, 4.0, 5.0, 6.0, 6.0]);
        assert_eq!(output::<f32>(pad("replicate", &[2, 0, 2, 1])), [top, top, top, bottom].concat());
    }

    #[test]
    fn a_short_list_covers_the_last_dimensions() {
        assert_eq!(pad("constant", &[1, 2]).unwrap()[0].shape(), [2, 6]);
        assert_eq!(pad("constant", &[]).unwrap()[0].shape(), [2, 3]);
    }

    #[test]
    fn margins_must_be_possible() {
        refused(pad("reflect", &[2, 0, 0, 0]), "dimension 0 has 2 elements, too few for a margin of 2");
        refused(pad("constant", &[0, 0, -1, 0]), "`pad` is -1, which is not a size");
        refused(pad("constant", &[0; 3]), "`pad` has 3 elements for a tensor of rank 2");
        assert!(pad("circular", &[]).is_err());
    }
}

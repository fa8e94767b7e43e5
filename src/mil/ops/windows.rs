//! Window parameters of convolution and pooling: strides, dilations, padding rules and the sizes they give.

use smallvec::smallvec;

use super::prelude::*;
use anemeter_kernels::window::Window;

/// How the input is padded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Padding {
    /// Not at all.
    Valid,
    /// So that the output has `ceil(input / stride)` positions; an odd element goes after the input.
    Same,
    /// As `Same`, but an odd element goes before the input.
    SameLower,
    /// By (before, after) pairs.
    Custom(Ints),
}

impl Padding {
    /// The rule of a call whose `pad_type` and `pad` are given or have defaults.
    pub(super) fn of(call: &Call<'_>, spatial: usize) -> Result<Padding> {
        let pad_type = call.text("pad_type")?;
        let is = |name: &str| pad_type.eq_ignore_ascii_case(name);
        if is("valid") {
            Ok(Padding::Valid)
        } else if is("same") {
            Ok(Padding::Same)
        } else if is("custom") {
            pads(call, spatial).map(Padding::Custom)
        } else if !is("same_lower") {
            Err(op_error!(
                "`pad_type` is `{pad_type}`, not one of `valid`, `same`, `same_lower` and `custom`"
            ))
        } else if call.opset() == Ios15 {
            Err(OpError::new("`pad_type` is `same_lower`, which opset ios15 does not have"))
        } else {
            Ok(Padding::SameLower)
        }
    }
}

/// The `pad` parameter: two integers per spatial dimension, zero where it is left out.
pub(super) fn pads(call: &Call<'_>, spatial: usize) -> Result<Ints> {
    if !call.has("pad") {
        return Ok(smallvec![0; 2 * spatial]);
    }
    let pad = call.ints("pad")?;
    if pad.len() != 2 * spatial {
        refuse!("`pad` has {} elements, {spatial} spatial dimensions need {}", pad.len(), 2 * spatial);
    }
    Ok(pad)
}

/// A parameter with one positive integer per spatial dimension, 1 where it is left out.
pub(super) fn per_axis(call: &Call<'_>, name: &str, spatial: usize) -> Result<Ints> {
    if !call.has(name) {
        return Ok(smallvec![1; spatial]);
    }
    let values = call.ints(name)?;
    if values.len() != spatial {
        refuse!("`{name}` has {} elements, `x` has {spatial} spatial dimensions", values.len());
    }
    match values.iter().find(|&&v| v < 1) {
        Some(value) => refuse!("`{name}` holds {value}, which is not positive"),
        None => Ok(values),
    }
}

/// The number of spatial dimensions of an input `[n, c, *spatial]` of the given rank.
pub(super) fn spatial_rank(rank: usize, most: usize) -> Result<usize> {
    match rank.checked_sub(2) {
        Some(spatial) if (1..=most).contains(&spatial) => Ok(spatial),
        _ => refuse!("`x` has rank {rank}, not one of 3 to {}", most + 2),
    }
}

/// Windows over the spatial dimensions of an input. Parameters come from the program, so that arithmetic on
/// them is done in a width they cannot overflow.
#[derive(Debug)]
pub(super) struct Windows {
    pub(super) stride: Ints,
    pub(super) dilation: Ints,
    pub(super) padding: Padding,
    /// Whether a last, incomplete window counts.
    pub(super) ceil: bool,
}

impl Windows {
    /// Padding before and after the input along an axis.
    pub(super) fn pad(&self, axis: usize, input: usize, kernel: usize) -> (i128, i128) {
        match &self.padding {
            Padding::Valid => (0, 0),
            Padding::Custom(pad) => (pad[2 * axis].into(), pad[2 * axis + 1].into()),
            Padding::Same | Padding::SameLower => {
                let (input, stride) = (input as i128, i128::from(self.stride[axis]));
                let outputs = (input + stride - 1) / stride;
                let total = (stride * (outputs - 1) + self.extent(axis, kernel) - input).max(0);
                let (less, more) = (total / 2, total - total / 2);
                if self.padding == Padding::Same { (less, more) } else { (more, less) }
            }
        }
    }

    /// Input elements that a window spans along an axis.
    pub(super) fn extent(&self, axis: usize, kernel: usize) -> i128 {
        (kernel as i128 - 1) * i128::from(self.dilation[axis]) + 1
    }

    /// Output size along an axis.
    pub(super) fn output(&self, axis: usize, input: usize, kernel: usize) -> Result<usize> {
        let (before, after) = self.pad(axis, input, kernel);
        let (input, pad, stride) = (input as i128, before + after, i128::from(self.stride[axis]));
        let slack = input + pad - self.extent(axis, kernel);
        let output = if self.ceil {
            let output = (slack + stride - 1).div_euclid(stride) + 1;
            let starts_in_padding = 2 * (output - 1) * stride >= 2 * input + pad && pad > 0;
            output - i128::from(starts_in_padding)
        } else {
            slack.div_euclid(stride) + 1
        };
        match isize::try_from(output) {
            Ok(size) if size > 0 => Ok(size.cast_unsigned()),
            _ => refuse!(
                "spatial dimension {axis} of size {input} with padding {pad} and a window of {kernel} gives an \
                 output of size {output}"
            ),
        }
    }

    /// Output sizes, unknown where the input or the kernel is.
    pub(super) fn output_dims(&self, input: &[Dim], kernel: &[Dim]) -> Result<Vec<Dim>> {
        let sizes = input.iter().zip(kernel).enumerate();
        sizes
            .map(|(axis, (input, kernel))| match (input.size(), kernel.size()) {
                (Some(input), Some(kernel)) => self.output(axis, input, kernel).map(Dim::from),
                _ => Ok(Dim::Unknown),
            })
            .collect()
    }

    /// The windows as kernels take them.
    pub(super) fn window(&self, input: &[usize], kernel: &[usize], output: &[usize]) -> Window {
        let mut before = [0; 3];
        let missing = 3 - input.len();
        for axis in 0..input.len() {
            let pad = self.pad(axis, input[axis], kernel[axis]).0;
            before[missing + axis] = isize::try_from(pad).unwrap_or(isize::MAX);
        }
        Window {
            input: in_three(input),
            kernel: in_three(kernel),
            output: in_three(output),
            stride: in_three(&sizes(&self.stride)),
            dilation: in_three(&sizes(&self.dilation)),
            before,
        }
    }
}

fn sizes(values: &Ints) -> Shape {
    values.iter().map(|&v| usize::try_from(v).unwrap_or(1)).collect()
}

/// Sizes of up to three spatial dimensions, with ones in front.
pub(super) fn in_three(sizes: &[usize]) -> [usize; 3] {
    let mut all = [1; 3];
    all[3 - sizes.len()..].copy_from_slice(sizes);
    all
}

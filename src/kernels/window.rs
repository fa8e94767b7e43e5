//! Sliding windows over up to three spatial dimensions: which input each output position sees.

use std::ops::Range;

/// The geometry of a convolution or pooling. Missing leading dimensions have size 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Input sizes.
    pub input: [usize; 3],
    /// Kernel sizes.
    pub kernel: [usize; 3],
    /// Output sizes.
    pub output: [usize; 3],
    /// Distance between neighbouring windows.
    pub stride: [usize; 3],
    /// Distance between neighbouring elements of a window.
    pub dilation: [usize; 3],
    /// Padding before the first element; negative padding cuts off.
    pub before: [isize; 3],
}

impl Window {
    /// Elements of one input plane.
    pub fn input_len(&self) -> usize {
        self.input.iter().product()
    }

    /// Elements of one output plane.
    pub fn output_len(&self) -> usize {
        self.output.iter().product()
    }

    /// Elements of one window.
    pub fn kernel_len(&self) -> usize {
        self.kernel.iter().product()
    }

    /// Whether every output position sees exactly the input at the same position.
    pub fn is_pointwise(&self) -> bool {
        self.kernel == [1; 3] && self.input == self.output && self.stride == [1; 3] && self.before == [0; 3]
    }

    /// The position within a window of its `tap`-th element.
    pub fn tap(&self, tap: usize) -> [usize; 3] {
        let [_, height, width] = self.kernel;
        [tap / width / height, tap / width % height, tap % width]
    }

    /// Where element `tap` of the first window lies along an axis.
    fn offset(&self, axis: usize, tap: usize) -> isize {
        (tap * self.dilation[axis]).cast_signed() - self.before[axis]
    }

    /// The output positions along an axis whose element `tap` lies inside the input.
    pub fn outputs_with(&self, axis: usize, tap: usize) -> Range<usize> {
        let (stride, offset) = (self.stride[axis].cast_signed(), self.offset(axis, tap));
        let bound = |limit: isize| {
            // `ceil((limit - offset) / stride)`, also of negative numbers.
            let first = -((offset - limit).div_euclid(stride));
            first.clamp(0, self.output[axis].cast_signed()).cast_unsigned()
        };
        let start = bound(0);
        start..bound(self.input[axis].cast_signed()).max(start)
    }

    /// Input position of element `tap` of window `output` along an axis; it must lie inside the input.
    pub fn input_at(&self, axis: usize, output: usize, tap: usize) -> usize {
        ((output * self.stride[axis]).cast_signed() + self.offset(axis, tap)).cast_unsigned()
    }

    /// Elements of window `output` along an axis that lie inside the input.
    pub fn taps_at(&self, axis: usize, output: usize) -> Range<usize> {
        let (dilation, kernel) = (self.dilation[axis].cast_signed(), self.kernel[axis].cast_signed());
        let first = (output * self.stride[axis]).cast_signed() - self.before[axis];
        let bound = |limit: isize| (-((first - limit).div_euclid(dilation))).clamp(0, kernel).cast_unsigned();
        let start = bound(0);
        start..bound(self.input[axis].cast_signed()).max(start)
    }

    /// Calls `f` for each run of the innermost output dimension within `positions` (row-major indices of
    /// output positions) whose element `tap` lies inside the input: first output index, first input index
    /// and length. Inputs of a run are the stride apart.
    pub fn runs(&self, tap: [usize; 3], positions: Range<usize>, mut f: impl FnMut(usize, usize, usize)) {
        let [_, height, width] = self.output;
        if positions.is_empty() {
            return;
        }
        let valid: [Range<usize>; 3] = std::array::from_fn(|axis| self.outputs_with(axis, tap[axis]));
        for line in positions.start / width..=(positions.end - 1) / width {
            let (z, y) = (line / height, line % height);
            if !valid[0].contains(&z) || !valid[1].contains(&y) {
                continue;
            }
            let start = valid[2].start.max(positions.start.saturating_sub(line * width));
            let end = valid[2].end.min(positions.end - line * width);
            if start < end {
                let row = self.input_at(0, z, tap[0]) * self.input[1] + self.input_at(1, y, tap[1]);
                let input = row * self.input[2] + self.input_at(2, start, tap[2]);
                f(line * width + start, input, end - start);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taps_and_outputs_agree_with_a_direct_search() {
        for (stride, dilation, before, after) in [(1, 1, 0, 0), (2, 1, 1, 1), (3, 2, 4, 2), (1, 3, -1, -2)] {
            let (input, kernel) = (9isize, 3usize);
            let extent = (kernel - 1) * dilation + 1;
            let output = (input + before + after - extent.cast_signed()) / stride as isize + 1;
            let line = |n: usize| [1, 1, n];
            let window = Window {
                input: line(9),
                kernel: line(kernel),
                output: line(output.cast_unsigned()),
                stride: line(stride),
                dilation: line(dilation),
                before: [0, 0, before],
            };
            let inside = |o: usize, t: usize| {
                (0..input).contains(&((o * stride + t * dilation).cast_signed() - before))
            };
            for t in 0..kernel {
                let expected: Vec<_> = (0..window.output[2]).filter(|&o| inside(o, t)).collect();
                assert_eq!(window.outputs_with(2, t).collect::<Vec<_>>(), expected);
            }
            for o in 0..window.output[2] {
                let expected: Vec<_> = (0..kernel).filter(|&t| inside(o, t)).collect();
                assert_eq!(window.taps_at(2, o).collect::<Vec<_>>(), expected);
            }
        }
    }
}

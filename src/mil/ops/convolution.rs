//! The evaluation of a convolution whose sizes are known: depthwise, at one position, or unfolded.

use std::ops::Range;

use super::prelude::*;
use anemeter_kernels::conv::{add_bias, depthwise, unfold};
use anemeter_kernels::convert::to_f32;
use anemeter_kernels::floats::{self, Sink};
use anemeter_kernels::gemm::{Extents, Matrix, Weights, gemm, weight_gemm};
use anemeter_kernels::parallel::for_each_chunk;
use anemeter_kernels::quantized_gemm::{is_quantized, quantized_gemm};
use anemeter_kernels::simd::Store;
use anemeter_kernels::streamed_gemm::{self, Layout, OperandSource, OutputBlock, RightOperand, StreamedGemm};
use anemeter_kernels::weight_gemv::{self, RowRange, WeightRows};
use anemeter_kernels::window::Window;

/// The filters of a convolution, one row per output channel.
pub(super) struct Filter<'a> {
    pub(super) weight: Weight<'a>,
    /// Elements of a row.
    pub(super) row: usize,
    /// Scale and bias of a quantized weight, of one element or one per row.
    pub(super) quantization: Option<[TensorView<'a>; 2]>,
}

impl<'a> Filter<'a> {
    /// Some rows, if they can be used as they lie in memory.
    fn in_memory(&self, rows: Range<usize>) -> Option<OperandSource<'a>> {
        match (&self.weight, &self.quantization) {
            (Weight::Dense(view), None) => {
                OperandSource::in_memory(view, rows.start * self.row..rows.end * self.row)
            }
            _ => None,
        }
    }

    /// All rows, if they can be multiplied as they are stored.
    fn packed(&self) -> Option<WeightRows<'a>> {
        if self.quantization.is_none() { self.weight.rows(self.row) } else { None }
    }

    fn read(&self, rows: Range<usize>, out: &mut [f32]) {
        self.weight.read(rows.start * self.row..rows.end * self.row, out);
        let Some(parameters) = &self.quantization else { return };
        for (row, out) in rows.zip(out.chunks_exact_mut(self.row.max(1))) {
            let [scale, bias] = parameters.map(|parameter| {
                let at = if parameter.len() == 1 { 0 } else { row };
                let mut value = [0.0];
                to_f32(&parameter, at..at + 1, &mut value);
                value[0]
            });
            out.iter_mut().for_each(|value| *value = *value * scale + bias);
        }
    }
}

/// Elements of filters, of unfolded input and of output that are worked on at a time.
const FILTER_BLOCK: usize = 1 << 20;
const COLUMN_BLOCK: usize = 1 << 19;
const OUTPUT_BLOCK: usize = 1 << 20;

/// A convolution of known sizes; channels are per group.
pub(super) struct Convolution<'a> {
    pub(super) filter: Filter<'a>,
    pub(super) bias: Option<Weight<'a>>,
    pub(super) window: Window,
    pub(super) groups: usize,
    pub(super) batch: usize,
    pub(super) inputs: usize,
    pub(super) outputs: usize,
    pub(super) round_steps: bool,
}

impl Convolution<'_> {
    pub(super) fn evaluate(&self, x: &TensorView<'_>, scratch: &mut Scratch, sink: &mut Sink<'_>) {
        if self.inputs == 1 && self.outputs <= 4 {
            self.depthwise(x, scratch, sink);
        } else if self.window.output_len() == 1 {
            self.single_position(x, scratch, sink);
        } else if self.window.is_pointwise() && !self.round_steps {
            let [bias] = scratch.floats([self.bias_len()]);
            self.read_bias(bias);
            match (&mut *sink, x.slice::<f16>(), x.slice::<f32>()) {
                (Sink::F16(out), Ok(x), _) => match self.filter.packed().filter(is_quantized) {
                    Some(matrix) => self.pointwise_quantized(matrix, x, bias, out),
                    None => self.pointwise(x, bias, out),
                },
                (Sink::F32(out), _, Ok(x)) => self.pointwise(x, bias, out),
                _ => self.unfolded(x, scratch, sink),
            }
        } else {
            self.unfolded(x, scratch, sink);
        }
    }

    /// A product of the filters with all positions of the input, both as they lie in memory.
    fn pointwise<T: Store>(&self, x: &[T], bias: &[f32], out: &mut [T]) {
        let (row, positions) = (self.filter.row, self.window.output_len());
        let extents = Extents { m: self.outputs, k: row, n: positions };
        for (i, out) in out.chunks_exact_mut(self.outputs * positions).enumerate() {
            let first = i % self.groups * self.outputs;
            let x = Matrix::row_major(x.get(i * row * positions..).unwrap_or(&[]), positions);
            let bias = bias.get(first..first + self.outputs);
            let read = |rows: Range<usize>, block: &mut [f32]| {
                self.filter.read(first + rows.start..first + rows.end, block);
            };
            match self.filter.in_memory(first..first + self.outputs) {
                Some(OperandSource::F32(w)) => {
                    weight_gemm(extents, Weights::Dense(Matrix::row_major(w, row)), x, bias, out);
                }
                Some(OperandSource::F16(w)) => {
                    weight_gemm(extents, Weights::Dense(Matrix::row_major(w, row)), x, bias, out);
                }
                _ => weight_gemm(extents, Weights::<f32>::Decode(&read), x, bias, out),
            }
        }
    }

    /// The same with filters that are integers, which are multiplied as integers. Only for fp16, which has fewer bits than
    /// activations have as integers.
    fn pointwise_quantized(&self, matrix: WeightRows<'_>, x: &[f16], bias: &[f32], out: &mut [f16]) {
        let (row, positions) = (self.filter.row, self.window.output_len());
        for (i, out) in out.chunks_exact_mut(self.outputs * positions).enumerate() {
            let first = i % self.groups * self.outputs;
            let weights = RowRange { matrix, first, count: self.outputs };
            let bias = bias.get(first..first + self.outputs);
            quantized_gemm(weights, &x[i * row * positions..], positions, bias, out);
        }
    }

    fn bias_len(&self) -> usize {
        if self.bias.is_some() { self.groups * self.outputs } else { 0 }
    }

    fn read_bias(&self, bias: &mut [f32]) {
        if let Some(given) = &self.bias {
            given.read(0..bias.len(), bias);
        }
    }

    /// One input channel per group: each output plane is made of one input plane.
    fn depthwise(&self, x: &TensorView<'_>, scratch: &mut Scratch, sink: &mut Sink<'_>) {
        let (channels, positions) = (self.groups * self.outputs, self.window.output_len());
        let planes = self.batch * channels;
        let [copy, bias, kernels, result] = scratch.floats([
            floats::scratch_len(x),
            self.bias_len(),
            channels * self.filter.row,
            planes * positions,
        ]);
        let x = floats::read(x, copy);
        self.read_bias(bias);
        self.filter.read(0..channels, kernels);
        let work = result.len().saturating_mul(self.filter.row);
        for_each_chunk(result, positions, work, |plane, out| {
            let (item, channel) = (plane / channels, plane % channels);
            let input = (item * self.groups + channel / self.outputs) * self.window.input_len();
            let kernel = &kernels[channel * self.filter.row..][..self.filter.row];
            depthwise(&self.window, &x[input..][..self.window.input_len()], kernel, out, self.round_steps);
            add_bias(out, positions, bias.get(channel..).unwrap_or(&[]), self.round_steps);
        });
        sink.write(0, result);
    }

    /// One output position: a product of input rows with the filters, which are streamed.
    fn single_position(&self, x: &TensorView<'_>, scratch: &mut Scratch, sink: &mut Sink<'_>) {
        let (row, channels) = (self.filter.row, self.groups * self.outputs);
        let extents = Extents { m: self.batch, k: row, n: self.outputs };
        let item = self.groups * self.inputs * self.window.input_len();
        let pointwise = self.window.is_pointwise();
        // Only for fp16, as with several positions: activations as integers have fewer bits than fp32.
        let is_half = x.dtype() == DType::F16;
        let packed = self.filter.packed().filter(|_| self.batch == 1 && is_half && !self.round_steps);
        let in_memory = self.filter.in_memory(0..0).is_some();
        let [copy, bias, rows, work] = scratch.floats([
            floats::scratch_len(x),
            self.bias_len(),
            if pointwise { 0 } else { self.batch * row },
            match packed {
                Some(_) => self.outputs + weight_gemv::scratch_len(row),
                None => streamed_gemm::scratch_len(extents, Layout::ColumnMajor, in_memory),
            },
        ]);
        let x = floats::read(x, copy);
        self.read_bias(bias);
        for group in 0..self.groups {
            let planes = &x[group * self.inputs * self.window.input_len()..];
            let left = if pointwise {
                Matrix { data: planes, row_stride: item, column_stride: 1 }
            } else {
                for (i, row) in rows.chunks_exact_mut(row.max(1)).enumerate() {
                    unfold(&self.window, &planes[i * item..], 0..1, row);
                }
                Matrix::row_major(rows, row)
            };
            let first = group * self.outputs;
            let mut finish = |mut block: OutputBlock<'_>| {
                if self.bias.is_some() {
                    block.add_bias(&bias[first..], self.round_steps);
                }
                for (item, values) in block.rows.zip(block.values.chunks_exact(block.columns.len())) {
                    sink.write(item * channels + first + block.columns.start, values);
                }
            };
            if let Some(matrix) = packed {
                let (values, rest) = work.split_at_mut(self.outputs);
                weight_gemv::gemv(
                    &left.data[..row],
                    &[RowRange { matrix, first, count: self.outputs }],
                    rest,
                    values,
                );
                finish(OutputBlock { rows: 0..1, columns: 0..self.outputs, values });
                continue;
            }
            let read = |columns: Range<usize>, block: &mut [f32]| {
                self.filter.read(first + columns.start..first + columns.end, block);
            };
            let filters = self.filter.in_memory(first..first + self.outputs);
            let source = filters.unwrap_or(OperandSource::Decode(&read));
            let right = RightOperand { layout: Layout::ColumnMajor, source };
            let product = StreamedGemm { extents, left, right, round_steps: self.round_steps };
            product.compute(work, finish);
        }
    }

    /// A product of the filters with the unfolded input, a block of filters and positions at a time.
    fn unfolded(&self, x: &TensorView<'_>, scratch: &mut Scratch, sink: &mut Sink<'_>) {
        let (row, positions) = (self.filter.row, self.window.output_len());
        let pointwise = self.window.is_pointwise();
        let filters = (FILTER_BLOCK / row.max(1)).clamp(1, self.outputs);
        let least = if pointwise { positions } else { COLUMN_BLOCK / row.max(1) };
        let width = least.min(OUTPUT_BLOCK / filters).max(32).min(positions);
        let [copy, bias, weights, columns, result] = scratch.floats([
            floats::scratch_len(x),
            self.bias_len(),
            filters * row,
            if pointwise { 0 } else { row * width },
            filters * width,
        ]);
        let x = floats::read(x, copy);
        self.read_bias(bias);
        for group in 0..self.groups {
            for first in (0..self.outputs).step_by(filters) {
                let count = filters.min(self.outputs - first);
                let channel = group * self.outputs + first;
                let weights = &mut weights[..count * row];
                self.filter.read(channel..channel + count, weights);
                for item in 0..self.batch {
                    let planes = &x[(item * self.groups + group) * self.inputs * self.window.input_len()..];
                    for start in (0..positions).step_by(width) {
                        let span = start..positions.min(start + width);
                        let right = if pointwise {
                            Matrix::row_major(planes.get(start..).unwrap_or(&[]), positions)
                        } else {
                            let columns = &mut columns[..row * span.len()];
                            unfold(&self.window, planes, span.clone(), columns);
                            Matrix::row_major(columns, span.len())
                        };
                        let extents = Extents { m: count, k: row, n: span.len() };
                        let result = &mut result[..count * span.len()];
                        gemm(extents, Matrix::row_major(weights, row), right, result, self.round_steps);
                        add_bias(result, span.len(), bias.get(channel..).unwrap_or(&[]), self.round_steps);
                        for (i, values) in result.chunks_exact(span.len()).enumerate() {
                            let plane = (item * self.groups * self.outputs + channel + i) * positions;
                            sink.write(plane + start, values);
                        }
                    }
                }
            }
        }
    }
}

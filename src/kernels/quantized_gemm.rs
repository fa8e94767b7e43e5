//! GEMM of int8 and int4 weights with several columns of activations, in integers: what a prompt is multiplied by.
//!
//! ```text
//! out[r, c] = sum over blocks b of 32  weight_scale[r, b] * x_scale[b, c] * (exact integer dot product of 32 elements)
//! ```
//!
//! Activations become 15-bit integers as in GEMV, so that decode and prefill are equally accurate, and weights stay the integers
//! that they are: an instruction multiplies and adds pairs of them, twice as many products as with f32. Blocks are those of
//! `blocked_gemm`, with packed pairs (`pair_packing`) instead of f32:
//!
//! ```text
//! for columns of x, as many as 4 MiB hold            quantize and pack them              (all threads)   L3
//!   for rows of weights, at most 120                 pack them                           (each thread)   L2
//!     for each panel of columns                      macro-kernel
//!       for 24 KiB of the panel                                                                          L1
//!         for each panel of rows                     micro-kernel: MR x NR integer sums, block by block  registers
//! ```
//!
//! Integer sums are exact, and blocks are added in f32 in index order, whatever the tiles: results are the same bits on every
//! instruction set and number of threads.

use std::ops::Range;

use half::f16;

use super::blocked_gemm::{
    BlockRanges, LEAST_TILES, MOST_ROWS, RIGHT_PANELS, ThreadBuffers, finish, for_each_row_block, reserve,
};
use super::gemm::Matrix;
use super::pair_packing::{
    ActivationBlock, IntegerRows, LINES, PAIRS, RowFactors, WeightBlock, pack_activations,
};
use super::parallel::{self, GuidedSchedule};
use super::simd::{BLOCK, Grid, Isa, Simd, TileOp, WIDE};
use super::weight_gemv::{RowRange, WeightRows};

/// Bytes of a panel of activations that stay in the first-level cache.
const PANEL_BYTES: usize = 24 << 10;
/// Bytes of weights that are packed at a time: half of a usual second-level cache.
const LEFT_BYTES: usize = 512 << 10;
/// Bytes of activations that are packed at a time: a share of the third-level cache.
const RIGHT_BYTES: usize = 4 << 20;

/// Whether [`quantized_gemm`] can be used.
pub fn is_quantized(matrix: &WeightRows<'_>) -> bool {
    IntegerRows::of(*matrix).is_some()
}

/// `out = weights x x + bias`, row-major, with `columns` columns of `x` and `out`. There is an element of `bias` for each row.
///
/// # Panics
/// If weights are not [`is_quantized`] or have fewer rows than is said, or `x`, bias or the output has fewer elements than
/// that implies.
pub fn quantized_gemm(
    weights: RowRange<'_>,
    x: &[f16],
    columns: usize,
    bias: Option<&[f32]>,
    out: &mut [f16],
) {
    quantized_gemm_with(Isa::best(), weights, x, columns, bias, out);
}

fn quantized_gemm_with(
    isa: Isa,
    weights: RowRange<'_>,
    x: &[f16],
    columns: usize,
    bias: Option<&[f32]>,
    out: &mut [f16],
) {
    let RowRange { matrix, first, count } = weights;
    let rows = IntegerRows::of(matrix).expect("the caller has seen that weights are integers");
    let work = count.saturating_mul(columns).saturating_mul(matrix.columns);
    let out = &mut out[..count * columns];
    if out.is_empty() {
        return;
    }
    let x = Matrix::row_major(&x[..matrix.columns * columns], columns);
    Product { isa, rows, first, x, bias }.compute(Grid::new(out, columns), parallel::pieces(work));
}

/// A product but for its output.
#[derive(Clone, Copy)]
struct Product<'a> {
    isa: Isa,
    rows: IntegerRows<'a>,
    /// The first row.
    first: usize,
    x: Matrix<'a, f16>,
    bias: Option<&'a [f32]>,
}

impl<'a> Product<'a> {
    /// Activations are packed by all threads together, weights some rows at a time by whoever takes them.
    fn compute(self, mut rest: Grid<'a, f16>, threads: usize) {
        let Product { isa, rows, x, .. } = self;
        let [tile_rows, tile_columns] = isa.tile();
        let depth = rows.blocks * BLOCK;
        let panel = rows.blocks * LINES * tile_columns;
        let most_tiles = (LEFT_BYTES / size_of::<i16>() / depth).clamp(tile_rows, MOST_ROWS) / tile_rows;
        let most_columns = (RIGHT_BYTES / size_of::<i16>() / depth).max(tile_columns);
        let schedule = GuidedSchedule { threads, least: LEAST_TILES };
        let mut memory = RIGHT_PANELS.take();
        for columns in BlockRanges::new(rest.columns(), most_columns, tile_columns) {
            let (out, beside) = rest.split_columns(columns.len());
            rest = beside;
            let panels: &mut [i32] = reserve(&mut memory, columns.len().div_ceil(tile_columns) * panel);
            parallel::parts(panels, panel, threads, &|start, panels| {
                let first = columns.start + start / panel * tile_columns;
                isa.run_tiled(PackPanels { x, columns: first..columns.end, blocks: rows.blocks, panels });
            });
            let panels = &*panels;
            for_each_row_block(schedule, out, (tile_rows, most_tiles), |start, out, buffers| {
                isa.run_tiled(RowBlock { product: self, start, panels, out, buffers });
            });
        }
        RIGHT_PANELS.set(memory);
    }
}

/// Packs the first columns of a range as panels, as many as there is room for.
struct PackPanels<'a> {
    x: Matrix<'a, f16>,
    columns: Range<usize>,
    blocks: usize,
    panels: &'a mut [i32],
}

impl TileOp for PackPanels<'_> {
    #[inline(always)]
    fn run<S: Simd, const ROWS: usize, const VECTORS: usize, const COLUMNS: usize>(self, s: S) {
        let PackPanels { x, columns, blocks, panels } = self;
        let lines = panels.as_chunks_mut::<COLUMNS>().0;
        pack_activations(s, x, columns, blocks, lines.as_chunks_mut().0);
    }
}

/// The products of some rows, from `start` on, with all panels.
struct RowBlock<'a, 'g> {
    product: Product<'a>,
    start: usize,
    panels: &'a [i32],
    out: Grid<'g, f16>,
    buffers: &'a mut ThreadBuffers,
}

impl TileOp for RowBlock<'_, '_> {
    #[inline(always)]
    fn run<S: Simd, const ROWS: usize, const VECTORS: usize, const COLUMNS: usize>(self, s: S) {
        let RowBlock { product: Product { rows, first, bias, .. }, start, panels, mut out, buffers } = self;
        let ThreadBuffers { left, sums, read } = buffers;
        let tiles = out.rows().div_ceil(ROWS);
        let left: &mut [WeightBlock<ROWS>] = reserve(left, tiles * rows.blocks);
        let factors: &mut [RowFactors<ROWS>] = reserve(read, tiles * rows.blocks);
        rows.pack(s, first + start..first + start + out.rows(), left, factors);
        let operand = LeftOperand { blocks: left, factors, is_shifted: rows.are_shifted() };
        let sums: &mut [[f32; COLUMNS]] = reserve(sums, tiles * ROWS);
        let panels = panels.as_chunks::<COLUMNS>().0.as_chunks::<LINES>().0.chunks_exact(rows.blocks);
        for (p, panel) in panels.enumerate() {
            macro_kernel::<S, ROWS, VECTORS, COLUMNS>(s, operand, panel, sums);
            let j = p * COLUMNS;
            let width = COLUMNS.min(out.columns() - j);
            for (i, sums) in (0..out.rows()).zip(&*sums) {
                let bias = bias.map(|bias| bias[start + i]);
                finish(s, &sums[..width], bias, &mut out.row(i)[j..][..width]);
            }
        }
    }
}

/// Packed rows, in panels of as many blocks as a row has.
#[derive(Clone, Copy)]
struct LeftOperand<'a, const ROWS: usize> {
    blocks: &'a [WeightBlock<ROWS>],
    factors: &'a [RowFactors<ROWS>],
    /// Whether shifts are not all zero.
    is_shifted: bool,
}

/// The sums of all panels of rows with one panel of columns.
#[inline(always)]
fn macro_kernel<S: Simd, const ROWS: usize, const VECTORS: usize, const COLUMNS: usize>(
    s: S,
    left: LeftOperand<'_, ROWS>,
    right: &[ActivationBlock<COLUMNS>],
    sums: &mut [[f32; COLUMNS]],
) {
    sums.fill([0.0; COLUMNS]);
    let count = right.len();
    for depth in BlockRanges::new(count, PANEL_BYTES / size_of::<ActivationBlock<COLUMNS>>(), 1) {
        let panels = left.blocks.chunks_exact(count).zip(left.factors.chunks_exact(count));
        for ((blocks, factors), sums) in panels.zip(sums.as_chunks_mut::<ROWS>().0) {
            let (blocks, factors) = (&blocks[depth.clone()], &factors[depth.clone()]);
            let left = LeftOperand { blocks, factors, ..left };
            micro_kernel::<S, ROWS, VECTORS, COLUMNS>(s, left, &right[depth.clone()], sums);
        }
    }
}

/// Adds the products of a panel of rows and one of columns, some blocks of both, to what `out` has.
#[inline(always)]
fn micro_kernel<S: Simd, const ROWS: usize, const VECTORS: usize, const COLUMNS: usize>(
    s: S,
    left: LeftOperand<'_, ROWS>,
    right: &[ActivationBlock<COLUMNS>],
    out: &mut [[f32; COLUMNS]; ROWS],
) {
    for ((block, factors), right) in left.blocks.iter().zip(left.factors).zip(right) {
        // The register tile. The compiler keeps it in registers because all its bounds are constants.
        let mut sums = [[s.zero_pair_sums(); VECTORS]; ROWS];
        for pair in 0..PAIRS {
            let mut lanes = [s.splat_pair(0); VECTORS];
            for (lanes, words) in lanes.iter_mut().zip(right[pair].as_chunks::<WIDE>().0) {
                *lanes = s.load_pairs(words);
            }
            for (sums, block) in sums.iter_mut().zip(block) {
                let a = s.splat_pair(block[pair]);
                for (sum, &b) in sums.iter_mut().zip(&lanes) {
                    *sum = s.dot_pairs(a, b, *sum);
                }
            }
        }
        let floats = |line: usize| bytemuck::cast_slice::<i32, f32>(&right[line]).as_chunks::<WIDE>().0;
        let (scales, negated_sums) = (floats(PAIRS), floats(PAIRS + 1));
        // Loops of their own, which the compiler unrolls: it would not keep sums in registers otherwise.
        let mut dots = [[s.splat_wide(0.0); VECTORS]; ROWS];
        for r in 0..ROWS {
            for v in 0..VECTORS {
                dots[r][v] = s.pair_sums(sums[r][v]);
            }
        }
        if left.is_shifted {
            for r in 0..ROWS {
                let shift = s.splat_wide(factors[r][1]);
                for v in 0..VECTORS {
                    dots[r][v] = s.mul_add_wide(shift, s.load_wide(&negated_sums[v]), dots[r][v]);
                }
            }
        }
        for r in 0..ROWS {
            let scale = s.splat_wide(factors[r][0]);
            let (out, _) = out[r].as_chunks_mut::<WIDE>();
            for v in 0..VECTORS {
                let scale = s.mul_wide(scale, s.load_wide(&scales[v]));
                s.store_wide(s.mul_add_wide(dots[r][v], scale, s.load_wide(&out[v])), &mut out[v]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::{DType, TensorView, packed};
    use crate::weight_gemv::{Int4Codes, Scales, WeightStorage, gemv_with, scratch_len};

    /// Numbers that look random, below a limit.
    fn noise(seed: usize) -> impl FnMut(usize) -> usize {
        let mut state = seed as u64 + 1;
        move |limit| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as usize % limit
        }
    }

    /// Weights in every form, with scales and offsets of very different size.
    fn with_every_form(rows: usize, columns: usize, outlier: f32, test: &dyn Fn(&str, WeightRows<'_>)) {
        let mut next = noise(rows + columns);
        for (block, shared) in [(BLOCK, 1), (BLOCK, 3), (columns, 1), (columns, 2)] {
            let count = [rows * columns / block];
            let mut number = |small: f32| if next(5) == 0 { small * outlier } else { small };
            let scales: Vec<f16> = (0..count[0]).map(|_| f16::from_f32(number(1e-4))).collect();
            let wide: Vec<f32> = scales.iter().map(|scale| scale.to_f32()).collect();
            let offsets: Vec<f16> = (0..count[0]).map(|_| f16::from_f32(number(0.375))).collect();
            let views = [
                TensorView::new(DType::F16, &count, bytemuck::cast_slice(&scales)).unwrap(),
                TensorView::new(DType::F32, &count, bytemuck::cast_slice(&wide)).unwrap(),
            ];
            let bytes: Vec<i8> = (0..rows * columns).map(|_| next(256) as u8 as i8).collect();
            let nibbles = packed::pack(bytes.iter().map(|&byte| byte as u8 & 15), 4);
            let some = TensorView::new(DType::F16, &count, bytemuck::cast_slice(&offsets)).unwrap();
            let quarters = packed::pack((0..count[0]).map(|_| next(16) as u8), 4);
            let quarters = TensorView::new(DType::U4, &count, &quarters).unwrap();
            for values in views {
                let scales = Scales { rows: shared, block, values };
                let int4 = |is_signed, offsets| {
                    WeightStorage::Int4(Int4Codes { bytes: &nibbles, is_signed, offsets }, scales)
                };
                for (name, storage) in [
                    ("int8", WeightStorage::Int8(&bytes, scales)),
                    ("int4", int4(true, None)),
                    ("unsigned int4", int4(false, None)),
                    ("int4 with fp16 offsets", int4(true, Some(some))),
                    ("unsigned int4 with offsets", int4(false, Some(quarters))),
                ] {
                    let what = format!("{name}, blocks of {block}, {shared} rows, outliers of {outlier}");
                    test(&what, WeightRows { columns, storage });
                }
            }
        }
    }

    /// A row-major matrix of activations that have a mean, with a few that are far larger.
    fn activations(rows: usize, columns: usize) -> Vec<f16> {
        let mut next = noise(columns);
        let mut one = || match next(97) {
            0 => 60.0,
            _ => next(1000) as f32 / 700.0 - 0.3,
        };
        (0..rows * columns).map(|_| f16::from_f32(one())).collect()
    }

    #[test]
    fn every_column_is_the_product_of_gemv_but_for_the_order_of_sums() {
        let (rows, first) = (37, 2);
        for (columns, depth) in [(1, 128), (45, 160), (33, 17 * BLOCK)] {
            for outlier in [1.0, 1e2, 1e4] {
                with_every_form(rows, depth, outlier, &|what, matrix| {
                    assert!(is_quantized(&matrix), "{what}");
                    let x = activations(depth, columns);
                    let weights = RowRange { matrix, first, count: rows - first };
                    let mut out = vec![f16::NAN; weights.count * columns];
                    quantized_gemm(weights, &x, columns, None, &mut out);
                    for column in 0..columns {
                        let one: Vec<f32> = (0..depth).map(|i| x[i * columns + column].to_f32()).collect();
                        let mut sums = vec![f32::NAN; weights.count];
                        let mut scratch = vec![f32::NAN; scratch_len(depth)];
                        gemv_with(Isa::best(), &one, &[weights], &mut scratch, &mut sums);
                        let size = f64::sqrt(
                            sums.iter().map(|&sum| f64::from(sum) * f64::from(sum)).sum::<f64>()
                                / sums.len() as f64,
                        );
                        for (row, sum) in sums.iter().enumerate() {
                            let found = out[row * columns + column].to_f32();
                            // Half a unit of fp16, and sums of f32 in another order.
                            let bound = f64::from(sum.abs()) / 2000.0 + size * 1e-5 + 6e-8;
                            let off = (f64::from(found) - f64::from(*sum)).abs();
                            let overflows = sum.abs() > 65_000.0;
                            assert!(
                                overflows || off <= bound,
                                "{what}, {row} {column}: {found} is not {sum}"
                            );
                        }
                    }
                });
            }
        }
    }

    #[test]
    fn results_are_the_same_bits_on_every_instruction_set_and_number_of_threads() {
        let (rows, depth, columns) = (61, 12 * BLOCK, 40);
        with_every_form(rows, depth, 10.0, &|what, matrix| {
            let x = activations(depth, columns);
            let bias: Vec<f32> = (0..rows).map(|i| i as f32 / 7.0).collect();
            let weights = RowRange { matrix, first: 0, count: rows };
            let of = |isa| {
                let mut out = vec![f16::NAN; rows * columns];
                quantized_gemm_with(isa, weights, &x, columns, Some(&bias), &mut out);
                out
            };
            let expected = of(Isa::best());
            for isa in Isa::all().skip(1) {
                assert_eq!(of(isa), expected, "{what}, {isa:?}");
            }
            let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
            assert_eq!(pool.install(|| of(Isa::best())), expected, "{what}, three threads");
        });
    }

    #[test]
    fn what_is_not_finite_stays_in_its_column() {
        let depth = 4 * BLOCK;
        let bytes = vec![1i8; 3 * depth];
        let values = TensorView::new(DType::F32, &[1], bytemuck::cast_slice(&[0.5f32])).unwrap();
        let storage = WeightStorage::Int8(&bytes, Scales { rows: 3, block: depth, values });
        let weights = RowRange { matrix: WeightRows { columns: depth, storage }, first: 0, count: 3 };
        for bad in [f16::NAN, f16::INFINITY] {
            let mut x = vec![f16::ONE; depth * 2];
            x[2 * 40] = bad;
            let mut out = vec![f16::ZERO; 6];
            quantized_gemm(weights, &x, 2, Some(&[1.0, 2.0, 3.0]), &mut out);
            for (row, out) in out.chunks(2).enumerate() {
                assert!(!out[0].is_finite());
                assert_eq!(out[1].to_f32(), 64.0 + 1.0 + row as f32);
            }
        }
    }

    #[test]
    fn what_is_no_integer_is_left_to_others() {
        let halves = [f16::ONE; 128];
        assert!(!is_quantized(&WeightRows { columns: 128, storage: WeightStorage::F16(&halves) }));
        let values = TensorView::new(DType::F32, &[1], &[0; 4]).unwrap();
        let irregular = WeightStorage::Int8(&[0; 48], Scales { rows: 1, block: 48, values });
        assert!(!is_quantized(&WeightRows { columns: 48, storage: irregular }));
    }
}

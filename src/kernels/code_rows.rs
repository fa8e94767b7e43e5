//! Sums of products of one row with rows of compressed weights, for each way of storing them.

use half::f16;

use super::fixed_point::{FixedQuads, FixedRow, LARGEST_NAMED, fix};
use super::packed::Factors;
use super::row_products::{RowProducts, sum_rows};
use super::simd::{BLOCK, LANES, Load, Op, QUAD, Quad, Simd, SplitQuad, WIDE};

/// Rows of signed bytes, each times the factor of its row.
pub(super) struct ByteSums<'a> {
    pub(super) x: FixedRow<'a>,
    pub(super) codes: &'a [[i8; BLOCK]],
    pub(super) factors: Factors<'a>,
    pub(super) first: usize,
    pub(super) out: &'a mut [f32],
}

impl Op for ByteSums<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let ByteSums { x, codes, factors, first, out } = self;
        sum_rows(s, &ByteRows { codes, x }, first, out);
        match factors.values.slice::<f16>() {
            Ok(values) => scale_rows(s, factors.rows, values, first, out),
            Err(_) => {
                scale_rows::<S, f32>(s, factors.rows, factors.values.slice().unwrap_or(&[]), first, out);
            }
        }
    }
}

/// Multiplies the sums of rows by the factors of those.
#[inline(always)]
fn scale_rows<S: Simd, F: Load>(s: S, rows: usize, values: &[F], first: usize, out: &mut [f32]) {
    for (i, out) in out.chunks_mut(LANES).enumerate() {
        let row = first + i * LANES;
        let mut lanes = [0.0; LANES];
        if rows == 1 {
            s.store(F::load_some(s, &values[row..]), &mut lanes);
        } else {
            for (r, lane) in lanes.iter_mut().enumerate() {
                *lane = values.get((row + r) / rows).map_or(0.0, |value| value.widen());
            }
        }
        out.iter_mut().zip(lanes).for_each(|(out, factor)| *out *= factor);
    }
}

/// Blocks that are summed side by side.
const WAYS: usize = 2;

struct ByteRows<'a> {
    codes: &'a [[i8; BLOCK]],
    x: FixedRow<'a>,
}

impl<S: Simd> RowProducts<S> for ByteRows<'_> {
    #[inline(always)]
    fn lanes(&self, s: S, row: usize) -> S::V {
        let count = self.x.blocks.len();
        let (code_groups, code_rest) = self.codes[row * count..][..count].as_chunks::<WAYS>();
        let (x_groups, x_rest) = self.x.blocks.as_chunks::<WAYS>();
        let (scale_groups, scale_rest) = self.x.scales.as_flattened()[..count].as_chunks::<WAYS>();
        let mut sums = [s.splat(0.0); WAYS];
        for ((codes, x), scales) in code_groups.iter().zip(x_groups).zip(scale_groups) {
            for i in 0..WAYS {
                sums[i] = s.mul_add(s.dot_bytes(&codes[i], &x[i]), s.splat(scales[i]), sums[i]);
            }
        }
        for ((code, x), &scale) in code_rest.iter().zip(x_rest).zip(scale_rest) {
            sums[0] = s.mul_add(s.dot_bytes(code, x), s.splat(scale), sums[0]);
        }
        s.add(sums[0], sums[1])
    }
}

/// Codes of four bits that come some way after a row.
///
/// Rows are a few hundred bytes, and what belongs to them is elsewhere: processors do not see what is next.
#[derive(Clone, Copy, Default)]
struct Ahead<'a> {
    codes: &'a [[u8; WIDE]],
}

impl<'a> Ahead<'a> {
    /// Of the row that begins with a block.
    #[inline(always)]
    fn of(codes: &'a [[u8; WIDE]], first: usize) -> Ahead<'a> {
        const BLOCKS: usize = 4096 / WIDE;
        Ahead { codes: codes.get(first + BLOCKS..).unwrap_or_default() }
    }

    /// Asks for the line of memory with a block.
    #[inline(always)]
    fn fetch<S: Simd>(&self, s: S, block: usize) {
        if let Some(codes) = self.codes.get(block) {
            s.prefetch(codes);
        }
    }
}

/// Rows of signed numbers of four bits, each times the factor of its block.
pub(super) struct NibbleSums<'a> {
    pub(super) x: FixedQuads<'a, SplitQuad>,
    pub(super) codes: &'a [[u8; WIDE]],
    pub(super) factors: Factors<'a>,
    pub(super) first: usize,
    pub(super) out: &'a mut [f32],
}

impl Op for NibbleSums<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let values = self.factors.values;
        match values.slice::<f16>() {
            Ok(values) => self.sum(s, values),
            Err(_) => self.sum::<S, f32>(s, values.slice().unwrap_or(&[])),
        }
    }
}

impl NibbleSums<'_> {
    #[inline(always)]
    fn sum<S: Simd, F: Load>(self, s: S, values: &[F]) {
        let NibbleSums { x, codes, factors, first, out } = self;
        let (rows, each) = (factors.rows, factors.block / BLOCK);
        let count = x.blocks / each;
        match each {
            1 => sum_rows(s, &NibbleRows::<F, true> { codes, values, rows, each, count, x }, first, out),
            _ => sum_rows(s, &NibbleRows::<F, false> { codes, values, rows, each, count, x }, first, out),
        }
    }
}

/// Rows of four bits with factors; every block may have its `OWN`.
struct NibbleRows<'a, F, const OWN: bool> {
    codes: &'a [[u8; WIDE]],
    values: &'a [F],
    /// Rows that share factors.
    rows: usize,
    /// Blocks that share a factor.
    each: usize,
    /// Factors of a row.
    count: usize,
    x: FixedQuads<'a, SplitQuad>,
}

impl<S: Simd, F: Load, const OWN: bool> RowProducts<S> for NibbleRows<'_, F, OWN> {
    #[inline(always)]
    fn lanes(&self, s: S, row: usize) -> S::V {
        self.of::<S, 1>(s, row)[0]
    }

    #[inline(always)]
    fn pair(&self, s: S, row: usize) -> [S::V; 2] {
        self.of(s, row)
    }
}

impl<F: Load, const OWN: bool> NibbleRows<'_, F, OWN> {
    /// Products of `R` rows, which meet what is loaded of `x` together.
    #[inline(always)]
    fn of<S: Simd, const R: usize>(&self, s: S, row: usize) -> [S::V; R] {
        let mut codes: [&[[u8; WIDE]]; R] = [&[]; R];
        let mut values: [&[F]; R] = [&[]; R];
        for (r, (codes, values)) in codes.iter_mut().zip(&mut values).enumerate() {
            *codes = &self.codes[(row + r) * self.x.blocks..][..self.x.blocks];
            // Divisions are slow beside the products of a row.
            let shared = if self.rows == 1 { row + r } else { (row + r) / self.rows };
            *values = &self.values[shared * self.count..][..self.count];
        }
        let mut ahead = [Ahead::default(); R];
        for (r, ahead) in ahead.iter_mut().enumerate() {
            *ahead = Ahead::of(self.codes, (row + r) * self.x.blocks);
        }
        let mut sums = [s.splat_wide(0.0); R];
        for (i, x) in self.x.quads.iter().enumerate() {
            let first = self.x.first(i);
            for (((sum, codes), values), ahead) in sums.iter_mut().zip(codes).zip(values).zip(ahead) {
                ahead.fetch(s, first);
                let factors = s.mul_wide(F::spread(s, &self.factors(values, first)), s.load_wide(&x.scales));
                *sum = s.mul_add_wide(s.dot_nibbles(&codes[first..].as_chunks().0[0], x), factors, *sum);
            }
        }
        let mut lanes = [s.splat(0.0); R];
        for (lanes, sum) in lanes.iter_mut().zip(sums) {
            *lanes = s.fold_wide(sum);
        }
        lanes
    }

    /// The factors of four blocks of a row.
    #[inline(always)]
    fn factors(&self, values: &[F], first: usize) -> [F; QUAD] {
        if OWN {
            return values[first..].as_chunks().0[0];
        }
        let mut factors = [F::zeroed(); QUAD];
        for (b, factor) in factors.iter_mut().enumerate() {
            *factor = values[(first + b) / self.each];
        }
        factors
    }
}

/// Rows of codes of four bits, with tables of the numbers they name.
pub(super) struct NamedSums<'a> {
    pub(super) x: FixedQuads<'a, Quad>,
    pub(super) codes: &'a [[u8; WIDE]],
    pub(super) tables: &'a [f32],
    /// Rows that share a table.
    pub(super) rows: usize,
    pub(super) first: usize,
    pub(super) out: &'a mut [f32],
}

impl Op for NamedSums<'_> {
    type Output = ();

    /// Table by table.
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let NamedSums { x, codes, tables, rows, first, mut out } = self;
        let mut row = first;
        while !out.is_empty() {
            let (here, rest) = out.split_at_mut((rows - row % rows).min(out.len()));
            let mut integers = [0; WIDE];
            let scale = fix(&tables.as_chunks::<WIDE>().0[row / rows], &mut integers, LARGEST_NAMED);
            sum_rows(s, &NamedRows { table: s.table(&integers), codes, x }, row, here);
            here.iter_mut().for_each(|sum| *sum *= scale);
            row += here.len();
            out = rest;
        }
    }
}

/// Rows of codes of four bits with the numbers they name.
struct NamedRows<'a, S: Simd> {
    table: S::Table,
    codes: &'a [[u8; WIDE]],
    x: FixedQuads<'a, Quad>,
}

impl<S: Simd> RowProducts<S> for NamedRows<'_, S> {
    #[inline(always)]
    fn lanes(&self, s: S, row: usize) -> S::V {
        let codes = &self.codes[row * self.x.blocks..][..self.x.blocks];
        let ahead = Ahead::of(self.codes, row * self.x.blocks);
        let mut sums = s.splat_wide(0.0);
        for (i, x) in self.x.quads.iter().enumerate() {
            ahead.fetch(s, self.x.first(i));
            let codes = &codes[self.x.first(i)..].as_chunks().0[0];
            sums = s.mul_add_wide(s.dot_named(codes, self.table, x), s.load_wide(&x.scales), sums);
        }
        s.fold_wide(sums)
    }
}

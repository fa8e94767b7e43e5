//! Vectors of eight f32 lanes on whatever the CPU offers.
//!
//! A kernel is an [`Op`]: code written once over [`Simd`]. [`Isa::run`] enters a function compiled for the
//! instruction set and the kernel is inlined into it, so everything an [`Op`] calls that mentions a `Simd`
//! must be `#[inline(always)]` and must not hide behind a closure or another thread.
//!
//! A value of a type that implements `Simd` proves that the CPU has those instructions. Every instruction
//! set computes the same lanes in the same order with the same roundings, fused multiply-add included, so
//! results do not depend on the machine: [`Scalar`] is the definition, the others are faster.
//!
//! This is one of the crate's unsafe islands; what it exports is safe.
#![allow(unsafe_code)]

#[macro_use]
mod pairs;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod element;
mod grid;
#[cfg(target_arch = "aarch64")]
mod neon;
mod quad;
pub(super) mod scalar;

use std::sync::OnceLock;

use half::f16;

pub use element::{Load, Store};
pub(crate) use grid::Grid;
pub use quad::{ActivationQuad, FloatActivationQuad, QUAD, SIGNED, SPLIT, SplitActivationQuad};
pub use scalar::Scalar;

/// Lanes of a vector.
pub const LANES: usize = 8;
/// Lanes of a wide vector.
pub const WIDE: usize = 16;
/// Elements of a block of activations, which share a scale: 32 codes of four bits are 16 bytes, of eight bits an AVX2 register.
pub const BLOCK: usize = 32;

/// An instruction set. All arithmetic is IEEE 754, rounded to nearest even.
pub trait Simd: Copy + Send + Sync + 'static {
    /// A vector of [`LANES`] f32.
    type V: Copy;
    /// A vector of [`WIDE`] f32.
    type W: Copy;

    /// Runs a kernel compiled for this instruction set.
    fn run<O: Op>(self, op: O) -> O::Output;

    /// Prefetches memory that is about to be read, where there is an instruction for it.
    #[inline(always)]
    fn prefetch<T>(self, _: &T) {}
    /// The same value in every lane.
    fn splat(self, x: f32) -> Self::V;
    /// Lanes from memory.
    fn load(self, x: &[f32; LANES]) -> Self::V;
    /// Lanes to memory.
    fn store(self, v: Self::V, out: &mut [f32; LANES]);
    /// Widens fp16.
    fn load_f16(self, x: &[f16; LANES]) -> Self::V;
    /// Rounds to fp16.
    fn store_f16(self, v: Self::V, out: &mut [f16; LANES]);
    /// Converts signed bytes.
    fn load_i8(self, x: &[i8; LANES]) -> Self::V;
    /// Converts unsigned bytes.
    fn load_u8(self, x: &[u8; LANES]) -> Self::V;
    /// `a + b`.
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a - b`.
    fn sub(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a * b`.
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a / b`.
    fn div(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a * b + c`, rounded once.
    fn mul_add(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// `if a > b { a } else { b }`: a NaN in either operand gives `b`.
    fn max(self, a: Self::V, b: Self::V) -> Self::V;
    /// `if a < b { a } else { b }`: a NaN in either operand gives `b`.
    fn min(self, a: Self::V, b: Self::V) -> Self::V;
    /// `if a > b { x } else { y }`.
    fn select_gt(self, a: Self::V, b: Self::V, x: Self::V, y: Self::V) -> Self::V;
    /// `if test.is_nan() { x } else { y }`.
    fn select_nan(self, test: Self::V, x: Self::V, y: Self::V) -> Self::V;
    /// Magnitude.
    fn abs(self, v: Self::V) -> Self::V;
    /// The magnitude of `magnitude` with the sign of `sign`.
    fn copy_sign(self, magnitude: Self::V, sign: Self::V) -> Self::V;
    /// Square root.
    fn sqrt(self, v: Self::V) -> Self::V;
    /// Rounds down to an integer.
    fn floor(self, v: Self::V) -> Self::V;
    /// Rounds to the nearest integer, ties to even.
    fn round(self, v: Self::V) -> Self::V;
    /// Two to the power of an integer between -126 and 127; arbitrary for other values.
    fn exp2_int(self, v: Self::V) -> Self::V;
    /// Rounds each lane to the nearest fp16 value.
    fn round_f16(self, v: Self::V) -> Self::V;

    /// The sum of the lanes, taken by halves: `i + (i + 4)`, then `i + (i + 2)`, then `0 + 1`.
    fn reduce_add(self, v: Self::V) -> f32;
    /// [`Simd::reduce_add`] of each of several vectors.
    #[inline(always)]
    fn reduce_add_each(self, vectors: [Self::V; LANES]) -> Self::V {
        let v = self.transpose(vectors);
        let even = self.add(self.add(v[0], v[4]), self.add(v[2], v[6]));
        let odd = self.add(self.add(v[1], v[5]), self.add(v[3], v[7]));
        self.add(even, odd)
    }
    /// The largest lane by [`Simd::max`], in the order of [`Simd::reduce_add`].
    fn reduce_max(self, v: Self::V) -> f32;
    /// Lane `j` of vector `i` becomes lane `i` of vector `j`.
    fn transpose(self, rows: [Self::V; LANES]) -> [Self::V; LANES];

    /// The same value in every lane of a wide vector.
    fn splat_wide(self, x: f32) -> Self::W;
    /// Lanes of a wide vector from memory.
    fn load_wide(self, x: &[f32; WIDE]) -> Self::W;
    /// Lanes of a wide vector to memory.
    fn store_wide(self, v: Self::W, out: &mut [f32; WIDE]);
    /// `a + b`.
    fn add_wide(self, a: Self::W, b: Self::W) -> Self::W;
    /// `a * b`.
    fn mul_wide(self, a: Self::W, b: Self::W) -> Self::W;
    /// `a * b + c`, rounded once.
    fn mul_add_wide(self, a: Self::W, b: Self::W, c: Self::W) -> Self::W;
    /// Rounds each lane to the nearest fp16 value.
    fn round_f16_wide(self, v: Self::W) -> Self::W;
    /// The lanes of one vector before those of another.
    fn join(self, a: Self::V, b: Self::V) -> Self::W;
    /// Lane `i` plus lane `i + 8`.
    fn fold_wide(self, v: Self::W) -> Self::V;
    /// Widens fp16.
    fn load_f16_wide(self, x: &[f16; WIDE]) -> Self::W;

    /// Sums of products of bytes with `x`, exact but for the last rounding: lane `i` of those at `2 * i` and `2 * i + 1` of
    /// either half. They must not exceed i32.
    #[inline(always)]
    fn dot_int8(self, bytes: &[i8; BLOCK], x: &[i16; BLOCK]) -> Self::V {
        let mut sums = [0; LANES];
        for (i, (&byte, &x)) in bytes.iter().zip(x).enumerate() {
            sums[i % WIDE / 2] += i32::from(byte) * i32::from(x);
        }
        self.load(&sums.map(|sum| sum as f32))
    }
    /// A pair of 16-bit integers for each lane of a wide vector.
    type Pairs: Copy;
    /// Sums of products of pairs, one for each lane of a wide vector.
    type PairSums: Copy;
    /// Pairs from memory: a word has the first integer in its lower half and the second in its upper.
    fn load_pairs(self, words: &[i32; WIDE]) -> Self::Pairs;
    /// The same pair in every lane.
    fn splat_pair(self, word: i32) -> Self::Pairs;
    /// No sums yet.
    fn zero_pair_sums(self) -> Self::PairSums;
    /// Adds the two products of each lane. Sums must not exceed i32.
    fn dot_pairs(self, a: Self::Pairs, b: Self::Pairs, sums: Self::PairSums) -> Self::PairSums;
    /// Converts sums, rounding each once.
    fn pair_sums(self, sums: Self::PairSums) -> Self::W;
    /// A number for each of four blocks, in the lanes that are its own.
    fn spread(self, numbers: &[f32; QUAD]) -> Self::W;
    /// The same of fp16.
    fn spread_f16(self, numbers: &[f16; QUAD]) -> Self::W;
    /// Integer dot products of 4-bit weights, exact: in four lanes for each block, one for every four bytes. A weight is a code
    /// less eight, after the bits of `flip` are inverted in every byte: [`SIGNED`] makes it the code as a signed number.
    fn dot_int4(self, codes: &[[u8; WIDE]; QUAD], flip: u8, x: &SplitActivationQuad) -> Self::W;
    /// A LUT of sixteen numbers in registers.
    type Lut: Copy;
    /// Loads a LUT.
    fn lut(self, numbers: &[i16; WIDE]) -> Self::Lut;
    /// Puts the numbers of four blocks in the order in which [`Simd::dot_lut4`] meets them: what meets the lower halves of
    /// every first eight bytes of a block, of every second eight, then the upper halves, unless there is a better one.
    #[inline(always)]
    fn arrange(self, blocks: &[[i16; BLOCK]; QUAD]) -> [[i16; QUAD * LANES]; 4] {
        let mut numbers = [[0; QUAD * LANES]; 4];
        for (b, block) in blocks.iter().enumerate() {
            for (i, [lower, upper]) in block.as_chunks().0.iter().enumerate() {
                let place = b * LANES + i % LANES;
                numbers[i / LANES][place] = *lower;
                numbers[2 + i / LANES][place] = *upper;
            }
        }
        numbers
    }
    /// Integer dot products in the same lanes, of weights that codes are the indices of. Sums must not exceed i32.
    fn dot_lut4(self, codes: &[[u8; WIDE]; QUAD], lut: Self::Lut, x: &ActivationQuad) -> Self::W;
    /// A LUT of sixteen f32 in registers.
    type FloatLut: Copy;
    /// Loads a LUT of f32.
    fn float_lut(self, numbers: &[f32; WIDE]) -> Self::FloatLut;
    /// What the code at `place` of the eight in every four bytes names, in a lane for every four bytes.
    fn look_up(self, codes: &[[u8; WIDE]; QUAD], place: usize, lut: Self::FloatLut) -> Self::W;
}

/// A kernel with its arguments.
pub trait Op {
    /// What it returns.
    type Output;

    /// Computes. Must be `#[inline(always)]`.
    fn run<S: Simd>(self, s: S) -> Self::Output;
}

/// A kernel that keeps a tile of `ROWS` by `COLUMNS` results in registers; `COLUMNS` is `VECTORS` wide vectors.
pub(crate) trait TileOp {
    /// Computes. Must be `#[inline(always)]`.
    fn run<S: Simd, const ROWS: usize, const VECTORS: usize, const COLUMNS: usize>(self, s: S);
}

/// A tile kernel with the tile that suits an instruction set.
struct Tiled<O, const ROWS: usize, const VECTORS: usize, const COLUMNS: usize>(O);

impl<O: TileOp, const ROWS: usize, const VECTORS: usize, const COLUMNS: usize> Op
    for Tiled<O, ROWS, VECTORS, COLUMNS>
{
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        self.0.run::<S, ROWS, VECTORS, COLUMNS>(s);
    }
}

/// An instruction set that this CPU has.
#[derive(Debug, Clone, Copy)]
pub enum Isa {
    /// x86-64 with AVX-512.
    #[cfg(target_arch = "x86_64")]
    Avx512(avx512::Avx512),
    /// x86-64 with AVX2, FMA and F16C.
    #[cfg(target_arch = "x86_64")]
    Avx2(avx2::Avx2),
    /// AArch64.
    #[cfg(target_arch = "aarch64")]
    Neon(neon::Neon),
    /// Any CPU.
    Scalar(Scalar),
}

impl Isa {
    /// The fastest one. `ANEMETER_SIMD` in the environment of the process picks another by its name, such as
    /// `scalar` or `avx2`, if the CPU has it.
    pub fn best() -> Isa {
        static BEST: OnceLock<Isa> = OnceLock::new();
        *BEST.get_or_init(|| {
            let wanted = std::env::var("ANEMETER_SIMD").ok();
            let named = wanted.and_then(|name| Isa::all().find(|isa| isa.name() == name));
            named.or_else(|| Isa::all().next()).unwrap_or(Isa::Scalar(Scalar))
        })
    }

    /// All of them, the fastest first.
    pub fn all() -> impl Iterator<Item = Isa> {
        Isa::native().into_iter().flatten().chain([Isa::Scalar(Scalar)])
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512(_) => "avx512",
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2(_) => "avx2",
            #[cfg(target_arch = "aarch64")]
            Isa::Neon(_) => "neon",
            Isa::Scalar(_) => "scalar",
        }
    }

    #[cfg(target_arch = "x86_64")]
    fn native() -> [Option<Isa>; 2] {
        [avx512::Avx512::detect().map(Isa::Avx512), avx2::Avx2::detect().map(Isa::Avx2)]
    }

    #[cfg(target_arch = "aarch64")]
    fn native() -> [Option<Isa>; 1] {
        [Some(Isa::Neon(neon::Neon::baseline()))]
    }

    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    fn native() -> [Option<Isa>; 0] {
        []
    }

    /// Runs a kernel with this instruction set, and with the tile that fills its registers: 24 of 32 vectors with AVX-512, 12 of
    /// 16 with AVX2 are sums; the rest hold a row of the right panel and a broadcast.
    pub(crate) fn run_tiled(self, op: impl TileOp) {
        match self {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512(s) => s.run(Tiled::<_, 12, 2, { 2 * WIDE }>(op)),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2(s) => s.run(Tiled::<_, 6, 1, WIDE>(op)),
            #[cfg(target_arch = "aarch64")]
            Isa::Neon(s) => s.run(Tiled::<_, 6, 1, WIDE>(op)),
            Isa::Scalar(s) => s.run(Tiled::<_, 6, 1, WIDE>(op)),
        }
    }

    /// Rows and columns of that tile.
    pub(crate) fn tile(self) -> [usize; 2] {
        match self {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512(_) => [12, 2 * WIDE],
            _ => [6, WIDE],
        }
    }

    /// Runs a kernel with this instruction set.
    pub fn run<O: Op>(self, op: O) -> O::Output {
        match self {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512(s) => s.run(op),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2(s) => s.run(op),
            #[cfg(target_arch = "aarch64")]
            Isa::Neon(s) => s.run(op),
            Isa::Scalar(s) => s.run(op),
        }
    }
}

/// Runs a kernel with the best instruction set.
pub fn dispatch<O: Op>(op: O) -> O::Output {
    Isa::best().run(op)
}

#[cfg(test)]
mod tests;

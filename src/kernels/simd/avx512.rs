//! AVX-512: wide vectors in one register each; vectors of eight lanes as with AVX2, but with more registers.

use std::arch::x86_64::*;

use half::f16;

use super::avx2::Avx2;
use super::{ActivationQuad, BLOCK, LANES, Op, QUAD, SPLIT, Simd, SplitActivationQuad, WIDE};

/// Proof that the CPU has AVX-512 (F, VL, BW, DQ and VNNI) and whatever [`Avx2`] stands for.
#[derive(Debug, Clone, Copy)]
pub struct Avx512(Avx2);

impl Avx512 {
    /// The proof, if the CPU has them.
    pub fn detect() -> Option<Avx512> {
        let found = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vnni");
        Avx2::detect().filter(|_| found).map(Avx512)
    }
}

#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512vl,avx512bw,avx512dq,avx512vnni")]
fn run<O: Op>(op: O, s: Avx512) -> O::Output {
    op.run(s)
}

/// Calls intrinsics that work on registers alone.
macro_rules! on_registers {
    ($call:expr) => {
        // SAFETY: `self` comes from `detect`, so the CPU has these instructions; they touch no memory.
        unsafe { $call }
    };
}

/// The codes of four blocks.
#[inline(always)]
fn load_codes(_: Avx512, codes: &[[u8; WIDE]; QUAD]) -> __m512i {
    // SAFETY: an `Avx512` proves AVX-512; the reference covers 64 readable bytes and no alignment is needed.
    unsafe { _mm512_loadu_si512(codes.as_ptr().cast()) }
}

/// The lower and the upper four bits of bytes.
#[inline(always)]
fn halves(_: Avx512, bytes: __m512i) -> [__m512i; 2] {
    // SAFETY: an `Avx512` proves AVX-512; these instructions touch no memory.
    unsafe {
        let mask = _mm512_set1_epi8(15);
        [_mm512_and_si512(bytes, mask), _mm512_and_si512(_mm512_srli_epi16::<4>(bytes), mask)]
    }
}

/// Products of four blocks, summed by lanes.
#[inline(always)]
fn multiply_add(_: Avx512, weights: [__m512i; 4], x: &ActivationQuad) -> __m512 {
    // SAFETY: an `Avx512` proves AVX-512; each run covers 64 readable bytes.
    unsafe {
        let mut sums = _mm512_setzero_si512();
        for (weights, run) in weights.into_iter().zip(&x.numbers) {
            sums = _mm512_dpwssd_epi32(sums, weights, _mm512_loadu_si512(run.as_ptr().cast()));
        }
        _mm512_cvtepi32_ps(sums)
    }
}

/// Vectors of eight lanes are those of AVX2.
macro_rules! as_avx2 {
    ($(fn $name:ident($($arg:ident: $type:ty),*) $(-> $output:ty)?;)*) => {
        $(
            #[inline(always)]
            fn $name(self, $($arg: $type),*) $(-> $output)? {
                self.0.$name($($arg),*)
            }
        )*
    };
}

impl Simd for Avx512 {
    type V = __m256;
    type W = __m512;

    #[inline(always)]
    fn run<O: Op>(self, op: O) -> O::Output {
        // SAFETY: `self` comes from `detect`, so the CPU has the features that `run` is compiled for.
        unsafe { run(op, self) }
    }

    type Lut = __m512i;

    #[inline(always)]
    fn prefetch<T>(self, x: &T) {
        self.0.prefetch(x);
    }

    as_avx2! {
        fn splat(x: f32) -> __m256;
        fn load(x: &[f32; LANES]) -> __m256;
        fn store(v: __m256, out: &mut [f32; LANES]);
        fn load_f16(x: &[f16; LANES]) -> __m256;
        fn store_f16(v: __m256, out: &mut [f16; LANES]);
        fn load_i8(x: &[i8; LANES]) -> __m256;
        fn load_u8(x: &[u8; LANES]) -> __m256;
        fn dot_int8(bytes: &[i8; BLOCK], x: &[i16; BLOCK]) -> __m256;
        fn add(a: __m256, b: __m256) -> __m256;
        fn sub(a: __m256, b: __m256) -> __m256;
        fn mul(a: __m256, b: __m256) -> __m256;
        fn div(a: __m256, b: __m256) -> __m256;
        fn mul_add(a: __m256, b: __m256, c: __m256) -> __m256;
        fn max(a: __m256, b: __m256) -> __m256;
        fn min(a: __m256, b: __m256) -> __m256;
        fn select_gt(a: __m256, b: __m256, x: __m256, y: __m256) -> __m256;
        fn select_nan(test: __m256, x: __m256, y: __m256) -> __m256;
        fn abs(v: __m256) -> __m256;
        fn copy_sign(magnitude: __m256, sign: __m256) -> __m256;
        fn sqrt(v: __m256) -> __m256;
        fn floor(v: __m256) -> __m256;
        fn round(v: __m256) -> __m256;
        fn exp2_int(v: __m256) -> __m256;
        fn round_f16(v: __m256) -> __m256;
        fn reduce_add(v: __m256) -> f32;
        fn reduce_max(v: __m256) -> f32;
        fn transpose(rows: [__m256; LANES]) -> [__m256; LANES];
    }

    #[inline(always)]
    fn splat_wide(self, x: f32) -> __m512 {
        on_registers!(_mm512_set1_ps(x))
    }

    #[inline(always)]
    fn load_wide(self, x: &[f32; WIDE]) -> __m512 {
        // SAFETY: `self` proves AVX-512; the reference covers 64 readable bytes and no alignment is needed.
        unsafe { _mm512_loadu_ps(x.as_ptr()) }
    }

    #[inline(always)]
    fn store_wide(self, v: __m512, out: &mut [f32; WIDE]) {
        // SAFETY: `self` proves AVX-512; the reference covers 64 writable bytes and no alignment is needed.
        unsafe { _mm512_storeu_ps(out.as_mut_ptr(), v) }
    }

    #[inline(always)]
    fn add_wide(self, a: __m512, b: __m512) -> __m512 {
        on_registers!(_mm512_add_ps(a, b))
    }

    #[inline(always)]
    fn mul_wide(self, a: __m512, b: __m512) -> __m512 {
        on_registers!(_mm512_mul_ps(a, b))
    }

    #[inline(always)]
    fn mul_add_wide(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        on_registers!(_mm512_fmadd_ps(a, b, c))
    }

    #[inline(always)]
    fn join(self, a: __m256, b: __m256) -> __m512 {
        on_registers!(_mm512_insertf32x8::<1>(_mm512_castps256_ps512(a), b))
    }

    #[inline(always)]
    fn fold_wide(self, v: __m512) -> __m256 {
        on_registers!(_mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps::<1>(v)))
    }

    #[inline(always)]
    fn load_f16_wide(self, x: &[f16; WIDE]) -> __m512 {
        // SAFETY: `self` proves AVX-512; the reference covers 32 readable bytes and no alignment is needed.
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(x.as_ptr().cast())) }
    }

    type Pairs = __m512i;
    type PairSums = __m512i;

    #[inline(always)]
    fn load_pairs(self, words: &[i32; WIDE]) -> __m512i {
        // SAFETY: `self` proves AVX-512; the reference covers 64 readable bytes and no alignment is needed.
        unsafe { _mm512_loadu_si512(words.as_ptr().cast()) }
    }

    #[inline(always)]
    fn splat_pair(self, word: i32) -> __m512i {
        on_registers!(_mm512_set1_epi32(word))
    }

    #[inline(always)]
    fn zero_pair_sums(self) -> __m512i {
        on_registers!(_mm512_setzero_si512())
    }

    #[inline(always)]
    fn dot_pairs(self, a: __m512i, b: __m512i, sums: __m512i) -> __m512i {
        on_registers!(_mm512_dpwssd_epi32(sums, a, b))
    }

    #[inline(always)]
    fn pair_sums(self, sums: __m512i) -> __m512 {
        on_registers!(_mm512_cvtepi32_ps(sums))
    }

    #[inline(always)]
    fn spread(self, numbers: &[f32; QUAD]) -> __m512 {
        // SAFETY: `self` proves AVX-512; the reference covers 16 readable bytes and no alignment is needed.
        unsafe {
            let each = _mm512_broadcast_f32x4(_mm_loadu_ps(numbers.as_ptr()));
            _mm512_permutevar_ps(each, _mm512_set_epi32(3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0))
        }
    }

    #[inline(always)]
    fn spread_f16(self, numbers: &[f16; QUAD]) -> __m512 {
        let four = bytemuck::cast::<[f16; QUAD], i64>(*numbers);
        on_registers!({
            const ORDER: [i64; 4] =
                [0x0100_0100_0100_0100, 0x0302_0302_0302_0302, 0x0504_0504_0504_0504, 0x0706_0706_0706_0706];
            let order = _mm256_setr_epi64x(ORDER[0], ORDER[1], ORDER[2], ORDER[3]);
            _mm512_cvtph_ps(_mm256_shuffle_epi8(_mm256_set1_epi64x(four), order))
        })
    }

    #[inline(always)]
    fn dot_int4(self, codes: &[[u8; WIDE]; QUAD], flip: u8, x: &SplitActivationQuad) -> __m512 {
        let flip = on_registers!(_mm512_set1_epi8(flip.cast_signed()));
        let codes = halves(self, on_registers!(_mm512_xor_si512(load_codes(self, codes), flip)));
        // SAFETY: `self` proves AVX-512; every part of a quad covers 64 readable bytes.
        unsafe {
            let mut highs = _mm512_setzero_si512();
            let mut sums = _mm512_loadu_si512(x.offsets.as_ptr().cast());
            for (half, codes) in codes.into_iter().enumerate() {
                highs = _mm512_dpbusd_epi32(highs, codes, _mm512_loadu_si512(x.highs[half].as_ptr().cast()));
                sums = _mm512_dpbusd_epi32(sums, codes, _mm512_loadu_si512(x.lows[half].as_ptr().cast()));
            }
            let highs = _mm512_slli_epi32::<{ SPLIT.ilog2() }>(highs);
            _mm512_cvtepi32_ps(_mm512_add_epi32(highs, sums))
        }
    }

    /// The numbers twice: `vpermw` takes five bits of an index.
    #[inline(always)]
    fn lut(self, numbers: &[i16; WIDE]) -> __m512i {
        // SAFETY: `self` proves AVX-512; the reference covers 32 readable bytes and no alignment is needed.
        unsafe { _mm512_broadcast_i64x4(_mm256_loadu_si256(numbers.as_ptr().cast())) }
    }

    /// What meets the lowest four bits of every two bytes, then the next.
    #[inline(always)]
    fn arrange(self, blocks: &[[i16; BLOCK]; QUAD]) -> [[i16; QUAD * LANES]; 4] {
        let mut numbers = [[0; QUAD * LANES]; 4];
        for (i, four) in blocks.as_flattened().as_chunks::<4>().0.iter().enumerate() {
            for (numbers, number) in numbers.iter_mut().zip(four) {
                numbers[i] = *number;
            }
        }
        numbers
    }

    #[inline(always)]
    fn dot_lut4(self, codes: &[[u8; WIDE]; QUAD], lut: __m512i, x: &ActivationQuad) -> __m512 {
        let codes = load_codes(self, codes);
        let weights = on_registers!([
            _mm512_permutexvar_epi16(codes, lut),
            _mm512_permutexvar_epi16(_mm512_srli_epi16::<4>(codes), lut),
            _mm512_permutexvar_epi16(_mm512_srli_epi16::<8>(codes), lut),
            _mm512_permutexvar_epi16(_mm512_srli_epi16::<12>(codes), lut),
        ]);
        multiply_add(self, weights, x)
    }

    type FloatLut = __m512;

    #[inline(always)]
    fn float_lut(self, numbers: &[f32; WIDE]) -> __m512 {
        self.load_wide(numbers)
    }

    /// `vpermps` takes four bits of an index: the others are of other codes.
    #[inline(always)]
    fn look_up(self, codes: &[[u8; WIDE]; QUAD], place: usize, lut: __m512) -> __m512 {
        let codes = load_codes(self, codes);
        on_registers!({
            let codes = _mm512_srlv_epi32(codes, _mm512_set1_epi32(4 * place as i32));
            _mm512_permutexvar_ps(codes, lut)
        })
    }

    #[inline(always)]
    fn round_f16_wide(self, v: __m512) -> __m512 {
        on_registers!(_mm512_cvtph_ps(_mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v)))
    }
}

//! AVX-512: wide vectors in one register each; vectors of eight lanes as with AVX2, but with more registers.

use std::arch::x86_64::*;

use half::f16;

use super::avx2::Avx2;
use super::{BLOCK, LANES, Op, Simd, WIDE};

/// Proof that the CPU has AVX-512 (F, VL, BW and DQ) and whatever [`Avx2`] stands for.
#[derive(Debug, Clone, Copy)]
pub struct Avx512(Avx2);

impl Avx512 {
    /// The proof, if the CPU has them.
    pub fn detect() -> Option<Avx512> {
        let found = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq");
        Avx2::detect().filter(|_| found).map(Avx512)
    }
}

#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512vl,avx512bw,avx512dq")]
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

    type Table = [__m256i; 2];

    #[inline(always)]
    fn prefetch<T>(self, x: &T) {
        self.0.prefetch(x);
    }

    #[inline(always)]
    fn prefetch_behind<T>(self, x: &T, bytes: usize) {
        self.0.prefetch_behind(x, bytes);
    }

    as_avx2! {
        fn splat(x: f32) -> __m256;
        fn load(x: &[f32; LANES]) -> __m256;
        fn store(v: __m256, out: &mut [f32; LANES]);
        fn load_f16(x: &[f16; LANES]) -> __m256;
        fn store_f16(v: __m256, out: &mut [f16; LANES]);
        fn load_i8(x: &[i8; LANES]) -> __m256;
        fn load_u8(x: &[u8; LANES]) -> __m256;
        fn table(numbers: &[i16; WIDE]) -> [__m256i; 2];
        fn dot_bytes(bytes: &[i8; BLOCK], x: &[i16; BLOCK]) -> __m256;
        fn dot_nibbles(bytes: &[u8; WIDE], x: &[i16; BLOCK]) -> __m256;
        fn dot_named(bytes: &[u8; WIDE], table: [__m256i; 2], x: &[i16; BLOCK]) -> __m256;
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
    fn fold_wide(self, v: __m512) -> __m256 {
        on_registers!(_mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps::<1>(v)))
    }

    #[inline(always)]
    fn round_f16_wide(self, v: __m512) -> __m512 {
        on_registers!(_mm512_cvtph_ps(_mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v)))
    }
}

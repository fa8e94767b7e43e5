//! AVX2 with FMA and F16C.

use std::arch::x86_64::*;

use half::f16;

use super::{BLOCK, LANES, Op, Simd, WIDE};

/// Proof that the CPU has AVX2, FMA and F16C.
#[derive(Debug, Clone, Copy)]
pub struct Avx2(());

impl Avx2 {
    /// The proof, if the CPU has them.
    pub fn detect() -> Option<Avx2> {
        let found = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c");
        found.then_some(Avx2(()))
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn run<O: Op>(op: O, s: Avx2) -> O::Output {
    op.run(s)
}

/// Calls intrinsics that work on registers alone.
macro_rules! on_registers {
    ($call:expr) => {
        // SAFETY: `self` comes from `detect`, so the CPU has these instructions; they touch no memory.
        unsafe { $call }
    };
}

/// Products of sixteen pairs of integers, and of sixteen more, summed by two and two.
#[inline(always)]
fn multiply_add(_: Avx2, weights: [__m256i; 2], x: &[i16; BLOCK]) -> __m256 {
    // SAFETY: an `Avx2` proves AVX2; the reference covers both runs of 32 readable bytes.
    unsafe {
        let first = _mm256_madd_epi16(weights[0], _mm256_loadu_si256(x.as_ptr().cast()));
        let second = _mm256_madd_epi16(weights[1], _mm256_loadu_si256(x.as_ptr().add(WIDE).cast()));
        _mm256_cvtepi32_ps(_mm256_add_epi32(first, second))
    }
}

const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;

impl Simd for Avx2 {
    type V = __m256;

    wide_as_pairs!();

    #[inline(always)]
    fn run<O: Op>(self, op: O) -> O::Output {
        // SAFETY: `self` comes from `detect`, so the CPU has the features that `run` is compiled for.
        unsafe { run(op, self) }
    }

    #[inline(always)]
    fn prefetch<T>(self, x: &T) {
        // SAFETY: AVX2 implies SSE; a prefetch changes nothing but caches.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(x).cast()) }
    }

    #[inline(always)]
    fn prefetch_behind<T>(self, x: &T, bytes: usize) {
        // SAFETY: AVX2 implies SSE; a prefetch reads nothing that a program could see, from any address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(x).wrapping_byte_add(bytes).cast()) }
    }

    #[inline(always)]
    fn splat(self, x: f32) -> __m256 {
        on_registers!(_mm256_set1_ps(x))
    }

    #[inline(always)]
    fn load(self, x: &[f32; LANES]) -> __m256 {
        // SAFETY: `self` proves AVX; the reference covers 32 readable bytes and no alignment is needed.
        unsafe { _mm256_loadu_ps(x.as_ptr()) }
    }

    #[inline(always)]
    fn store(self, v: __m256, out: &mut [f32; LANES]) {
        // SAFETY: `self` proves AVX; the reference covers 32 writable bytes and no alignment is needed.
        unsafe { _mm256_storeu_ps(out.as_mut_ptr(), v) }
    }

    #[inline(always)]
    fn load_f16(self, x: &[f16; LANES]) -> __m256 {
        // SAFETY: `self` proves F16C; the reference covers 16 readable bytes and no alignment is needed.
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(x.as_ptr().cast())) }
    }

    #[inline(always)]
    fn store_f16(self, v: __m256, out: &mut [f16; LANES]) {
        // SAFETY: `self` proves F16C; the reference covers 16 writable bytes and no alignment is needed.
        unsafe { _mm_storeu_si128(out.as_mut_ptr().cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v)) }
    }

    #[inline(always)]
    fn load_i8(self, x: &[i8; LANES]) -> __m256 {
        // SAFETY: `self` proves AVX2; the reference covers 8 readable bytes and no alignment is needed.
        unsafe { _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(x.as_ptr().cast()))) }
    }

    #[inline(always)]
    fn load_u8(self, x: &[u8; LANES]) -> __m256 {
        // SAFETY: `self` proves AVX2; the reference covers 8 readable bytes and no alignment is needed.
        unsafe { _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(x.as_ptr().cast()))) }
    }

    /// The low bytes and the high bytes of the numbers, each twice.
    type Table = [__m256i; 2];

    #[inline(always)]
    fn table(self, numbers: &[i16; WIDE]) -> [__m256i; 2] {
        let bytes = [numbers.map(|number| number as u8), numbers.map(|number| (number >> 8) as u8)];
        // SAFETY: `self` proves AVX2; each array holds 16 readable bytes and no alignment is needed.
        unsafe {
            [
                _mm256_broadcastsi128_si256(_mm_loadu_si128(bytes[0].as_ptr().cast())),
                _mm256_broadcastsi128_si256(_mm_loadu_si128(bytes[1].as_ptr().cast())),
            ]
        }
    }

    #[inline(always)]
    fn dot_bytes(self, bytes: &[i8; BLOCK], x: &[i16; BLOCK]) -> __m256 {
        // SAFETY: `self` proves AVX2; the reference covers both runs of 16 readable bytes.
        let weights = unsafe {
            [
                _mm256_cvtepi8_epi16(_mm_loadu_si128(bytes.as_ptr().cast())),
                _mm256_cvtepi8_epi16(_mm_loadu_si128(bytes.as_ptr().add(WIDE).cast())),
            ]
        };
        multiply_add(self, weights, x)
    }

    #[inline(always)]
    fn dot_nibbles(self, bytes: &[u8; WIDE], x: &[i16; BLOCK]) -> __m256 {
        // SAFETY: `self` proves AVX2; the reference covers 16 readable bytes and no alignment is needed.
        let weights = unsafe {
            let words = _mm256_cvtepi8_epi16(_mm_loadu_si128(bytes.as_ptr().cast()));
            [_mm256_srai_epi16::<12>(_mm256_slli_epi16::<12>(words)), _mm256_srai_epi16::<4>(words)]
        };
        multiply_add(self, weights, x)
    }

    #[inline(always)]
    fn dot_named(self, bytes: &[u8; WIDE], table: [__m256i; 2], x: &[i16; BLOCK]) -> __m256 {
        // SAFETY: `self` proves AVX2; the reference covers 16 readable bytes and no alignment is needed.
        let weights = unsafe {
            let bytes = _mm_loadu_si128(bytes.as_ptr().cast());
            let both =
                _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(bytes), _mm_srli_epi16::<4>(bytes));
            let codes = _mm256_and_si256(both, _mm256_set1_epi8(15));
            let low = _mm256_shuffle_epi8(table[0], codes);
            let high = _mm256_shuffle_epi8(table[1], codes);
            [_mm256_unpacklo_epi8(low, high), _mm256_unpackhi_epi8(low, high)]
        };
        multiply_add(self, weights, x)
    }

    #[inline(always)]
    fn add(self, a: __m256, b: __m256) -> __m256 {
        on_registers!(_mm256_add_ps(a, b))
    }

    #[inline(always)]
    fn sub(self, a: __m256, b: __m256) -> __m256 {
        on_registers!(_mm256_sub_ps(a, b))
    }

    #[inline(always)]
    fn mul(self, a: __m256, b: __m256) -> __m256 {
        on_registers!(_mm256_mul_ps(a, b))
    }

    #[inline(always)]
    fn div(self, a: __m256, b: __m256) -> __m256 {
        on_registers!(_mm256_div_ps(a, b))
    }

    #[inline(always)]
    fn mul_add(self, a: __m256, b: __m256, c: __m256) -> __m256 {
        on_registers!(_mm256_fmadd_ps(a, b, c))
    }

    #[inline(always)]
    fn max(self, a: __m256, b: __m256) -> __m256 {
        on_registers!(_mm256_max_ps(a, b))
    }

    #[inline(always)]
    fn min(self, a: __m256, b: __m256) -> __m256 {
        on_registers!(_mm256_min_ps(a, b))
    }

    #[inline(always)]
    fn select_gt(self, a: __m256, b: __m256, x: __m256, y: __m256) -> __m256 {
        on_registers!(_mm256_blendv_ps(y, x, _mm256_cmp_ps::<_CMP_GT_OQ>(a, b)))
    }

    #[inline(always)]
    fn select_nan(self, test: __m256, x: __m256, y: __m256) -> __m256 {
        on_registers!(_mm256_blendv_ps(y, x, _mm256_cmp_ps::<_CMP_UNORD_Q>(test, test)))
    }

    #[inline(always)]
    fn abs(self, v: __m256) -> __m256 {
        on_registers!(_mm256_andnot_ps(_mm256_set1_ps(-0.0), v))
    }

    #[inline(always)]
    fn copy_sign(self, magnitude: __m256, sign: __m256) -> __m256 {
        let bit = self.splat(-0.0);
        on_registers!(_mm256_or_ps(_mm256_andnot_ps(bit, magnitude), _mm256_and_ps(bit, sign)))
    }

    #[inline(always)]
    fn sqrt(self, v: __m256) -> __m256 {
        on_registers!(_mm256_sqrt_ps(v))
    }

    #[inline(always)]
    fn floor(self, v: __m256) -> __m256 {
        on_registers!(_mm256_floor_ps(v))
    }

    #[inline(always)]
    fn round(self, v: __m256) -> __m256 {
        on_registers!(_mm256_round_ps::<NEAREST>(v))
    }

    #[inline(always)]
    fn exp2_int(self, v: __m256) -> __m256 {
        on_registers!({
            let biased = _mm256_add_epi32(_mm256_cvtps_epi32(v), _mm256_set1_epi32(127));
            _mm256_castsi256_ps(_mm256_slli_epi32::<23>(biased))
        })
    }

    #[inline(always)]
    fn round_f16(self, v: __m256) -> __m256 {
        on_registers!(_mm256_cvtph_ps(_mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v)))
    }

    #[inline(always)]
    fn reduce_add(self, v: __m256) -> f32 {
        on_registers!({
            let four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
            let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
        })
    }

    #[inline(always)]
    fn reduce_max(self, v: __m256) -> f32 {
        on_registers!({
            let four = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
            let two = _mm_max_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)))
        })
    }

    #[inline(always)]
    fn transpose(self, r: [__m256; LANES]) -> [__m256; LANES] {
        on_registers!({
            // Pairs of rows interleaved by element, then by pair; each 128-bit half holds four rows of a column.
            const EVEN: i32 = 0b01_00_01_00;
            const ODD: i32 = 0b11_10_11_10;
            let (a, b) = (_mm256_unpacklo_ps(r[0], r[1]), _mm256_unpackhi_ps(r[0], r[1]));
            let (c, d) = (_mm256_unpacklo_ps(r[2], r[3]), _mm256_unpackhi_ps(r[2], r[3]));
            let top = [
                _mm256_shuffle_ps::<EVEN>(a, c),
                _mm256_shuffle_ps::<ODD>(a, c),
                _mm256_shuffle_ps::<EVEN>(b, d),
                _mm256_shuffle_ps::<ODD>(b, d),
            ];
            let (a, b) = (_mm256_unpacklo_ps(r[4], r[5]), _mm256_unpackhi_ps(r[4], r[5]));
            let (c, d) = (_mm256_unpacklo_ps(r[6], r[7]), _mm256_unpackhi_ps(r[6], r[7]));
            let bottom = [
                _mm256_shuffle_ps::<EVEN>(a, c),
                _mm256_shuffle_ps::<ODD>(a, c),
                _mm256_shuffle_ps::<EVEN>(b, d),
                _mm256_shuffle_ps::<ODD>(b, d),
            ];
            [
                _mm256_permute2f128_ps::<0x20>(top[0], bottom[0]),
                _mm256_permute2f128_ps::<0x20>(top[1], bottom[1]),
                _mm256_permute2f128_ps::<0x20>(top[2], bottom[2]),
                _mm256_permute2f128_ps::<0x20>(top[3], bottom[3]),
                _mm256_permute2f128_ps::<0x31>(top[0], bottom[0]),
                _mm256_permute2f128_ps::<0x31>(top[1], bottom[1]),
                _mm256_permute2f128_ps::<0x31>(top[2], bottom[2]),
                _mm256_permute2f128_ps::<0x31>(top[3], bottom[3]),
            ]
        })
    }
}

//! AVX2 with FMA and F16C.

use std::arch::x86_64::*;

use half::f16;

use super::{ActivationQuad, BLOCK, LANES, Op, QUAD, SPLIT, Simd, SplitActivationQuad, WIDE};

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

/// The codes of two blocks of a quad.
#[inline(always)]
fn load_half(_: Avx2, codes: &[[u8; WIDE]; QUAD], half: usize) -> __m256i {
    let (halves, _) = codes.as_chunks::<2>();
    // SAFETY: an `Avx2` proves AVX2; the reference covers 32 readable bytes and no alignment is needed.
    unsafe { _mm256_loadu_si256(halves[half].as_ptr().cast()) }
}

/// The lower and the upper four bits of bytes.
#[inline(always)]
fn halves(_: Avx2, bytes: __m256i) -> [__m256i; 2] {
    // SAFETY: an `Avx2` proves AVX2; these instructions touch no memory.
    unsafe {
        let mask = _mm256_set1_epi8(15);
        [_mm256_and_si256(bytes, mask), _mm256_and_si256(_mm256_srli_epi16::<4>(bytes), mask)]
    }
}

/// Products of two blocks of a quad, summed by lanes: one for every four bytes of codes.
#[inline(always)]
fn multiply_add_half(_: Avx2, weights: [__m256i; 4], x: &ActivationQuad, half: usize) -> __m256i {
    // SAFETY: an `Avx2` proves AVX2; half a run covers 32 readable bytes.
    unsafe {
        let mut sums = [_mm256_setzero_si256(); 4];
        for ((sum, weights), run) in sums.iter_mut().zip(weights).zip(&x.numbers) {
            let run = &run.as_chunks::<WIDE>().0[half];
            *sum = _mm256_madd_epi16(weights, _mm256_loadu_si256(run.as_ptr().cast()));
        }
        let [a, b, c, d] = sums;
        _mm256_hadd_epi32(_mm256_add_epi32(a, c), _mm256_add_epi32(b, d))
    }
}

/// Each of four numbers four times.
#[inline(always)]
fn spread(_: Avx2, numbers: __m128) -> [__m256; 2] {
    // SAFETY: an `Avx2` proves AVX2; these instructions touch no memory.
    unsafe {
        let numbers = _mm256_castps128_ps256(numbers);
        [
            _mm256_permutevar8x32_ps(numbers, _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1)),
            _mm256_permutevar8x32_ps(numbers, _mm256_setr_epi32(2, 2, 2, 2, 3, 3, 3, 3)),
        ]
    }
}

/// [`Simd::dot_int4`] of two blocks of a quad.
#[inline(always)]
fn int4_of_half(
    s: Avx2,
    codes: &[[u8; WIDE]; QUAD],
    flip: u8,
    x: &SplitActivationQuad,
    half: usize,
) -> __m256 {
    // SAFETY: an `Avx2` proves AVX2; half of every part of a quad covers 32 readable bytes.
    unsafe {
        let flip = _mm256_set1_epi8(flip.cast_signed());
        let codes = halves(s, _mm256_xor_si256(load_half(s, codes, half), flip));
        // Four products of at most 15 times 128 fit an i16.
        let (mut highs, mut lows) = (_mm256_setzero_si256(), _mm256_setzero_si256());
        for (part, codes) in codes.into_iter().enumerate() {
            let high = &x.highs[part].as_chunks::<BLOCK>().0[half];
            let low = &x.lows[part].as_chunks::<BLOCK>().0[half];
            let high = _mm256_maddubs_epi16(codes, _mm256_loadu_si256(high.as_ptr().cast()));
            let low = _mm256_maddubs_epi16(codes, _mm256_loadu_si256(low.as_ptr().cast()));
            (highs, lows) = (_mm256_add_epi16(highs, high), _mm256_add_epi16(lows, low));
        }
        let highs = _mm256_madd_epi16(highs, _mm256_set1_epi16(SPLIT as i16));
        let lows = _mm256_madd_epi16(lows, _mm256_set1_epi16(1));
        let offsets = &x.offsets.as_chunks::<LANES>().0[half];
        let offsets = _mm256_loadu_si256(offsets.as_ptr().cast());
        _mm256_cvtepi32_ps(_mm256_add_epi32(_mm256_add_epi32(highs, lows), offsets))
    }
}

/// [`Simd::dot_lut4`] of two blocks of a quad.
#[inline(always)]
fn lut4_of_half(
    s: Avx2,
    codes: &[[u8; WIDE]; QUAD],
    lut: [__m256i; 2],
    x: &ActivationQuad,
    half: usize,
) -> __m256 {
    let [lower, upper] = halves(s, load_half(s, codes, half));
    // SAFETY: an `Avx2` proves AVX2; these instructions touch no memory.
    unsafe {
        let (low, high) = (_mm256_shuffle_epi8(lut[0], lower), _mm256_shuffle_epi8(lut[1], lower));
        let (next_low, next_high) = (_mm256_shuffle_epi8(lut[0], upper), _mm256_shuffle_epi8(lut[1], upper));
        let weights = [
            _mm256_unpacklo_epi8(low, high),
            _mm256_unpackhi_epi8(low, high),
            _mm256_unpacklo_epi8(next_low, next_high),
            _mm256_unpackhi_epi8(next_low, next_high),
        ];
        _mm256_cvtepi32_ps(multiply_add_half(s, weights, x, half))
    }
}

/// [`Simd::look_up`] in two blocks of a quad.
#[inline(always)]
fn look_up_in_half(
    s: Avx2,
    codes: &[[u8; WIDE]; QUAD],
    place: usize,
    lut: [__m256; 2],
    half: usize,
) -> __m256 {
    let (codes, shift) = (load_half(s, codes, half), 4 * place as i32);
    // SAFETY: an `Avx2` proves AVX2; these instructions touch no memory.
    unsafe {
        // `vpermps` takes three bits of an index; the fourth selects half of the LUT, as the sign of a lane.
        let index = _mm256_srlv_epi32(codes, _mm256_set1_epi32(shift));
        let fourth = _mm256_castsi256_ps(_mm256_sllv_epi32(codes, _mm256_set1_epi32(28 - shift)));
        let numbers = [_mm256_permutevar8x32_ps(lut[0], index), _mm256_permutevar8x32_ps(lut[1], index)];
        _mm256_blendv_ps(numbers[0], numbers[1], fourth)
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
        unsafe { _mm_prefetch::<_MM_HINT_T1>(std::ptr::from_ref(x).cast()) }
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
    type Lut = [__m256i; 2];

    #[inline(always)]
    fn lut(self, numbers: &[i16; WIDE]) -> [__m256i; 2] {
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
    fn dot_int8(self, bytes: &[i8; BLOCK], x: &[i16; BLOCK]) -> __m256 {
        // SAFETY: `self` proves AVX2; the reference covers both runs of 16 readable bytes.
        let weights = unsafe {
            [
                _mm256_cvtepi8_epi16(_mm_loadu_si128(bytes.as_ptr().cast())),
                _mm256_cvtepi8_epi16(_mm_loadu_si128(bytes.as_ptr().add(WIDE).cast())),
            ]
        };
        multiply_add(self, weights, x)
    }

    type Pairs = [__m256i; 2];
    type PairSums = [__m256i; 2];

    #[inline(always)]
    fn load_pairs(self, words: &[i32; WIDE]) -> [__m256i; 2] {
        let (halves, _) = words.as_chunks::<LANES>();
        // SAFETY: `self` proves AVX; each half covers 32 readable bytes and no alignment is needed.
        unsafe {
            [_mm256_loadu_si256(halves[0].as_ptr().cast()), _mm256_loadu_si256(halves[1].as_ptr().cast())]
        }
    }

    #[inline(always)]
    fn splat_pair(self, word: i32) -> [__m256i; 2] {
        on_registers!([_mm256_set1_epi32(word); 2])
    }

    #[inline(always)]
    fn zero_pair_sums(self) -> [__m256i; 2] {
        on_registers!([_mm256_setzero_si256(); 2])
    }

    #[inline(always)]
    fn dot_pairs(self, a: [__m256i; 2], b: [__m256i; 2], sums: [__m256i; 2]) -> [__m256i; 2] {
        on_registers!([
            _mm256_add_epi32(sums[0], _mm256_madd_epi16(a[0], b[0])),
            _mm256_add_epi32(sums[1], _mm256_madd_epi16(a[1], b[1])),
        ])
    }

    #[inline(always)]
    fn pair_sums(self, sums: [__m256i; 2]) -> [__m256; 2] {
        on_registers!([_mm256_cvtepi32_ps(sums[0]), _mm256_cvtepi32_ps(sums[1])])
    }

    #[inline(always)]
    fn spread(self, numbers: &[f32; QUAD]) -> [__m256; 2] {
        // SAFETY: `self` proves AVX; the reference covers 16 readable bytes and no alignment is needed.
        spread(self, unsafe { _mm_loadu_ps(numbers.as_ptr()) })
    }

    #[inline(always)]
    fn spread_f16(self, numbers: &[f16; QUAD]) -> [__m256; 2] {
        // SAFETY: `self` proves F16C; the reference covers 8 readable bytes and no alignment is needed.
        spread(self, unsafe { _mm_cvtph_ps(_mm_loadl_epi64(numbers.as_ptr().cast())) })
    }

    #[inline(always)]
    fn dot_int4(self, codes: &[[u8; WIDE]; QUAD], flip: u8, x: &SplitActivationQuad) -> [__m256; 2] {
        [int4_of_half(self, codes, flip, x, 0), int4_of_half(self, codes, flip, x, 1)]
    }

    #[inline(always)]
    fn dot_lut4(self, codes: &[[u8; WIDE]; QUAD], lut: [__m256i; 2], x: &ActivationQuad) -> [__m256; 2] {
        [lut4_of_half(self, codes, lut, x, 0), lut4_of_half(self, codes, lut, x, 1)]
    }

    type FloatLut = [__m256; 2];

    #[inline(always)]
    fn float_lut(self, numbers: &[f32; WIDE]) -> [__m256; 2] {
        self.load_wide(numbers)
    }

    #[inline(always)]
    fn look_up(self, codes: &[[u8; WIDE]; QUAD], place: usize, lut: [__m256; 2]) -> [__m256; 2] {
        [look_up_in_half(self, codes, place, lut, 0), look_up_in_half(self, codes, place, lut, 1)]
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

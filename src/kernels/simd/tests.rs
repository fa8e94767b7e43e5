//! Every instruction set against the portable one, bit for bit.

use super::*;

/// How many of `count` rounds to make: Miri is about a thousand times slower.
fn rounds(count: usize) -> usize {
    if cfg!(miri) { count.div_ceil(400) } else { count }
}

/// Values at which conversions and comparisons change their ways.
fn specials() -> Vec<f32> {
    let mut values = vec![
        0.0,
        1.0,
        0.5,
        1.5,
        2.5,
        0.1,
        3.3,
        126.0,
        65504.0,
        65519.9,
        65520.0,
        65536.0,
        6.1e-5,
        6.0e-5,
        5.9e-8,
        2.98e-8,
        2.99e-8,
        1.0e-40,
        f32::MIN_POSITIVE,
        f32::MAX,
        f32::INFINITY,
    ];
    let negative: Vec<f32> = values.iter().map(|x| -x).collect();
    values.extend(negative);
    values.push(f32::NAN);
    values
}

/// Every vector operation on the given lanes, with the results one after the other.
struct Everything<'a> {
    a: &'a [f32; LANES],
    b: &'a [f32; LANES],
    c: &'a [f32; LANES],
}

impl Op for Everything<'_> {
    type Output = Vec<f32>;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> Vec<f32> {
        let (a, b, c) = (s.load(self.a), s.load(self.b), s.load(self.c));
        let mut halves = [f16::ZERO; LANES];
        s.store_f16(a, &mut halves);
        let bytes = self.a.map(|x| x as i8);
        let exponents = self.b.map(|x| if x.abs() <= 126.0 { x.trunc() } else { 0.0 });
        let transposed = s.transpose([a, b, c, s.add(a, b), b, a, c, s.sub(a, c)]);
        let vectors = [
            s.splat(self.a[3]),
            s.load_f16(&halves),
            s.load_i8(&bytes),
            s.load_u8(&bytes.map(|x| x as u8)),
            s.fold_wide(
                s.load_wide(&std::array::from_fn(|i| if i < LANES { self.a[i] } else { self.b[i - LANES] })),
            ),
            s.add(a, b),
            s.sub(a, b),
            s.mul(a, b),
            s.div(a, b),
            s.mul_add(a, b, c),
            s.max(a, b),
            s.min(a, b),
            s.select_gt(a, b, c, a),
            s.select_nan(a, b, c),
            s.abs(a),
            s.copy_sign(a, b),
            s.sqrt(a),
            s.floor(a),
            s.round(a),
            s.exp2_int(s.load(&exponents)),
            s.round_f16(a),
        ];
        let mut out = vec![s.reduce_add(a), s.reduce_max(a)];
        let wide = |low: &[f32; LANES], high: &[f32; LANES]| {
            let mut lanes = [0.0; WIDE];
            lanes[..LANES].copy_from_slice(low);
            lanes[LANES..].copy_from_slice(high);
            lanes
        };
        let (x, y) = (s.load_wide(&wide(self.a, self.c)), s.load_wide(&wide(self.b, self.a)));
        let wide_vectors = [
            s.splat_wide(self.b[5]),
            s.add_wide(x, y),
            s.mul_wide(x, y),
            s.mul_add_wide(x, y, x),
            s.round_f16_wide(x),
            s.join(a, c),
            s.load_f16_wide(&std::array::from_fn(|i| halves[i % LANES])),
        ];
        let codes: [u8; WIDE] = std::array::from_fn(|i| self.a[i % LANES].to_bits().to_le_bytes()[i / LANES]);
        let bytes: [i8; BLOCK] = std::array::from_fn(|i| codes[i % WIDE].rotate_left(i as u32).cast_signed());
        let x: [i16; BLOCK] =
            std::array::from_fn(|i| i16::from(bytes[BLOCK - 1 - i]) * 128 + i16::from(bytes[i]));
        let products = [s.dot_int8(&bytes, &x)];
        let numbers = s.arrange(&std::array::from_fn(|b| x.map(|x| x - b as i16)));
        let quad = ActivationQuad { numbers, scales: [1.0; WIDE] };
        let split = SplitActivationQuad {
            highs: std::array::from_fn(|half| std::array::from_fn(|i| bytes[(i + 5 * half) % BLOCK])),
            lows: std::array::from_fn(|half| std::array::from_fn(|i| bytes[(i + 7 * half) % BLOCK] & 127)),
            offsets: std::array::from_fn(|i| i32::from(x[i]) * 5),
            negated_sums: [0.0; WIDE],
            scales: [1.0; WIDE],
        };
        let blocks: [[u8; WIDE]; QUAD] =
            std::array::from_fn(|b| codes.map(|code| code.wrapping_mul(2 * b as u8 + 1)));
        let lut = s.lut(&std::array::from_fn(|i| (x[i] - 5) / 2));
        let quads = [
            s.dot_int4(&blocks, SIGNED, &split),
            s.dot_int4(&blocks, 0, &split),
            s.dot_lut4(&blocks, lut, &quad),
        ];
        let spread = [
            s.spread(&[self.a[0], self.b[1], self.c[2], self.a[3]]),
            s.spread_f16(&[halves[0], halves[3], halves[5], halves[6]]),
        ];
        let words: [i32; WIDE] = bytemuck::cast(x);
        let pairs = s.dot_pairs(s.load_pairs(&words), s.splat_pair(words[5]), s.zero_pair_sums());
        let pairs = s.dot_pairs(s.splat_pair(words[9] / 4), s.load_pairs(&words.map(|word| word / 4)), pairs);
        let floats =
            s.float_lut(&std::array::from_fn(|i| if i < LANES { self.a[i] } else { self.b[i - LANES] }));
        let named: [S::W; 8] = std::array::from_fn(|place| s.look_up(&blocks, place, floats));
        let wide_vectors = wide_vectors.into_iter().chain(quads).chain(spread).chain(named);
        let wide_vectors = wide_vectors.chain([s.pair_sums(pairs)]);
        for v in wide_vectors {
            let mut lanes = [0.0; WIDE];
            s.store_wide(v, &mut lanes);
            out.extend(lanes);
        }
        for v in vectors.into_iter().chain(transposed).chain(products) {
            let mut lanes = [0.0; LANES];
            s.store(v, &mut lanes);
            out.extend(lanes);
        }
        out
    }
}

fn assert_same(a: &[f32; LANES], b: &[f32; LANES], c: &[f32; LANES]) {
    let bits = |x: &f32| if x.is_nan() { f32::NAN.to_bits() } else { x.to_bits() };
    let expected = Scalar.run(Everything { a, b, c });
    for isa in Isa::all() {
        let found = isa.run(Everything { a, b, c });
        for (i, (x, y)) in found.iter().zip(&expected).enumerate() {
            assert_eq!(bits(x), bits(y), "{isa:?}, result {i}: {x} is not {y}, of {a:?} {b:?} {c:?}");
        }
    }
}

#[test]
fn special_values_agree() {
    let values = specials();
    let pick = |at: usize| std::array::from_fn(|i| values[(at + i) % values.len()]);
    let pairs = (0..values.len()).flat_map(|x| (0..values.len()).map(move |y| (x, y)));
    for (x, y) in pairs.step_by(if cfg!(miri) { 97 } else { 1 }) {
        assert_same(&pick(x), &pick(y), &pick(x * 5 + y * 3));
    }
}

#[test]
fn arbitrary_bits_agree() {
    let mut state = 1u64;
    let mut lanes = || {
        std::array::from_fn(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            f32::from_bits((state >> 32) as u32)
        })
    };
    for _ in 0..rounds(20_000) {
        assert_same(&lanes(), &lanes(), &lanes());
    }
}

#[test]
fn the_portable_fused_sum_is_rounded_once() {
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        // Exponents within 64 of each other, so that the addends overlap.
        let bits = (state >> 32) as u32;
        f32::from_bits(bits & 0x807f_ffff | (96 + (bits >> 23 & 63)) << 23)
    };
    for _ in 0..rounds(200_000) {
        let (a, b, c) = (next(), next(), next());
        assert_eq!(scalar::fused(a, b, c), a.mul_add(b, c), "{a} * {b} + {c}");
    }
    // The sum lies a hair above the middle between two f32: rounding twice would lose the hair.
    let (a, b) = (1.0 + f32::EPSILON, 1.0 + f32::EPSILON);
    for c in [f32::EPSILON / 2.0, -f32::EPSILON / 2.0, 2f32.powi(-60), -(2f32.powi(-60))] {
        assert_eq!(scalar::fused(a, b, c), a.mul_add(b, c));
    }
}

#[test]
#[cfg_attr(miri, ignore = "millions of rounds of safe code")]
fn rounding_to_half_agrees_with_its_conversion() {
    for bits in (0..=u32::MAX).step_by(997).chain((0x3300_0000..0x3900_0000).step_by(1 << 11)) {
        let x = f32::from_bits(bits);
        let expected = f16::from_f32_const(x).to_f32_const();
        let found = scalar::round_f16(x);
        assert!(found.to_bits() == expected.to_bits() || x.is_nan() && found.is_nan(), "{x} gives {found}");
    }
}

//! What instruction sets share that have no vectors of sixteen lanes or no integer dot products.

/// Implements the vectors of sixteen lanes as pairs of vectors of eight.
macro_rules! wide_as_pairs {
    () => {
        type W = [Self::V; 2];

        #[inline(always)]
        fn splat_wide(self, x: f32) -> Self::W {
            [self.splat(x); 2]
        }

        #[inline(always)]
        fn load_wide(self, x: &[f32; WIDE]) -> Self::W {
            let (lanes, _) = x.as_chunks::<LANES>();
            [self.load(&lanes[0]), self.load(&lanes[1])]
        }

        #[inline(always)]
        fn store_wide(self, v: Self::W, out: &mut [f32; WIDE]) {
            let (lanes, _) = out.as_chunks_mut::<LANES>();
            self.store(v[0], &mut lanes[0]);
            self.store(v[1], &mut lanes[1]);
        }

        #[inline(always)]
        fn add_wide(self, a: Self::W, b: Self::W) -> Self::W {
            [self.add(a[0], b[0]), self.add(a[1], b[1])]
        }

        #[inline(always)]
        fn mul_wide(self, a: Self::W, b: Self::W) -> Self::W {
            [self.mul(a[0], b[0]), self.mul(a[1], b[1])]
        }

        #[inline(always)]
        fn mul_add_wide(self, a: Self::W, b: Self::W, c: Self::W) -> Self::W {
            [self.mul_add(a[0], b[0], c[0]), self.mul_add(a[1], b[1], c[1])]
        }

        #[inline(always)]
        fn round_f16_wide(self, v: Self::W) -> Self::W {
            [self.round_f16(v[0]), self.round_f16(v[1])]
        }

        #[inline(always)]
        fn join(self, a: Self::V, b: Self::V) -> Self::W {
            [a, b]
        }

        #[inline(always)]
        fn fold_wide(self, v: Self::W) -> Self::V {
            self.add(v[0], v[1])
        }

        #[inline(always)]
        fn load_f16_wide(self, x: &[f16; WIDE]) -> Self::W {
            let (lanes, _) = x.as_chunks::<LANES>();
            [self.load_f16(&lanes[0]), self.load_f16(&lanes[1])]
        }
    };
}

/// Implements products with 4-bit codes without vectors.
macro_rules! quads_in_memory {
    () => {
        #[inline(always)]
        fn spread(self, numbers: &[f32; QUAD]) -> Self::W {
            self.load_wide(&std::array::from_fn(|i| numbers[i / QUAD]))
        }

        #[inline(always)]
        fn spread_f16(self, numbers: &[f16; QUAD]) -> Self::W {
            self.spread(&numbers.map(f16::to_f32))
        }

        type Lut = [i16; WIDE];

        #[inline(always)]
        fn lut(self, numbers: &[i16; WIDE]) -> Self::Lut {
            *numbers
        }

        #[inline(always)]
        fn dot_int4(self, codes: &[[u8; WIDE]; QUAD], flip: u8, x: &SplitActivationQuad) -> Self::W {
            let mut sums = x.offsets;
            for (i, byte) in codes.as_flattened().iter().enumerate() {
                for half in [0, 1] {
                    let code = i32::from((byte ^ flip) >> (4 * half) & 15);
                    let [high, low] = [x.highs[half][i], x.lows[half][i]].map(i32::from);
                    sums[i / 4] += code * (high * SPLIT + low);
                }
            }
            self.load_wide(&sums.map(|sum| sum as f32))
        }

        #[inline(always)]
        fn dot_lut4(self, codes: &[[u8; WIDE]; QUAD], lut: Self::Lut, x: &ActivationQuad) -> Self::W {
            let mut sums = [0; WIDE];
            for (run, numbers) in x.numbers.iter().enumerate() {
                for (i, &x) in numbers.iter().enumerate() {
                    let (block, at) = (i / LANES, run % 2 * LANES + i % LANES);
                    let byte = codes[block][at];
                    sums[block * QUAD + at / 4] +=
                        i32::from(lut[usize::from(byte >> (run / 2 * 4) & 15)]) * i32::from(x);
                }
            }
            self.load_wide(&sums.map(|sum| sum as f32))
        }

        type FloatLut = [f32; WIDE];

        #[inline(always)]
        fn float_lut(self, numbers: &[f32; WIDE]) -> Self::FloatLut {
            *numbers
        }

        #[inline(always)]
        fn look_up(self, codes: &[[u8; WIDE]; QUAD], place: usize, lut: Self::FloatLut) -> Self::W {
            let mut lanes = [0.0; WIDE];
            for (lane, bytes) in lanes.iter_mut().zip(codes.as_flattened().as_chunks::<4>().0) {
                *lane = lut[usize::from(bytes[place / 2] >> (place % 2 * 4) & 15)];
            }
            self.load_wide(&lanes)
        }
    };
}

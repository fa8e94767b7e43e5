//! Elements that vectors are read from and written to.

use half::f16;

use super::{LANES, QUAD, Simd, WIDE};

/// An element that vectors can be read from.
pub trait Load: bytemuck::Pod + Send + Sync {
    /// Widens to f32.
    fn widen(self) -> f32;

    /// A vector from memory.
    fn load<S: Simd>(s: S, x: &[Self; LANES]) -> S::V;

    /// One element for each block of four, in the lanes of the block.
    #[inline(always)]
    fn spread<S: Simd>(s: S, x: &[Self; QUAD]) -> S::W {
        s.spread(&x.map(Self::widen))
    }

    /// A vector from the first elements; lanes for which there are none are zero.
    #[inline(always)]
    fn load_some<S: Simd>(s: S, x: &[Self]) -> S::V {
        if let Some(whole) = x.first_chunk() {
            return Self::load(s, whole);
        }
        let mut lanes = [Self::zeroed(); LANES];
        lanes[..x.len()].copy_from_slice(x);
        Self::load(s, &lanes)
    }

    /// A wide vector from memory.
    #[inline(always)]
    fn load_wide<S: Simd>(s: S, x: &[Self; WIDE]) -> S::W {
        let (lanes, _) = x.as_chunks();
        s.join(Self::load(s, &lanes[0]), Self::load(s, &lanes[1]))
    }

    /// A wide vector from the first elements; lanes for which there are none are zero.
    #[inline(always)]
    fn load_some_wide<S: Simd>(s: S, x: &[Self]) -> S::W {
        if let Some(whole) = x.first_chunk() {
            return Self::load_wide(s, whole);
        }
        let mut lanes = [Self::zeroed(); WIDE];
        lanes[..x.len()].copy_from_slice(x);
        Self::load_wide(s, &lanes)
    }
}

/// An element that vectors can be written to.
pub trait Store: Load {
    /// Rounds from f32.
    fn narrow(x: f32) -> Self;

    /// A vector to memory.
    fn store<S: Simd>(s: S, v: S::V, out: &mut [Self; LANES]);

    /// A vector to the first elements; lanes for which there are none are dropped.
    #[inline(always)]
    fn store_some<S: Simd>(s: S, v: S::V, out: &mut [Self]) {
        if let Some(whole) = out.first_chunk_mut() {
            return Self::store(s, v, whole);
        }
        let mut lanes = [Self::zeroed(); LANES];
        Self::store(s, v, &mut lanes);
        out.copy_from_slice(&lanes[..out.len()]);
    }
}

macro_rules! element {
    ($type:ty, $widen:expr, $load:ident $(, wide $load_wide:ident $spread:ident)?) => {
        impl Load for $type {
            #[inline(always)]
            fn widen(self) -> f32 {
                $widen(self)
            }
            #[inline(always)]
            fn load<S: Simd>(s: S, x: &[Self; LANES]) -> S::V {
                s.$load(x)
            }
            $(
                #[inline(always)]
                fn load_wide<S: Simd>(s: S, x: &[Self; WIDE]) -> S::W {
                    s.$load_wide(x)
                }
                #[inline(always)]
                fn spread<S: Simd>(s: S, x: &[Self; QUAD]) -> S::W {
                    s.$spread(x)
                }
            )?
        }
    };
}
macro_rules! stored {
    ($type:ty, $narrow:expr, $store:ident) => {
        impl Store for $type {
            #[inline(always)]
            fn narrow(x: f32) -> Self {
                $narrow(x)
            }
            #[inline(always)]
            fn store<S: Simd>(s: S, v: S::V, out: &mut [Self; LANES]) {
                s.$store(v, out);
            }
        }
    };
}
element!(f32, std::convert::identity, load, wide load_wide spread);
element!(f16, f16::to_f32, load_f16, wide load_f16_wide spread_f16);
element!(i8, f32::from, load_i8);
element!(u8, f32::from, load_u8);
stored!(f32, std::convert::identity, store);
stored!(f16, f16::from_f32, store_f16);

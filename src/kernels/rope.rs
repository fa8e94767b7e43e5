//! Rotary position embedding (RoPE, Su et al. 2021) in f32, for heads of `[dimensions, tokens]`.
//!
//! ```text
//! rotary dimensions                      the rest
//! [ a: first half | b: second half ]     [ c ]
//!   a cos - b sin | b cos + a sin          c        all times a scale
//! ```
//!
//! Element `i` of the first half turns against element `i` of the second (the order of GPT-NeoX and Hugging Face, not of pairs).

use super::parallel::for_each_chunk;
use super::simd::{Isa, LANES, Op, Simd, Store};

/// What an element costs, in multiply-adds.
const COST: usize = 4;

/// A rotation of heads.
#[derive(Debug, Clone, Copy)]
pub struct Rope<'a, T> {
    /// Cosines of the rotary dimensions, `[dimensions, tokens]`; one such table after the other.
    pub cos: &'a [T],
    /// Sines, in the same order.
    pub sin: &'a [T],
    /// Elements of a table.
    pub rotary: usize,
    /// Consecutive heads that share a table.
    pub sharing: usize,
    /// Elements of a head.
    pub head: usize,
    /// What everything is multiplied by in the end, the other dimensions as well.
    pub scale: f32,
}

impl<T: Store> Rope<'_, T> {
    /// Rotates all heads of `x`. Each result is rounded once.
    ///
    /// # Panics
    /// If `out` is not as long as `x`, or a head or a table is shorter than the rotary dimensions.
    pub fn rotate(&self, x: &[T], out: &mut [T]) {
        self.rotate_with(Isa::best(), x, out);
    }

    fn rotate_with(&self, isa: Isa, x: &[T], out: &mut [T]) {
        assert_eq!(x.len(), out.len(), "as many results as elements");
        if self.head == 0 {
            return;
        }
        for_each_chunk(out, self.head, x.len().saturating_mul(COST), |i, out| {
            let table = i / self.sharing * self.rotary;
            let x = &x[i * self.head..][..self.head];
            let (cos, sin) = (&self.cos[table..][..self.rotary], &self.sin[table..][..self.rotary]);
            isa.run(RotateHead { x, cos, sin, scale: self.scale, out });
        });
    }
}

struct RotateHead<'a, T> {
    x: &'a [T],
    cos: &'a [T],
    sin: &'a [T],
    scale: f32,
    out: &'a mut [T],
}

impl<T: Store> Op for RotateHead<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let half = self.cos.len() / 2;
        let (low, rest) = self.x.split_at(half);
        let (high, still) = rest.split_at(half);
        let (low_out, rest) = self.out.split_at_mut(half);
        let (high_out, still_out) = rest.split_at_mut(half);
        // Both halves of a table are read: a graph may hold other numbers than RoPE's, whose halves are equal.
        let (cos, sin) = (self.cos.split_at(half), self.sin.split_at(half));
        let scale = s.splat(self.scale);
        for start in (0..half).step_by(LANES) {
            let at = start..half.min(start + LANES);
            let (a, b) = (T::load_some(s, &low[at.clone()]), T::load_some(s, &high[at.clone()]));
            let along = s.mul(a, T::load_some(s, &cos.0[at.clone()]));
            let across = s.mul(b, T::load_some(s, &sin.0[at.clone()]));
            T::store_some(s, s.mul(s.sub(along, across), scale), &mut low_out[at.clone()]);
            let along = s.mul(b, T::load_some(s, &cos.1[at.clone()]));
            let turned = s.mul_add(a, T::load_some(s, &sin.1[at.clone()]), along);
            T::store_some(s, s.mul(turned, scale), &mut high_out[at]);
        }
        for (x, out) in still.chunks(LANES).zip(still_out.chunks_mut(LANES)) {
            T::store_some(s, s.mul(T::load_some(s, x), scale), out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::f16;

    fn halves(count: usize, seed: usize) -> Vec<f16> {
        (0..count).map(|i| f16::from_f32(((i * 7919 + seed) % 1009) as f32 / 504.0 - 1.0)).collect()
    }

    /// Heads, tables, dimensions, how many of them turn, tokens.
    const SIZES: [(usize, usize, usize, usize, usize); 6] = [
        (9, 1, 64, 64, 1),
        (4, 2, 64, 64, 1),
        (3, 1, 64, 64, 19),
        (6, 3, 10, 6, 7),
        (2, 1, 7, 2, 1),
        (1, 1, 5, 4, 3),
    ];

    #[test]
    fn heads_turn_by_their_definition_on_every_isa() {
        for (heads, tables, dims, rotary, tokens) in SIZES {
            let x = halves(heads * dims * tokens, 1);
            let (cos, sin) = (halves(tables * rotary * tokens, 2), halves(tables * rotary * tokens, 3));
            let (sharing, scale) = (heads / tables, 0.125);
            let (turns, head) = (rotary * tokens, dims * tokens);
            let rotation = Rope { cos: &cos, sin: &sin, rotary: turns, sharing, head, scale };
            let at = |data: &[f16], i: usize| f64::from(data[i].to_f32());
            let expected = |i: usize| {
                let (first, inside) = (i / head * head, i % head);
                let table = i / head / sharing * turns + inside;
                let turned = match inside {
                    _ if inside >= turns => at(&x, i),
                    _ if inside < turns / 2 => {
                        at(&x, i) * at(&cos, table) - at(&x, first + inside + turns / 2) * at(&sin, table)
                    }
                    _ => at(&x, i) * at(&cos, table) + at(&x, first + inside - turns / 2) * at(&sin, table),
                };
                turned * f64::from(scale)
            };
            let mut first = vec![f16::NAN; x.len()];
            rotation.rotate(&x, &mut first);
            for (i, found) in first.iter().enumerate() {
                let expected = expected(i);
                assert!((f64::from(found.to_f32()) - expected).abs() <= expected.abs() / 2000.0 + 1e-7);
            }
            for isa in Isa::all() {
                let mut again = vec![f16::NAN; x.len()];
                rotation.rotate_with(isa, &x, &mut again);
                assert_eq!(again, first, "{isa:?}");
            }
        }
    }
}

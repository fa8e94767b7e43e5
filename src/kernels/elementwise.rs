//! Functions of one or two contiguous slices, element by element, in f32 or fp16.
//!
//! fp16 elements are widened, computed in f32 and rounded once.

use super::simd::{Isa, LANES, Op, Simd, Store};
use super::{math, parallel};

/// Elements of a part that a thread works on without being divided.
const UNIT: usize = 1 << 12;
/// What a function of one number costs, in multiply-adds per element.
const UNARY_COST: usize = 16;

/// A function of one number. Bounds in units of the last place are those of f32.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unary {
    /// `e^x`, within 1.1 ulp.
    Exp,
    /// `1 / (1 + e^-x)`, within 2.5 ulp.
    Sigmoid,
    /// Hyperbolic tangent, within 1.5 ulp.
    Tanh,
    /// The error function, within 1.5 ulp.
    Erf,
    /// `1 - erf x`, within 4e-6 of its size up to `x = 5` and within 1e-12 above.
    Erfc,
    /// `x sigmoid(x)`, within 4 ulp or 1e-43.
    Silu,
    /// `x (1 + erf(x / sqrt 2)) / 2`, within 4e-6 of its size down to `x = -5` and within 1e-11 below.
    Gelu,
    /// [`Unary::Gelu`] with the error function approximated by a hyperbolic tangent; the same bounds.
    GeluTanh,
    /// [`Unary::Gelu`] approximated as `x sigmoid(1.702 x)`; the same bounds, 1e-9 below `x = -5`.
    GeluSigmoid,
}

/// A function of two numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Binary {
    Add,
    Sub,
    Mul,
    Div,
    /// The larger; NaN if either is.
    Max,
    /// The smaller; NaN if either is.
    Min,
}

/// An operand: as many elements as there are results, or one for all.
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Operand<'a, T> {
    Each(&'a [T]),
    All(T),
}

/// `out = f(x)`. Both must be of the same length.
pub fn unary<T: Store>(f: Unary, x: &[T], out: &mut [T]) {
    unary_with(Isa::best(), f, x, out);
}

/// `out = x`, but `low` where it is lower and `high` where it is higher, which goes before; NaN stays NaN.
pub fn clamp<T: Store>(low: f32, high: f32, x: &[T], out: &mut [T]) {
    zip(Isa::best(), Clamp { low, high }, [Operand::Each(x)], out);
}

/// `out = f(x, y)`. Operands and output must be of the same length.
pub fn binary<T: Store>(f: Binary, x: Operand<'_, T>, y: Operand<'_, T>, out: &mut [T]) {
    binary_with(Isa::best(), f, x, y, out);
}

/// `out = x sigmoid(x) y`, rounded once. Operands and output must be of the same length.
pub fn gated_silu<T: Store>(x: &[T], y: &[T], out: &mut [T]) {
    zip(Isa::best(), GatedSilu, [Operand::Each(x), Operand::Each(y)], out);
}

/// A function of the lanes of `N` vectors.
trait Function<const N: usize>: Copy + Send + Sync {
    /// In multiply-adds per element.
    const COST: usize = if N == 1 { UNARY_COST } else { 1 };

    fn eval<S: Simd>(self, s: S, x: [S::V; N]) -> S::V;
}

macro_rules! functions {
    ($($name:ident: $arity:literal = |$s:ident, $x:ident| $value:expr;)*) => {
        $(
            #[derive(Clone, Copy)]
            struct $name;
            impl Function<$arity> for $name {
                #[inline(always)]
                fn eval<S: Simd>(self, $s: S, $x: [S::V; $arity]) -> S::V {
                    $value
                }
            }
        )*
    };
}
functions! {
    Exp: 1 = |s, x| math::exp(s, x[0]);
    Sigmoid: 1 = |s, x| math::sigmoid(s, x[0]);
    Tanh: 1 = |s, x| math::tanh(s, x[0]);
    Erf: 1 = |s, x| math::erf(s, x[0]);
    Erfc: 1 = |s, x| math::erfc(s, x[0]);
    Silu: 1 = |s, x| math::silu(s, x[0]);
    Gelu: 1 = |s, x| math::gelu(s, x[0]);
    GeluTanh: 1 = |s, x| math::gelu_tanh(s, x[0]);
    GeluSigmoid: 1 = |s, x| math::gelu_sigmoid(s, x[0]);
    Add: 2 = |s, x| s.add(x[0], x[1]);
    Sub: 2 = |s, x| s.sub(x[0], x[1]);
    Mul: 2 = |s, x| s.mul(x[0], x[1]);
    Div: 2 = |s, x| s.div(x[0], x[1]);
    // `Simd::max` gives the second operand if either is NaN, which is right for a NaN in the second alone.
    Max: 2 = |s, x| s.select_nan(x[0], x[0], s.max(x[0], x[1]));
    Min: 2 = |s, x| s.select_nan(x[0], x[0], s.min(x[0], x[1]));
}

#[derive(Clone, Copy)]
struct GatedSilu;

impl Function<2> for GatedSilu {
    const COST: usize = UNARY_COST;

    #[inline(always)]
    fn eval<S: Simd>(self, s: S, [x, y]: [S::V; 2]) -> S::V {
        s.mul(math::silu(s, x), y)
    }
}

#[derive(Clone, Copy)]
struct Clamp {
    low: f32,
    high: f32,
}

impl Function<1> for Clamp {
    const COST: usize = 1;

    #[inline(always)]
    fn eval<S: Simd>(self, s: S, [x]: [S::V; 1]) -> S::V {
        // The element is the second operand of both, so that a NaN comes through.
        s.min(s.splat(self.high), s.max(s.splat(self.low), x))
    }
}

fn unary_with<T: Store>(isa: Isa, f: Unary, x: &[T], out: &mut [T]) {
    let x = [Operand::Each(x)];
    match f {
        Unary::Exp => zip(isa, Exp, x, out),
        Unary::Sigmoid => zip(isa, Sigmoid, x, out),
        Unary::Tanh => zip(isa, Tanh, x, out),
        Unary::Erf => zip(isa, Erf, x, out),
        Unary::Erfc => zip(isa, Erfc, x, out),
        Unary::Silu => zip(isa, Silu, x, out),
        Unary::Gelu => zip(isa, Gelu, x, out),
        Unary::GeluTanh => zip(isa, GeluTanh, x, out),
        Unary::GeluSigmoid => zip(isa, GeluSigmoid, x, out),
    }
}

fn binary_with<T: Store>(isa: Isa, f: Binary, x: Operand<'_, T>, y: Operand<'_, T>, out: &mut [T]) {
    match f {
        Binary::Add => zip(isa, Add, [x, y], out),
        Binary::Sub => zip(isa, Sub, [x, y], out),
        Binary::Mul => zip(isa, Mul, [x, y], out),
        Binary::Div => zip(isa, Div, [x, y], out),
        Binary::Max => zip(isa, Max, [x, y], out),
        Binary::Min => zip(isa, Min, [x, y], out),
    }
}

fn zip<T: Store, F: Function<N>, const N: usize>(isa: Isa, f: F, x: [Operand<'_, T>; N], out: &mut [T]) {
    for x in x {
        assert_eq!(x.len().unwrap_or(out.len()), out.len(), "operands are as long as the output");
    }
    let pieces = parallel::pieces(out.len().saturating_mul(F::COST));
    parallel::parts(out, UNIT, pieces, &|start, out| {
        let x = x.map(|x| x.part(start, out.len()));
        isa.run(Zip { f, x, out });
    });
}

impl<'a, T> Operand<'a, T> {
    fn len(&self) -> Option<usize> {
        match self {
            Operand::Each(x) => Some(x.len()),
            Operand::All(_) => None,
        }
    }

    fn part(self, start: usize, len: usize) -> Operand<'a, T> {
        match self {
            Operand::Each(x) => Operand::Each(&x[start..][..len]),
            all @ Operand::All(_) => all,
        }
    }
}

struct Zip<'a, T, F, const N: usize> {
    f: F,
    x: [Operand<'a, T>; N],
    out: &'a mut [T],
}

impl<T: Store, F: Function<N>, const N: usize> Op for Zip<'_, T, F, N> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Zip { f, x, out } = self;
        let mut constant = [[T::zeroed(); LANES]; N];
        let mut lanes: [&[[T; LANES]]; N] = [&[]; N];
        let mut ends: [&[T]; N] = [&[]; N];
        let mut steps = [1; N];
        for (i, constant) in constant.iter_mut().enumerate() {
            match x[i] {
                Operand::Each(x) => (lanes[i], ends[i]) = x.as_chunks(),
                Operand::All(x) => {
                    // A step of 0 reads the same vector again: no branch in the loop.
                    *constant = [x; LANES];
                    let constant: &[T; LANES] = constant;
                    (lanes[i], ends[i], steps[i]) = (std::slice::from_ref(constant), constant, 0);
                }
            }
        }
        let (whole, rest) = out.as_chunks_mut();
        for (c, out) in whole.iter_mut().enumerate() {
            let mut v = [s.splat(0.0); N];
            for (i, v) in v.iter_mut().enumerate() {
                *v = T::load(s, &lanes[i][c * steps[i]]);
            }
            T::store(s, f.eval(s, v), out);
        }
        if !rest.is_empty() {
            let mut v = [s.splat(0.0); N];
            for (v, end) in v.iter_mut().zip(ends) {
                *v = T::load_some(s, end);
            }
            T::store_some(s, f.eval(s, v), rest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::f16;

    const UNARIES: [Unary; 9] = [
        Unary::Exp,
        Unary::Sigmoid,
        Unary::Tanh,
        Unary::Erf,
        Unary::Erfc,
        Unary::Silu,
        Unary::Gelu,
        Unary::GeluTanh,
        Unary::GeluSigmoid,
    ];
    const BINARIES: [Binary; 6] =
        [Binary::Add, Binary::Sub, Binary::Mul, Binary::Div, Binary::Max, Binary::Min];
    const LENGTHS: [usize; 8] = [0, 1, 7, 8, 9, 31, 64, 101];

    fn sigmoid(x: f64) -> f64 {
        if x < 0.0 { x.exp() / (1.0 + x.exp()) } else { 1.0 / (1.0 + (-x).exp()) }
    }

    /// `erf x` by its series, for small arguments.
    fn erf(x: f64) -> f64 {
        let mut term = 2.0 * x;
        let mut sum = 0.0;
        for n in 1..80 {
            sum += term;
            term *= 2.0 * x * x / f64::from(2 * n + 1);
        }
        sum * (-x * x).exp() / std::f64::consts::PI.sqrt()
    }

    /// `1 - erf x`, for large arguments by its continued fraction.
    fn erfc(x: f64) -> f64 {
        if x.abs() < 2.0 {
            1.0 - erf(x)
        } else if x < 0.0 {
            2.0 - erfc(-x)
        } else {
            let fraction = (1..120).rev().fold(x, |fraction, i| x + f64::from(i) / 2.0 / fraction);
            (-x * x).exp() / std::f64::consts::PI.sqrt() / fraction
        }
    }

    fn oracle(f: Unary, x: f64) -> f64 {
        let cubic = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
        match f {
            Unary::Exp => x.exp(),
            Unary::Sigmoid => sigmoid(x),
            Unary::Tanh => x.tanh(),
            Unary::Erf if x.abs() < 2.0 => erf(x),
            Unary::Erf => 1.0 - erfc(x),
            Unary::Erfc => erfc(x),
            Unary::Silu => x * sigmoid(x),
            Unary::Gelu => x * 0.5 * erfc(-x / 2f64.sqrt()),
            Unary::GeluTanh => x * sigmoid(2.0 * cubic),
            Unary::GeluSigmoid => x * sigmoid(1.702 * x),
        }
    }

    /// The allowed error: of the documented bounds, the one that applies.
    fn bound(f: Unary, x: f64, y: f64) -> f64 {
        let size = (y.abs() as f32).clamp(f32::MIN_POSITIVE, f32::MAX);
        let ulp = f64::from(size) - f64::from(f32::from_bits(size.to_bits() - 1));
        match f {
            Unary::Exp => 1.1 * ulp,
            Unary::Sigmoid => 2.5 * ulp,
            Unary::Tanh | Unary::Erf => 1.5 * ulp,
            Unary::Silu => (4.0 * ulp).max(1e-43),
            Unary::Erfc if x > 5.0 => 1e-12,
            Unary::Erfc => 4e-6 * y.abs(),
            Unary::Gelu | Unary::GeluTanh if x < -5.0 => 1e-11,
            Unary::GeluSigmoid if x < -5.0 => 1e-9,
            Unary::Gelu | Unary::GeluTanh | Unary::GeluSigmoid => (4e-6 * y.abs()).max(1e-44),
        }
    }

    #[test]
    fn functions_are_within_their_bounds() {
        // Steps through all magnitudes and both signs.
        let x: Vec<f32> = (0..=u32::MAX).step_by(300_007).map(f32::from_bits).collect();
        for f in UNARIES {
            let mut found = vec![0.0; x.len()];
            unary(f, &x, &mut found);
            for (&x, &y) in x.iter().zip(&found) {
                let expected = oracle(f, f64::from(x));
                if expected.is_nan() {
                    assert!(y.is_nan(), "{f:?} of {x} is {y}");
                } else if (expected as f32).is_infinite() {
                    assert_eq!(y, expected as f32, "{f:?} of {x}");
                } else {
                    let error = (f64::from(y) - expected).abs();
                    assert!(error <= bound(f, f64::from(x), expected), "{f:?} of {x}: {y}, not {expected}");
                }
            }
            for isa in Isa::all() {
                let mut again = vec![0.0; x.len()];
                unary_with(isa, f, &x, &mut again);
                let same = |a: &f32, b: &f32| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
                assert!(again.iter().zip(&found).all(|(a, b)| same(a, b)), "{isa:?} {f:?}");
            }
        }
    }

    #[test]
    fn halves_are_rounded_once_whatever_the_length() {
        for len in LENGTHS {
            let wide: Vec<f32> =
                (0..len).map(|i| f16::from_f32((i as f32 - 50.0) * 0.173).to_f32()).collect();
            let narrow: Vec<f16> = wide.iter().map(|&x| f16::from_f32(x)).collect();
            for isa in Isa::all() {
                for f in UNARIES {
                    let (mut a, mut b) = (vec![0.0; len], vec![f16::ZERO; len]);
                    unary_with(isa, f, &wide, &mut a);
                    unary_with(isa, f, &narrow, &mut b);
                    assert!(a.iter().zip(&b).all(|(&a, &b)| f16::from_f32(a) == b), "{f:?} {len}");
                }
            }
        }
    }

    #[test]
    fn operands_are_combined_element_by_element() {
        let scalar = |f, x: f32, y: f32| match f {
            Binary::Add => x + y,
            Binary::Sub => x - y,
            Binary::Mul => x * y,
            Binary::Div => x / y,
            Binary::Max => x.max(y),
            Binary::Min => x.min(y),
        };
        for len in LENGTHS {
            // Parts of longer slices, so that they are not aligned.
            let x: Vec<f16> = (0..len + 1).map(|i| f16::from_f32(i as f32 * 0.7 - 20.0)).collect();
            let y: Vec<f16> = (0..len + 3).map(|i| f16::from_f32((i * 29 % 31) as f32 - 15.5)).collect();
            let (x, y) = (&x[1..], &y[3..]);
            for isa in Isa::all() {
                for f in BINARIES {
                    let mut out = vec![f16::ZERO; len];
                    binary_with(isa, f, Operand::Each(x), Operand::Each(y), &mut out);
                    for i in 0..len {
                        assert_eq!(out[i], f16::from_f32(scalar(f, x[i].to_f32(), y[i].to_f32())), "{f:?}");
                    }
                    binary_with(isa, f, Operand::All(f16::ONE), Operand::Each(y), &mut out);
                    for i in 0..len {
                        assert_eq!(out[i], f16::from_f32(scalar(f, 1.0, y[i].to_f32())), "{f:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn clamping_keeps_nan_and_prefers_the_upper_bound() {
        let mut out = [0.0; 5];
        clamp(-1.0, 2.0, &[-3.0, f32::NAN, 0.5, 7.0, f32::NEG_INFINITY], &mut out);
        assert!(out[1].is_nan());
        assert_eq!([out[0], out[2], out[3], out[4]], [-1.0, 0.5, 2.0, -1.0]);
        clamp(2.0, 1.0, &[0.0, 1.5, 3.0, 1.0, 2.0], &mut out);
        assert_eq!(out, [1.0; 5]);
    }

    #[test]
    fn nan_in_either_operand_gives_nan() {
        for isa in Isa::all() {
            for f in BINARIES {
                let mut out = [0.0, 0.0];
                let (x, y) = (Operand::Each(&[f32::NAN, 1.0][..]), Operand::Each(&[1.0, f32::NAN][..]));
                binary_with(isa, f, x, y, &mut out);
                assert!(out.iter().all(|x| x.is_nan()), "{isa:?} {f:?}: {out:?}");
            }
        }
    }

    #[test]
    fn threads_see_every_element() {
        let x: Vec<f32> = (0..300_001).map(|i| i as f32).collect();
        let mut out = vec![0.0; x.len()];
        let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
        pool.install(|| binary(Binary::Add, Operand::Each(&x), Operand::All(1.0), &mut out));
        assert!(out.iter().enumerate().all(|(i, &y)| y == i as f32 + 1.0));
    }
}

//! Random tensors from a seeded generator.
//!
//! Every evaluation starts its generator anew from `seed`, so equal calls give equal values in every
//! prediction and on every machine. The seed -1, which asks for an arbitrary sequence, is a seed like any
//! other. The values are not those of Core ML, whose generator is unknown.

use half::slice::HalfFloatSliceExt;

use super::prelude::*;
use anemeter_kernels::convert::{round_f16, to_f32};

pub(super) const OPS: &[OpDef] = &[
    random("random_bernoulli", |c| infer(c, &["prob"]), bernoulli).takes(&[SHAPE, number("prob", 0.5), SEED]),
    random("random_categorical", infer_categorical, categorical).takes(&[
        Param::value("x", FLOAT),
        Param::constant("mode", TEXT).or_text("logits"),
        Param::constant("size", INT).or_int(1),
        SEED,
    ]),
    random("random_normal", |c| infer(c, &["mean", "stddev"]), normal).takes(NORMAL),
    random("random_uniform", |c| infer(c, &["low", "high"]), uniform).takes(UNIFORM),
];

const SHAPE: Param = Param::value("shape", INT);
const SEED: Param = Param::constant("seed", INT).or_int(-1);
const NORMAL: &[Param] = &[SHAPE, number("mean", 0.0), number("stddev", 1.0), SEED];
const UNIFORM: &[Param] = &[SHAPE, number("low", 0.0), number("high", 1.0), SEED];

const fn number(name: &'static str, default: f32) -> Param {
    Param::constant(name, FLOAT).group('T').or_float(default)
}

const fn random(name: &'static str, infer: Infer, kernel: Kernel) -> OpDef {
    define(OpClass::Movement, name, Ios15, infer, kernel)
}

/// A tensor of the size that `shape` says, of the type that the parameters of the distribution have.
fn infer(call: &Call<'_>, parameters: &[&str]) -> Result<Vec<Type>> {
    let mut dtype = DType::F32;
    for name in parameters {
        call.float(name)?;
        if let Some(given) = call.opt_ty(name)? {
            dtype = given.dtype;
        }
    }
    Ok(dims::one(dtype, target_shape(call)?))
}

fn target_shape(call: &Call<'_>) -> Result<Vec<Dim>> {
    let ty = call.ty("shape")?;
    refuse_if!(ty.rank().is_some_and(|rank| rank != 1), "`shape` is a {ty}, not a vector");
    match (call.known_ints("shape")?, ty.shape[0].size()) {
        (Some(sizes), _) => sizes
            .iter()
            .map(|&size| match u64::try_from(size) {
                Ok(size) => Ok(Dim::Fixed(size)),
                Err(_) => refuse!("`shape` has a size of {size}"),
            })
            .collect(),
        (None, Some(rank)) => Ok(vec![Dim::Unknown; rank]),
        (None, None) => Ok(vec![Dim::Variadic]),
    }
}

fn bernoulli(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
    let prob = call.float("prob")?;
    fill(call, outputs, |generator| if generator.unit() < f64::from(prob) { 1.0 } else { 0.0 })
}

fn normal(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
    let (mean, stddev) = (f64::from(call.float("mean")?), f64::from(call.float("stddev")?));
    fill(call, outputs, |generator| {
        let radius = (-2.0 * (1.0 - generator.unit()).ln()).sqrt();
        let angle = std::f64::consts::TAU * generator.unit();
        (mean + stddev * radius * angle.cos()) as f32
    })
}

fn uniform(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
    let (low, high) = (call.float("low")?, call.float("high")?);
    let is_half = outputs.tensor(0)?.dtype() == DType::F16;
    fill(call, outputs, |generator| {
        let value = (f64::from(low) + (f64::from(high) - f64::from(low)) * generator.unit()) as f32;
        let stored = if is_half { round_f16(value) } else { value };
        if stored < high { stored } else { low }
    })
}

fn fill(call: &Call<'_>, outputs: &mut Outputs<'_, '_>, draw: impl Fn(&mut Generator) -> f32) -> Result {
    let mut generator = Generator::new(call.int("seed")?);
    store(outputs.tensor(0)?, || draw(&mut generator))
}

fn store(out: TensorMut<'_>, mut next: impl FnMut() -> f32) -> Result {
    match out.dtype() {
        DType::F16 => out.slice::<f16>()?.iter_mut().for_each(|out| *out = f16::from_f32(next())),
        _ => out.slice::<f32>()?.iter_mut().for_each(|out| *out = next()),
    }
    Ok(())
}

/// Whether `x` of `random_categorical` holds logarithms of probabilities.
fn are_logits(call: &Call<'_>) -> Result<bool> {
    match call.text("mode")? {
        "logits" => Ok(true),
        "probs" => Ok(false),
        other => refuse!("`mode` is \"{other}\", not logits or probs"),
    }
}

fn infer_categorical(call: &Call<'_>) -> Result<Vec<Type>> {
    let x = call.ty("x")?;
    are_logits(call)?;
    let given = call.int("size")?;
    let size = u64::try_from(given).map_err(|_| op_error!("`size` is {given}"))?;
    if x.rank().is_none() {
        return Ok(vec![x.clone().into()]);
    }
    match x.shape.split_last() {
        None => Err(OpError::new("`x` has rank 0 and no classes")),
        Some((Dim::Fixed(0), _)) => refuse!("`x` is a {x}, which has no classes"),
        Some((_, outer)) => {
            let shape = outer.iter().copied().chain([Dim::Fixed(size)]).collect();
            Ok(dims::one(x.dtype, shape))
        }
    }
}

fn categorical(call: &Call<'_>, outputs: &mut Outputs<'_, '_>) -> Result {
    let x = call.tensor("x")?;
    let classes = x.shape().last().copied().unwrap_or(1);
    let logits = are_logits(call)?;
    let mut generator = Generator::new(call.int("seed")?);
    let (out, scratch) = outputs.with_scratch(0)?;
    let samples = out.shape().last().copied().unwrap_or(1);
    let rows = x.len() / classes.max(1);
    let [weights, drawn] = scratch.floats([classes, rows * samples]);
    for (row, drawn) in drawn.chunks_mut(samples.max(1)).enumerate() {
        to_f32(&x, row * classes..(row + 1) * classes, weights);
        if logits {
            let max = weights.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            weights.iter_mut().for_each(|weight| *weight = (*weight - max).exp());
        }
        // A maximum passes over NaN; the total does not.
        let total: f64 = weights.iter().map(|&weight| f64::from(weight)).sum();
        drawn.fill_with(|| match generator.unit() * total {
            mark if mark.is_nan() => f32::NAN,
            mark => class_at(weights, mark) as f32,
        });
    }
    match out.dtype() {
        DType::F16 => out.slice::<f16>()?.convert_from_f32_slice(drawn),
        _ => out.slice::<f32>()?.copy_from_slice(drawn),
    }
    Ok(())
}

/// The class at which the running sum of the weights exceeds `mark`.
fn class_at(weights: &[f32], mark: f64) -> usize {
    let mut sum = 0.0;
    let reaches = |&weight: &f32| {
        sum += f64::from(weight);
        sum > mark
    };
    weights.iter().position(reaches).unwrap_or(weights.len() - 1)
}

struct Generator {
    state: u64,
}

impl Generator {
    fn new(seed: i64) -> Generator {
        Generator { state: seed.cast_unsigned() }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number in `[0, 1)`.
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNT: i32 = 20_000;

    fn draw(name: &str, args: &[(&str, Tensor)]) -> Vec<f32> {
        output(run(name, Ios15, args))
    }

    fn shape() -> (&'static str, Tensor) {
        ("shape", tensor(&[1], &[COUNT]))
    }

    fn mean(values: &[f32]) -> f32 {
        values.iter().sum::<f32>() / COUNT as f32
    }

    #[test]
    fn distributions_have_their_moments() {
        let prob = ("prob", Tensor::scalar(0.3f32));
        assert!((mean(&draw("random_bernoulli", &[shape(), prob])) - 0.3).abs() < 0.02);

        let args = [shape(), ("mean", Tensor::scalar(2.0f32)), ("stddev", Tensor::scalar(3.0f32))];
        let normal = draw("random_normal", &args);
        let center = mean(&normal);
        let spread = mean(&normal.iter().map(|x| (x - center).powi(2)).collect::<Vec<_>>()).sqrt();
        assert!((center - 2.0).abs() < 0.1 && (spread - 3.0).abs() < 0.1);

        let args = [shape(), ("low", Tensor::scalar(-1.0f32)), ("high", Tensor::scalar(2.0f32))];
        let uniform = draw("random_uniform", &args);
        assert!((mean(&uniform) - 0.5).abs() < 0.05);
        assert!(uniform.iter().all(|&x| (-1.0..2.0).contains(&x)));
    }

    #[test]
    fn classes_are_drawn_by_weight() {
        for (mode, x) in [("probs", [0.2f32, 0.0, 0.8]), ("logits", [1.0, -100.0, 1.0 + 4f32.ln()])] {
            let args = [("x", tensor(&[1, 3], &x)), text("mode", mode), ("size", Tensor::scalar(COUNT))];
            let drawn = draw("random_categorical", &args);
            assert!(drawn.iter().all(|&class| class == 0.0 || class == 2.0));
            assert!((mean(&drawn) - 1.6).abs() < 0.02, "{mode}: {}", mean(&drawn));
        }
    }

    #[test]
    fn weights_that_are_not_numbers_draw_no_class() {
        for (mode, bad) in [("probs", f32::NAN), ("logits", f32::NAN), ("logits", f32::INFINITY)] {
            let x = tensor(&[2, 3], &[0.5, bad, 0.5, 0.0, 1.0, 0.0]);
            let args = [("x", x), text("mode", mode), ("size", Tensor::scalar(2))];
            let drawn = draw("random_categorical", &args);
            assert!(drawn[..2].iter().all(|class| class.is_nan()), "{mode} {bad}: {drawn:?}");
            assert!(drawn[2..].iter().all(|class| !class.is_nan()), "{mode} {bad}: {drawn:?}");
        }
    }

    #[test]
    fn the_seed_decides() {
        let with_seed = |seed: i32| draw("random_uniform", &[shape(), ("seed", Tensor::scalar(seed))]);
        assert_eq!(with_seed(-1), draw("random_uniform", &[shape()]));
        assert_ne!(with_seed(1), with_seed(2));
        assert_eq!(Generator::new(1_234_567).next(), 6_457_827_717_110_365_317);
    }

    #[test]
    fn a_negative_size_is_refused() {
        let shape = ("shape", tensor(&[1], &[-1i32]));
        refused(run("random_normal", Ios15, &[shape]), "`shape` has a size of -1");
    }
}

//! `rnn`, `lstm` and `gru`: recurrent networks over whole sequences.

use super::prelude::*;

mod eval;

use anemeter_kernels::recurrent::{Activation, Cell, Gru, Lstm, Rnn};

const SINGLE: &[DType] = &[DType::F32];

pub(super) const OPS: &[OpDef] = &[
    define(OpClass::Product(flops), "rnn", Ios15, infer_rnn, eval::rnn).takes(&rnn_params(SINGLE)),
    define(OpClass::Product(flops), "rnn", Ios17, infer_rnn, eval::rnn).takes(&rnn_params(FLOAT)),
    define(OpClass::Product(lstm_flops), "lstm", Ios15, infer_lstm, eval::lstm).takes(&lstm_params(SINGLE)),
    define(OpClass::Product(lstm_flops), "lstm", Ios17, infer_lstm, eval::lstm).takes(&lstm_params(FLOAT)),
    define(OpClass::Product(flops), "gru", Ios15, infer_gru, eval::gru).takes(&gru_params(SINGLE)),
    define(OpClass::Product(flops), "gru", Ios17, infer_gru, eval::gru).takes(&gru_params(FLOAT)),
    define(OpClass::Product(flops), "gru", Ios18, infer_gru, eval::gru).takes(&gru_params_18(FLOAT)),
];

fn flops(call: &Call<'_>, _: &[usize]) -> Option<u64> {
    step_products(call, &["weight_ih", "weight_hh"])
}

fn lstm_flops(call: &Call<'_>, _: &[usize]) -> Option<u64> {
    step_products(call, &["weight_ih", "weight_hh", "weight_ih_back", "weight_hh_back"])
}

/// Every step of every sequence is multiplied with all matrices.
fn step_products(call: &Call<'_>, matrices: &[&str]) -> Option<u64> {
    let steps = elements(call.ty("x").ok()?.concrete()?.get(..2)?);
    let mut weights = 0u64;
    for name in matrices.iter().filter(|name| call.has(name)) {
        weights = weights.saturating_add(elements(&call.ty(name).ok()?.concrete()?));
    }
    Some(steps.saturating_mul(weights).saturating_mul(2))
}

const fn value(name: &'static str, dtypes: &'static [DType]) -> Param {
    Param::value(name, dtypes).group('T')
}

const fn constant(name: &'static str, dtypes: &'static [DType]) -> Param {
    Param::constant(name, dtypes).group('T')
}

const fn weight(name: &'static str, dtypes: &'static [DType]) -> Param {
    constant(name, dtypes).packed().weight(WeightAxes::Recurrent)
}

const fn choice(name: &'static str, default: &'static str) -> Param {
    Param::constant(name, TEXT).or_text(default)
}

const fn rnn_params(dtypes: &'static [DType]) -> [Param; 8] {
    [
        value("x", dtypes),
        value("initial_h", dtypes),
        weight("weight_ih", dtypes),
        weight("weight_hh", dtypes),
        constant("bias", dtypes).optional(),
        choice("direction", "forward"),
        Param::constant("output_sequence", BOOL).or_bool(false),
        choice("activation", "tanh"),
    ]
}

const fn lstm_params(dtypes: &'static [DType]) -> [Param; 17] {
    [
        value("x", dtypes),
        value("initial_h", dtypes),
        value("initial_c", dtypes),
        weight("weight_ih", dtypes),
        weight("weight_hh", dtypes),
        constant("bias", dtypes).optional(),
        constant("peephole", dtypes).optional(),
        weight("weight_ih_back", dtypes).optional(),
        weight("weight_hh_back", dtypes).optional(),
        constant("bias_back", dtypes).optional(),
        constant("peephole_back", dtypes).optional(),
        choice("direction", "forward"),
        Param::constant("output_sequence", BOOL).or_bool(false),
        choice("recurrent_activation", "sigmoid"),
        choice("cell_activation", "tanh"),
        choice("activation", "tanh"),
        constant("clip", dtypes).optional(),
    ]
}

const fn gru_params(dtypes: &'static [DType]) -> [Param; 9] {
    let [x, h, ih, hh, bias, direction, sequence, activation] = rnn_params(dtypes);
    let recurrent = choice("recurrent_activation", "sigmoid");
    [x, h, ih, hh, bias, direction, sequence, recurrent, activation]
}

const fn gru_params_18(dtypes: &'static [DType]) -> [Param; 11] {
    let [x, h, ih, hh, bias, direction, sequence, recurrent, activation] = gru_params(dtypes);
    let reset_after = Param::constant("reset_after", BOOL).or_bool(false);
    let input_bias = constant("input_bias", dtypes).optional();
    [x, h, ih, hh, bias, direction, sequence, recurrent, activation, reset_after, input_bias]
}

fn infer_rnn(call: &Call<'_>) -> Result<Vec<Type>> {
    infer(call, Rnn::GATES, &["initial_h"], &["activation"])
}

fn infer_lstm(call: &Call<'_>) -> Result<Vec<Type>> {
    let activations = ["recurrent_activation", "cell_activation", "activation"];
    let types = infer(call, Lstm::GATES, &["initial_h", "initial_c"], &activations)?;
    if let Some(clip) = call.opt_ty("clip")?.filter(|clip| !clip.shape.is_empty()) {
        refuse!("`clip` is a {clip}, not a scalar");
    }
    Ok(types)
}

fn infer_gru(call: &Call<'_>) -> Result<Vec<Type>> {
    let types = infer(call, Gru::GATES, &["initial_h"], &["recurrent_activation", "activation"])?;
    if call.opset() >= Ios18 && call.has("input_bias") {
        check_shape(call, "input_bias", &[call.ty("weight_hh")?.shape[0]])?;
    }
    Ok(types)
}

fn infer(call: &Call<'_>, gates: usize, states: &[&str], activations: &[&str]) -> Result<Vec<Type>> {
    for name in activations {
        activation(call, name)?;
    }
    let x = call.ty("x")?;
    let (steps, batch, input) = match (x.rank(), &x.shape[..]) {
        (None, _) => (Dim::Unknown, Dim::Unknown, Dim::Unknown),
        (_, &[steps, batch, input]) => (steps, batch, input),
        _ => refuse!("`x` is a {x}, not of rank 3"),
    };
    let directions = directions(call, gates)?;
    let hidden = check_weights(call, "", gates, input)?;
    if directions.len() == 2 && check_weights(call, "_back", gates, input)? != hidden {
        refuse!("the two directions have hidden states of different sizes");
    }
    let width = Dim::from(hidden.saturating_mul(directions.len()));
    for name in states {
        check_shape(call, name, &[batch, width])?;
    }
    let steps = if call.bool("output_sequence")? { steps } else { Dim::Fixed(1) };
    let mut types = dims::one(x.dtype, vec![steps, batch, width]);
    types.extend(states.iter().map(|_| Type::from(TensorType::new(x.dtype, vec![batch, width]))));
    Ok(types)
}

fn activation(call: &Call<'_>, name: &str) -> Result<Activation> {
    let given = call.text(name)?;
    Activation::from_name(given).ok_or_else(|| op_error!("`{name}` is `{given}`, which is no activation"))
}

/// One pass over the sequence: the suffix of its parameters, and whether it runs backwards.
type Direction = (&'static str, bool);

fn directions(call: &Call<'_>, gates: usize) -> Result<&'static [Direction]> {
    match call.text("direction")? {
        "forward" => Ok(&[("", false)]),
        "reverse" => Ok(&[("", true)]),
        "bidirectional" if gates == Lstm::GATES => Ok(&[("", false), ("_back", true)]),
        other => refuse!("`direction` is `{other}`"),
    }
}

/// Checks the weights of one direction and gives the size of its hidden state.
fn check_weights(call: &Call<'_>, suffix: &str, gates: usize, input: Dim) -> Result<usize> {
    let [weight_ih, weight_hh] = ["weight_ih", "weight_hh"].map(|name| format!("{name}{suffix}"));
    let recurrent = call.ty(&weight_hh)?;
    let hidden = match recurrent.concrete().as_deref() {
        Some([rows, hidden]) if hidden.checked_mul(gates) == Some(*rows) => *hidden,
        _ => refuse!("`{weight_hh}` is a {recurrent}, not of shape [{gates} H, H]"),
    };
    let rows = Dim::from(hidden * gates);
    check_shape(call, &weight_ih, &[rows, input])?;
    if call.has(&format!("bias{suffix}")) {
        check_shape(call, &format!("bias{suffix}"), &[rows])?;
    }
    let peephole = format!("peephole{suffix}");
    if gates == Lstm::GATES && call.has(&peephole) {
        check_shape(call, &peephole, &[Dim::from(hidden * 3)])?;
    }
    Ok(hidden)
}

fn check_shape(call: &Call<'_>, name: &str, expected: &[Dim]) -> Result {
    let ty = call.ty(name)?;
    let agrees = |(a, b): (&Dim, &Dim)| !matches!((a, b), (Dim::Fixed(a), Dim::Fixed(b)) if a != b);
    let fits = ty.shape.len() == expected.len() && ty.shape.iter().zip(expected).all(agrees);
    done_if!(ty.rank().is_none() || fits);
    let expected = TensorType::new(ty.dtype, expected.into());
    Err(op_error!("`{name}` is a {ty}, where a {expected} is needed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn close(found: &Tensor, expected: &[f32]) {
        near("output", found, expected, 1e-5);
    }

    #[test]
    fn one_reversed_direction_gives_steps_in_the_order_taken() {
        let args = [
            ("x", floats(&[2, 1, 1], &[1.0, 2.0])),
            ("initial_h", floats(&[1, 1], &[1.0])),
            ("weight_ih", floats(&[1, 1], &[10.0])),
            ("weight_hh", floats(&[1, 1], &[1.0])),
            text("direction", "reverse"),
            ("output_sequence", Tensor::from_bool(true)),
            text("activation", "linear"),
        ];
        let out = run_many("rnn", Ios15, &args, 2).unwrap();
        close(&out[0], &[21.0, 31.0]);
        close(&out[1], &[31.0]);
    }

    #[test]
    fn two_directions_are_joined_in_the_order_of_the_input() {
        let args = [
            ("x", floats(&[2, 1, 1], &[0.5, -1.0])),
            ("initial_h", floats(&[1, 2], &[0.1, -0.2])),
            ("initial_c", floats(&[1, 2], &[0.3, 0.4])),
            ("weight_ih", floats(&[4, 1], &[0.1, 0.2, 0.3, 0.4])),
            ("weight_hh", floats(&[4, 1], &[0.5, -0.5, 0.25, 1.0])),
            ("bias", floats(&[4], &[0.1, 0.0, -0.1, 0.2])),
            ("peephole", floats(&[3], &[0.5, -0.5, 1.0])),
            ("weight_ih_back", floats(&[4, 1], &[-0.1, 0.2, -0.3, 0.4])),
            ("weight_hh_back", floats(&[4, 1], &[0.5, 0.5, 0.25, -1.0])),
            text("direction", "bidirectional"),
            ("output_sequence", Tensor::from_bool(true)),
            ("clip", Tensor::scalar(0.35f32)),
        ];
        let out = run_many("lstm", Ios17, &args, 3).unwrap();
        close(&out[0], &[0.203_399, 0.053_697, 0.060_406, 0.040_147]);
        close(&out[1], &[0.060_406, 0.053_697]);
        close(&out[2], &[0.135_994, 0.115_979]);
    }

    #[test]
    fn the_reset_gate_applies_before_or_after_the_product() {
        let bias = floats(&[6], &[0.1, -0.2, 0.3, 0.4, -0.5, 0.6]);
        let mut args = vec![
            ("x", floats(&[1, 1, 1], &[0.7])),
            ("initial_h", floats(&[1, 2], &[0.5, -0.4])),
            ("weight_ih", floats(&[6, 1], &[0.2, 0.4, -0.6, 0.8, 1.0, -1.2])),
            ("weight_hh", floats(&[6, 2], &[0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2])),
            ("bias", bias.clone()),
        ];
        close(&run_many("gru", Ios15, &args, 2).unwrap()[1], &[0.234_799, 0.227_220]);
        args.push(("reset_after", Tensor::from_bool(true)));
        args.push(("input_bias", bias));
        close(&run_many("gru", Ios18, &args, 2).unwrap()[1], &[0.251_949, 0.081_378]);
    }

    #[test]
    fn shapes_and_names_that_do_not_fit_are_refused() {
        let args = |weight: &[usize], direction: &str| {
            vec![
                ("x", floats(&[1, 1, 2], &[0.0; 2])),
                ("initial_h", floats(&[1, 1], &[0.0])),
                ("weight_ih", floats(weight, &vec![0.0; weight.iter().product()])),
                ("weight_hh", floats(&[3, 1], &[0.0; 3])),
                text("direction", direction),
            ]
        };
        let weight = "`weight_ih` is a tensor<fp32, [3, 1]>, where a tensor<fp32, [3, 2]> is needed";
        for (weight, direction, message) in
            [(&[3, 1], "forward", weight), (&[3, 2], "bidirectional", "`direction` is `bidirectional`")]
        {
            refused(run_many("gru", Ios15, &args(weight, direction), 2), message);
        }
        let mut args = args(&[3, 2], "forward");
        args.push(text("activation", "gelu"));
        refused(run_many("gru", Ios15, &args, 2), "`activation` is `gelu`, which is no activation");
    }
}

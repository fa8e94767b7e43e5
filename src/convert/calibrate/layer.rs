//! One layer over all sequences.

use rayon::prelude::*;

use super::attention::{Projected, attend, place_key_and_value, place_query};
use super::error::CalibrateError;
use super::hidden::{Hidden, normalize};
use super::linear::{Inputs, LoadedLinear, Observer};
use crate::model::{Activation, Decoder, Gate, Layer, Linear, Mlp, PerLayerMix, Residual};
use anemeter_kernels::elementwise::{Unary, unary};

/// Takes the hidden states through a layer. Each weight is in memory while it is needed.
pub fn run_layer(
    hidden: &mut Hidden,
    index: usize,
    layer: &Layer,
    observer: &mut dyn Observer,
) -> Result<(), CalibrateError> {
    let shared = hidden.normalized(layer.attention_norm.as_ref());
    // A parallel MLP does not see what attention adds; without a norm of its own it shares attention's.
    let aside = (layer.residual == Residual::Parallel).then(|| match &layer.mlp_norm {
        Some(norm) => hidden.normalized(Some(norm)),
        None => shared.clone(),
    });
    let mut mixed = attention(&shared, hidden, (index, layer), observer)?;
    if let Some(norm) = &layer.post_attention_norm {
        normalize(&mut mixed, norm);
    }
    hidden.add(&mixed);
    observer.saw(&format!("layers_{index}_attended"), &hidden.rows);
    let into = aside.unwrap_or_else(|| hidden.normalized(layer.mlp_norm.as_ref()));
    let mut out = mlp(&into, hidden, (index, layer), observer)?;
    if let Some(norm) = &layer.post_mlp_norm {
        normalize(&mut out, norm);
    }
    hidden.add(&out);
    if let Some(mix) = &layer.per_layer {
        observer.saw(&format!("layers_{index}_mixed"), &hidden.rows);
        let inputs = hidden.aside.inputs(index);
        let added = per_layer(hidden, (index, mix), &inputs, observer)?;
        hidden.add(&added);
    }
    if layer.scale != 1.0 {
        hidden.rows.par_iter_mut().for_each(|x| *x *= layer.scale);
    }
    observer.saw(&format!("layers_{index}_out"), &hidden.rows);
    Ok(())
}

/// What a layer makes of its own input.
fn per_layer(
    hidden: &Hidden,
    (index, mix): (usize, &PerLayerMix),
    inputs: &[f32],
    observer: &mut dyn Observer,
) -> Result<Vec<f32>, CalibrateError> {
    let place = |name: &str| format!("layers_{index}_per_layer_{name}");
    let [mut gate] = apply(&Inputs::inner(&hidden.rows, hidden), [(place("gate"), &mix.gate)], observer)?;
    activate(&mut gate, mix.activation);
    gate.par_iter_mut().zip(inputs).for_each(|(gate, input)| *gate *= input);
    observer.saw(&place("product"), &gate);
    let [mut added] =
        apply(&Inputs::inner(&gate, hidden), [(place("projection"), &mix.projection)], observer)?;
    normalize(&mut added, &mix.norm);
    Ok(added)
}

/// What the head takes: the hidden states of the last layer after the last norm and the map that may follow it.
pub fn head_input(
    hidden: &Hidden,
    decoder: &Decoder,
    observer: &mut dyn Observer,
) -> Result<Vec<f32>, CalibrateError> {
    let rows = hidden.normalized(Some(&decoder.final_norm));
    let Some(map) = &decoder.head.map else { return Ok(rows) };
    let inputs = Inputs::inner(&rows, hidden);
    let [out] = apply(&inputs, [("head_map".to_owned(), map)], observer)?;
    Ok(out)
}

/// Applies maps that take the same rows.
fn apply<const N: usize>(
    inputs: &Inputs<'_>,
    maps: [(String, &Linear); N],
    observer: &mut dyn Observer,
) -> Result<[Vec<f32>; N], CalibrateError> {
    let mut loaded = maps.map(|(place, linear)| LoadedLinear::load(&place, linear));
    observer.before(inputs, &mut loaded)?;
    Ok(loaded.map(|map| {
        let out = map.apply(inputs.rows, inputs.exact);
        observer.saw(&map.place, &out);
        out
    }))
}

fn attention(
    rows: &[f32],
    hidden: &mut Hidden,
    (index, layer): (usize, &Layer),
    observer: &mut dyn Observer,
) -> Result<Vec<f32>, CalibrateError> {
    let attention = layer.attention().ok_or(CalibrateError::Mixer { layer: index })?;
    let place = |name: &str| format!("layers_{index}_attention_{name}");
    let ranges = hidden.ranges();
    let query = (place("query"), &attention.query);
    let (mut query, (key, value)) = match attention.shared_from {
        Some(source) => {
            let [query] = apply(&Inputs::inner(rows, hidden), [query], observer)?;
            let kept = hidden
                .aside
                .kept(source)
                .ok_or(CalibrateError::Shared { layer: index, source_layer: source })?;
            (query, kept.clone())
        }
        None => {
            let maps = [query, (place("key"), &attention.key), (place("value"), &attention.value)];
            let [query, mut key, mut value] = apply(&Inputs::inner(rows, hidden), maps, observer)?;
            place_key_and_value(attention, (&mut key, &mut value), &ranges);
            let made = (key, value);
            hidden.aside.keep(index, &made);
            (query, made)
        }
    };
    place_query(attention, &mut query, &ranges);
    let mut mixed = attend(attention, &Projected { query, key, value }, &ranges);
    if let Some(gate) = &attention.output_gate {
        let [mut gate] = apply(&Inputs::inner(rows, hidden), [(place("gate"), gate)], observer)?;
        activate(&mut gate, Activation::Sigmoid);
        mixed.par_iter_mut().zip(&gate).for_each(|(x, gate)| *x *= gate);
    }
    let stream = layer.post_attention_norm.is_none().then_some(&hidden.rows[..]);
    let inputs = Inputs { stream, ..Inputs::inner(&mixed, hidden) };
    let [out] = apply(&inputs, [(place("output"), &attention.output)], observer)?;
    Ok(out)
}

fn mlp(
    rows: &[f32],
    hidden: &Hidden,
    (index, layer): (usize, &Layer),
    observer: &mut dyn Observer,
) -> Result<Vec<f32>, CalibrateError> {
    let place = |name: &str| format!("layers_{index}_mlp_{name}");
    let (wide, last) = match &layer.mlp {
        Mlp::Plain { up, activation, down } => {
            let [mut wide] = apply(&Inputs::inner(rows, hidden), [(place("up"), up)], observer)?;
            activate(&mut wide, *activation);
            (wide, (place("down"), down))
        }
        Mlp::Gated { gate, up, activation, down } => {
            let maps = [(place("gate"), gate), (place("up"), up)];
            let [mut gated, wide] = apply(&Inputs::inner(rows, hidden), maps, observer)?;
            activate(&mut gated, *activation);
            gated.par_iter_mut().zip(&wide).for_each(|(gate, x)| *gate *= x);
            (gated, (place("down"), down))
        }
        Mlp::Inner { into, value, gate, how, gate_norm, out } => {
            let Gate { activation, alpha } = *how;
            let [wide] = apply(&Inputs::inner(rows, hidden), [(place("into"), into)], observer)?;
            let [value, mut gated] = apply(
                &Inputs::inner(&wide, hidden),
                [(place("value"), value), (place("gate"), gate)],
                observer,
            )?;
            activate(&mut gated, activation);
            if let Some(norm) = gate_norm {
                normalize(&mut gated, norm);
            }
            let share = |gate: f32| alpha * gate + 1.0 - alpha;
            gated.par_iter_mut().zip(&value).for_each(|(gate, x)| *gate = share(*gate) * x);
            (gated, (place("out"), out))
        }
    };
    observer.saw(&place("product"), &wide);
    let stream = layer.post_mlp_norm.is_none().then_some(&hidden.rows[..]);
    let [out] = apply(&Inputs { stream, ..Inputs::inner(&wide, hidden) }, [last], observer)?;
    Ok(out)
}

fn activate(rows: &mut Vec<f32>, activation: Activation) {
    let function = match activation {
        Activation::Relu => return rows.par_iter_mut().for_each(|x| *x = x.max(0.0)),
        Activation::Silu => Unary::Silu,
        Activation::Sigmoid => Unary::Sigmoid,
        Activation::Gelu => Unary::Gelu,
        Activation::GeluTanh => Unary::GeluTanh,
        Activation::Tanh => Unary::Tanh,
    };
    let mut out = vec![0.0; rows.len()];
    unary(function, rows, &mut out);
    *rows = out;
}

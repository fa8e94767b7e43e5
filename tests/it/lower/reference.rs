//! What a decoder computes, in f32 and in the plainest way: one position after the other, one number at a time.

use anemeter::model::{Activation, Attention, Decoder, Linear, Mlp, Norm, NormKind, Residual, Weight};

use super::host::embed;

/// Logits of every position.
pub(crate) fn logits(decoder: &Decoder, ids: &[i32]) -> Vec<Vec<f32>> {
    let mut stream: Vec<Vec<f32>> = ids.iter().enumerate().map(|(p, &id)| embed(decoder, id, p)).collect();
    for layer in &decoder.layers {
        let normal: Vec<_> = stream.iter().map(|x| normed(layer.attention_norm.as_ref(), x)).collect();
        let mixed = attention(layer.attention().unwrap(), &normal);
        for ((x, mixed), normal) in stream.iter_mut().zip(mixed).zip(normal) {
            let before = x.clone();
            add(x, &normed(layer.post_attention_norm.as_ref(), &mixed));
            let seen = match (layer.residual, &layer.mlp_norm) {
                (Residual::Sequential, own) => normed(own.as_ref(), x),
                (Residual::Parallel, Some(own)) => norm(own, &before),
                (Residual::Parallel, None) => normal,
            };
            let wide = mlp(&layer.mlp, &seen);
            add(x, &normed(layer.post_mlp_norm.as_ref(), &wide));
        }
    }
    let head = if decoder.head.tied { &decoder.embedding } else { &decoder.head.weight };
    let head = Linear { weight: head.clone(), bias: None };
    let position = |x: &Vec<f32>| {
        let mut logits = linear(&head, &norm(&decoder.final_norm, x));
        if let Some(cap) = decoder.head.softcap {
            logits.iter_mut().for_each(|x| *x = cap * (*x / cap).tanh());
        }
        logits
    };
    stream.iter().map(position).collect()
}

/// The angle cosines and sines of one position, both halves.
fn rotation(base: f64, dims: usize, position: usize) -> (Vec<f32>, Vec<f32>) {
    let angle = |i: usize| position as f64 / base.powf(2.0 * (i % (dims / 2)) as f64 / dims as f64);
    ((0..dims).map(|i| angle(i).cos() as f32).collect(), (0..dims).map(|i| angle(i).sin() as f32).collect())
}

fn values(weight: &Weight) -> Vec<f32> {
    let mut values = vec![0.0; weight.shape.iter().product()];
    weight.read(0..values.len(), &mut values);
    values
}

fn add(x: &mut [f32], y: &[f32]) {
    x.iter_mut().zip(y).for_each(|(x, y)| *x += y);
}

fn linear(linear: &Linear, x: &[f32]) -> Vec<f32> {
    let weight = values(&linear.weight);
    let mut out: Vec<f32> =
        weight.chunks(x.len()).map(|row| row.iter().zip(x).map(|(w, x)| w * x).sum()).collect();
    if let Some(bias) = &linear.bias {
        add(&mut out, &values(bias));
    }
    out
}

fn normed(by: Option<&Norm>, x: &[f32]) -> Vec<f32> {
    by.map_or_else(|| x.to_vec(), |by| norm(by, x))
}

fn norm(norm: &Norm, x: &[f32]) -> Vec<f32> {
    let n = x.len() as f32;
    let mean = if norm.kind == NormKind::Layer { x.iter().sum::<f32>() / n } else { 0.0 };
    let variance = x.iter().map(|v| (v - mean) * (v - mean)).sum::<f32>() / n;
    let factor = 1.0 / (variance + norm.epsilon).sqrt();
    let mut out: Vec<f32> =
        x.iter().zip(values(&norm.weight)).map(|(v, w)| (v - mean) * factor * w).collect();
    if let Some(bias) = &norm.bias {
        add(&mut out, &values(bias));
    }
    out
}

fn attention(attention: &Attention, x: &[Vec<f32>]) -> Vec<Vec<f32>> {
    let Attention { heads, kv_heads, head_dim, .. } = *attention;
    let place = |map: &Linear, head_norm: Option<&Norm>| -> Vec<Vec<f32>> {
        let one = |(position, x): (usize, &Vec<f32>)| {
            let mut all = linear(map, x);
            let (whole, each) = match head_norm {
                Some(head_norm) if head_norm.weight.shape[0] == head_dim => (None, Some(head_norm)),
                other => (other, None),
            };
            all = normed(whole, &all);
            for head in all.chunks_mut(head_dim) {
                if let Some(head_norm) = each {
                    head.copy_from_slice(&norm(head_norm, head));
                }
                if let Some(rope) = &attention.rope {
                    rotate(&mut head[..rope.dims], rope.base, position);
                }
            }
            all
        };
        x.iter().enumerate().map(one).collect()
    };
    let queries = place(&attention.query, attention.query_norm.as_ref());
    let keys = place(&attention.key, attention.key_norm.as_ref());
    let value_rows: Vec<Vec<f32>> = x.iter().map(|x| linear(&attention.value, x)).collect();
    let position = |p: usize| {
        let first = attention.window.map_or(0, |window| (p + 1).saturating_sub(window));
        let mut mixed = vec![0.0; heads * head_dim];
        for head in 0..heads {
            let kv = head / (heads / kv_heads) * head_dim;
            let query = &queries[p][head * head_dim..][..head_dim];
            let score = |j: usize| {
                let key = &keys[j][kv..][..head_dim];
                let score = attention.scale * query.iter().zip(key).map(|(q, k)| q * k).sum::<f32>();
                attention.softcap.map_or(score, |cap| cap * (score / cap).tanh())
            };
            let weights: Vec<f32> = (first..=p).map(|j| score(j).exp()).collect();
            let total: f32 = weights.iter().sum();
            for (j, weight) in (first..=p).zip(&weights) {
                for d in 0..head_dim {
                    mixed[head * head_dim + d] += weight / total * value_rows[j][kv + d];
                }
            }
        }
        linear(&attention.output, &mixed)
    };
    (0..x.len()).map(position).collect()
}

fn rotate(head: &mut [f32], base: f64, position: usize) {
    let (dims, half) = (head.len(), head.len() / 2);
    let (cos, sin) = rotation(base, dims, position);
    for i in 0..half {
        let (low, high) = (head[i], head[i + half]);
        head[i] = low * cos[i] - high * sin[i];
        head[i + half] = high * cos[i] + low * sin[i];
    }
}

fn mlp(mlp: &Mlp, x: &[f32]) -> Vec<f32> {
    let product = |a: Vec<f32>, b: Vec<f32>| -> Vec<f32> { a.iter().zip(b).map(|(a, b)| a * b).collect() };
    match mlp {
        Mlp::Plain { up, activation, down } => linear(down, &activate(*activation, linear(up, x))),
        Mlp::Gated { gate, up, activation, down } => {
            linear(down, &product(activate(*activation, linear(gate, x)), linear(up, x)))
        }
        Mlp::Inner { into, value, gate, how, gate_norm, out } => {
            let h = linear(into, x);
            let mut gate = activate(how.activation, linear(gate, &h));
            if let Some(gate_norm) = gate_norm {
                gate = norm(gate_norm, &gate);
            }
            gate.iter_mut().for_each(|gate| *gate = how.alpha * *gate + 1.0 - how.alpha);
            linear(out, &product(linear(value, &h), gate))
        }
    }
}

fn activate(activation: Activation, x: Vec<f32>) -> Vec<f32> {
    let sigmoid = |x: f32| 1.0 / (1.0 + (-x).exp());
    let one = |x: f32| match activation {
        Activation::Relu => x.max(0.0),
        Activation::Silu => x * sigmoid(x),
        Activation::Sigmoid => sigmoid(x),
        Activation::Tanh => x.tanh(),
        Activation::Gelu => 0.5 * x * (1.0 + erf(x / std::f32::consts::SQRT_2)),
        Activation::GeluTanh => {
            0.5 * x * (1.0 + ((2.0 / std::f32::consts::PI).sqrt() * (x + 0.044715 * x * x * x)).tanh())
        }
    };
    x.into_iter().map(one).collect()
}

/// The error function by its series, which is exact enough for small arguments.
fn erf(x: f32) -> f32 {
    let x = f64::from(x.clamp(-3.5, 3.5));
    let (mut term, mut sum) = (x, x);
    for n in 1..60 {
        term *= -x * x / f64::from(n);
        sum += term / f64::from(2 * n + 1);
    }
    (sum * 2.0 / std::f64::consts::PI.sqrt()) as f32
}

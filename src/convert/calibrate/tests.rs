//! What the engine does with sequences, without any checkpoint of a real architecture; those are compared with independent
//! references in the integration tests.

use super::aside::Aside;
use super::attention::{Projected, attend};
use super::hidden::Hidden;
use crate::checkpoint::{Encoding, Stored};
use crate::model::{Attention, Linear, Source, Weight};
use anemeter_kernels::tensor::DType;

fn weight(shape: &[usize], values: &[f32]) -> Weight {
    let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
    let stored =
        Stored { shape: shape.into(), encoding: Encoding::Plain(DType::F32), bytes: bytes.into(), shard: 0 };
    Weight { name: "w".to_owned(), shape: shape.into(), source: Source::Stored(stored) }
}

fn linear() -> Linear {
    Linear { weight: weight(&[2, 2], &[1.0, 0.0, 0.0, 1.0]), bias: None }
}

fn attention(window: Option<usize>) -> Attention {
    Attention {
        heads: 2,
        kv_heads: 1,
        head_dim: 1,
        scale: 1.0,
        query: linear(),
        key: linear(),
        value: linear(),
        output: linear(),
        query_norm: None,
        key_norm: None,
        rope: None,
        window,
        softcap: None,
        growth: None,
        value_norm: None,
        shared_from: None,
        output_gate: None,
    }
}

#[test]
fn tokens_see_those_before_them_in_their_own_sequence() {
    let hidden =
        Hidden { width: 2, lengths: vec![3, 2], rows: vec![0.0; 10], aside: Aside::default(), exact: 0 };
    assert_eq!(hidden.ranges(), [0..3, 3..5]);
    // Keys are all the same, so that what is seen is averaged.
    let projected =
        || Projected { query: vec![1.0; 10], key: vec![1.0; 5], value: vec![1.0, 2.0, 6.0, 8.0, 4.0] };
    let first = |rows: Vec<f32>| rows.chunks(2).map(|row| row[0]).collect::<Vec<f32>>();
    assert_eq!(first(attend(&attention(None), &projected(), &hidden.ranges())), [1.0, 1.5, 3.0, 8.0, 6.0]);
    assert_eq!(first(attend(&attention(Some(2)), &projected(), &hidden.ranges())), [1.0, 1.5, 4.0, 8.0, 6.0]);
}

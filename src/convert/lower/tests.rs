//! The operations that each part of a layer becomes, with their shapes.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::attention::{Heads, Tokens, attention};
use super::cache::{self, AttendedKv, Cache, KvState, Past, StateUnit};
use super::error::Result;
use super::graph::{CHANNELS, Graph};
use super::mlp::mlp;
use super::norm::norm;
use super::sharing::{KeysAndValues, Sharing};
use super::weights::Weights;
use super::{ReadStats, fp16_payload};
use crate::checkpoint::Stored;
use crate::model::testing::stored;
use crate::model::{
    Activation, Attention, Layer, Linear, Mlp, Norm, NormKind, Residual, Rope, RopeScaling, Source, Weight,
};
use anemeter_kernels::tensor::DType;
use anemeter_mil::{Opset, Type, ValueId};

const HIDDEN: usize = 6;
/// Four query heads of width 8 share two KV heads.
const HEADS: [usize; 3] = [4, 2, 8];

fn weight(shape: &[usize]) -> Weight {
    Weight { name: "w".to_owned(), shape: shape.into(), source: Source::Stored(stored(shape)) }
}

fn linear(out: usize, into: usize) -> Linear {
    Linear { weight: weight(&[out, into]), bias: None }
}

fn a_norm(kind: NormKind, size: usize, epsilon: f32) -> Norm {
    let bias = (kind == NormKind::Layer).then(|| weight(&[size]));
    Norm { kind, weight: weight(&[size]), bias, epsilon }
}

fn an_attention([heads, kv_heads, head_dim]: [usize; 3], rotated: Option<usize>) -> Attention {
    Attention {
        heads,
        kv_heads,
        head_dim,
        scale: 0.5,
        query: linear(heads * head_dim, HIDDEN),
        key: linear(kv_heads * head_dim, HIDDEN),
        value: linear(kv_heads * head_dim, HIDDEN),
        output: linear(HIDDEN, heads * head_dim),
        query_norm: None,
        key_norm: None,
        rope: rotated.map(|dims| Rope { base: 1e4, dims, scaling: RopeScaling::None }),
        window: None,
        softcap: None,
        growth: None,
        value_norm: None,
        shared_from: None,
        output_gate: None,
    }
}

/// The operations of a part over an input `x` of the given tokens, as lines of kind, name and shape.
fn lowered(tokens: usize, build: impl FnOnce(&mut Graph<'_>, ValueId) -> Result) -> Vec<String> {
    let mut weights = Weights::new(Arc::default());
    let mut graph = Graph::new("main", Opset::Ios18, &[tokens], &mut weights);
    let x = graph.input("x", DType::F16, |tokens| [1, HIDDEN, 1, tokens]);
    let y = build(&mut graph, x).unwrap();
    let function = graph.finish(&[("y".to_owned(), y)]).function;
    let line = |op: &anemeter_mil::Operation| {
        let outputs = op.outputs.iter().map(|&id| {
            let value = function.value(id);
            let Type::Tensor(ty) = &value.ty else { panic!("{} is no tensor", value.name) };
            format!(" {} {:?}", value.name, &ty.concrete().unwrap()[..])
        });
        op.kind.clone() + &outputs.collect::<String>()
    };
    function.body.operations.iter().filter(|op| op.kind != "const").map(line).collect()
}

/// A layer's attention over so many tokens, with what its cache is given.
fn attended(
    tokens: usize,
    positions: usize,
    rotated: Option<usize>,
    cache: impl FnOnce(&mut Graph<'_>) -> Cache,
) -> Vec<String> {
    lowered(tokens, |graph, x| {
        let layer = an_attention(HEADS, rotated);
        let mask = graph.input("mask", DType::F16, |tokens| [1, 1, tokens, positions]);
        let rotations = layer.rope.iter().map(|rope| {
            let mut table = |name| graph.input(name, DType::F16, |tokens| [1, 1, rope.dims, tokens]);
            (rope.clone(), table("cos"), table("sin"))
        });
        let rotations = rotations.collect();
        let known =
            Tokens { batch: 1, count: Some(tokens), masks: vec![(None, mask)], rotations, growths: vec![] };
        let mut kept = KeysAndValues::new(cache(graph), BTreeSet::new());
        attention(graph, x, (0, &layer), (HIDDEN, &known), &mut kept)
    })
}

#[test]
fn norms_divide_by_the_largest_magnitude_before_they_square() {
    let of = |kind, epsilon| {
        lowered(3, |graph, x| norm(graph, "n", x, &a_norm(kind, HIDDEN, epsilon), (CHANNELS, HIDDEN)))
    };
    let rms = of(NormKind::Rms, 1e-5);
    assert_eq!(
        rms,
        [
            "abs n_magnitude [1, 6, 1, 3]",
            "reduce_max n_largest [1, 1, 1, 3]",
            "maximum n_divisor [1, 1, 1, 3]",
            "real_div n_factor [1, 1, 1, 3]",
            "mul n_scaled [1, 6, 1, 3]",
            "mul n_squares [1, 6, 1, 3]",
            "reduce_mean n_variance [1, 1, 1, 3]",
            "mul n_epsilon_root [1, 1, 1, 3]",
            "mul n_epsilon [1, 1, 1, 3]",
            "add n_variance_epsilon [1, 1, 1, 3]",
            "rsqrt n_inverse [1, 1, 1, 3]",
            "mul n_normal [1, 6, 1, 3]",
            "mul y [1, 6, 1, 3]",
        ]
    );
    let added = |lines: &[String]| lines.iter().filter(|l| !rms.contains(l)).cloned().collect::<Vec<_>>();
    let layer = ["reduce_mean n_mean [1, 1, 1, 3]", "sub n_centred [1, 6, 1, 3]", "mul n_out [1, 6, 1, 3]"];
    assert_eq!(added(&of(NormKind::Layer, 1e-5)), [&layer[..], &["add y [1, 6, 1, 3]"]].concat());
    assert_eq!(of(NormKind::Rms, 0.0).len(), rms.len() - 3, "no epsilon, nothing added");
}

#[test]
fn a_gated_mlp_multiplies_what_the_gate_lets_through() {
    let (gate, up, down) = (linear(10, HIDDEN), linear(10, HIDDEN), linear(HIDDEN, 10));
    let gated = Mlp::Gated { gate, up, activation: Activation::Silu, down };
    assert_eq!(
        lowered(3, |graph, x| mlp(graph, x, &gated, HIDDEN)),
        [
            "conv gate_out [1, 10, 1, 3]",
            "sigmoid active_sigmoid [1, 10, 1, 3]",
            "mul active_silu [1, 10, 1, 3]",
            "conv up_out [1, 10, 1, 3]",
            "mul product [1, 10, 1, 3]",
            "conv y [1, 6, 1, 3]",
        ]
    );
    let (up, down) = (linear(10, HIDDEN), linear(HIDDEN, 10));
    let plain = Mlp::Plain { up, activation: Activation::GeluTanh, down };
    let lines = lowered(3, |graph, x| mlp(graph, x, &plain, HIDDEN));
    let clip = lines.iter().position(|line| line == "clip active_bounded [1, 10, 1, 3]").unwrap();
    let square = lines.iter().position(|line| line == "mul active_square [1, 10, 1, 3]").unwrap();
    assert!(clip < square, "the cube is of a bounded number: {lines:?}");
}

#[test]
fn queries_that_share_keys_have_an_axis_of_their_own() {
    let lines = attended(3, 3, None, |_| Cache::None);
    assert_eq!(
        lines,
        [
            "conv query_out [1, 32, 1, 3]",
            "mul query_scaled [1, 32, 1, 3]",
            "conv key_out [1, 16, 1, 3]",
            "conv value_out [1, 16, 1, 3]",
            "reshape queries [2, 2, 8, 3]",
            "reshape keys [2, 1, 8, 3]",
            "reshape values [2, 1, 8, 3]",
            "matmul scores [2, 2, 3, 3]",
            "add masked [2, 2, 3, 3]",
            "softmax shares [2, 2, 3, 3]",
            "matmul attended [2, 2, 8, 3]",
            "reshape mixed [1, 32, 1, 3]",
            "conv y [1, 6, 1, 3]",
        ]
    );
}

#[test]
fn only_rotated_dimensions_are_turned() {
    let of = |dims| {
        let lines = attended(3, 3, Some(dims), |_| Cache::None);
        lines
            .into_iter()
            .filter(|line| line.contains(" key_") && !line.starts_with("conv"))
            .collect::<Vec<_>>()
    };
    let half = [
        "reshape key_heads [1, 2, 8, 3]",
        "slice_by_index key_turning [1, 2, 4, 3]",
        "slice_by_index key_low [1, 2, 2, 3]",
        "slice_by_index key_high [1, 2, 2, 3]",
        "mul key_negative [1, 2, 2, 3]",
        "concat key_crossed [1, 2, 4, 3]",
        "mul key_along [1, 2, 4, 3]",
        "mul key_across [1, 2, 4, 3]",
        "add key_turned [1, 2, 4, 3]",
        "slice_by_index key_still [1, 2, 4, 3]",
        "concat key_placed [1, 2, 8, 3]",
    ];
    assert_eq!(of(4), half);
    assert_eq!(of(8).len(), half.len() - 3, "nothing is cut off and put back");
}

#[test]
fn a_token_joins_scores_with_a_cache_input_and_leaves_its_keys_uncopied() {
    let lines = attended(1, 5, None, |graph| {
        let mut cache = |name| graph.input(name, DType::F16, |_| [1, 3 * 16, 1, 5]);
        let past = Some(Past { keys: cache("past_keys"), values: cache("past_values"), offset: 16 });
        Cache::Io { keys: Vec::new(), values: Vec::new(), past }
    });
    let steps = [
        "reshape key_new [1, 16, 1, 1]",
        "slice_by_index key_past [1, 16, 1, 5]",
        "slice_by_index value_past [1, 16, 1, 5]",
        "reshape queries [1, 2, 2, 8]",
        "reshape keys [1, 2, 8, 5]",
        "reshape values [1, 2, 8, 5]",
        "matmul scores [1, 2, 2, 5]",
        "add masked [1, 2, 2, 5]",
        "reshape own_keys [1, 2, 8, 1]",
        "matmul own_scores [1, 2, 2, 1]",
        "concat joined [1, 2, 2, 6]",
        "softmax shares [1, 2, 2, 6]",
    ];
    assert_eq!(lines[4..16], steps);
    assert!(lines.contains(&"matmul attended_past [1, 2, 2, 8]".to_owned()), "{lines:?}");
}

#[test]
fn a_state_is_updated_before_it_is_seen() {
    let lines = attended(3, 5, None, |graph| {
        let state = graph.state("cache", &[2 * 2, 2, 5, 8]);
        let (begin, end) = (graph.index("begin"), graph.index("end"));
        let content = graph.read_state("kept", state).unwrap();
        let unit = StateUnit { kv_heads: 2, width: 8 };
        Cache::State(KvState { state, content, begin, end, slot: 1, unit })
    });
    let at = |wanted: &str| {
        lines.iter().position(|line| line == wanted).unwrap_or_else(|| panic!("{wanted} of {lines:#?}"))
    };
    let steps = [
        "concat update [2, 2, 3, 8]",
        "slice_update updated [4, 2, 5, 8]",
        "read_state kept_2 [4, 2, 5, 8]",
        "slice_by_index key_kept [1, 2, 5, 8]",
        "slice_by_index value_kept [1, 2, 5, 8]",
        "matmul scores [2, 2, 3, 5]",
        "matmul attended [2, 2, 8, 3]",
    ];
    assert!(steps.map(at).is_sorted(), "{lines:#?}");
}

#[test]
fn a_head_wider_than_a_slot_is_attended_in_pieces() {
    let state = |tokens: usize| {
        attended(tokens, 5, None, |graph| {
            // Two heads of width 8 take four slots of width 4 and one head.
            let state = graph.state("cache", &[2 * 5, 1, 5, 4]);
            let (begin, end) = (graph.index("begin"), graph.index("end"));
            let content = graph.read_state("kept", state).unwrap();
            let unit = StateUnit { kv_heads: 1, width: 4 };
            Cache::State(KvState { state, content, begin, end, slot: 1, unit })
        })
    };
    let many = state(3);
    for line in [
        "concat update [8, 1, 3, 4]",
        "slice_by_index key_kept [4, 1, 5, 4]",
        "reshape key_pieces [2, 2, 5, 4]",
        "slice_by_index key_piece [2, 1, 5, 4]",
        "matmul score_piece [2, 2, 3, 5]",
        "add score_sum [2, 2, 3, 5]",
        "matmul piece [2, 2, 4, 3]",
        "concat attended [2, 2, 8, 3]",
    ] {
        assert!(many.iter().any(|found| found == line), "{line} of {many:#?}");
    }
    let one = state(1);
    for line in
        ["matmul score_piece [1, 2, 2, 5]", "matmul piece [1, 2, 2, 4]", "concat attended [1, 2, 2, 8]"]
    {
        assert!(one.iter().any(|found| found == line), "{line} of {one:#?}");
    }
}

#[test]
fn keys_of_an_earlier_layer_are_seen_and_given_to_later_chunks() {
    let lines = lowered(3, |graph, x| {
        let (own, mut shared) = (an_attention(HEADS, None), an_attention(HEADS, None));
        (shared.key, shared.value, shared.shared_from) = (linear(0, HIDDEN), linear(0, HIDDEN), Some(4));
        let mask = graph.input("mask", DType::F16, |tokens| [1, 1, tokens, 3]);
        let known = Tokens {
            batch: 1,
            count: Some(3),
            masks: vec![(None, mask)],
            rotations: vec![],
            growths: vec![],
        };
        let mut kept = KeysAndValues::new(Cache::None, BTreeSet::from([4]));
        let x = attention(graph, x, (4, &own), (HIDDEN, &known), &mut kept)?;
        assert_eq!(
            kept.outputs.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
            ["key_4", "value_4"]
        );
        assert!(matches!(kept.seen("a", 4), Ok(AttendedKv::Channels { .. })) && kept.seen("a", 5).is_err());
        attention(graph, x, (6, &shared), (HIDDEN, &known), &mut kept)
    });
    assert_eq!(lines.iter().filter(|line| line.starts_with("conv key_out")).count(), 1, "{lines:#?}");
    assert_eq!(lines.iter().filter(|line| line.starts_with("conv query_")).count(), 2, "{lines:#?}");
}

#[test]
fn heads_that_do_not_fit_are_named() {
    let layer = |heads| Layer {
        attention_norm: Some(a_norm(NormKind::Rms, HIDDEN, 0.0)),
        mixer: an_attention(heads, None).into(),
        post_attention_norm: None,
        mlp_norm: None,
        mlp: Mlp::Plain { up: linear(1, 1), activation: Activation::Relu, down: linear(1, 1) },
        post_mlp_norm: None,
        residual: Residual::Sequential,
        per_layer: None,
        scale: 1.0,
    };
    let cached = |layers: &[Layer]| Sharing::of(layers, 0..layers.len()).unwrap().cached;
    let (same, other) = (cached(&[layer(HEADS), layer(HEADS)]), cached(&[layer(HEADS), layer([4, 4, 12])]));
    assert_eq!(cache::channels(&other).unwrap(), 16 + 48);
    let unit = StateUnit::of(&same).unwrap();
    assert_eq!((unit, unit.slots(same[1].1)), (StateUnit { kv_heads: 2, width: 8 }, 1));
    let unit = StateUnit::of(&other).unwrap();
    assert_eq!((unit.kv_heads, unit.width), (2, 4));
    assert_eq!([0, 1].map(|index: usize| unit.slots(other[index].1)), [2, 6]);
    let error = Heads::of("a", &an_attention([4, 3, 8], None)).unwrap_err().to_string();
    assert!(error.contains("4 query heads of width 8 cannot share 3 KV heads"), "{error}");
    let error = Heads::of("a", &an_attention(HEADS, Some(10))).unwrap_err().to_string();
    assert!(error.contains("10 dimensions of heads of width 8 cannot be rotated"), "{error}");
}

#[test]
fn what_is_read_counts_for_the_file_it_is_of() {
    let stats = Arc::new(ReadStats::new(["first", "second"]));
    let source = Source::Stored(Stored { shard: 1, ..stored(&[4, 2]) });
    let weight = Weight { source, ..weight(&[4, 2]) };
    fp16_payload(&weight, &stats).write_to(&mut Vec::new()).unwrap();
    let bytes: Vec<u64> = stats.readings().iter().map(|reading| reading.bytes).collect();
    assert_eq!(bytes, [0, 32]);
}

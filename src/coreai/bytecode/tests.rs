//! Random programs come back as they were; hostile files are refused before they take memory.

use std::sync::Arc;

use anemeter_kernels::tensor::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::{
    Attribute, Dim, Graph, HwConstraints, Op, Port, Program, Region, Resource, ResourceData, Type, ValueId,
};

fn ty() -> impl Strategy<Value = Type> {
    let scalar = proptest::sample::select(kinds::SCALARS).prop_map(|(scalar, _)| scalar);
    let dim = prop_oneof![3 => (0..=i64::MAX as u64).prop_map(Dim::Fixed), 1 => Just(Dim::Dynamic)];
    let constraints = (vec(any::<i64>(), 0..4), vec(any::<i64>(), 0..4), any::<u64>()).prop_map(
        |(alignments, interleave, allocation)| HwConstraints { alignments, interleave, allocation },
    );
    let tensor = (vec(dim, 0..6), scalar.clone(), proptest::option::of(constraints))
        .prop_map(|(dims, element, constraints)| Type::Tensor { dims, element, constraints });
    let some = prop_oneof![3 => (0..=i64::MAX as u64).prop_map(Dim::Fixed), 1 => Just(Dim::Dynamic)];
    let sparse = (vec(some, 0..6), scalar.clone(), any::<u64>())
        .prop_map(|(dims, element, stored)| Type::Sparse { dims, element, stored });
    let leaf = prop_oneof![
        4 => tensor,
        1 => sparse,
        1 => scalar.prop_map(Type::Scalar),
        1 => Just(Type::Token),
        1 => Just(Type::ParamSymbol),
        1 => Just(Type::ParamType),
    ];
    leaf.prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            inner.clone().prop_map(|ty| Type::Handle(Box::new(ty))),
            (vec(inner.clone(), 0..3), vec(inner, 0..3))
                .prop_map(|(inputs, outputs)| Type::Function { inputs, outputs }),
        ]
    })
}

fn attribute() -> impl Strategy<Value = Attribute> {
    let bits = |width: u32, bits: u64| bits >> (u64::BITS - width);
    let leaf = prop_oneof![
        "[a-z\\u{e9}]{0,6}".prop_map(Attribute::String),
        (1u32..=64, any::<bool>(), any::<u64>()).prop_map(move |(width, is_unsigned, value)| {
            Attribute::Integer { width, is_unsigned, bits: bits(width, value) }
        }),
        (1u32..=64, any::<u64>())
            .prop_map(move |(width, value)| Attribute::Float { width, bits: bits(width, value) }),
        ty().prop_map(Attribute::Type),
        (any::<bool>(), vec(any::<u8>(), 0..20))
            .prop_map(|(is_splat, bytes)| Attribute::DenseElements { is_splat, bytes }),
        vec("[a-z]{0,4}", 0..3).prop_map(Attribute::SymbolRef),
        any::<u64>().prop_map(Attribute::Approximate),
        any::<u64>().prop_map(Attribute::ScatterMode),
        Just(Attribute::Unit),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Attribute::Array),
            vec(inner.clone(), 0..4).prop_map(Attribute::Dictionary),
            ("[a-z]{0,4}", vec(inner.clone(), 0..3))
                .prop_map(|(name, items)| Attribute::Opaque { name, items }),
            (inner, ty()).prop_map(|(value, ty)| Attribute::ParamConstant { value: Box::new(value), ty }),
        ]
    })
}

/// A region of operations that need not make sense, but whose operands are values of it.
fn region() -> impl Strategy<Value = Region> {
    let op = |regions: BoxedStrategy<Vec<Region>>| {
        let name = prop_oneof![
            Just("primitive.constant_v1"),
            Just("a_v1"),
            Just("b_v2"),
            "[a-z.]{1,6}".prop_map(|_| "c")
        ];
        (name, attribute(), vec(any::<u32>(), 0..4), vec(ty(), 0..3), regions).prop_map(
            |(name, value, operands, results, regions)| {
                let properties = properties::of(name).iter().map(|_| Some(value.clone())).collect();
                let operands = operands.into_iter().map(ValueId).collect();
                Op { name: name.into(), properties, operands, results, regions }
            },
        )
    };
    let leaf = (vec(ty(), 0..3), vec(op(Just(Vec::new()).boxed()), 0..4)).prop_map(defined);
    leaf.prop_recursive(2, 8, 3, move |inner| {
        (vec(ty(), 0..3), vec(op(vec(inner, 0..3).boxed()), 0..3)).prop_map(defined)
    })
}

/// Operands within what a region defines.
fn defined((arguments, mut ops): (Vec<Type>, Vec<Op>)) -> Region {
    let values = arguments.len() + ops.iter().map(|op| op.results.len()).sum::<usize>();
    for op in &mut ops {
        match values {
            0 => op.operands.clear(),
            _ => op.operands.iter_mut().for_each(|id| id.0 %= values as u32),
        }
    }
    Region { arguments, ops }
}

fn graph() -> impl Strategy<Value = Graph> {
    let outputs = vec(("[a-z]{0,4}", ty()), 0..3);
    let names = vec("[a-z]{0,4}", 3);
    (
        "[a-z]{1,8}",
        any::<[bool; 3]>(),
        proptest::option::of(attribute()),
        attribute(),
        region(),
        outputs,
        names,
    )
        .prop_map(
            |(name, [is_private, no_inline, externalize], composite, params, body, outputs, names)| Graph {
                name,
                inputs: names
                    .into_iter()
                    .zip(&body.arguments)
                    .map(|(name, ty)| Port { name, ty: ty.clone() })
                    .collect(),
                outputs: outputs.into_iter().map(|(name, ty)| Port { name, ty }).collect(),
                is_private,
                no_inline,
                externalize,
                composite,
                params,
                body,
            },
        )
}

fn written(program: &Program) -> Vec<u8> {
    let encoded = encode(program).unwrap();
    let mut out = encoded.head;
    for entry in &encoded.resources {
        out.extend_from_slice(&entry.header);
        if let ResourceData::Bytes(bytes) = &*entry.resource.0 {
            out.extend_from_slice(bytes);
        }
    }
    out.extend_from_slice(&encoded.tail);
    out
}

proptest! {
    #[test]
    fn any_program_comes_back(version: u32, graphs in vec(graph(), 0..3)) {
        let program = Program { version, graphs };
        let bytes = written(&program);
        let decoded = decode(&Bytes::from(bytes.clone())).unwrap();
        prop_assert_eq!(&decoded.program, &program);
        prop_assert_eq!(written(&decoded.program), bytes);
        // Text and checks take whatever can be read.
        let _ = (program.to_string(), crate::verify(&program));
    }

    #[test]
    fn any_bytes_are_refused_or_read(bytes: Vec<u8>, graphs in vec(graph(), 1..2), at: usize, byte: u8) {
        prop_assert!(decode(&Bytes::from(bytes)).is_err());
        let mut changed = written(&Program { version: 1, graphs });
        let at = at % changed.len();
        changed[at] = byte;
        let _ = decode(&Bytes::from(changed));
    }
}

fn program(composite: Attribute, body: Region) -> Program {
    let graph = Graph {
        name: "main".to_owned(),
        inputs: Vec::new(),
        outputs: Vec::new(),
        is_private: false,
        no_inline: false,
        externalize: false,
        composite: Some(composite),
        params: Attribute::Array(Vec::new()),
        body,
    };
    Program { version: 1, graphs: vec![graph] }
}

fn op(name: &'static str, properties: Vec<Option<Attribute>>, regions: Vec<Region>) -> Op {
    Op { name: name.into(), properties, operands: Vec::new(), results: Vec::new(), regions }
}

fn refused(program: &Program) -> String {
    decode(&Bytes::from(written(program))).unwrap_err().to_string()
}

#[test]
fn depth_is_bounded() {
    let nested = |levels: usize| (0..levels).fold(Attribute::Unit, |inner, _| Attribute::Array(vec![inner]));
    assert!(decode(&Bytes::from(written(&program(nested(20), Region::default())))).is_ok());
    let error = refused(&program(nested(100), Region::default()));
    assert!(error.contains("attributes of up to 32 levels (at byte"), "{error}");

    let handles = |levels: usize| (0..levels).fold(Type::Token, |inner, _| Type::Handle(Box::new(inner)));
    let error = refused(&program(Attribute::Type(handles(100)), Region::default()));
    assert!(error.contains("types of up to 32 levels"), "{error}");

    let region = |levels: usize| {
        (0..levels).fold(Region::default(), |inner, _| Region {
            arguments: Vec::new(),
            ops: vec![op("a_v1", Vec::new(), vec![inner])],
        })
    };
    let error = refused(&program(Attribute::Unit, region(100)));
    assert!(error.contains("regions of up to 32 levels"), "{error}");
}

#[test]
fn references_that_expand_to_much_are_refused() {
    let value = Attribute::DenseElements { is_splat: false, bytes: vec![7; 200_000] };
    let body = |count: usize| Region {
        arguments: Vec::new(),
        ops: (0..count).map(|_| op("primitive.constant_v1", vec![Some(value.clone())], Vec::new())).collect(),
    };
    assert!(decode(&Bytes::from(written(&program(Attribute::Unit, body(20))))).is_ok());
    let error = refused(&program(Attribute::Unit, body(500)));
    assert!(error.contains("its references expand to more than"), "{error}");
}

#[test]
fn errors_tell_the_offset_and_what_was_expected() {
    let resource = Resource(Arc::new(ResourceData::Bytes(Bytes::from(vec![1; 100]))));
    let constant = op("primitive.constant_v1", vec![Some(Attribute::DenseResource(resource))], Vec::new());
    let bytes = written(&program(Attribute::Unit, Region { arguments: Vec::new(), ops: vec![constant] }));
    let error = |at: usize, byte: u8| {
        let mut changed = bytes.clone();
        changed[at] = byte;
        decode(&Bytes::from(changed)).unwrap_err().to_string()
    };
    assert_eq!(error(0, b'm'), "expected MLIR bytecode, which starts with `ML\\xefR` (at byte 0)");
    assert_eq!(error(4, 15), "expected bytecode of version 6, found 7 (at byte 4)");
    // The first section is that of the dialect, which names one dialect.
    let dialect = 5 + PRODUCER.len() + 1;
    assert_eq!(bytes[dialect], section::DIALECT);
    let found = error(dialect + 2, 5);
    assert_eq!(
        found,
        format!("expected the dialect `aicode` alone, found 2 dialects (at byte {})", dialect + 2)
    );
    assert!(error(dialect, 9).starts_with("expected a section, found the id 9"), "{}", error(dialect, 9));
    let data = bytes.windows(100).position(|window| window == [1; 100]).unwrap();
    assert!(error(data - 1, 0).starts_with("expected padding 0xcb, found 0x00"), "{}", error(data - 1, 0));
    let cut = decode(&Bytes::from(bytes[..data + 50].to_vec())).unwrap_err().to_string();
    assert!(cut.contains("bytes of a section, found 66 (at byte"), "{cut}");
}

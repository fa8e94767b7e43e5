//! Texts of compiled models: generated ones that become the model they were made from, and ones that are wrong.

use std::path::PathBuf;

use half::{bf16, f16};
use proptest::prelude::*;
use prost::Message as _;

use super::super::testing::generated;
use super::super::{Package, PackageError, WeightFiles, encode_model};
use super::program::program;
use crate::package::decode::Sources;
use crate::{Binding, Block, Dim, Literal, LiteralData, Model, Program, TensorType, Type};
use anemeter_kernels::tensor::{Bytes, DType};
use compile::{Dialect, compile};

#[path = "../../../../tests/it/support/compile.rs"]
mod compile;

/// A text as a compiler writes it for iOS 16, with what the other one below does not have.
const IOS16: &str = r#"program(1.0)
[buildInfo = dict<tensor<string, []>, tensor<string, []>>({{"coremlc-version", "3500.32.1"}, {"a", ""}})]
{
    func main<ios16>(tensor<fp32, [1, ?]> F0, tensor<fp32, [1, 4]> style) [FlexibleShapeInformation = tuple<tuple<tensor<string, []>, dict<tensor<string, []>, tensor<int32, [?]>>>, tuple<tensor<string, []>, dict<tensor<string, []>, list<tensor<int32, [2]>, ?>>>>((("DefaultShapes", {{"F0", [1, 266]}}), ("RangeDims", {{"F0", [[1, 1], [2, 4000]]}})))] {
            tensor<fp16, []> low = const()[name = tensor<string, []>("low"), val = tensor<fp16, []>(-inf)];
            tensor<fp32, [1, 3]> w = const()[name = tensor<string, []>("w"), val = tensor<fp32, [1, 3]>([[-0x1.8p-4, nan, 0x0p+0]])];
            tensor<fp32, [1, 1, 4]> out_0, tensor<fp32, [1, 4]> out_1 = lstm(x = F0, values = (style, low))[name = tensor<string, []>("cast_1")];
        } -> (out_0, out_1, w);
}
"#;

/// A text for iOS 18: scalars without `tensor`, a state, a statement without results, constants as arguments, two functions.
const IOS18: &str = r#"program(1.3)
[buildInfo = dict<string, string>({{"coremltools-version", "9.0"}})]
{
    func prefill<ios18>(tensor<fp16, [4, 8]> x) {
            int32 axis = const()[name = string("axis"), val = int32(-1)];
            tensor<fp16, [4, 8]> y = softmax(axis = axis, x = x)[name = string("y")];
        } -> (y);
    func decode<ios18>(state<tensor<fp16, [1, 8]>> kv, tensor<fp16, [1, 8]> x) {
            bool keep = const()[name=string("keep"), val=bool(true)];
            tensor<fp16, [1, 8]> old = read_state(input = kv)[name = string("old")];
            tensor<fp16, [1, 8]> new = constexpr_blockwise_shift_scale(data = tensor<int4, [1, 2]>([[-8, 7]]), scale = tensor<fp16, [1, 1]>([[0x1p-1]]))[name = string("new")];
            write_state(data = new, input = kv)[name = string("write")];
            int32 end = while_loop(loop_vars = (keep, old)) (bool k, tensor<fp16, [1, 8]> v) {
            } -> (k) (bool k, tensor<fp16, [1, 8]> v) {
                tensor<fp16, [1, 8]> w = add(x = v, y = new);
            } -> (k, w);
        } -> (old);
}
"#;

fn read(text: &str) -> Result<Program, PackageError> {
    let weights = WeightFiles::in_memory([]);
    program(text.as_bytes(), &mut Sources::new(&weights))
}

#[test]
fn a_text_for_ios_16_becomes_a_program() {
    let program = read(IOS16).unwrap();
    assert_eq!((program.version, program.attributes[0].0.as_str()), (1, "buildInfo"));
    let main = program.function("main").unwrap();
    assert_eq!(main.attributes, [], "what the compiler notes of flexible shapes has no place in a package");
    let names: Vec<&str> = main.values.iter().map(|value| value.name.as_str()).collect();
    assert_eq!(names, ["F0", "style", "low", "w", "out_0", "out_1"]);
    assert_eq!(main.values[0].ty, TensorType::new(DType::F32, vec![Dim::Fixed(1), Dim::Unknown]).into());
    let [low, w, lstm] = &main.body.operations[..] else { panic!("three operations") };
    let bytes = |literal: &Literal| match &literal.data {
        LiteralData::Immediate(bytes) => bytes.to_vec(),
        other => panic!("{other:?}"),
    };
    assert_eq!(bytes(low.attribute("val").unwrap()), f16::NEG_INFINITY.to_le_bytes());
    let expected: Vec<u8> = [-0.09375f32, f32::NAN, 0.0].iter().flat_map(|v| v.to_le_bytes()).collect();
    assert_eq!(bytes(w.attribute("val").unwrap()), expected);
    assert_eq!((lstm.kind.as_str(), lstm.name(), lstm.outputs.len()), ("lstm", "cast_1", 2));
    assert_eq!(lstm.input("values").unwrap().bindings.len(), 2);
    assert_eq!(main.body.outputs.len(), 3);
}

#[test]
fn a_text_for_ios_18_becomes_a_program() {
    let program = read(IOS18).unwrap();
    let names: Vec<&str> = program.functions.iter().map(|function| function.name.as_str()).collect();
    assert_eq!(names, ["decode", "prefill"]);
    let decode = &program.functions[0];
    assert_eq!(decode.values[0].ty, Type::State(TensorType::fixed(DType::F16, &[1, 8])));
    let [keep, _, new, write, turn] = &decode.body.operations[..] else { panic!("five operations") };
    assert_eq!(keep.attribute("val").unwrap().ty, TensorType::scalar(DType::Bool).into());
    let Binding::Literal(data) = &new.input("data").unwrap().bindings[0] else { panic!("a constant") };
    assert_eq!(data.data, LiteralData::Immediate(Bytes::from(vec![0x78])));
    assert_eq!((write.kind.as_str(), write.outputs.len(), write.name()), ("write_state", 0, "write"));
    // The values of nested blocks come before the outputs of the operation around them, as in the protobuf.
    let names: Vec<&str> = decode.values.iter().skip(5).map(|value| value.name.as_str()).collect();
    assert_eq!(names, ["k", "v", "k", "v", "w", "end"]);
    assert_eq!((turn.blocks.len(), turn.blocks[1].inputs.len(), turn.blocks[1].outputs.len()), (2, 2, 2));
}

/// What `inspect --mil` prints is the same language where there are no attributes, large constants or nested blocks.
#[test]
fn readable_mil_without_attributes_is_read() {
    let text = "program(1.0)
{
    func decode<ios18>(state<tensor<fp16, [1, 8]>> kv, tensor<fp16, [1, ?]> x) {
        tensor<fp16, [1, 8]> old = read_state(input = kv);
        tensor<fp16, [1, 8]> a, tensor<fp16, [1, 8]> b = split(axis = tensor<int32, []>(-1), split_sizes = tensor<int32, [2]>([8, 8]), x = x);
        tensor<fp16, [2, 8]> c = concat(values = (a, b, old));
        write_state(data = a, input = kv);
    } -> (b, c);
    func main<ios26>() {
    } -> ();
}
";
    assert_eq!(read(text).unwrap().to_string(), text);
}

/// A part of one of the texts, what stands there in its place, and the message.
const FAULTS: &[(&str, &str, &str, &str)] = &[
    (IOS16, "program(1.0)", "", "expected `program`, found `[` (line 2, column 1)"),
    (IOS16, "1.0", "2.0", "has program version 2; supported is 1 (line 1, column 9)"),
    (IOS16, "1.0", "1", "expected a version such as `1.0`, found `1` (line 1, column 9)"),
    (IOS16, "ios16", "ios14", "is written in opset `ios14`; supported are ios15, "),
    (IOS16, "main<", "main(", "function `main`: expected `<`, found `(` (line 4, column 14)"),
    (IOS16, "fp32, [1, ?]", "fp31, [1, ?]", "expected an element type, found `fp31` (line 4, column 29)"),
    (IOS16, "[1, ?]", "[1, -1]", "expected a size or `?`, found `-1` (line 4, column 39)"),
    (IOS16, "[1, ?]", "[18446744073709551616]", "expected a size or `?`, found `18446744073709551616`"),
    (IOS16, "[1, 4]> style", "[1, 4]> F0", "function input `F0` is defined twice (line 4, column 68)"),
    (IOS16, "(-inf)", "(-1)", ""),
    (IOS16, "(-inf)", "(true)", "`val`: expected a number of type fp16, found `true` (line 5, column 101)"),
    (IOS16, "(-inf)", "(0x1p-30)", "`val`: `0x1p-30` is no value of fp16 (line 5, column 101)"),
    (
        IOS16,
        "[[-0x1.8p-4",
        "[[-0x1.8p-4, 0x0p+0",
        "dimension 1 of a tensor<fp32, [1, 3]> has 4 elements where 3 are",
    ),
    (IOS16, "[[-0x1.8p-4", "[-0x1.8p-4", "expected `[` of a tensor<fp32, [1, 3]>, found `-0x1.8p-4`"),
    (IOS16, "(\"w\")", "(w)", "`name`: expected a string, found `w` (line 6, column 72)"),
    (IOS16, "\"w\"", "\"w", "op 1"),
    (
        IOS16,
        "x = F0",
        "x = F1",
        "op 2 `lstm`: `x`: binding `F1` is not defined before its use (line 7, column 82)",
    ),
    (IOS16, "x = F0", "values = F0", "op 2 `lstm`: input `values` occurs twice"),
    (IOS16, "out_0, tensor", "out_0 tensor", "op 2: expected `,` or `=`, found `tensor` (line 7, column 43)"),
    (
        IOS16,
        "out_1 =",
        "low =",
        "op 2 `lstm` named `cast_1`: output `low` is defined twice (line 7, column 65)",
    ),
    (IOS16, "low = const()[", "low = const()[val = int32(1), ", "op 0 `const`: attribute `val` occurs twice"),
    (IOS16, "-> (out_0", "-> (out_9", "function `main`: block output `out_9` is not defined before its use"),
    (IOS16, ");\n}", ")\n}", "function `main`: expected `;`, found `}` (line 9, column 1)"),
    (IOS16, ");\n}\n", ");\n}\n}", "expected the end of the text, found `}` (line 10, column 1)"),
    (IOS16, "(style, low)", "(style, low", "expected `,` or `)`, found `[`"),
    (IOS16, "{{\"coremlc", "{\"coremlc", "`buildInfo`: expected `{`, found the string `coremlc-version`"),
    (IOS18, "func decode", "func prefill", "function `prefill` occurs twice (line 8, column 10)"),
    (
        IOS18,
        "int32(-1)",
        "int32(2147483648)",
        "`2147483648` is outside the range of int32, -2147483648 to 2147483647",
    ),
    (IOS18, "int32(-1)", "int32(1.5)", "expected an integer, found `1.5`"),
    (IOS18, "bool(true)", "bool(1)", "expected a bool, found `1`"),
    (IOS18, "[[-8, 7]]", "[[-9, 7]]", "`-9` is outside the range of int4, -8 to 7"),
    (
        IOS18,
        "state<tensor<fp16, [1, 8]>>",
        "state<list<fp16, 2>>",
        "a state wraps list<tensor<fp16, []>, 2>, expected",
    ),
    (IOS18, "bool(true)", "state<bool>(true)", "a state<tensor<bool, []>> cannot be a constant"),
    (IOS18, "bool(true)", "tuple<bool>((true, true))", "a tuple<tensor<bool, []>> has more than 1 values"),
    (IOS18, "bool(true)", "list<bool, 2>([true])", "a list<tensor<bool, []>, 2> has 1 values"),
    (
        IOS18,
        "bool(true)",
        "tensor<bool, [?]>([true])",
        "a constant has the type tensor<bool, [?]>, whose shape is not fixed",
    ),
    (
        IOS18,
        "bool(true)",
        "bool(BLOBFILE(path = string(\"w\"), offset = int32(1)))",
        "expected a tensor<uint64, []>, found a",
    ),
    (
        IOS18,
        "bool(true)",
        "bool(BLOBFILE(path = string(\"w\"), offset = uint64(1)))",
        "weight file `w` is not a file directly in",
    ),
    (IOS18, "write_state(data", "write_state[data", "expected a type, found `write_state`"),
    (IOS18, "-> (k) (", "-> (k) x (", "`while_loop`: expected `;` or a block, found `x`"),
    (IOS18, "add(x = v", "add(x = end", "binding `end` is not defined before its use"),
    (IOS18, "-> (old)", "-> (w)", "block output `w` is not defined before its use"),
];

#[test]
fn faults_are_named_with_their_place() {
    for &(text, from, to, expected) in FAULTS {
        let changed = text.replacen(from, to, 1);
        match (read(&changed), expected) {
            (Ok(_), "") => {}
            (Ok(_), _) => panic!("{from:?} -> {to:?} was accepted"),
            (Err(error), _) => {
                let error = error.to_string();
                assert!(error.contains(expected) && !expected.is_empty(), "{from:?} -> {to:?}: {error}");
                assert!(error.ends_with(')') && error.contains("(line "), "{error}");
            }
        }
    }
}

#[test]
fn depth_and_repeated_types_are_bounded() {
    let constant = |value: &str| {
        format!("program(1.0) {{ func f<ios18>() {{ bool a = const()[val = {value}]; }} -> (); }}")
    };
    let nested = format!("{}bool{}", "tuple<".repeat(70), ">".repeat(70));
    let error = read(&constant(&format!("{nested}(true)"))).unwrap_err().to_string();
    assert!(error.contains("types nest deeper than 64 levels"), "{error}");
    let blocks = format!("{}{}", "cond() {".repeat(70), "} -> ();".repeat(70));
    let text = format!("program(1.0) {{ func f<ios18>() {{ {blocks} }} -> (); }}");
    let error = read(&text).unwrap_err().to_string();
    assert!(error.contains("blocks nest deeper than 64 levels"), "{error}");
    // 1000 empty lists of a type of 1000 parts would take a thousand times the memory of their text.
    let ty = format!("list<list<tuple<{}>, ?>, ?>", vec!["bool"; 1000].join(", "));
    let error = read(&constant(&format!("{ty}([{}])", vec!["[]"; 1000].join(", ")))).unwrap_err().to_string();
    assert!(error.contains("constants repeat larger types than the text is long"), "{error}");
}

/// The files of a compiled model.
fn files(text: &[u8], description: Vec<u8>, weights: Vec<u8>) -> [(PathBuf, Bytes); 3] {
    let file = |name: &str, bytes: Vec<u8>| (PathBuf::from(name), Bytes::from(bytes));
    [
        file("coremldata.bin", description),
        file("model.mil", text.to_vec()),
        file("weights/weight.bin", weights),
    ]
}

/// A generated model without what text cannot say: attributes of the outermost block, the bits of NaNs, and those behind
/// the last element.
fn generated_for_text(choices: &[u8]) -> Model {
    let mut model = generated(choices);
    for (_, literal) in &mut model.program.attributes {
        plain_nans(literal);
    }
    for function in &mut model.program.functions {
        function.body.attributes.clear();
        function.attributes.iter_mut().for_each(|(_, literal)| plain_nans(literal));
        plain_nans_in(&mut function.body);
    }
    model
}

fn plain_nans_in(block: &mut Block) {
    block.attributes.iter_mut().for_each(|(_, literal)| plain_nans(literal));
    for op in &mut block.operations {
        op.attributes.iter_mut().for_each(|(_, literal)| plain_nans(literal));
        for binding in op.inputs.iter_mut().flat_map(|argument| &mut argument.bindings) {
            if let Binding::Literal(literal) = binding {
                plain_nans(literal);
            }
        }
        op.blocks.iter_mut().for_each(plain_nans_in);
    }
}

fn plain_nans(literal: &mut Literal) {
    let dtype = literal.ty.tensor().map(|tensor| tensor.dtype);
    match &mut literal.data {
        LiteralData::Immediate(bytes) => {
            let size = dtype.map_or(1, |dtype| dtype.bits() as usize / 8).max(1);
            let plain: Vec<u8> =
                bytes.chunks(size).flat_map(|element| plain_nan(element, dtype.unwrap())).collect();
            *bytes = Bytes::from(without_padding(plain, &literal.ty));
        }
        LiteralData::Items(items) => items.iter_mut().for_each(plain_nans),
        LiteralData::Entries(entries) => entries.iter_mut().for_each(|(key, value)| {
            plain_nans(key);
            plain_nans(value);
        }),
        _ => {}
    }
}

/// Elements smaller than a byte with zeros in what they leave of the last one.
fn without_padding(mut bytes: Vec<u8>, ty: &Type) -> Vec<u8> {
    let tensor = ty.tensor().unwrap();
    let elements: usize = tensor.concrete().unwrap().iter().product();
    let used = elements * tensor.dtype.bits() as usize % 8;
    if let (1.., Some(last)) = (used, bytes.last_mut()) {
        *last &= (1 << used) - 1;
    }
    bytes
}

fn plain_nan(element: &[u8], dtype: DType) -> Vec<u8> {
    let bits = element.iter().rev().fold(0u64, |bits, &byte| bits << 8 | u64::from(byte));
    let plain: Option<&[u8]> = match dtype {
        DType::F16 if f16::from_bits(bits as u16).is_nan() => Some(&[0, 0x7e]),
        DType::BF16 if bf16::from_bits(bits as u16).is_nan() => Some(&[0xc0, 0x7f]),
        DType::F32 if f32::from_bits(bits as u32).is_nan() => Some(&[0, 0, 0xc0, 0x7f]),
        DType::F64 if f64::from_bits(bits).is_nan() => Some(&[0, 0, 0, 0, 0, 0, 0xf8, 0x7f]),
        DType::F8E4M3FN if bits & 0x7f == 0x7f => Some(&[0x7f]),
        DType::F8E5M2 if bits & 0x7f > 0x7c => Some(&[0x7d]),
        _ => None,
    };
    plain.unwrap_or(element).to_vec()
}

/// A generated model, compiled.
fn compiled(model: &Model, dialect: Dialect) -> (String, Vec<u8>, Vec<u8>) {
    let encoded = encode_model(model).unwrap();
    let official = coreml_proto::proto::Model::decode(&encoded.model[..]).unwrap();
    let (text, description) = compile(&official, dialect);
    (text, description, encoded.weights)
}

const SPLICES: &[&str] = &[
    "",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    "<",
    ">",
    ",",
    ";",
    "=",
    "->",
    "?",
    "...",
    "\"",
    "\\",
    " ",
    "0",
    "-1",
    "0x1p+1",
    "inf",
    "nan",
    "true",
    "tensor",
    "tensor<fp16, [2]>",
    "list",
    "tuple<",
    "dict<",
    "state<",
    "BLOBFILE(",
    "func",
    "é",
    "\u{0}",
    "99999999999999999999",
    "0x1p-9999",
    "\n",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn compiled_models_become_what_they_were(
        choices in proptest::collection::vec(any::<u8>(), 0..600),
        scalars: bool,
    ) {
        let model = generated_for_text(&choices);
        let dialect = if scalars { Dialect::Scalars } else { Dialect::Tensors };
        let (text, description, weights) = compiled(&model, dialect);
        let package = Package::from_files(files(text.as_bytes(), description, weights)).unwrap();
        prop_assert_eq!(package.model(), &model, "{}", text);
    }

    /// Whatever a text becomes, reading it ends in a model that can be written, or in one printable message.
    #[test]
    fn spliced_texts_never_panic(
        choices in proptest::collection::vec(any::<u8>(), 0..400),
        splices in proptest::collection::vec((any::<prop::sample::Index>(), 0usize..6, 0..SPLICES.len()), 1..4),
    ) {
        let (text, description, weights) = compiled(&generated_for_text(&choices), Dialect::Scalars);
        let mut bytes = text.into_bytes();
        for (at, removed, splice) in splices {
            let at = at.index(bytes.len());
            let end = (at + removed).min(bytes.len());
            bytes.splice(at..end, SPLICES[splice].bytes());
        }
        match Package::from_files(files(&bytes, description, weights)) {
            Ok(package) => {
                encode_model(package.model()).unwrap();
            }
            Err(error) => {
                let error = error.to_string();
                prop_assert!(!error.is_empty() && !error.contains(char::is_control), "{:?}", error);
            }
        }
    }
}

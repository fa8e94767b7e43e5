//! A stand-in for Core ML's compiler: from the protobuf of a package to the text and the description of an `.mlmodelc`.
//!
//! It knows the format from Apple's schema and from compiled models that others published, and shares nothing with the
//! reader that it tests. How nested blocks are written is a guess: none of those models has any.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;

use coreml_proto::proto;
use coreml_proto::proto::mil_spec::{
    Argument, Block, Dimension, Function, NamedValueType, Operation, Program, TensorType, TensorValue, Value,
    ValueType, argument, dimension, tensor_value, value, value_type,
};
use coreml_proto::proto::model::Type as ModelType;
use half::{bf16, f16};
use prost::Message as _;

/// How the text writes scalars.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// `tensor<int32, []>(1)`, until iOS 17.
    Tensors,
    /// `int32(1)`, from iOS 18 on.
    Scalars,
}

/// The texts of a compiled ML program: `model.mil` and `coremldata.bin`.
pub(crate) fn compile(model: &proto::Model, dialect: Dialect) -> (String, Vec<u8>) {
    let Some(ModelType::MlProgram(program)) = &model.r#type else { panic!("not an ML program") };
    let description = model.description.clone().unwrap_or_default().encode_to_vec();
    let mut writer = Writer { dialect, out: String::new() };
    writer.program(program);
    (writer.out, frame(502, model.specification_version, &description))
}

/// `coremldata.bin` around a description.
pub(crate) fn frame(kind: u32, spec_version: i32, description: &[u8]) -> Vec<u8> {
    let mut bytes = kind.to_le_bytes().to_vec();
    bytes.extend(5u32.to_le_bytes());
    bytes.extend([0; 20]);
    bytes.extend(7u64.to_le_bytes());
    bytes.extend(b"generic");
    bytes.extend(spec_version.to_le_bytes());
    bytes.extend([0; 28]);
    bytes.extend((description.len() as u64).to_le_bytes());
    bytes.extend(description);
    bytes.extend(u64::from(kind).to_le_bytes());
    bytes.extend([0; 8]);
    bytes
}

struct Writer {
    dialect: Dialect,
    out: String,
}

impl Writer {
    fn put(&mut self, text: &str) {
        self.out.push_str(text);
    }

    /// Items between commas.
    fn list<T>(&mut self, items: impl IntoIterator<Item = T>, mut each: impl FnMut(&mut Writer, T)) {
        for (index, item) in items.into_iter().enumerate() {
            self.put(if index > 0 { ", " } else { "" });
            each(self, item);
        }
    }

    fn program(&mut self, program: &Program) {
        let minor = if self.dialect == Dialect::Scalars { 3 } else { 0 };
        let _ = writeln!(self.out, "program({}.{minor})", program.version);
        self.attributes(&program.attributes);
        self.put("\n{\n");
        for (name, function) in sorted(&program.functions) {
            self.function(name, function);
        }
        self.put("}\n");
    }

    fn function(&mut self, name: &str, function: &Function) {
        let opsets =
            ["CoreML5", "CoreML6", "CoreML7", "CoreML8", "CoreML9"].iter().position(|&k| k == function.opset);
        let opset = ["ios15", "ios16", "ios17", "ios18", "ios26"][opsets.unwrap()];
        let _ = write!(self.out, "    func {name}<{opset}>(");
        self.declared(&function.inputs);
        self.put(") ");
        self.attributes(&function.attributes);
        self.body(&function.block_specializations[&function.opset]);
        self.put(";\n");
    }

    fn declared(&mut self, values: &[NamedValueType]) {
        self.list(values, |w, value| {
            w.value_type(value.r#type.as_ref().unwrap());
            w.put(" ");
            w.put(&value.name);
        });
    }

    fn body(&mut self, block: &Block) {
        self.put("{\n");
        for operation in &block.operations {
            self.put("            ");
            self.operation(operation);
            self.put(";\n");
        }
        self.put("        } -> (");
        self.list(&block.outputs, |w, name| w.put(name));
        self.put(")");
    }

    fn operation(&mut self, operation: &Operation) {
        self.declared(&operation.outputs);
        self.put(if operation.outputs.is_empty() { "" } else { " = " });
        self.put(&operation.r#type);
        self.put("(");
        self.list(sorted(&operation.inputs), |w, (name, argument)| {
            let _ = write!(w.out, "{name} = ");
            w.argument(argument);
        });
        self.put(")");
        self.attributes(&operation.attributes);
        for block in &operation.blocks {
            self.put(" ");
            if !block.inputs.is_empty() || !block.attributes.is_empty() {
                self.put("(");
                self.declared(&block.inputs);
                self.put(") ");
                self.attributes(&block.attributes);
            }
            self.body(block);
        }
    }

    fn argument(&mut self, argument: &Argument) {
        let is_list = argument.arguments.len() != 1;
        self.put(if is_list { "(" } else { "" });
        self.list(&argument.arguments, |w, binding| match binding.binding.as_ref().unwrap() {
            argument::binding::Binding::Name(name) => w.put(name),
            argument::binding::Binding::Value(value) => w.value(value),
        });
        self.put(if is_list { ")" } else { "" });
    }

    fn attributes(&mut self, attributes: &HashMap<String, Value>) {
        if attributes.is_empty() {
            return;
        }
        self.put("[");
        self.list(sorted(attributes), |w, (name, value)| {
            let _ = write!(w.out, "{name} = ");
            w.value(value);
        });
        self.put("]");
    }

    fn value_type(&mut self, ty: &ValueType) {
        match ty.r#type.as_ref().unwrap() {
            value_type::Type::TensorType(tensor) => self.tensor_type(tensor),
            value_type::Type::ListType(list) => {
                self.put("list<");
                self.value_type(list.r#type.as_ref().unwrap());
                self.put(", ");
                self.dimension(list.length.as_ref().unwrap());
                self.put(">");
            }
            value_type::Type::TupleType(tuple) => {
                self.put("tuple<");
                self.list(&tuple.types, Writer::value_type);
                self.put(">");
            }
            value_type::Type::DictionaryType(dictionary) => {
                self.put("dict<");
                self.value_type(dictionary.key_type.as_ref().unwrap());
                self.put(", ");
                self.value_type(dictionary.value_type.as_ref().unwrap());
                self.put(">");
            }
            value_type::Type::StateType(state) => {
                self.put("state<");
                self.value_type(state.wrapped_type.as_ref().unwrap());
                self.put(">");
            }
        }
    }

    fn tensor_type(&mut self, tensor: &TensorType) {
        let name = DATA_TYPES.iter().find(|row| row.0 == tensor.data_type).unwrap().1;
        if tensor.dimensions.is_empty() && self.dialect == Dialect::Scalars {
            return self.put(name);
        }
        let _ = write!(self.out, "tensor<{name}, [");
        self.list(&tensor.dimensions, Writer::dimension);
        self.put("]>");
    }

    fn dimension(&mut self, dimension: &Dimension) {
        match dimension.dimension.as_ref().unwrap() {
            dimension::Dimension::Constant(constant) => self.put(&constant.size.to_string()),
            dimension::Dimension::Unknown(unknown) => self.put(if unknown.variadic { "..." } else { "?" }),
        }
    }

    fn value(&mut self, value: &Value) {
        self.value_type(value.r#type.as_ref().unwrap());
        self.put("(");
        self.literal(value);
        self.put(")");
    }

    fn literal(&mut self, value: &Value) {
        use value::immediate_value::Value as Immediate;
        let immediate = match value.value.as_ref().unwrap() {
            value::Value::ImmediateValue(immediate) => immediate.value.as_ref().unwrap(),
            value::Value::BlobFileValue(blob) => {
                let scalar = |name: &str| match self.dialect {
                    Dialect::Tensors => format!("tensor<{name}, []>"),
                    Dialect::Scalars => name.to_owned(),
                };
                let (text, offset) = (scalar("string"), scalar("uint64"));
                let _ = write!(
                    self.out,
                    "BLOBFILE(path = {text}({}), offset = {offset}({}))",
                    quoted(&blob.file_name),
                    blob.offset
                );
                return;
            }
        };
        match immediate {
            Immediate::Tensor(elements) => {
                let Some(value_type::Type::TensorType(ty)) = &value.r#type.as_ref().unwrap().r#type else {
                    panic!("not a tensor")
                };
                self.nested(&sizes(ty), &mut elements_of(elements, ty).into_iter());
            }
            Immediate::Tuple(tuple) => {
                self.put("(");
                self.list(&tuple.values, Writer::literal);
                self.put(")");
            }
            Immediate::List(list) => {
                self.put("[");
                self.list(&list.values, Writer::literal);
                self.put("]");
            }
            Immediate::Dictionary(dictionary) => {
                self.put("{");
                self.list(&dictionary.values, |w, pair| {
                    w.put("{");
                    w.literal(pair.key.as_ref().unwrap());
                    w.put(", ");
                    w.literal(pair.value.as_ref().unwrap());
                    w.put("}");
                });
                self.put("}");
            }
        }
    }

    /// A list for each dimension.
    fn nested(&mut self, shape: &[u64], elements: &mut impl Iterator<Item = String>) {
        let Some((&size, inner)) = shape.split_first() else {
            let element = elements.next().unwrap();
            return self.put(&element);
        };
        self.put("[");
        self.list(0..size, |w, _| w.nested(inner, elements));
        self.put("]");
    }
}

fn sorted<V>(map: &HashMap<String, V>) -> BTreeMap<&String, &V> {
    map.iter().collect()
}

fn sizes(ty: &TensorType) -> Vec<u64> {
    let size = |dim: &Dimension| match dim.dimension.as_ref().unwrap() {
        dimension::Dimension::Constant(constant) => constant.size,
        dimension::Dimension::Unknown(_) => panic!("a constant of unknown shape"),
    };
    ty.dimensions.iter().map(size).collect()
}

fn elements_of(elements: &TensorValue, ty: &TensorType) -> Vec<String> {
    use tensor_value::Value;
    let count: u64 = sizes(ty).iter().product();
    match elements.value.as_ref().unwrap() {
        Value::Floats(floats) => floats.values.iter().map(|&v| hexadecimal(v.into())).collect(),
        Value::Doubles(doubles) => doubles.values.iter().map(|&v| hexadecimal(v)).collect(),
        Value::Ints(ints) => ints.values.iter().map(ToString::to_string).collect(),
        Value::LongInts(ints) if ty.data_type == 34 => {
            ints.values.iter().map(|v| v.cast_unsigned().to_string()).collect()
        }
        Value::LongInts(ints) => ints.values.iter().map(ToString::to_string).collect(),
        Value::Bools(bools) => bools.values.iter().map(ToString::to_string).collect(),
        Value::Strings(strings) => strings.values.iter().map(|v| quoted(v)).collect(),
        Value::Bytes(bytes) => {
            (0..count as usize).map(|i| from_bytes(&bytes.values, i, ty.data_type)).collect()
        }
    }
}

/// The number of a data type, its name, its bits.
const DATA_TYPES: &[(i32, &str, usize)] = &[
    (1, "bool", 8),
    (2, "string", 8),
    (10, "fp16", 16),
    (11, "fp32", 32),
    (12, "fp64", 64),
    (13, "bf16", 16),
    (40, "fp8e4m3fn", 8),
    (41, "fp8e5m2", 8),
    (25, "int4", 4),
    (21, "int8", 8),
    (22, "int16", 16),
    (23, "int32", 32),
    (24, "int64", 64),
    (37, "uint1", 1),
    (36, "uint2", 2),
    (39, "uint3", 3),
    (35, "uint4", 4),
    (38, "uint6", 6),
    (31, "uint8", 8),
    (32, "uint16", 16),
    (33, "uint32", 32),
    (34, "uint64", 64),
];

/// An element that the protobuf keeps among its bytes.
fn from_bytes(bytes: &[u8], index: usize, data_type: i32) -> String {
    let &(_, name, bits) = DATA_TYPES.iter().find(|row| row.0 == data_type).unwrap();
    let bit = |at: usize| u64::from(bytes[at / 8] >> (at % 8) & 1);
    let raw = (0..bits).fold(0, |raw, i| raw | bit(index * bits + i) << i);
    match name {
        "fp16" => hexadecimal(f16::from_bits(raw as u16).to_f64()),
        "bf16" => hexadecimal(bf16::from_bits(raw as u16).to_f64()),
        "fp8e4m3fn" => hexadecimal(small_float(raw, 3, 7, raw & 0x7f == 0x7f)),
        "fp8e5m2" => match raw & 0x7f {
            0x7c => hexadecimal(f64::INFINITY.copysign(small_float(raw, 2, 15, false))),
            code => hexadecimal(small_float(raw, 2, 15, code > 0x7c)),
        },
        "int4" | "int8" => (((raw << (64 - bits)).cast_signed()) >> (64 - bits)).to_string(),
        _ => raw.to_string(),
    }
}

/// A float of 8 bits.
fn small_float(raw: u64, fraction_bits: u32, bias: i32, is_nan: bool) -> f64 {
    let sign = if raw & 0x80 == 0 { 1.0 } else { -1.0 };
    let (exponent, fraction) = ((raw & 0x7f) >> fraction_bits, raw & ((1 << fraction_bits) - 1));
    let fraction = fraction as f64 / f64::from(1 << fraction_bits);
    match exponent {
        _ if is_nan => f64::NAN,
        0 => sign * fraction * 2f64.powi(1 - bias),
        _ => sign * (1.0 + fraction) * 2f64.powi(exponent as i32 - bias),
    }
}

/// A float as C's `%a` writes it.
fn hexadecimal(value: f64) -> String {
    let sign = if value.is_sign_negative() { "-" } else { "" };
    if value.is_nan() {
        return "nan".to_owned();
    }
    if value.is_infinite() {
        return format!("{sign}inf");
    }
    let bits = value.to_bits();
    let (fraction, exponent) = (bits & ((1 << 52) - 1), bits >> 52 & 0x7ff);
    let digits = format!("{fraction:013x}");
    let digits = digits.trim_end_matches('0');
    let point = if digits.is_empty() { "" } else { "." };
    match exponent {
        0 if fraction == 0 => format!("{sign}0x0p+0"),
        0 => format!("{sign}0x0{point}{digits}p-1022"),
        _ => format!("{sign}0x1{point}{digits}p{:+}", exponent.cast_signed() - 1023),
    }
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}

//! Programs as readable text, close to what MLIR prints.

use std::fmt::{self, Display, Formatter, Write as _};

use half::{bf16, f16};

use crate::{Attribute, Dim, Graph, HwConstraints, Op, Port, Program, Region, Scalar, Type};

/// Elements of a constant that are shown.
const SHOWN: usize = 8;

impl Display for Program {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "asset version {}", self.version)?;
        self.graphs.iter().try_for_each(|graph| write!(f, "\n{graph}"))
    }
}

impl Display for Graph {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let flags = [
            ("private ", self.is_private),
            ("noinline ", self.no_inline),
            ("externalize ", self.externalize),
        ];
        let flags = flags.iter().filter(|(_, is_set)| *is_set).map(|(name, _)| *name).collect::<String>();
        let ports = |ports: &[Port]| joined(ports, |port| format!("{}: {}", quoted(&port.name), port.ty));
        writeln!(
            f,
            "{flags}graph {}({}) -> ({}) {{",
            quoted(&self.name),
            ports(&self.inputs),
            ports(&self.outputs)
        )?;
        if let Some(composite) = &self.composite {
            writeln!(f, "  composite {composite}")?;
        }
        region(f, &self.body, 1)?;
        f.write_str("}\n")
    }
}

fn region(f: &mut Formatter<'_>, region: &Region, depth: usize) -> fmt::Result {
    let indent = "  ".repeat(depth);
    if !region.arguments.is_empty() {
        let numbered: Vec<_> = region.arguments.iter().enumerate().collect();
        writeln!(f, "{indent}^({}):", joined(&numbered, |(index, ty)| format!("%{index}: {ty}")))?;
    }
    let mut next = region.arguments.len();
    for op in &region.ops {
        f.write_str(&indent)?;
        write_op(f, op, next)?;
        next += op.results.len();
        for inner in &op.regions {
            f.write_str(" {\n")?;
            self::region(f, inner, depth + 1)?;
            write!(f, "{indent}}}")?;
        }
        f.write_char('\n')?;
    }
    Ok(())
}

fn write_op(f: &mut Formatter<'_>, op: &Op, first: usize) -> fmt::Result {
    let results: Vec<_> = (first..first + op.results.len()).collect();
    if !results.is_empty() {
        write!(f, "{} = ", joined(&results, |id| format!("%{id}")))?;
    }
    write!(f, "{}({})", op.name.escape_debug(), joined(&op.operands, |id| format!("%{}", id.0)))?;
    let named = crate::bytecode::property_names(&op.name).iter().zip(&op.properties);
    let values: Vec<_> = named.filter_map(|((name, _), value)| Some((name, value.as_ref()?))).collect();
    if !values.is_empty() {
        let shown = |(name, value): &(&&str, &Attribute)| match (value, op.results.first()) {
            (Attribute::DenseElements { is_splat, bytes }, Some(Type::Tensor { element, .. })) => {
                format!("{name} = {}", dense(*is_splat, bytes, *element))
            }
            _ => format!("{name} = {value}"),
        };
        write!(f, " {{{}}}", joined(&values, shown))?;
    }
    match op.results.is_empty() {
        true => Ok(()),
        false => write!(f, " : {}", joined(&op.results, Type::to_string)),
    }
}

impl Display for Type {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Type::Tensor { dims, element, constraints } => {
                f.write_str("tensor<")?;
                dims.iter().try_for_each(|dim| write!(f, "{dim}x"))?;
                f.write_str(element.name())?;
                constraints.as_ref().map_or(Ok(()), |constraints| write!(f, ", {constraints}"))?;
                f.write_char('>')
            }
            Type::Sparse { dims, element, stored } => {
                f.write_str("sparse<")?;
                dims.iter().try_for_each(|dim| write!(f, "{dim}x"))?;
                write!(f, "{}, {stored} stored>", element.name())
            }
            Type::Handle(inner) => write!(f, "handle<{inner}>"),
            Type::Token => f.write_str("token"),
            Type::Scalar(scalar) => f.write_str(scalar.name()),
            Type::Function { inputs, outputs } => {
                let [inputs, outputs] = [inputs, outputs].map(|types| joined(types, Type::to_string));
                write!(f, "({inputs}) -> ({outputs})")
            }
            Type::ParamSymbol => f.write_str("param.symbol"),
            Type::ParamType => f.write_str("param.type"),
        }
    }
}

impl Display for Dim {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Dim::Fixed(size) => size.fmt(f),
            Dim::Dynamic => f.write_char('?'),
        }
    }
}

impl Display for HwConstraints {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let HwConstraints { alignments, interleave, allocation } = self;
        let place = match allocation {
            1 => "IOSurface",
            2 => "MTLBuffer",
            3 => "Heap",
            _ => "unknown",
        };
        write!(f, "alignments {alignments:?} interleave {interleave:?} {place}")
    }
}

impl Display for Attribute {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Attribute::String(text) => f.write_str(&quoted(text)),
            Attribute::Integer { width, is_unsigned: true, bits } => write!(f, "{bits} : ui{width}"),
            Attribute::Integer { width, is_unsigned: false, bits } => {
                let unused = u64::BITS - (*width).clamp(1, u64::BITS);
                write!(f, "{} : si{width}", (bits << unused).cast_signed() >> unused)
            }
            Attribute::Float { width: 32, bits } => write!(f, "{:?} : f32", f32::from_bits(*bits as u32)),
            Attribute::Float { width: 64, bits } => write!(f, "{:?} : f64", f64::from_bits(*bits)),
            Attribute::Float { width, bits } => write!(f, "{bits:#x} : f{width}"),
            Attribute::Type(ty) => ty.fmt(f),
            Attribute::Array(items) => write!(f, "[{}]", joined(items, Attribute::to_string)),
            Attribute::DenseElements { is_splat, bytes } => f.write_str(&dense(*is_splat, bytes, Scalar::U8)),
            Attribute::DenseResource(resource) => write!(f, "resource<{} bytes>", resource.byte_len()),
            Attribute::Opaque { name, items } => {
                write!(f, "{}<{}>", name.escape_debug(), joined(items, Attribute::to_string))
            }
            Attribute::SymbolRef(path) => write!(f, "@{}", joined(path, |name| quoted(name))),
            Attribute::ParamConstant { value, ty: Type::ParamSymbol } => value.fmt(f),
            Attribute::ParamConstant { value, ty } => write!(f, "{value} : {ty}"),
            Attribute::Approximate(mode) => write!(f, "approximate<{mode}>"),
            Attribute::ScatterMode(mode) => write!(f, "scatter_mode<{mode}>"),
            Attribute::Dictionary(items) => write!(f, "{{{}}}", joined(items, Attribute::to_string)),
            Attribute::Unit => f.write_str("unit"),
        }
    }
}

/// The first elements of a constant.
fn dense(is_splat: bool, bytes: &[u8], element: Scalar) -> String {
    let size = match element {
        Scalar::U1 => 1,
        other => (other.inline_bits() / 8) as usize,
    };
    let shown: Vec<_> = bytes.chunks_exact(size).take(SHOWN).collect();
    let text = joined(&shown, |bytes| number(bytes, element));
    let more = if bytes.len() / size > SHOWN { ", …" } else { "" };
    if is_splat { format!("dense<{text}>") } else { format!("dense<[{text}{more}]>") }
}

fn number(bytes: &[u8], element: Scalar) -> String {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    let bits = u64::from_le_bytes(word);
    let unused = u64::BITS - element.bits() as u32;
    match element {
        Scalar::F64 => format!("{:?}", f64::from_bits(bits)),
        Scalar::F32 => format!("{:?}", f32::from_bits(bits as u32)),
        Scalar::F16 => format!("{:?}", f16::from_bits(bits as u16)),
        Scalar::Bf16 => format!("{:?}", bf16::from_bits(bits as u16)),
        Scalar::I64 | Scalar::I32 | Scalar::I16 | Scalar::I8 | Scalar::I4 | Scalar::I2 => {
            ((bits << unused).cast_signed() >> unused).to_string()
        }
        Scalar::F8E5M2 | Scalar::F8E4M3Fn | Scalar::F8E8M0Fn | Scalar::F4E2M1Fn | Scalar::U1 => {
            format!("{bits:#04x}")
        }
        _ => bits.to_string(),
    }
}

fn joined<T>(items: &[T], text: impl Fn(&T) -> String) -> String {
    items.iter().map(text).collect::<Vec<_>>().join(", ")
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.escape_debug())
}

//! The tables that a file numbers its parts by: equal parts have one number.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use super::super::kinds::{BIT_MASK, SCALARS, attribute, ty};
use super::super::{properties, varint};
use super::resources::Resources;
use crate::error::{AssetError, Result};
use crate::{Attribute, Dim, HwConstraints, Scalar, Type};

/// Things by number and numbers by thing.
pub(super) struct Numbered<T: ?Sized> {
    items: Vec<Arc<T>>,
    numbers: HashMap<Arc<T>, u64>,
}

impl<T: ?Sized + Eq + Hash> Numbered<T> {
    fn new() -> Numbered<T> {
        Numbered { items: Vec::new(), numbers: HashMap::new() }
    }

    /// The number of a thing, a new one for a new thing.
    fn number<'a>(&mut self, item: &'a T) -> u64
    where
        Arc<T>: From<&'a T> + Borrow<T>,
    {
        if let Some(&number) = self.numbers.get(item) {
            return number;
        }
        let (number, item) = (self.len(), Arc::from(item));
        self.items.push(Arc::clone(&item));
        self.numbers.insert(item, number);
        number
    }

    pub(super) fn len(&self) -> u64 {
        self.items.len() as u64
    }

    pub(super) fn items(&self) -> &[Arc<T>] {
        &self.items
    }
}

impl Numbered<[u8]> {
    /// The bytes of all things and then those of others.
    pub(super) fn concat(&self, others: &Numbered<[u8]>) -> Vec<u8> {
        let mut out = Vec::new();
        self.items.iter().chain(&others.items).for_each(|item| out.extend_from_slice(item));
        out
    }
}

/// Names of operations: the numbers of their strings, in the order in which they were first used.
#[derive(Default)]
pub(super) struct OpNames {
    strings: Vec<u64>,
    numbers: HashMap<u64, u64>,
}

impl OpNames {
    pub(super) fn len(&self) -> u64 {
        self.strings.len() as u64
    }

    pub(super) fn items(&self) -> &[u64] {
        &self.strings
    }
}

/// All tables of a file in the making.
pub(super) struct Tables {
    pub(super) strings: Numbered<str>,
    pub(super) attributes: Numbered<[u8]>,
    pub(super) types: Numbered<[u8]>,
    pub(super) properties: Numbered<[u8]>,
    pub(super) ops: OpNames,
    pub(super) resources: Resources,
    /// The location that everything has.
    pub(super) location: u64,
}

impl Tables {
    pub(super) fn new() -> Tables {
        let mut tables = Tables {
            strings: Numbered::new(),
            attributes: Numbered::new(),
            types: Numbered::new(),
            properties: Numbered::new(),
            ops: OpNames::default(),
            resources: Resources::default(),
            location: 0,
        };
        tables.location = tables.shared_location();
        tables
    }

    /// Apple's loaders refuse locations of MLIR itself, so this is one of `aicode`: the start of a file by the name of the
    /// program that wrote it.
    fn shared_location(&mut self) -> u64 {
        let (name, nothing) = (self.string("anemeter"), self.string(""));
        let file = self.record(attribute::FILE, &[name, nothing, nothing]);
        let (line, column) = (1, 1);
        let start = self.record(attribute::SOURCE_LOCATION, &[file, line, column, line, column]);
        let scope = self.record(attribute::UNIT, &[]);
        let (no_inlining, no_metadata) = (0, 0);
        self.record(attribute::LOCATION, &[start, scope, no_inlining, no_metadata])
    }

    /// An attribute of unsigned integers only.
    fn record(&mut self, kind: u64, fields: &[u64]) -> u64 {
        let mut out = Vec::new();
        varint::push(&mut out, kind);
        fields.iter().for_each(|&field| varint::push(&mut out, field));
        self.attributes.number(&out)
    }

    pub(super) fn string(&mut self, text: &str) -> u64 {
        self.strings.number(text)
    }

    pub(super) fn op_name(&mut self, name: &str) -> u64 {
        let string = self.string(name);
        let next = self.ops.len();
        let number = *self.ops.numbers.entry(string).or_insert(next);
        if number == next {
            self.ops.strings.push(string);
        }
        number
    }

    /// The number of the properties of an operation.
    pub(super) fn property_values(&mut self, op: &str, values: &[Option<Attribute>]) -> Result<u64> {
        let names = properties::of(op);
        if names.len() != values.len() {
            let (found, expected) = (values.len(), names.len());
            return Err(AssetError::program(format!("has {found} properties, and its kind has {expected}")));
        }
        let mut out = Vec::new();
        for (&(name, is_optional), value) in names.iter().zip(values) {
            let number = value.as_ref().map(|value| self.attribute(value)).transpose()?;
            match (number, is_optional) {
                (Some(number), false) => varint::push(&mut out, number),
                (Some(number), true) => varint::push(&mut out, (number << 1) | 1),
                (None, true) => varint::push(&mut out, 0),
                (None, false) => return Err(AssetError::program(format!("has no property `{name}`"))),
            }
        }
        Ok(self.properties.number(&out))
    }

    pub(super) fn attribute(&mut self, attribute: &Attribute) -> Result<u64> {
        let mut out = Vec::new();
        self.push_attribute(&mut out, attribute)?;
        Ok(self.attributes.number(&out))
    }

    fn push_attribute(&mut self, out: &mut Vec<u8>, value: &Attribute) -> Result<()> {
        let mut fields = |kind: u64, fields: &[u64]| {
            varint::push(out, kind);
            fields.iter().for_each(|&field| varint::push(out, field));
        };
        match value {
            Attribute::String(text) => fields(attribute::STRING, &[self.string(text)]),
            Attribute::Integer { width, is_unsigned, bits } => {
                fields(attribute::INTEGER, &[u64::from(*width)]);
                out.push(u8::from(*is_unsigned));
                push_bits(out, *width, *bits)?;
            }
            Attribute::Float { width, bits } => {
                fields(attribute::FLOAT, &[u64::from(*width)]);
                push_bits(out, *width, *bits)?;
            }
            Attribute::Type(value) => fields(attribute::TYPE, &[self.ty(value)?]),
            Attribute::Array(items) => {
                fields(attribute::ARRAY, &[]);
                self.push_attributes(out, items)?;
            }
            Attribute::DenseElements { is_splat, bytes } => {
                fields(attribute::DENSE_ELEMENTS, &[]);
                out.push(u8::from(*is_splat));
                varint::push(out, bytes.len() as u64);
                out.extend_from_slice(bytes);
            }
            Attribute::DenseResource(resource) => {
                fields(attribute::DENSE_RESOURCE, &[self.resources.number(resource)?]);
            }
            Attribute::Opaque { name, items } => {
                fields(attribute::OPAQUE, &[self.string(name)]);
                self.push_attributes(out, items)?;
            }
            Attribute::SymbolRef(path) => {
                fields(attribute::SYMBOL_REF, &[]);
                varint::push_list(out, path.iter().map(|name| self.string(name)));
            }
            Attribute::ParamConstant { value, ty } => {
                fields(attribute::PARAM_CONSTANT, &[self.attribute(value)?, self.ty(ty)?]);
            }
            Attribute::Approximate(mode) => fields(attribute::APPROXIMATE, &[*mode]),
            Attribute::ScatterMode(mode) => fields(attribute::SCATTER_MODE, &[*mode]),
            Attribute::Dictionary(items) => {
                fields(attribute::DICTIONARY, &[]);
                self.push_attributes(out, items)?;
            }
            Attribute::Unit => fields(attribute::UNIT, &[]),
        }
        Ok(())
    }

    fn push_attributes(&mut self, out: &mut Vec<u8>, items: &[Attribute]) -> Result<()> {
        let numbers: Vec<_> = items.iter().map(|item| self.attribute(item)).collect::<Result<_>>()?;
        varint::push_list(out, numbers.into_iter());
        Ok(())
    }

    pub(super) fn ty(&mut self, value: &Type) -> Result<u64> {
        let mut out = Vec::new();
        match value {
            Type::Tensor { dims, element, constraints } => {
                let kind = if constraints.is_some() { ty::ENCODED_TENSOR } else { ty::TENSOR };
                varint::push(&mut out, kind);
                varint::push(&mut out, dims.len() as u64);
                for dim in dims {
                    varint::push_signed(&mut out, dim_code(*dim)?);
                }
                varint::push(&mut out, self.scalar(*element));
                if let Some(constraints) = constraints {
                    varint::push(&mut out, self.constraints(constraints));
                }
            }
            Type::Sparse { dims, element, stored } => {
                varint::push(&mut out, ty::ENCODED_TENSOR);
                varint::push(&mut out, dims.len() as u64);
                for dim in dims {
                    varint::push_signed(&mut out, dim_code(*dim)?);
                }
                varint::push(&mut out, self.scalar(*element));
                let encoding = [&BIT_MASK[..], &[*stored]].concat();
                varint::push(&mut out, self.record(attribute::SPARSE_ENCODING, &encoding));
            }
            Type::Handle(inner) => {
                let inner = self.ty(inner)?;
                varint::push(&mut out, ty::HANDLE);
                varint::push(&mut out, inner);
            }
            Type::Token => varint::push(&mut out, ty::TOKEN),
            Type::Scalar(scalar) => return Ok(self.scalar(*scalar)),
            Type::Function { inputs, outputs } => {
                let [outputs, inputs] = [self.types(outputs)?, self.types(inputs)?];
                varint::push(&mut out, ty::FUNCTION);
                varint::push_list(&mut out, outputs.into_iter());
                varint::push_list(&mut out, inputs.into_iter());
            }
            Type::ParamSymbol => varint::push(&mut out, ty::PARAM_SYMBOL),
            Type::ParamType => varint::push(&mut out, ty::PARAM_TYPE),
        }
        Ok(self.types.number(&out))
    }

    pub(super) fn types(&mut self, types: &[Type]) -> Result<Vec<u64>> {
        types.iter().map(|ty| self.ty(ty)).collect()
    }

    fn scalar(&mut self, scalar: Scalar) -> u64 {
        let entry = SCALARS.iter().find(|(known, _)| *known == scalar);
        let &(_, kind) = entry.expect("every scalar is in the table, which a test checks");
        let mut out = Vec::new();
        varint::push(&mut out, kind);
        self.types.number(&out)
    }

    fn constraints(&mut self, constraints: &HwConstraints) -> u64 {
        let mut out = Vec::new();
        varint::push(&mut out, attribute::HW_CONSTRAINTS);
        for list in [&constraints.alignments, &constraints.interleave] {
            varint::push(&mut out, list.len() as u64);
            list.iter().for_each(|&item| varint::push_signed(&mut out, item));
        }
        varint::push(&mut out, constraints.allocation);
        self.attributes.number(&out)
    }
}

/// A dimension as it is in the file, where the least integer is one that is known when the program runs.
fn dim_code(dim: Dim) -> Result<i64> {
    match dim {
        Dim::Dynamic => Ok(i64::MIN),
        Dim::Fixed(size) => size
            .try_into()
            .map_err(|_| AssetError::program(format!("a dimension of {size} does not fit into 63 bits"))),
    }
}

/// The bits of a number of a known width: a byte for few, otherwise as of a signed integer of 64 bits.
fn push_bits(out: &mut Vec<u8>, width: u32, bits: u64) -> Result<()> {
    if width == 0 || width > u64::BITS || (width < u64::BITS && bits >> width != 0) {
        return Err(AssetError::program(format!("{bits:#x} is no number of {width} bits")));
    }
    match width {
        ..=8 => out.push(bits.to_le_bytes()[0]),
        _ => varint::push_signed(out, bits.cast_signed()),
    }
    Ok(())
}

//! Attributes, types and properties by number.

use std::sync::Arc;

use super::super::kinds::{ATTRIBUTES, BIT_MASK, Field, Kind, OTHER_SCALARS, SCALARS, TYPES, attribute, ty};
use super::super::{properties, section};
use super::Budget;
use super::cursor::Cursor;
use super::sections::Sections;
use crate::error::Result;
use crate::{Attribute, Dim, HwConstraints, Resource, Scalar, Type};

/// How deep attributes and types may refer to each other.
const DEEPEST: usize = 32;

/// Everything that is numbered.
pub(super) struct Tables<'f> {
    strings: Vec<Arc<str>>,
    ops: Vec<Arc<str>>,
    attributes: Vec<Cursor<'f>>,
    types: Vec<Cursor<'f>>,
    properties: Vec<Cursor<'f>>,
    resources: Vec<Resource>,
    budget: Budget,
}

impl<'f> Tables<'f> {
    pub(super) fn read(
        sections: &Sections<'f>,
        strings: Vec<Arc<str>>,
        ops: Vec<Arc<str>>,
        resources: Vec<Resource>,
        budget: Budget,
    ) -> Result<Tables<'f>> {
        let (attributes, types) = entries(sections)?;
        let properties = match sections.optional(section::PROPERTIES) {
            Some(section) => property_entries(section)?,
            None => Vec::new(),
        };
        let tables = Tables { strings, ops, attributes, types, properties, resources, budget };
        tables
            .attributes
            .iter()
            .try_for_each(|entry| tables.check(entry.clone(), ATTRIBUTES, "attribute"))?;
        tables.types.iter().try_for_each(|entry| tables.check_type(entry.clone()))?;
        Ok(tables)
    }

    pub(super) fn budget(&mut self) -> &mut Budget {
        &mut self.budget
    }

    /// The next name of an operation.
    pub(super) fn op_name(&self, cursor: &mut Cursor<'_>) -> Result<Arc<str>> {
        Ok(Arc::clone(&self.ops[cursor.index(self.ops.len(), "an operation")?]))
    }

    /// Skips the location of something.
    pub(super) fn skip_location(&self, cursor: &mut Cursor<'_>) -> Result<()> {
        cursor.index(self.attributes.len(), "an attribute").map(drop)
    }

    /// The next properties, of an operation of this name.
    pub(super) fn properties(&mut self, cursor: &mut Cursor<'_>, op: &str) -> Result<Vec<Option<Attribute>>> {
        let mut record = self.properties[cursor.index(self.properties.len(), "properties")?].clone();
        let mut values = Vec::new();
        for &(_, is_optional) in properties::of(op) {
            let start = record.clone();
            let number = record.integer("a property")?;
            values.push(match (is_optional, number) {
                (true, 0) => None,
                (true, number) => Some(self.attribute(&start, number >> 1, 0)?),
                (false, number) => Some(self.attribute(&start, number, 0)?),
            });
        }
        record.finish("the properties of an operation")?;
        Ok(values)
    }

    /// The next type.
    pub(super) fn ty(&mut self, cursor: &mut Cursor<'_>) -> Result<Type> {
        let start = cursor.clone();
        let number = cursor.integer("a type")?;
        self.ty_numbered(&start, number, 0)
    }

    /// The type of a number that is at a place.
    pub(super) fn ty_at(&mut self, at: &Cursor<'_>, number: u64) -> Result<Type> {
        self.ty_numbered(at, number, 0)
    }

    /// The next attributes of a list.
    fn attributes(&mut self, cursor: &mut Cursor<'f>, depth: usize) -> Result<Vec<Attribute>> {
        let count = cursor.count("attributes")?;
        (0..count).map(|_| self.next_attribute(cursor, depth)).collect()
    }

    fn next_attribute(&mut self, cursor: &mut Cursor<'f>, depth: usize) -> Result<Attribute> {
        let start = cursor.clone();
        let number = cursor.integer("an attribute")?;
        self.attribute(&start, number, depth)
    }

    /// The attribute of a number that is at a place.
    fn attribute(&mut self, at: &Cursor<'_>, number: u64, depth: usize) -> Result<Attribute> {
        if depth == DEEPEST {
            return Err(at.malformed(format!("expected attributes of up to {DEEPEST} levels")));
        }
        let depth = depth + 1;
        let mut cursor = self.attributes[at.within(number, self.attributes.len(), "an attribute")?].clone();
        self.budget.take(size_of::<Attribute>(), &cursor)?;
        let kind = cursor.integer("the kind of an attribute")?;
        Ok(match kind {
            attribute::STRING => Attribute::String(self.string(&mut cursor)?),
            attribute::INTEGER => {
                let width = cursor.integer("a width")? as u32;
                let is_unsigned = cursor.byte("a sign")? != 0;
                Attribute::Integer { width, is_unsigned, bits: bits(&mut cursor, width)? }
            }
            attribute::FLOAT => {
                let width = cursor.integer("a width")? as u32;
                Attribute::Float { width, bits: bits(&mut cursor, width)? }
            }
            attribute::TYPE => Attribute::Type(self.next_ty(&mut cursor, depth)?),
            attribute::ARRAY => Attribute::Array(self.attributes(&mut cursor, depth)?),
            attribute::DENSE_ELEMENTS => {
                let is_splat = cursor.byte("a flag")? != 0;
                let len = cursor.integer("a length")?;
                let bytes = cursor.bytes(len, "elements")?;
                self.budget.take(bytes.len(), &cursor)?;
                Attribute::DenseElements { is_splat, bytes: bytes.to_vec() }
            }
            attribute::DENSE_RESOURCE => {
                let index = cursor.index(self.resources.len(), "a resource")?;
                Attribute::DenseResource(self.resources[index].clone())
            }
            attribute::OPAQUE => {
                let name = self.string(&mut cursor)?;
                Attribute::Opaque { name, items: self.attributes(&mut cursor, depth)? }
            }
            attribute::SYMBOL_REF => {
                let count = cursor.count("names")?;
                let names: Result<_> = (0..count).map(|_| self.string(&mut cursor)).collect();
                Attribute::SymbolRef(names?)
            }
            attribute::PARAM_CONSTANT => {
                let value = Box::new(self.next_attribute(&mut cursor, depth)?);
                Attribute::ParamConstant { value, ty: self.next_ty(&mut cursor, depth)? }
            }
            attribute::APPROXIMATE => Attribute::Approximate(cursor.integer("a mode")?),
            attribute::SCATTER_MODE => Attribute::ScatterMode(cursor.integer("a mode")?),
            attribute::DICTIONARY => Attribute::Dictionary(self.attributes(&mut cursor, depth)?),
            attribute::UNIT => Attribute::Unit,
            kind => {
                let text = format!("expected a property, found an attribute of kind {kind}");
                return Err(at.unsupported(text));
            }
        })
    }

    fn string(&mut self, cursor: &mut Cursor<'_>) -> Result<String> {
        let text = Arc::clone(&self.strings[cursor.index(self.strings.len(), "a string")?]);
        self.budget.take(size_of::<String>() + text.len(), cursor)?;
        Ok(text.as_ref().to_owned())
    }

    fn next_ty(&mut self, cursor: &mut Cursor<'_>, depth: usize) -> Result<Type> {
        let start = cursor.clone();
        let number = cursor.integer("a type")?;
        self.ty_numbered(&start, number, depth)
    }

    fn ty_numbered(&mut self, at: &Cursor<'_>, number: u64, depth: usize) -> Result<Type> {
        if depth == DEEPEST {
            return Err(at.malformed(format!("expected types of up to {DEEPEST} levels")));
        }
        let depth = depth + 1;
        let mut cursor = self.types[at.within(number, self.types.len(), "a type")?].clone();
        self.budget.take(size_of::<Type>(), &cursor)?;
        let start = cursor.clone();
        let kind = cursor.integer("the kind of a type")?;
        if let Some(scalar) = scalar(kind) {
            return Ok(Type::Scalar(scalar));
        }
        Ok(match kind {
            ty::TENSOR | ty::ENCODED_TENSOR => {
                let dims = self.dims(&mut cursor)?;
                let Type::Scalar(element) = self.next_ty(&mut cursor, depth)? else {
                    return Err(start.unsupported("expected a tensor of scalars"));
                };
                match kind {
                    ty::ENCODED_TENSOR => self.encoded(dims, element, &mut cursor)?,
                    _ => Type::Tensor { dims, element, constraints: None },
                }
            }
            ty::FUNCTION => {
                let [outputs, inputs] = [self.types(&mut cursor, depth)?, self.types(&mut cursor, depth)?];
                Type::Function { inputs, outputs }
            }
            ty::HANDLE => Type::Handle(Box::new(self.next_ty(&mut cursor, depth)?)),
            ty::TOKEN => Type::Token,
            ty::PARAM_SYMBOL => Type::ParamSymbol,
            ty::PARAM_TYPE => Type::ParamType,
            kind => {
                let other = OTHER_SCALARS.iter().find(|(number, _)| *number == kind);
                let name = other.map_or_else(|| format!("of kind {kind}"), |(_, name)| format!("`{name}`"));
                return Err(start.unsupported(format!("values of the type {name} are not known here")));
            }
        })
    }

    fn types(&mut self, cursor: &mut Cursor<'_>, depth: usize) -> Result<Vec<Type>> {
        let count = cursor.count("types")?;
        (0..count).map(|_| self.next_ty(cursor, depth)).collect()
    }

    fn dims(&mut self, cursor: &mut Cursor<'_>) -> Result<Vec<Dim>> {
        let count = cursor.count("dimensions")?;
        self.budget.take(count * size_of::<Dim>(), cursor)?;
        let dim = |_| {
            let start = cursor.clone();
            let size = cursor.signed("a dimension")?;
            match u64::try_from(size) {
                Ok(size) => Ok(Dim::Fixed(size)),
                Err(_) if size == i64::MIN => Ok(Dim::Dynamic),
                Err(_) => Err(start.malformed(format!("expected a dimension, found {size}"))),
            }
        };
        (0..count).map(dim).collect()
    }

    /// A tensor with an attribute that says how it lies in memory, or which of its elements are stored.
    fn encoded(&mut self, dims: Vec<Dim>, element: Scalar, cursor: &mut Cursor<'_>) -> Result<Type> {
        let start = cursor.clone();
        let mut record = self.attributes[cursor.index(self.attributes.len(), "an attribute")?].clone();
        match record.integer("the kind of an attribute")? {
            attribute::HW_CONSTRAINTS => {
                Ok(Type::Tensor { dims, element, constraints: Some(self.constraints(record)?) })
            }
            attribute::SPARSE_ENCODING => {
                for expected in BIT_MASK {
                    let at = record.clone();
                    let found = record.integer("a sparse encoding")?;
                    if found != expected {
                        return Err(at.unsupported("expected a sparse encoding by a bit mask"));
                    }
                }
                Ok(Type::Sparse { dims, element, stored: record.integer("a number of stored elements")? })
            }
            kind => Err(start.unsupported(format!(
                "expected constraints or a sparse encoding of a tensor, found an attribute of kind {kind}"
            ))),
        }
    }

    fn constraints(&mut self, mut record: Cursor<'_>) -> Result<HwConstraints> {
        self.budget.take(record.left().len() * size_of::<i64>(), &record)?;
        let mut integers = || {
            let count = record.count("integers")?;
            (0..count).map(|_| record.signed("an integer")).collect::<Result<Vec<_>>>()
        };
        let [alignments, interleave] = [integers()?, integers()?];
        Ok(HwConstraints { alignments, interleave, allocation: record.integer("an allocation")? })
    }

    fn check_type(&self, entry: Cursor<'f>) -> Result<()> {
        let kind = entry.clone().integer("the kind of a type")?;
        if scalar(kind).is_some() || OTHER_SCALARS.iter().any(|(number, _)| *number == kind) {
            let mut entry = entry;
            entry.integer("the kind of a type")?;
            return entry.finish("a type");
        }
        self.check(entry, TYPES, "type")
    }

    /// Checks a record, its references and its end, whether anything refers to it or not.
    fn check(&self, mut entry: Cursor<'f>, kinds: &[Kind], what: &str) -> Result<()> {
        let start = entry.clone();
        let number = entry.integer("a kind")?;
        let Some(kind) = kinds.iter().find(|kind| kind.number == number) else {
            return Err(start.unsupported(format!("the kind {number} of {what} is not known here")));
        };
        kind.fields.iter().try_for_each(|field| self.check_field(&mut entry, *field))?;
        entry.finish(&format!("a record of kind {number} of {what}"))
    }

    fn check_field(&self, entry: &mut Cursor<'f>, field: Field) -> Result<()> {
        let [strings, attributes, types] = [self.strings.len(), self.attributes.len(), self.types.len()];
        match field {
            Field::Byte => entry.byte("a flag").map(drop),
            Field::Integer => entry.integer("an integer").map(drop),
            Field::Bits { has_sign } => {
                let start = entry.clone();
                let width = entry.integer("a width")?;
                if !(1..=u64::from(u64::BITS)).contains(&width) {
                    return Err(
                        start.unsupported(format!("expected a width of up to 64 bits, found {width}"))
                    );
                }
                if has_sign {
                    entry.byte("a sign")?;
                }
                bits(entry, width as u32).map(drop)
            }
            Field::Integers => each(entry, |entry| entry.signed("an integer").map(drop)),
            Field::Bytes => {
                let len = entry.integer("a length")?;
                entry.bytes(len, "elements").map(drop)
            }
            Field::String => entry.index(strings, "a string").map(drop),
            Field::Strings => each(entry, |entry| entry.index(strings, "a string").map(drop)),
            Field::Attribute => entry.index(attributes, "an attribute").map(drop),
            Field::OptionalAttribute => {
                let start = entry.clone();
                match entry.integer("an attribute")? {
                    0 => Ok(()),
                    number => start.within(number >> 1, attributes, "an attribute").map(drop),
                }
            }
            Field::Attributes => each(entry, |entry| entry.index(attributes, "an attribute").map(drop)),
            Field::Type => entry.index(types, "a type").map(drop),
            Field::Types => each(entry, |entry| entry.index(types, "a type").map(drop)),
            Field::Resource => entry.index(self.resources.len(), "a resource").map(drop),
        }
    }
}

/// Checks a count and as many things.
fn each<'f>(entry: &mut Cursor<'f>, mut check: impl FnMut(&mut Cursor<'f>) -> Result<()>) -> Result<()> {
    let count = entry.count("items")?;
    (0..count).try_for_each(|_| check(entry))
}

/// The bits of a number of a known width; those beyond it are zero.
fn bits(cursor: &mut Cursor<'_>, width: u32) -> Result<u64> {
    let start = cursor.clone();
    let bits = match width {
        ..=8 => u64::from(cursor.byte("a number")?),
        _ => cursor.signed("a number")?.cast_unsigned(),
    };
    match width < u64::BITS && bits >> width != 0 {
        true => Err(start.malformed(format!("expected a number of {width} bits, found {bits:#x}"))),
        false => Ok(bits),
    }
}

fn scalar(kind: u64) -> Option<Scalar> {
    SCALARS.iter().find(|(_, number)| *number == kind).map(|(scalar, _)| *scalar)
}

/// Where the attributes and the types are.
fn entries<'f>(sections: &Sections<'f>) -> Result<(Vec<Cursor<'f>>, Vec<Cursor<'f>>)> {
    let mut offsets = sections.required(section::ATTR_TYPE_OFFSET)?;
    let mut data = sections.required(section::ATTR_TYPE)?;
    let counts = [offsets.count("attributes")?, offsets.count("types")?];
    let mut groups = counts.map(Vec::with_capacity);
    for (count, entries) in counts.into_iter().zip(&mut groups) {
        while entries.len() < count {
            offsets.index(1, "the dialect")?;
            let start = offsets.clone();
            let size = offsets.integer("the size of a group")?;
            for _ in 0..start.believe(size, count - entries.len(), "entries")? {
                let start = offsets.clone();
                let encoded = offsets.integer("the size of an entry")?;
                if encoded & 1 == 0 {
                    return Err(start.unsupported("expected an encoded attribute or type, found one as text"));
                }
                entries.push(data.part(encoded >> 1, "an attribute or a type")?);
            }
        }
    }
    offsets.finish("the attributes and types")?;
    data.finish("the attributes and types")?;
    let [attributes, types] = groups;
    Ok((attributes, types))
}

fn property_entries(mut section: Cursor<'_>) -> Result<Vec<Cursor<'_>>> {
    let count = section.count("properties")?;
    let mut entries = Vec::with_capacity(count);
    for _ in 0..count {
        let len = section.integer("the length of properties")?;
        entries.push(section.part(len, "properties")?);
    }
    section.finish("the properties")?;
    Ok(entries)
}

//! Constants: `TYPE(literal)` or `TYPE(BLOBFILE(path = .., offset = ..))`.
//!
//! Inside a literal nothing repeats its type: a tuple is `(a, b)`, a list `[a, b]`, a dictionary `{{key, value}, ..}`,
//! and a tensor of higher rank a list of lists.

use super::lexer::{Lexer, Token, unescaped};
use super::number::{push_float, push_int};
use super::types;
use crate::package::decode::{Sources, element_count};
use crate::package::error::{PackageError, Result};
use crate::{Dim, Literal, LiteralData, TensorType, Type};
use anemeter_kernels::tensor::packed::pack;
use anemeter_kernels::tensor::{AlignedBuf, DType};

/// Reads constants, and bounds how much longer than their text they may become.
pub(super) struct Values<'s, 'w> {
    pub(super) sources: &'s mut Sources<'w>,
    /// How many parts of types may still be repeated: each element of a list has the type of all of them, which the
    /// text says once.
    parts_left: usize,
    /// Whether a tensor may have dimensions that its type leaves open, which are then those of its elements.
    open_shapes: bool,
}

impl<'s, 'w> Values<'s, 'w> {
    pub(super) fn new(sources: &'s mut Sources<'w>, text_len: usize) -> Values<'s, 'w> {
        Values { sources, parts_left: text_len, open_shapes: false }
    }

    /// A constant with its type.
    pub(super) fn value(&mut self, lexer: &mut Lexer<'_>) -> Result<Literal> {
        let ty = types::value_type(lexer)?;
        self.of_type(lexer, &ty)
    }

    /// A constant whose type is known, in parentheses.
    pub(super) fn of_type(&mut self, lexer: &mut Lexer<'_>, ty: &Type) -> Result<Literal> {
        lexer.expect("(")?;
        let literal = self.literal(lexer, ty)?;
        lexer.expect(")")?;
        Ok(literal)
    }

    /// A constant for the compiler alone, whose tensors may have open shapes.
    pub(super) fn with_open_shapes(&mut self, lexer: &mut Lexer<'_>) -> Result<Literal> {
        self.open_shapes = true;
        let value = self.value(lexer);
        self.open_shapes = false;
        value
    }

    /// Nests as deep as the type, which is bounded.
    fn literal(&mut self, lexer: &mut Lexer<'_>, ty: &Type) -> Result<Literal> {
        let place = lexer.place();
        let Some(left) = self.parts_left.checked_sub(parts(ty)) else {
            return Err(lexer.error_at(place, "constants repeat larger types than the text is long"));
        };
        self.parts_left = left;
        let data = match ty {
            Type::Tensor(tensor) => return self.tensor(lexer, tensor),
            Type::State(_) => return Err(lexer.error_at(place, format!("a {ty} cannot be a constant"))),
            Type::Tuple(types) => {
                lexer.expect("(")?;
                let mut expected = types.iter();
                let items = lexer.list(")", |lexer| match expected.next() {
                    Some(ty) => self.literal(lexer, ty),
                    None => {
                        Err(lexer.error_at(place, format!("a {ty} has more than {} values", types.len())))
                    }
                })?;
                let found = items.len();
                if found != types.len() {
                    return Err(lexer.error_at(place, format!("a {ty} has {found} values")));
                }
                LiteralData::Items(items)
            }
            Type::List(element, length) => {
                lexer.expect("[")?;
                let items = lexer.list("]", |lexer| self.literal(lexer, element))?;
                if matches!(length, Dim::Fixed(length) if *length != items.len() as u64) {
                    return Err(lexer.error_at(place, format!("a {ty} has {} values", items.len())));
                }
                LiteralData::Items(items)
            }
            Type::Dictionary(key, value) => {
                lexer.expect("{")?;
                LiteralData::Entries(lexer.list("}", |lexer| {
                    lexer.expect("{")?;
                    let key = self.literal(lexer, key)?;
                    lexer.expect(",")?;
                    let value = self.literal(lexer, value)?;
                    lexer.expect("}")?;
                    Ok((key, value))
                })?)
            }
        };
        Ok(Literal { ty: ty.clone(), data })
    }

    fn tensor(&mut self, lexer: &mut Lexer<'_>, ty: &TensorType) -> Result<Literal> {
        let place = lexer.place();
        let fault = |lexer: &Lexer<'_>, text: String| lexer.error_at(place, text);
        if lexer.peek() == Token::Name("BLOBFILE") {
            let elements = element_count(ty).map_err(|text| fault(lexer, text))?;
            let (file, offset) = self.blob(lexer)?;
            let bytes = self.sources.blobs.read(&file, offset, ty, elements);
            let bytes = bytes.map_err(|e: PackageError| lexer.locate(place, e))?;
            return Ok(Literal { ty: ty.clone().into(), data: LiteralData::Blob(bytes) });
        }
        let mut elements = Elements {
            ty,
            sizes: vec![None; ty.shape.len()],
            open: self.open_shapes,
            place,
            bytes: Vec::new(),
            strings: Vec::new(),
        };
        elements.read(lexer, 0)?;
        let ty = match elements.open {
            true => elements.found_type(),
            false => ty.clone(),
        };
        let data = elements.finish(self.sources);
        element_count(&ty).map_err(|text| fault(lexer, text))?;
        Ok(Literal { ty: ty.into(), data })
    }

    /// The file and the offset of a reference into a weight file.
    fn blob(&mut self, lexer: &mut Lexer<'_>) -> Result<(String, u64)> {
        lexer.keyword("BLOBFILE")?;
        lexer.expect("(")?;
        lexer.keyword("path")?;
        lexer.expect("=")?;
        let place = lexer.place();
        let path = self.scalar(lexer, DType::String, place)?;
        lexer.expect(",")?;
        lexer.keyword("offset")?;
        lexer.expect("=")?;
        let place = lexer.place();
        let offset = self.scalar(lexer, DType::U64, place)?;
        lexer.expect(")")?;
        let path = path.as_text().unwrap_or_default().to_owned();
        let offset = match &offset.data {
            LiteralData::Immediate(bytes) => bytes.first_chunk().copied().map_or(0, u64::from_le_bytes),
            _ => 0,
        };
        Ok((path, offset))
    }

    /// A scalar of a type, which is not in a weight file itself.
    fn scalar(&mut self, lexer: &mut Lexer<'_>, dtype: DType, place: usize) -> Result<Literal> {
        let expected = TensorType::scalar(dtype);
        let found = types::value_type(lexer)?;
        if found.tensor() != Some(&expected) {
            return Err(lexer.error_at(place, format!("expected a {expected}, found a {found}")));
        }
        lexer.expect("(")?;
        if lexer.peek() == Token::Name("BLOBFILE") {
            return Err(lexer.unexpected(&format!("a {dtype}")));
        }
        let literal = self.tensor(lexer, &expected)?;
        lexer.expect(")")?;
        Ok(literal)
    }
}

/// The elements of a tensor while they are read.
struct Elements<'t> {
    ty: &'t TensorType,
    /// The size of each dimension, once it was met.
    sizes: Vec<Option<u64>>,
    open: bool,
    place: usize,
    /// Numbers; each takes a byte at least.
    bytes: Vec<u8>,
    strings: Vec<String>,
}

impl Elements<'_> {
    /// A list for each dimension from `dim` on, or one element behind the last. Nests as deep as the rank, which is
    /// bounded.
    fn read(&mut self, lexer: &mut Lexer<'_>, dim: usize) -> Result<()> {
        let Some(&size) = self.ty.shape.get(dim) else { return self.element(lexer) };
        let place = lexer.place();
        if lexer.peek() != Token::Mark("[") {
            return Err(lexer.unexpected(&format!("`[` of a {}", self.ty)));
        }
        lexer.take()?;
        let mut count = 0u64;
        lexer.each("]", |lexer| {
            count += 1;
            self.read(lexer, dim + 1)
        })?;
        let expected = match (size, self.sizes[dim]) {
            (Dim::Fixed(size), _) => size,
            (Dim::Unknown, known) if self.open => known.unwrap_or(count),
            _ => {
                let text = format!("a constant has the type {}, whose shape is not fixed", self.ty);
                return Err(lexer.error_at(self.place, text));
            }
        };
        if count != expected {
            let text =
                format!("dimension {dim} of a {} has {count} elements where {expected} are needed", self.ty);
            return Err(lexer.error_at(place, text));
        }
        self.sizes[dim] = Some(count);
        Ok(())
    }

    fn element(&mut self, lexer: &mut Lexer<'_>) -> Result<()> {
        let place = lexer.place();
        let dtype = self.ty.dtype;
        let pushed = match (dtype, lexer.peek()) {
            (DType::Bool, Token::Name(word @ ("true" | "false"))) => {
                self.bytes.push(u8::from(word == "true"));
                Ok(())
            }
            (DType::String, Token::Text(text)) => {
                unescaped(text).map(|text| self.strings.push(text.into_owned()))
            }
            (DType::Bool | DType::String, _) => return Err(lexer.unexpected(&format!("a {dtype}"))),
            (_, Token::Number(text)) if dtype.is_int() => push_int(text, dtype, &mut self.bytes),
            (_, Token::Number(text) | Token::Name(text @ ("inf" | "nan"))) if dtype.is_float() => {
                push_float(text, dtype, &mut self.bytes)
            }
            _ => return Err(lexer.unexpected(&format!("a number of type {dtype}"))),
        };
        pushed.map_err(|text| lexer.error_at(place, text))?;
        lexer.take()?;
        Ok(())
    }

    /// The type with the sizes that were met; a dimension inside an empty one has none, so its size is 0.
    fn found_type(&self) -> TensorType {
        let declared = self.ty.shape.iter().zip(&self.sizes);
        let shape = declared.map(|(&dim, found)| match dim {
            Dim::Fixed(size) => Dim::Fixed(size),
            _ => Dim::Fixed(found.unwrap_or(0)),
        });
        TensorType { dtype: self.ty.dtype, shape: shape.collect() }
    }

    fn finish(self, sources: &mut Sources<'_>) -> LiteralData {
        match self.ty.dtype {
            DType::String => LiteralData::Strings(self.strings),
            dtype if dtype.is_sub_byte() => {
                let packed = pack(self.bytes, dtype.bits());
                LiteralData::Immediate(sources.immediate(AlignedBuf::from_slice(&packed)))
            }
            _ => LiteralData::Immediate(sources.immediate(AlignedBuf::from_slice(&self.bytes))),
        }
    }
}

/// How many types a type consists of, its dimensions included.
fn parts(ty: &Type) -> usize {
    match ty {
        Type::Tensor(tensor) | Type::State(tensor) => 1 + tensor.shape.len(),
        Type::List(element, _) => 2 + parts(element),
        Type::Tuple(types) => 1 + types.iter().map(parts).sum::<usize>(),
        Type::Dictionary(key, value) => 1 + parts(key) + parts(value),
    }
}

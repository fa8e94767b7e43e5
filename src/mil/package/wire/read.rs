//! Reading, without any memory of its own: fields are found in the bytes when they are asked for.
//!
//! A [`Message`] is checked once, when it is made, against its [`Schema`]: every field must be known (dropping
//! one would lose it when the model is written again) and fields that cannot repeat must not. Nothing here
//! recurses, so nesting is bounded by whoever descends.

use crate::package::error::{PackageError, Result};

/// Which fields a message may have.
pub(in crate::package) struct Schema {
    /// The message's name, for errors.
    pub(in crate::package) name: &'static str,
    /// Fields that occur at most once.
    pub(in crate::package) once: &'static [u32],
    /// Fields that may repeat.
    pub(in crate::package) many: &'static [u32],
}

/// The bytes of one message whose top-level fields are known to be well formed.
#[derive(Clone, Copy)]
pub(in crate::package) struct Message<'a> {
    bytes: &'a [u8],
    offset: usize,
    schema: &'static Schema,
}

/// One field of a message.
#[derive(Clone, Copy)]
pub(in crate::package) struct Field<'a> {
    number: u32,
    raw: Raw<'a>,
    offset: usize,
    message: &'static str,
}

#[derive(Clone, Copy)]
enum Raw<'a> {
    Varint(u64),
    Fixed64([u8; 8]),
    Bytes(&'a [u8]),
    Fixed32([u8; 4]),
}

/// A position in bytes.
struct Cursor<'a> {
    bytes: &'a [u8],
    position: usize,
    offset: usize,
    message: &'static str,
}

impl<'a> Message<'a> {
    /// The outermost message of a file.
    pub(in crate::package) fn root(bytes: &'a [u8], schema: &'static Schema) -> Result<Message<'a>> {
        Message::new(bytes, 0, schema)
    }

    /// A message that starts `offset` bytes into its file.
    pub(in crate::package) fn at(
        bytes: &'a [u8],
        offset: usize,
        schema: &'static Schema,
    ) -> Result<Message<'a>> {
        Message::new(bytes, offset, schema)
    }

    fn new(bytes: &'a [u8], offset: usize, schema: &'static Schema) -> Result<Message<'a>> {
        let message = Message { bytes, offset, schema };
        let mut seen = 0u64;
        for field in message.fields() {
            let field = field?;
            if let Some(index) = schema.once.iter().position(|&n| n == field.number) {
                if seen & (1 << index) != 0 {
                    return Err(
                        field.error(format!("field {} of {} occurs twice", field.number, schema.name))
                    );
                }
                seen |= 1 << index;
            } else if !schema.many.contains(&field.number) {
                return Err(field.error(format!("{} has the unknown field {}", schema.name, field.number)));
            }
        }
        Ok(message)
    }

    /// Bytes of the message.
    pub(in crate::package) fn byte_len(&self) -> usize {
        self.bytes.len()
    }

    /// The field of the given number, if it is present.
    pub(in crate::package) fn get(&self, number: u32) -> Option<Field<'a>> {
        self.all(number).next()
    }

    /// The field of the given number; an empty message if absent, as protobuf has it for the values of maps.
    pub(in crate::package) fn get_or_empty(&self, number: u32) -> Field<'a> {
        let empty = Raw::Bytes(&[]);
        let name = self.schema.name;
        self.get(number).unwrap_or(Field { number, raw: empty, offset: self.offset, message: name })
    }

    /// Every occurrence of a field.
    pub(in crate::package) fn all(&self, number: u32) -> impl Iterator<Item = Field<'a>> + use<'a> {
        self.fields().map_while(Result::ok).filter(move |field| field.number == number)
    }

    /// Room for every occurrence of a field that takes at least `smallest` bytes, tag and length included.
    /// Occurrences that are smaller must be refused; they reserve nothing.
    pub(in crate::package) fn room_for<T>(&self, number: u32, smallest: usize) -> Vec<T> {
        Vec::with_capacity(self.all(number).count().min(self.bytes.len() / smallest))
    }

    /// What `read` makes of every occurrence of such a field.
    pub(in crate::package) fn each<T>(
        &self,
        number: u32,
        smallest: usize,
        mut read: impl FnMut(&Field<'a>) -> Result<T>,
    ) -> Result<Vec<T>> {
        let mut read_so_far = self.room_for(number, smallest);
        for field in self.all(number) {
            read_so_far.push(read(&field)?);
        }
        Ok(read_so_far)
    }

    /// The string field of the given number; empty if absent.
    pub(in crate::package) fn text(&self, number: u32) -> Result<&'a str> {
        self.get(number).map_or(Ok(""), |field| field.text())
    }

    /// The integer field of the given number; 0 if absent.
    pub(in crate::package) fn int64(&self, number: u32) -> Result<i64> {
        self.get(number).map_or(Ok(0), |field| field.int64())
    }

    /// The unsigned integer field of the given number; 0 if absent.
    pub(in crate::package) fn uint64(&self, number: u32) -> Result<u64> {
        self.get(number).map_or(Ok(0), |field| field.varint())
    }

    /// The 32-bit integer or enumeration field of the given number; 0 if absent.
    pub(in crate::package) fn int32(&self, number: u32) -> Result<i32> {
        self.get(number).map_or(Ok(0), |field| field.int32())
    }

    /// The boolean field of the given number; false if absent.
    pub(in crate::package) fn boolean(&self, number: u32) -> Result<bool> {
        self.get(number).map_or(Ok(false), |field| field.boolean())
    }

    /// An error about this message.
    pub(in crate::package) fn error(&self, message: impl Into<String>) -> PackageError {
        PackageError::malformed(message).at_offset(self.offset as u64)
    }

    fn fields(&self) -> impl Iterator<Item = Result<Field<'a>>> + use<'a> {
        fields(self.bytes, self.offset, self.schema.name)
    }
}

/// The fields of a message up to the first that is malformed, whether they are known or not and without a look inside
/// any.
pub(in crate::package) fn fields<'a>(
    bytes: &'a [u8],
    offset: usize,
    message: &'static str,
) -> impl Iterator<Item = Result<Field<'a>>> + use<'a> {
    let mut cursor = Cursor { bytes, position: 0, offset, message };
    std::iter::from_fn(move || {
        (cursor.position < cursor.bytes.len()).then(|| {
            let field = cursor.field();
            if field.is_err() {
                cursor.position = cursor.bytes.len();
            }
            field
        })
    })
}

impl<'a> Field<'a> {
    /// Its number.
    pub(in crate::package) fn number(&self) -> u32 {
        self.number
    }

    /// Where its content starts in the file.
    pub(in crate::package) fn offset(&self) -> usize {
        self.offset
    }

    /// The field as a nested message.
    pub(in crate::package) fn message(&self, schema: &'static Schema) -> Result<Message<'a>> {
        Message::new(self.bytes()?, self.offset, schema)
    }

    /// The field as bytes.
    pub(in crate::package) fn bytes(&self) -> Result<&'a [u8]> {
        match self.raw {
            Raw::Bytes(bytes) => Ok(bytes),
            _ => Err(self.wrong_kind("bytes")),
        }
    }

    /// The field as a string.
    pub(in crate::package) fn text(&self) -> Result<&'a str> {
        std::str::from_utf8(self.bytes()?)
            .map_err(|_| self.error(format!("field {} of {} is not valid UTF-8", self.number, self.message)))
    }

    /// The field as an unsigned integer.
    pub(in crate::package) fn varint(&self) -> Result<u64> {
        match self.raw {
            Raw::Varint(value) => Ok(value),
            _ => Err(self.wrong_kind("an integer")),
        }
    }

    /// The field as an integer.
    pub(in crate::package) fn int64(&self) -> Result<i64> {
        Ok(self.varint()?.cast_signed())
    }

    /// The field as a 32-bit integer.
    pub(in crate::package) fn int32(&self) -> Result<i32> {
        let value = self.int64()?;
        i32::try_from(value)
            .map_err(|_| self.error(format!("field {} of {} is {value}", self.number, self.message)))
    }

    /// The field as a boolean.
    pub(in crate::package) fn boolean(&self) -> Result<bool> {
        match self.varint()? {
            0 => Ok(false),
            1 => Ok(true),
            other => {
                Err(self
                    .error(format!("field {} of {} is {other}, not a boolean", self.number, self.message)))
            }
        }
    }

    /// The field as a 32-bit float.
    pub(in crate::package) fn float(&self) -> Result<f32> {
        match self.raw {
            Raw::Fixed32(bytes) => Ok(f32::from_le_bytes(bytes)),
            _ => Err(self.wrong_kind("a 32-bit float")),
        }
    }

    /// The field as a 64-bit float.
    pub(in crate::package) fn double(&self) -> Result<f64> {
        match self.raw {
            Raw::Fixed64(bytes) => Ok(f64::from_le_bytes(bytes)),
            _ => Err(self.wrong_kind("a 64-bit float")),
        }
    }

    /// Hands over the integers of a repeated field, packed or not.
    pub(in crate::package) fn each_varint(&self, mut take: impl FnMut(u64) -> Result<()>) -> Result<()> {
        match self.raw {
            Raw::Varint(value) => take(value),
            Raw::Bytes(bytes) => {
                let mut cursor = Cursor { bytes, position: 0, offset: self.offset, message: self.message };
                while cursor.position < bytes.len() {
                    take(cursor.varint()?)?;
                }
                Ok(())
            }
            _ => Err(self.wrong_kind("integers")),
        }
    }

    /// The bytes of a repeated field of fixed-size elements, packed or not.
    pub(in crate::package) fn fixed_bytes(&self, size: usize) -> Result<&[u8]> {
        match &self.raw {
            Raw::Bytes(bytes) if bytes.len() % size == 0 => Ok(bytes),
            Raw::Fixed32(bytes) if size == 4 => Ok(bytes),
            Raw::Fixed64(bytes) if size == 8 => Ok(bytes),
            _ => Err(self.wrong_kind("floats")),
        }
    }

    /// An error about this field.
    pub(in crate::package) fn error(&self, message: impl Into<String>) -> PackageError {
        PackageError::malformed(message).at_offset(self.offset as u64)
    }

    fn wrong_kind(&self, expected: &str) -> PackageError {
        let found = match self.raw {
            Raw::Varint(_) => "an integer",
            Raw::Fixed64(_) => "64 fixed bits",
            Raw::Bytes(_) => "bytes",
            Raw::Fixed32(_) => "32 fixed bits",
        };
        self.error(format!("field {} of {} holds {found}, expected {expected}", self.number, self.message))
    }
}

impl<'a> Cursor<'a> {
    fn field(&mut self) -> Result<Field<'a>> {
        let tag = self.varint()?;
        let number = u32::try_from(tag >> 3).ok().filter(|&n| n > 0);
        let number =
            number.ok_or_else(|| self.error(format!("{} has a field tag of {tag}", self.message)))?;
        let raw = match tag & 7 {
            0 => Raw::Varint(self.varint()?),
            1 => Raw::Fixed64(self.fixed()?),
            2 => {
                let len = self.varint()?;
                let left = (self.bytes.len() - self.position) as u64;
                if len > left {
                    return Err(self.error(format!(
                        "field {number} of {} claims {len} bytes where {left} are left",
                        self.message
                    )));
                }
                Raw::Bytes(self.take(len as usize)?)
            }
            5 => Raw::Fixed32(self.fixed()?),
            other => {
                return Err(
                    self.error(format!("field {number} of {} has the wire type {other}", self.message))
                );
            }
        };
        let len = if let Raw::Bytes(bytes) = raw { bytes.len() } else { 0 };
        Ok(Field { number, raw, offset: self.offset + self.position - len, message: self.message })
    }

    fn varint(&mut self) -> Result<u64> {
        if let Some(&byte) = self.bytes.get(self.position).filter(|&&byte| byte < 0x80) {
            self.position += 1;
            return Ok(byte.into());
        }
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let [byte] = self.fixed::<1>()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(self.error(format!("{} has an integer of more than 64 bits", self.message)))
    }

    fn fixed<const N: usize>(&mut self) -> Result<[u8; N]> {
        let bytes = self.take(N)?;
        let mut out = [0; N];
        out.copy_from_slice(bytes);
        Ok(out)
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        let rest = &self.bytes[self.position..];
        let taken = rest.get(..len).ok_or_else(|| self.error(format!("{} is cut short", self.message)))?;
        self.position += len;
        Ok(taken)
    }

    fn error(&self, message: impl Into<String>) -> PackageError {
        PackageError::malformed(message).at_offset((self.offset + self.position) as u64)
    }
}

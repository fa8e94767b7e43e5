//! Writing, in field order, with default values left out as protobuf does.

/// Messages being written. Methods named after a type leave out its default; the `present_` ones do not, for
/// members of a `oneof` and of repeated fields.
#[derive(Default)]
pub(in crate::package) struct Writer {
    bytes: Vec<u8>,
}

#[derive(Clone, Copy)]
enum Kind {
    Varint = 0,
    Fixed64 = 1,
    Bytes = 2,
    Fixed32 = 5,
}

impl Writer {
    pub(in crate::package) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// A nested message, even if it turns out empty.
    pub(in crate::package) fn message<T>(&mut self, field: u32, body: impl FnOnce(&mut Writer) -> T) -> T {
        self.tag(field, Kind::Bytes);
        let start = self.bytes.len();
        let result = body(self);
        let len = (self.bytes.len() - start) as u64;
        self.varint(len);
        // The length is known last but stands first.
        let varint_len = varint_len(len);
        self.bytes[start..].rotate_right(varint_len);
        result
    }

    /// Fields that were written apart.
    pub(in crate::package) fn append(&mut self, fields: &Writer) {
        self.bytes.extend_from_slice(&fields.bytes);
    }

    /// A map entry with a string key.
    pub(in crate::package) fn entry<T>(
        &mut self,
        field: u32,
        key: &str,
        value: impl FnOnce(&mut Writer) -> T,
    ) -> T {
        self.message(field, |entry| {
            entry.present_text(1, key);
            entry.message(2, value)
        })
    }

    /// A string.
    pub(in crate::package) fn text(&mut self, field: u32, text: &str) {
        if !text.is_empty() {
            self.present_text(field, text);
        }
    }

    /// A string, even if it is empty.
    pub(in crate::package) fn present_text(&mut self, field: u32, text: &str) {
        self.present_bytes(field, text.as_bytes());
    }

    /// Bytes.
    pub(in crate::package) fn bytes(&mut self, field: u32, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.present_bytes(field, bytes);
        }
    }

    /// An unsigned integer.
    pub(in crate::package) fn uint64(&mut self, field: u32, value: u64) {
        if value != 0 {
            self.tag(field, Kind::Varint);
            self.varint(value);
        }
    }

    /// A signed integer or an enumeration.
    pub(in crate::package) fn int64(&mut self, field: u32, value: i64) {
        self.uint64(field, value.cast_unsigned());
    }

    /// A boolean.
    pub(in crate::package) fn boolean(&mut self, field: u32, value: bool) {
        self.uint64(field, u64::from(value));
    }

    /// A signed integer, even if it is 0.
    pub(in crate::package) fn present_int64(&mut self, field: u32, value: i64) {
        self.tag(field, Kind::Varint);
        self.varint(value.cast_unsigned());
    }

    /// A 32-bit float, even if it is 0.
    pub(in crate::package) fn present_float(&mut self, field: u32, value: f32) {
        self.tag(field, Kind::Fixed32);
        self.bytes.extend(value.to_le_bytes());
    }

    /// A 64-bit float, even if it is 0.
    pub(in crate::package) fn present_double(&mut self, field: u32, value: f64) {
        self.tag(field, Kind::Fixed64);
        self.bytes.extend(value.to_le_bytes());
    }

    /// Repeated integers, packed.
    pub(in crate::package) fn packed(&mut self, field: u32, values: impl Iterator<Item = u64>) {
        let mut values = values.peekable();
        if values.peek().is_some() {
            self.message(field, |packed| values.for_each(|value| packed.varint(value)));
        }
    }

    fn present_bytes(&mut self, field: u32, bytes: &[u8]) {
        self.tag(field, Kind::Bytes);
        self.varint(bytes.len() as u64);
        self.bytes.extend_from_slice(bytes);
    }

    fn tag(&mut self, field: u32, kind: Kind) {
        self.varint(u64::from(field) << 3 | kind as u64);
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }
}

fn varint_len(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

#[cfg(test)]
mod tests {
    use super::super::{Message, Schema};
    use super::*;

    const ANY: &Schema = &Schema { name: "Any", once: &[1, 2], many: &[3] };

    #[test]
    fn lengths_of_every_width_stand_before_their_message() {
        for len in [0, 1, 127, 128, 20_000, 3_000_000] {
            let mut writer = Writer::default();
            writer.message(3, |inner| inner.bytes(3, &vec![7; len]));
            writer.int64(1, -5);
            let bytes = writer.into_bytes();
            let message = Message::root(&bytes, ANY).unwrap();
            let inner = message.get(3).unwrap().message(ANY).unwrap();
            assert_eq!(inner.get(3).map_or(0, |f| f.bytes().unwrap().len()), len);
            assert_eq!(message.int64(1).unwrap(), -5);
        }
    }

    #[test]
    fn reading_refuses_what_it_would_lose_or_misread() {
        let cases: [(&[u8], &str); 8] = [
            (&[0x20, 0x01], "Any has the unknown field 4"),
            (&[0x08, 0x01, 0x08, 0x01], "field 1 of Any occurs twice"),
            (&[0x1a, 0x05, 0x00], "field 3 of Any claims 5 bytes where 1 are left"),
            (&[0x08], "Any is cut short"),
            (&[0x0b], "field 1 of Any has the wire type 3"),
            (&[0x00, 0x00], "Any has a field tag of 0"),
            (&[0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02], "more than 64 bits"),
            (&[0x19, 0, 0, 0, 0], "Any is cut short"),
        ];
        for (bytes, expected) in cases {
            let error = Message::root(bytes, ANY).err().unwrap().to_string();
            assert!(error.contains(expected), "{bytes:?}: {error}");
        }
    }
}

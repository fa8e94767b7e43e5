//! `.npy`: one array of numpy. The header is a Python dict literal, of which only what numpy writes is read.
//!
//! <https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>

use super::{Content, Document, Format, FormatError, Result};
use anemeter_base::text::quoted;
use anemeter_kernels::tensor::{Bytes, DType, Tensor, TensorView, shape};

pub(super) const FORMAT: Format = Format { ending: "npy", holds_texts: false, decode, encode };

const MAGIC: &[u8] = b"\x93NUMPY";
/// Data begins at a multiple of this.
const ALIGNMENT: usize = 64;

/// Types by what `descr` calls them.
const TYPES: &[(DType, &str)] = &[
    (DType::Bool, "|b1"),
    (DType::F16, "<f2"),
    (DType::F32, "<f4"),
    (DType::F64, "<f8"),
    (DType::I8, "|i1"),
    (DType::I16, "<i2"),
    (DType::I32, "<i4"),
    (DType::I64, "<i8"),
    (DType::U8, "|u1"),
    (DType::U16, "<u2"),
    (DType::U32, "<u4"),
    (DType::U64, "<u8"),
];

/// Types that no tensor has, by their letter in `descr`.
const FOREIGN: &[(char, &str)] = &[
    ('O', "holds Python objects, which are not loaded"),
    ('U', "holds strings"),
    ('S', "holds strings"),
    ('a', "holds strings"),
    ('c', "holds complex numbers"),
    ('V', "holds records or a type that numpy does not know, such as bfloat16"),
    ('M', "holds dates"),
    ('m', "holds time spans"),
    ('f', "holds floats of a width that no tensor has"),
];

const CAST: &str = "save it in a type that models take, such as a.astype('float32')";
const SWAP: &str = "save it in little-endian order: a.astype(a.dtype.newbyteorder('<'))";
const WRITE_AGAIN: &str = "write it with np.save";

fn decode(bytes: &[u8]) -> Result<Content> {
    tensor(bytes).map(Content::Unnamed)
}

fn encode(document: &Document<'_>) -> Result<Vec<u8>> {
    let mut tensors = document.tensors.iter();
    let (Some((name, view)), None) = (tensors.next(), tensors.next()) else {
        let message = format!("an .npy file holds one array, there are {}", document.tensors.len());
        return Err(FormatError::new(message).with_help("an .npz file holds any number"));
    };
    array(view).map_err(|problem| problem.about(name))
}

/// The tensor of a whole `.npy` file.
pub(super) fn tensor(bytes: &[u8]) -> Result<Tensor> {
    let (header, data) = split(bytes)?;
    let Header { descr, fortran_order, shape } = Header::parse(header)?;
    let dtype = dtype(descr)?;
    let expected = shape::element_count(&shape).and_then(|count| dtype.byte_len(count));
    if expected != Some(data.len()) {
        let needed = expected.map_or_else(|| "more than memory holds".to_owned(), |bytes| bytes.to_string());
        let message = format!("{dtype} of shape {shape:?} takes {needed} bytes, the file has {}", data.len());
        return Err(FormatError::new(message).with_help("it may be cut off: write it with np.save"));
    }
    if let Some(at) = data.iter().position(|&byte| dtype == DType::Bool && byte > 1) {
        return Err(FormatError::new(format!("element {at} is {}, which is no bool", data[at])));
    }
    let data = match fortran_order {
        true => row_major(data, dtype.bits() as usize / 8, &shape),
        false => data.to_vec(),
    };
    Tensor::new(dtype, shape[..].into(), Bytes::from(data)).map_err(|e| FormatError::new(e.to_string()))
}

/// The elements of an array in Fortran order, whose first index is the fastest, in C order. `np.save` writes the transpose
/// of a matrix that way.
fn row_major(data: &[u8], element: usize, shape: &[usize]) -> Vec<u8> {
    let mut out = Vec::with_capacity(data.len());
    if data.is_empty() {
        return out;
    }
    let strides: Vec<usize> = shape
        .iter()
        .scan(element, |next, &size| {
            let stride = *next;
            *next *= size;
            Some(stride)
        })
        .collect();
    let (mut index, mut at) = (vec![0; shape.len()], 0);
    while out.len() < data.len() {
        out.extend_from_slice(&data[at..at + element]);
        for axis in (0..shape.len()).rev() {
            index[axis] += 1;
            at += strides[axis];
            if index[axis] < shape[axis] {
                break;
            }
            at -= strides[axis] * shape[axis];
            index[axis] = 0;
        }
    }
    out
}

/// A whole `.npy` file, as numpy writes it.
pub(super) fn array(view: &TensorView<'_>) -> Result<Vec<u8>> {
    let descr = TYPES.iter().find(|row| row.0 == view.dtype()).map(|row| row.1);
    let descr = descr.ok_or_else(|| {
        FormatError::new(format!("is {}, which numpy cannot hold", view.dtype()))
            .with_help("a .safetensors file can")
    })?;
    let dims: Vec<String> = view.shape().iter().map(usize::to_string).collect();
    let shape = match &dims[..] {
        [one] => format!("({one},)"),
        dims => format!("({})", dims.join(", ")),
    };
    let mut header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}");
    let before = MAGIC.len() + 4;
    let whole = (before + header.len() + 1).next_multiple_of(ALIGNMENT);
    header.extend(std::iter::repeat_n(' ', whole - before - header.len() - 1));
    header.push('\n');
    let length = u16::try_from(header.len())
        .map_err(|_| FormatError::new(format!("has {} dimensions, too many for numpy", dims.len())))?;
    Ok([MAGIC, &[1, 0], &length.to_le_bytes(), header.as_bytes(), view.bytes()].concat())
}

fn dtype(descr: &str) -> Result<DType> {
    if let Some((dtype, _)) = TYPES.iter().find(|row| row.1 == descr) {
        return Ok(*dtype);
    }
    let (order, kind) = descr.split_at_checked(1).unwrap_or_default();
    let named = quoted(descr);
    let letter = kind.chars().next().unwrap_or_default();
    if let Some((_, what)) = FOREIGN.iter().find(|row| row.0 == letter && !is_known(kind)) {
        return Err(FormatError::new(format!("{what} ({named})")).with_help(CAST));
    }
    match order {
        ">" if is_known(kind) => {
            Err(FormatError::new(format!("is in big-endian order ({named})")).with_help(SWAP))
        }
        _ => Err(FormatError::new(format!("has the type {named}, which is unknown")).with_help(CAST)),
    }
}

/// Whether some byte order of a kind and width is read.
fn is_known(kind: &str) -> bool {
    TYPES.iter().any(|row| &row.1[1..] == kind)
}

/// Header and data.
fn split(bytes: &[u8]) -> Result<(&str, &[u8])> {
    let cut_off = || FormatError::new("ends within its header").with_help(WRITE_AGAIN);
    let rest = bytes
        .strip_prefix(MAGIC)
        .ok_or_else(|| FormatError::new("not an .npy file: it does not begin with \\x93NUMPY"))?;
    let (version, rest) = rest.split_at_checked(2).ok_or_else(cut_off)?;
    let width = match version {
        [1, 0] => 2,
        [2 | 3, 0] => 4,
        other => {
            let message = format!("has format version {}.{}; 1.0 to 3.0 are read", other[0], other[1]);
            return Err(FormatError::new(message));
        }
    };
    let (length, rest) = rest.split_at_checked(width).ok_or_else(cut_off)?;
    let length = length.iter().rev().fold(0usize, |number, &byte| number << 8 | usize::from(byte));
    let (header, data) = rest.split_at_checked(length).ok_or_else(cut_off)?;
    let header = std::str::from_utf8(header).map_err(|_| FormatError::new("has a header that is no text"))?;
    Ok((header, data))
}

/// What the dict literal says.
#[derive(Debug, PartialEq)]
struct Header<'a> {
    descr: &'a str,
    fortran_order: bool,
    shape: Vec<usize>,
}

impl<'a> Header<'a> {
    /// `{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }`: these three keys, in any order.
    fn parse(text: &'a str) -> Result<Header<'a>> {
        let (mut descr, mut fortran_order, mut shape) = (None, None, None);
        let mut literal = Literal { rest: text };
        literal.expect('{')?;
        while !literal.takes('}') {
            let key = literal.text()?;
            literal.expect(':')?;
            let is_new = match key {
                "descr" => descr.replace(literal.descr()?).is_none(),
                "fortran_order" => fortran_order.replace(literal.boolean()?).is_none(),
                "shape" => shape.replace(literal.sizes()?).is_none(),
                other => {
                    let message = format!("its header has the unknown key {}", quoted(other));
                    return Err(FormatError::new(message));
                }
            };
            if !is_new {
                return Err(FormatError::new(format!("its header has `{key}` twice")));
            }
            if !literal.takes(',') {
                literal.expect('}')?;
                break;
            }
        }
        let missing = |key: &str| FormatError::new(format!("its header has no `{key}`"));
        if !literal.rest.trim().is_empty() {
            return Err(literal.expected("nothing more"));
        }
        Ok(Header {
            descr: descr.ok_or_else(|| missing("descr"))?,
            fortran_order: fortran_order.ok_or_else(|| missing("fortran_order"))?,
            shape: shape.ok_or_else(|| missing("shape"))?,
        })
    }
}

/// What is left of a literal.
struct Literal<'a> {
    rest: &'a str,
}

impl<'a> Literal<'a> {
    fn expected(&self, what: &str) -> FormatError {
        let found = quoted(self.rest.trim());
        FormatError::new(format!("its header has {found} where {what} is expected")).with_help(WRITE_AGAIN)
    }

    /// Takes a character, if it is the next.
    fn takes(&mut self, next: char) -> bool {
        let rest = self.rest.trim_start().strip_prefix(next);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn expect(&mut self, next: char) -> Result<()> {
        if self.takes(next) { Ok(()) } else { Err(self.expected(&format!("`{next}`"))) }
    }

    /// A string without escapes.
    fn text(&mut self) -> Result<&'a str> {
        let rest = self.rest.trim_start();
        let quote = rest.chars().next().filter(|quote| "'\"".contains(*quote));
        let found =
            quote.and_then(|quote| rest[1..].split_once(quote)).filter(|(text, _)| !text.contains('\\'));
        let (text, rest) = found.ok_or_else(|| self.expected("a string"))?;
        self.rest = rest;
        Ok(text)
    }

    fn descr(&mut self) -> Result<&'a str> {
        if self.rest.trim_start().starts_with('[') {
            let message = "holds records: `descr` is a list of fields";
            return Err(FormatError::new(message).with_help("save each field as an array of its own"));
        }
        self.text()
    }

    fn boolean(&mut self) -> Result<bool> {
        let rest = self.rest.trim_start();
        let found = [("True", true), ("False", false)];
        let found = found.into_iter().find_map(|(word, value)| Some((rest.strip_prefix(word)?, value)));
        let (rest, value) = found.ok_or_else(|| self.expected("True or False"))?;
        self.rest = rest;
        Ok(value)
    }

    /// A tuple of sizes: `()`, `(3,)`, `(3, 4)`.
    fn sizes(&mut self) -> Result<Vec<usize>> {
        self.expect('(')?;
        let mut sizes = Vec::new();
        while !self.takes(')') {
            sizes.push(self.size()?);
            if !self.takes(',') {
                // `(3)` is a number in Python, not a tuple.
                let is_tuple = sizes.len() > 1 && self.takes(')');
                return if is_tuple { Ok(sizes) } else { Err(self.expected("`,`")) };
            }
        }
        Ok(sizes)
    }

    fn size(&mut self) -> Result<usize> {
        let rest = self.rest.trim_start();
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let size = rest[..end].parse().map_err(|_| self.expected("a size"))?;
        self.rest = &rest[end..];
        Ok(size)
    }
}

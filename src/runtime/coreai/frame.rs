//! Messages between this program and its worker: two lengths, a header in JSON, and raw tensors.
//!
//! Nothing that a worker says is believed before it is checked: lengths are limited, tensors must be as long as their
//! types and shapes imply, and memory grows with the bytes that arrive.

use std::io::{self, Read, Write};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use anemeter_kernels::tensor::{AlignedBuf, DType, Shape, TensorView};

/// The longest header.
const LONGEST_HEADER: u32 = 4 << 20;
/// The longest body: more than any logits or caches take.
const LONGEST_BODY: u64 = 16 << 30;
/// Bytes that memory is first made for, so that a length alone takes none; then as many again as have come.
const STEP: usize = 16 << 20;

/// Types of numpy arrays, by name.
const TYPES: &[(&str, DType)] = &[
    ("bool", DType::Bool),
    ("float16", DType::F16),
    ("float32", DType::F32),
    ("float64", DType::F64),
    ("bfloat16", DType::BF16),
    ("float8_e4m3fn", DType::F8E4M3FN),
    ("float8_e5m2", DType::F8E5M2),
    ("int8", DType::I8),
    ("int16", DType::I16),
    ("int32", DType::I32),
    ("int64", DType::I64),
    ("uint8", DType::U8),
    ("uint16", DType::U16),
    ("uint32", DType::U32),
    ("uint64", DType::U64),
];

/// The type of a name.
pub(super) fn type_of(name: &str) -> Option<DType> {
    TYPES.iter().find(|(known, _)| *known == name).map(|(_, dtype)| *dtype)
}

/// The name of a type; none of those that numpy has no array of.
pub(super) fn name_of(dtype: DType) -> Option<&'static str> {
    TYPES.iter().find(|(_, known)| *known == dtype).map(|(name, _)| *name)
}

/// A tensor in a header. A size of a port may be -1: open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Spec {
    pub(super) name: String,
    pub(super) dtype: String,
    pub(super) shape: Vec<i64>,
}

impl Spec {
    pub(super) fn of(name: &str, view: &TensorView<'_>) -> Option<Spec> {
        let shape = view.shape().iter().map(|&size| size as i64).collect();
        Some(Spec { name: name.to_owned(), dtype: name_of(view.dtype())?.to_owned(), shape })
    }
}

/// A tensor that a worker gave.
#[derive(Default)]
pub(super) struct Received {
    pub(super) name: String,
    dtype: Option<DType>,
    shape: Shape,
    bytes: AlignedBuf,
}

impl Received {
    pub(super) fn view(&self) -> Option<TensorView<'_>> {
        TensorView::new(self.dtype?, &self.shape, &self.bytes).ok()
    }

    pub(super) fn spec(&self) -> Option<Spec> {
        Spec::of(&self.name, &self.view()?)
    }

    fn take(&mut self, spec: Spec, layout: Layout, body: &mut impl Read) -> io::Result<()> {
        (self.name, self.dtype, self.shape) = (spec.name, Some(layout.dtype), layout.shape);
        let mut filled = 0;
        while filled < layout.bytes {
            let end = layout.bytes.min(STEP.max(2 * filled));
            self.bytes.resize(end);
            body.read_exact(&mut self.bytes[filled..end])?;
            filled = end;
        }
        self.bytes.resize(layout.bytes);
        Ok(())
    }
}

/// What a tensor of a reply takes.
struct Layout {
    dtype: DType,
    shape: Shape,
    bytes: usize,
}

impl Layout {
    fn of(spec: &Spec) -> Option<Layout> {
        let dtype = type_of(&spec.dtype)?;
        let shape: Shape =
            spec.shape.iter().map(|&size| usize::try_from(size).ok()).collect::<Option<_>>()?;
        let elements = shape.iter().try_fold(1usize, |count, &size| count.checked_mul(size))?;
        Some(Layout { dtype, shape, bytes: dtype.byte_len(elements)? })
    }
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Fault {
    /// The conversation broke off.
    Broken,
    /// What came is no message; no further one can be found.
    Garbled(String),
    /// The worker says that it could not.
    Refused(String),
}

impl From<io::Error> for Fault {
    fn from(_: io::Error) -> Fault {
        Fault::Broken
    }
}

#[derive(Deserialize)]
struct ReplyHeader {
    #[serde(default)]
    error: Option<String>,
    #[serde(default)]
    result: Value,
    #[serde(default)]
    tensors: Vec<Spec>,
}

/// Writes a request.
pub(super) fn send(
    sink: &mut impl Write,
    header: &Value,
    tensors: &[(&str, TensorView<'_>)],
) -> io::Result<()> {
    let text = header.to_string();
    let body: u64 = tensors.iter().map(|(_, view)| view.bytes().len() as u64).sum();
    sink.write_all(&(text.len() as u32).to_le_bytes())?;
    sink.write_all(&body.to_le_bytes())?;
    sink.write_all(text.as_bytes())?;
    tensors.iter().try_for_each(|(_, view)| sink.write_all(view.bytes()))?;
    sink.flush()
}

/// Reads a reply. Its tensors replace those in `tensors`, whose memory is used again.
pub(super) fn receive(source: &mut impl Read, tensors: &mut Vec<Received>) -> Result<Value, Fault> {
    let mut lengths = [0; 12];
    source.read_exact(&mut lengths)?;
    let (header, body) = lengths.split_at(4);
    let header_length = u32::from_le_bytes(header.try_into().expect("four bytes"));
    let body_length = u64::from_le_bytes(body.try_into().expect("eight bytes"));
    if header_length > LONGEST_HEADER || body_length > LONGEST_BODY {
        let found = format!("a message with a header of {header_length} bytes and a body of {body_length}");
        return Err(Fault::Garbled(format!("{found}, which is too long")));
    }
    let mut header = vec![0; header_length as usize];
    source.read_exact(&mut header)?;
    let header: ReplyHeader = serde_json::from_slice(&header).map_err(|error| {
        let start = String::from_utf8_lossy(&header[..header.len().min(64)]).escape_debug().to_string();
        Fault::Garbled(format!("a header that is not understood ({error}): {start}"))
    })?;
    let mut layouts = Vec::with_capacity(header.tensors.len());
    for spec in &header.tensors {
        let wrong =
            || Fault::Garbled(format!("a tensor of type {:?} and shape {:?}", spec.dtype, spec.shape));
        layouts.push(Layout::of(spec).ok_or_else(wrong)?);
    }
    let sum = layouts.iter().try_fold(0u64, |sum, layout| sum.checked_add(layout.bytes as u64));
    if sum != Some(body_length) {
        return Err(Fault::Garbled(format!("tensors that do not fill a body of {body_length} bytes")));
    }
    tensors.resize_with(layouts.len(), Received::default);
    for ((received, layout), spec) in tensors.iter_mut().zip(layouts).zip(header.tensors) {
        received.take(spec, layout, source)?;
    }
    match header.error {
        Some(error) => Err(Fault::Refused(error)),
        None => Ok(header.result),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anemeter_kernels::tensor::Tensor;
    use serde_json::json;

    fn message(header: &str, body: &[u8]) -> Vec<u8> {
        let lengths = [&(header.len() as u32).to_le_bytes()[..], &(body.len() as u64).to_le_bytes()].concat();
        [&lengths, header.as_bytes(), body].concat()
    }

    fn fault(bytes: &[u8]) -> String {
        match receive(&mut &bytes[..], &mut Vec::new()).unwrap_err() {
            Fault::Broken => "broken".to_owned(),
            Fault::Garbled(what) => format!("garbled: {what}"),
            Fault::Refused(why) => format!("refused: {why}"),
        }
    }

    #[test]
    fn tensors_come_back_as_they_were_sent() {
        let floats = Tensor::from_slice(&[2, 3], &[1.0f32, -2.0, 3.5, 0.0, 5.0, 6.0]).unwrap();
        let ids = Tensor::from_slice(&[4], &[1i32, -2, 3, 4]).unwrap();
        let sent = [("x", floats.view()), ("ids", ids.view())];
        let specs: Vec<Spec> = sent.iter().map(|(name, view)| Spec::of(name, view).unwrap()).collect();
        let mut bytes = Vec::new();
        send(&mut bytes, &json!({"result": {"answer": 42}, "tensors": specs}), &sent).unwrap();
        let mut received = Vec::new();
        for _ in 0..2 {
            let result = receive(&mut &bytes[..], &mut received).unwrap();
            assert_eq!(result["answer"], 42);
            assert_eq!(
                received[0].view().unwrap().slice::<f32>().unwrap(),
                floats.view().slice::<f32>().unwrap()
            );
            assert_eq!(received[1].view().unwrap().slice::<i32>().unwrap(), [1, -2, 3, 4]);
            assert_eq!((received[0].spec().unwrap(), received[1].name.as_str()), (specs[0].clone(), "ids"));
        }
        for end in 0..bytes.len() {
            assert_eq!(fault(&bytes[..end]), "broken", "{end}");
        }
    }

    #[test]
    fn hostile_replies_are_faults() {
        let long = [&u32::MAX.to_le_bytes()[..], &[0; 8]].concat();
        assert!(fault(&long).contains("too long"));
        let long = [&2u32.to_le_bytes()[..], &u64::MAX.to_le_bytes(), b"{}"].concat();
        assert!(fault(&long).contains("too long"));
        assert!(fault(&message("\u{1b}[2J", b"")).contains("\\u{1b}[2J"));
        assert!(fault(&message("3", b"")).starts_with("garbled: a header that is not understood"));
        assert_eq!(fault(&message("{}", b"abcd")), "garbled: tensors that do not fill a body of 4 bytes");
        let tensor = |dtype: &str, shape: &str| {
            format!(r#"{{"tensors":[{{"name":"y","dtype":"{dtype}","shape":{shape}}}]}}"#)
        };
        assert!(fault(&message(&tensor("float32", "[2]"), b"abcd")).contains("do not fill"));
        assert!(fault(&message(&tensor("object", "[1]"), b"abcd")).contains("a tensor of type \"object\""));
        assert!(fault(&message(&tensor("float32", "[-1]"), b"abcd")).contains("shape [-1]"));
        let huge = tensor("float32", "[4611686018427387904,4611686018427387904]");
        assert!(fault(&message(&huge, b"abcd")).contains("shape [4611686018427387904"));
        assert_eq!(fault(&message(r#"{"error":"no"}"#, b"")), "refused: no");
    }

    #[test]
    fn a_length_alone_takes_no_memory() {
        let header = r#"{"tensors":[{"name":"y","dtype":"uint8","shape":[8589934592]}]}"#;
        let lengths = [&(header.len() as u32).to_le_bytes()[..], &(8u64 << 30).to_le_bytes()].concat();
        let bytes = [&lengths, header.as_bytes(), b"few"].concat();
        let mut received = Vec::new();
        assert!(matches!(receive(&mut &bytes[..], &mut received), Err(Fault::Broken)));
        assert!(received[0].bytes.len() <= STEP);
    }

    #[test]
    fn names_of_types_are_told_apart() {
        for (name, dtype) in TYPES {
            assert_eq!((type_of(name), name_of(*dtype)), (Some(*dtype), Some(*name)));
        }
        assert_eq!((type_of("complex64"), name_of(DType::I4)), (None, None));
    }
}

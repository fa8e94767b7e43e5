//! A pickle machine that can build tensors, dictionaries and plain values, and nothing else: no name that a
//! file mentions is ever called.

use std::collections::HashMap;

use super::super::error::{CheckpointError, Result, quoted};

/// Operations that are carried out; each may leave a value, a container or a memo behind, of a byte of the file. A tensor
/// takes some forty.
const MOST_STEPS: usize = 6_000_000;

/// A value; containers are kept in the machine, so that values are cheap to share and never nest.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Value<'a> {
    Plain,
    Int(i64),
    Text(&'a str),
    Sequence(usize),
    Dict(usize),
    Global(&'a str, &'a str),
    Storage { kind: &'a str, key: &'a str },
    Tensor(usize),
}

/// A tensor as a file describes it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Tensor<'a> {
    /// Type of its storage, such as `FloatStorage`.
    pub(super) kind: &'a str,
    /// Name of its storage.
    pub(super) key: &'a str,
    /// First element in the storage.
    pub(super) offset: usize,
    pub(super) shape: Vec<usize>,
    pub(super) strides: Vec<usize>,
}

/// The machine after it has run.
#[derive(Debug, Default)]
pub(super) struct Machine<'a> {
    stack: Vec<Value<'a>>,
    marks: Vec<usize>,
    memo: HashMap<u32, Value<'a>>,
    sequences: Vec<Vec<Value<'a>>>,
    pub(super) dicts: Vec<Vec<(Value<'a>, Value<'a>)>>,
    pub(super) tensors: Vec<Tensor<'a>>,
}

/// Runs a pickle; gives its result and the machine that holds the parts.
pub(super) fn run(bytes: &[u8]) -> Result<(Value<'_>, Machine<'_>)> {
    let mut machine = Machine::default();
    let mut input = Input { bytes, at: 0 };
    for _ in 0..MOST_STEPS {
        let at = input.at;
        match machine.step(&mut input) {
            Ok(None) => {}
            Ok(Some(result)) => return Ok((result, machine)),
            Err(problem) => return Err(CheckpointError::new(format!("pickle, byte {at}: {problem}"))),
        }
    }
    Err(CheckpointError::new(format!("pickle, byte {}: has more than {MOST_STEPS} operations", input.at)))
}

type Step<T> = std::result::Result<T, String>;

struct Input<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Input<'a> {
    fn take(&mut self, len: usize) -> Step<&'a [u8]> {
        let taken = self.at.checked_add(len).and_then(|end| self.bytes.get(self.at..end));
        self.at += taken.map_or(0, <[u8]>::len);
        taken.ok_or_else(|| format!("needs {len} more bytes than there are"))
    }

    fn number(&mut self, len: usize) -> Step<u64> {
        Ok(self.take(len)?.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte)))
    }

    fn index(&mut self, len: usize) -> Step<u32> {
        u32::try_from(self.number(len)?).map_err(|e| e.to_string())
    }

    fn text(&mut self, length_len: usize) -> Step<&'a str> {
        let len = usize::try_from(self.number(length_len)?).map_err(|e| e.to_string())?;
        std::str::from_utf8(self.take(len)?).map_err(|e| e.to_string())
    }

    fn line(&mut self) -> Step<&'a str> {
        let rest = &self.bytes[self.at..];
        let len = rest.iter().position(|&byte| byte == b'\n').ok_or("has a line without an end")?;
        let line = self.take(len + 1)?;
        std::str::from_utf8(&line[..len]).map_err(|e| e.to_string())
    }

    /// A signed number of any length that fits.
    fn long(&mut self) -> Step<i64> {
        let len = self.number(1)? as usize;
        let bytes = self.take(len)?;
        if len > 8 {
            return Err(format!("has a number of {len} bytes"));
        }
        let fill = if bytes.last().is_some_and(|&byte| byte >= 0x80) { 0xff } else { 0 };
        let mut all = [fill; 8];
        all[..len].copy_from_slice(bytes);
        Ok(i64::from_le_bytes(all))
    }
}

impl<'a> Machine<'a> {
    /// One operation; `Some` at the end.
    fn step(&mut self, input: &mut Input<'a>) -> Step<Option<Value<'a>>> {
        let operation = input.take(1)?[0];
        match operation {
            b'.' => return self.pop().map(Some),
            0x80 => drop(input.take(1)?),
            0x95 => drop(input.take(8)?),
            b'(' => self.marks.push(self.stack.len()),
            b'0' => drop(self.pop()?),
            b'1' => drop(self.pop_to_mark()?),
            b'N' | 0x88 | 0x89 => self.stack.push(Value::Plain),
            b'G' => {
                input.take(8)?;
                self.stack.push(Value::Plain);
            }
            b'J' => {
                let number = input.number(4)? as u32;
                self.stack.push(Value::Int(i64::from(number.cast_signed())));
            }
            b'K' => self.stack.push(Value::Int(input.number(1)?.cast_signed())),
            b'M' => self.stack.push(Value::Int(input.number(2)?.cast_signed())),
            0x8a => self.stack.push(Value::Int(input.long()?)),
            b'X' => self.stack.push(Value::Text(input.text(4)?)),
            0x8c | b'U' => self.stack.push(Value::Text(input.text(1)?)),
            0x8d => self.stack.push(Value::Text(input.text(8)?)),
            b'q' => self.memoize(input.index(1)?)?,
            b'r' => self.memoize(input.index(4)?)?,
            0x94 => self.memoize(u32::try_from(self.memo.len()).map_err(|e| e.to_string())?)?,
            b'h' => self.recall(input.index(1)?)?,
            b'j' => self.recall(input.index(4)?)?,
            b'c' => {
                let global = Value::Global(input.line()?, input.line()?);
                self.stack.push(global);
            }
            0x93 => match (self.pop()?, self.pop()?) {
                (Value::Text(name), Value::Text(module)) => self.stack.push(Value::Global(module, name)),
                _ => return Err("has a name that is not text".to_owned()),
            },
            other => self.step_container(other)?,
        }
        Ok(None)
    }

    fn step_container(&mut self, operation: u8) -> Step<()> {
        match operation {
            b'}' => {
                self.dicts.push(Vec::new());
                self.stack.push(Value::Dict(self.dicts.len() - 1));
            }
            b']' | b')' => self.push_sequence(Vec::new()),
            b't' | b'l' => {
                let items = self.pop_to_mark()?;
                self.push_sequence(items);
            }
            0x85..=0x87 => {
                let count = usize::from(operation - 0x84);
                let start = self.stack.len().checked_sub(count).ok_or("has too few values for a tuple")?;
                let items = self.stack.split_off(start);
                self.push_sequence(items);
            }
            b'a' => {
                let item = self.pop()?;
                self.extend(vec![item])?;
            }
            b'e' => {
                let items = self.pop_to_mark()?;
                self.extend(items)?;
            }
            b's' => {
                let (value, key) = (self.pop()?, self.pop()?);
                self.set(&[key, value])?;
            }
            b'u' => {
                let items = self.pop_to_mark()?;
                self.set(&items)?;
            }
            b'Q' => {
                let id = self.pop()?;
                let storage = self.storage(id)?;
                self.stack.push(storage);
            }
            b'R' => {
                let (arguments, callable) = (self.pop()?, self.pop()?);
                let result = self.call(callable, arguments)?;
                self.stack.push(result);
            }
            b'b' => {
                self.pop()?;
                let Some(Value::Dict(_)) = self.stack.last() else {
                    return Err("sets the state of an object that is no dictionary".to_owned());
                };
            }
            other => return Err(format!("operation 0x{other:02x} is not one of a state dict")),
        }
        Ok(())
    }

    fn pop(&mut self) -> Step<Value<'a>> {
        self.stack.pop().ok_or_else(|| "takes a value where there is none".to_owned())
    }

    fn pop_to_mark(&mut self) -> Step<Vec<Value<'a>>> {
        let mark = self.marks.pop().ok_or("goes back to a mark that is not there")?;
        if mark > self.stack.len() {
            return Err("goes back to a mark beyond its values".to_owned());
        }
        Ok(self.stack.split_off(mark))
    }

    fn memoize(&mut self, index: u32) -> Step<()> {
        let value = *self.stack.last().ok_or("remembers a value where there is none")?;
        self.memo.insert(index, value);
        Ok(())
    }

    fn recall(&mut self, index: u32) -> Step<()> {
        let value =
            *self.memo.get(&index).ok_or_else(|| format!("recalls value {index}, which is not there"))?;
        self.stack.push(value);
        Ok(())
    }

    fn push_sequence(&mut self, items: Vec<Value<'a>>) {
        self.sequences.push(items);
        self.stack.push(Value::Sequence(self.sequences.len() - 1));
    }

    fn extend(&mut self, items: Vec<Value<'a>>) -> Step<()> {
        match self.stack.last() {
            Some(&Value::Sequence(list)) => self.sequences[list].extend(items),
            _ => return Err("appends to what is no list".to_owned()),
        }
        Ok(())
    }

    fn set(&mut self, items: &[Value<'a>]) -> Step<()> {
        let (pairs, rest) = items.as_chunks::<2>();
        match self.stack.last() {
            Some(&Value::Dict(dict)) if rest.is_empty() => {
                self.dicts[dict].extend(pairs.iter().map(|&[key, value]| (key, value)));
                Ok(())
            }
            _ => Err("sets items of what is no dictionary".to_owned()),
        }
    }

    fn storage(&self, id: Value<'a>) -> Step<Value<'a>> {
        match self.items(id) {
            Some(&[Value::Text("storage"), Value::Global("torch", kind), Value::Text(key), ..]) => {
                Ok(Value::Storage { kind, key })
            }
            _ => Err("refers to something that is no storage of a tensor".to_owned()),
        }
    }

    fn items(&self, value: Value<'a>) -> Option<&[Value<'a>]> {
        match value {
            Value::Sequence(index) => self.sequences.get(index).map(Vec::as_slice),
            _ => None,
        }
    }

    fn sizes(&self, value: Value<'a>) -> Option<Vec<usize>> {
        /// As many dimensions as PyTorch allows. A longer list costs nothing to refer to again and again.
        const MOST: usize = 64;
        let size = |item: &Value<'a>| match item {
            Value::Int(number) => usize::try_from(*number).ok(),
            _ => None,
        };
        self.items(value).filter(|items| items.len() <= MOST)?.iter().map(size).collect()
    }

    /// The few callables of state dicts, by their meaning.
    fn call(&mut self, callable: Value<'a>, arguments: Value<'a>) -> Step<Value<'a>> {
        let Value::Global(module, name) = callable else {
            return Err("calls what is no name".to_owned());
        };
        match (module, name, self.items(arguments)) {
            ("collections", "OrderedDict", Some([])) => {
                self.dicts.push(Vec::new());
                Ok(Value::Dict(self.dicts.len() - 1))
            }
            ("torch._utils", "_rebuild_parameter", Some(&[tensor @ Value::Tensor(_), ..])) => Ok(tensor),
            (
                "torch._utils",
                "_rebuild_tensor_v2" | "_rebuild_tensor",
                Some(&[Value::Storage { kind, key }, Value::Int(offset), shape, strides, ..]),
            ) => {
                let parts = (usize::try_from(offset), self.sizes(shape), self.sizes(strides));
                let (Ok(offset), Some(shape), Some(strides)) = parts else {
                    return Err("has a tensor with an offset, shape or strides that are no sizes".to_owned());
                };
                self.tensors.push(Tensor { kind, key, offset, shape, strides });
                Ok(Value::Tensor(self.tensors.len() - 1))
            }
            _ => Err(format!("calls {}, which builds no tensor", quoted(&format!("{module}.{name}")))),
        }
    }
}

//! Inputs that the host fills: ids, masks, places.

use half::f16;

use super::table::{Files, Table};
use crate::generate::driver::buffer::Buffer;
use crate::generate::error::{GenerateError, Result};
use anemeter_convert::bundle::contract::{ContractFunction, MaskKeys, MaskKind};
use anemeter_convert::bundle::{Function, MANIFEST};
use anemeter_kernels::tensor::{DType, Shape, TensorError, TensorView};

/// Tokens of a prediction and where they are.
pub(super) struct Piece<'a> {
    /// The tokens.
    pub(super) ids: &'a [u32],
    /// The position of the first.
    pub(super) begin: usize,
    /// How many the functions take; those beyond `ids` are padding.
    pub(super) width: usize,
    /// Positions that caches and masks have.
    pub(super) context: usize,
}

/// What an input means.
enum Meaning {
    Ids,
    Mask {
        kind: MaskKind,
        keys: MaskKeys,
    },
    Positions,
    CurrentPosition,
    UpdateMask,
    FullSequenceLength,
    /// The first position within a window of so many.
    Ring(usize),
    Rows(Table),
}

/// An input that is filled for every prediction.
pub(super) struct Input {
    pub(super) name: String,
    meaning: Meaning,
    rank: usize,
    /// Its last size, which is that of a window or of a row.
    last: usize,
    buffer: Buffer,
}

impl Input {
    /// The inputs of a function that the host fills, with tables of a folder.
    pub(super) fn all(
        contract: &ContractFunction,
        function: &Function,
        files: &Files<'_>,
    ) -> Result<Vec<Input>> {
        let named = &contract.inputs;
        let single = [
            (&named.ids, Meaning::Ids),
            (&named.positions, Meaning::Positions),
            (&named.current_position, Meaning::CurrentPosition),
            (&named.update_mask, Meaning::UpdateMask),
            (&named.full_sequence_length, Meaning::FullSequenceLength),
        ];
        let single = single.into_iter().filter_map(|(name, meaning)| Some((name.as_ref()?, meaning)));
        let masks = named.masks.iter().map(|mask| {
            let meaning = Meaning::Mask { kind: mask.kind, keys: mask.keys };
            (&mask.input, meaning)
        });
        let ring = named.ring_position.iter().map(|ring| (&ring.input, Meaning::Ring(ring.window)));
        let inputs = single.chain(masks).chain(ring);
        let inputs = inputs.map(|(name, meaning)| Input::new(name, meaning, function));
        let rows = named.rows.iter().map(|rows| {
            let width = last_size(&rows.input, function);
            Input::new(&rows.input, Meaning::Rows(Table::open(rows, width, files)?), function)
        });
        inputs.chain(rows).collect()
    }

    fn new(name: &str, meaning: Meaning, function: &Function) -> Result<Input> {
        let problem = |problem: String| {
            GenerateError::file(MANIFEST, format!("function `{}`: input `{name}` {problem}", function.name))
        };
        let port = function.inputs.iter().find(|port| port.name == name);
        let port = port.ok_or_else(|| problem("is in the contract and not in the package".to_owned()))?;
        let dtype = DType::from_name(&port.dtype);
        let dtype = dtype.filter(|dtype| matches!(dtype, DType::F16 | DType::F32 | DType::I32));
        let dtype = dtype.ok_or_else(|| problem(format!("is {}, which cannot be filled", port.dtype)))?;
        let natural = match meaning {
            Meaning::Ids => 2,
            Meaning::Mask { kind: MaskKind::Padding, .. } => 2,
            Meaning::Mask { .. } | Meaning::UpdateMask => 4,
            Meaning::Positions
            | Meaning::CurrentPosition
            | Meaning::FullSequenceLength
            | Meaning::Ring(_) => 1,
            Meaning::Rows(_) => 3,
        };
        let rank = port.shapes.first().map_or(natural, Vec::len);
        let buffer = Buffer::zeroed(dtype, &[0]).map_err(|e| problem(e.to_string()))?;
        let last = last_size(name, function);
        Ok(Input { name: name.to_owned(), meaning, rank, last, buffer })
    }

    pub(super) fn view(&self) -> Result<TensorView<'_>, TensorError> {
        self.buffer.view()
    }

    /// Writes it for a prediction.
    pub(super) fn fill(&mut self, piece: &Piece<'_>) -> Result<(), TensorError> {
        let &Piece { ids, begin, width, context } = piece;
        let count = ids.len();
        let (rank, last, buffer) = (self.rank, self.last, &mut self.buffer);
        match &mut self.meaning {
            Meaning::Ids => {
                buffer.resize(&with_ones(rank, &[width]))?;
                write(
                    buffer,
                    |i| ids.get(i).map_or(0.0, |&id| id as f32),
                    |i| ids.get(i).map_or(0, |&id| i32::try_from(id).unwrap_or(i32::MAX)),
                );
            }
            Meaning::Positions => {
                buffer.resize(&with_ones(rank, &[width]))?;
                integers(buffer, |i| begin + i);
            }
            Meaning::CurrentPosition => {
                buffer.resize(&with_ones(rank.max(1), &[1]))?;
                integers(buffer, |_| begin);
            }
            Meaning::FullSequenceLength => {
                buffer.resize(&with_ones(rank.max(1), &[1]))?;
                integers(buffer, |_| begin + count);
            }
            Meaning::UpdateMask => {
                buffer.resize(&with_ones(rank, &[context, width]))?;
                integers(buffer, |i| usize::from(i / width == begin + i % width));
            }
            Meaning::Ring(window) => {
                buffer.resize(&with_ones(rank.max(1), &[1]))?;
                let window = *window;
                integers(buffer, |_| begin % window);
            }
            Meaning::Rows(table) => {
                buffer.resize(&with_ones(rank, &[width, table.width()]))?;
                table.write(piece, buffer);
            }
            Meaning::Mask { kind, keys } => {
                let keys = match (*kind, *keys) {
                    (MaskKind::Window | MaskKind::Ring, _) => last,
                    (_, MaskKeys::Context) => context,
                    (_, MaskKeys::Seen) => begin + width,
                };
                fill_mask(*kind, piece, (rank, keys), buffer)?;
            }
        }
        Ok(())
    }
}

/// Writes a mask of so many columns.
fn fill_mask(
    kind: MaskKind,
    piece: &Piece<'_>,
    (rank, keys): (usize, usize),
    buffer: &mut Buffer,
) -> Result<(), TensorError> {
    let &Piece { ids, begin, width, .. } = piece;
    let mut additive = |hidden: &dyn Fn(usize, usize) -> bool| -> Result<(), TensorError> {
        buffer.resize(&with_ones(rank, &[width, keys]))?;
        let hidden = |i: usize| hidden(i / keys, i % keys);
        write(
            buffer,
            |i| if hidden(i) { f32::NEG_INFINITY } else { 0.0 },
            |i| if hidden(i) { i32::MIN } else { 0 },
        );
        Ok(())
    };
    match kind {
        MaskKind::CausalAdditive => additive(&|row, key| key > begin + row),
        MaskKind::Window => additive(&|row, key| key + (begin + row + 1).min(keys) < keys),
        MaskKind::Ring => additive(&|row, key| key >= begin + row + 1),
        MaskKind::Padding => {
            buffer.resize(&with_ones(rank, &[keys]))?;
            integers(buffer, |key| usize::from(key < begin + ids.len()));
            Ok(())
        }
        MaskKind::Zeros => {
            buffer.resize(&with_ones(rank, &[width, keys]))?;
            integers(buffer, |_| 0);
            Ok(())
        }
    }
}

/// The last size of an input, 0 if it is not known.
fn last_size(name: &str, function: &Function) -> usize {
    let port = function.inputs.iter().find(|port| port.name == name);
    let last = port.and_then(|port| port.shapes.first()?.last().copied());
    last.and_then(|size| usize::try_from(size).ok()).unwrap_or(0)
}

/// The last sizes of a shape of a rank; those before are one.
fn with_ones(rank: usize, last: &[usize]) -> Shape {
    let mut shape = Shape::from_elem(1, rank.saturating_sub(last.len()));
    shape.extend_from_slice(last);
    shape
}

/// Writes whole numbers.
fn integers(buffer: &mut Buffer, value: impl Fn(usize) -> usize) {
    write(buffer, |i| value(i) as f32, |i| i32::try_from(value(i)).unwrap_or(i32::MAX));
}

/// Writes every element, as a float or as an integer.
pub(super) fn write(buffer: &mut Buffer, float: impl Fn(usize) -> f32, integer: impl Fn(usize) -> i32) {
    match buffer.dtype() {
        DType::F16 => {
            let elements = buffer.elements_mut::<f16>().iter_mut().enumerate();
            elements.for_each(|(i, element)| *element = f16::from_f32(float(i)));
        }
        DType::F32 => {
            let elements = buffer.elements_mut::<f32>().iter_mut().enumerate();
            elements.for_each(|(i, element)| *element = float(i));
        }
        _ => {
            let elements = buffer.elements_mut::<i32>().iter_mut().enumerate();
            elements.for_each(|(i, element)| *element = integer(i));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anemeter_convert::bundle::Port;

    /// A function of one input `x`.
    fn taking(dtype: &str, shape: &[u64]) -> Function {
        let port = Port { name: "x".to_owned(), dtype: dtype.to_owned(), shapes: vec![shape.to_vec()] };
        Function { name: "main".to_owned(), inputs: vec![port], outputs: Vec::new(), states: Vec::new() }
    }

    fn filled(meaning: Meaning, dtype: &str, shape: &[u64], piece: &Piece<'_>) -> (Vec<usize>, Vec<f32>) {
        let mut input = Input::new("x", meaning, &taking(dtype, shape)).unwrap();
        input.fill(piece).unwrap();
        let view = input.view().unwrap();
        let mut values = vec![0.0; view.len()];
        match view.dtype() {
            DType::I32 => {
                let whole = view.slice::<i32>().unwrap();
                values.iter_mut().zip(whole).for_each(|(value, &found)| *value = found as f32);
            }
            _ => anemeter_kernels::convert::to_f32(&view, 0..view.len(), &mut values),
        }
        (view.shape().to_vec(), values)
    }

    #[test]
    fn tokens_and_places_are_padded_to_the_width() {
        let piece = Piece { ids: &[7, 8], begin: 3, width: 4, context: 8 };
        assert_eq!(filled(Meaning::Ids, "int32", &[1, 4], &piece), (vec![1, 4], vec![7.0, 8.0, 0.0, 0.0]));
        assert_eq!(filled(Meaning::Positions, "int32", &[4], &piece), (vec![4], vec![3.0, 4.0, 5.0, 6.0]));
        assert_eq!(filled(Meaning::CurrentPosition, "int32", &[1], &piece), (vec![1], vec![3.0]));
        assert_eq!(filled(Meaning::FullSequenceLength, "int32", &[1], &piece), (vec![1], vec![5.0]));
    }

    #[test]
    fn masks_hide_what_comes_later() {
        let (low, piece) = (f32::NEG_INFINITY, Piece { ids: &[7, 8], begin: 1, width: 2, context: 4 });
        let causal = |keys| Meaning::Mask { kind: MaskKind::CausalAdditive, keys };
        let (shape, values) = filled(causal(MaskKeys::Context), "fp16", &[1, 1, 2, 4], &piece);
        assert_eq!((shape, values), (vec![1, 1, 2, 4], vec![0.0, 0.0, low, low, 0.0, 0.0, 0.0, low]));
        let (shape, values) = filled(causal(MaskKeys::Seen), "fp32", &[1, 1, 1, 1], &piece);
        assert_eq!((shape, values), (vec![1, 1, 2, 3], vec![0.0, 0.0, low, 0.0, 0.0, 0.0]));
        let padding = Meaning::Mask { kind: MaskKind::Padding, keys: MaskKeys::Context };
        assert_eq!(filled(padding, "int32", &[1, 4], &piece), (vec![1, 4], vec![1.0, 1.0, 1.0, 0.0]));
        let one = Piece { ids: &[7], begin: 2, width: 1, context: 4 };
        let update = filled(Meaning::UpdateMask, "fp16", &[1, 1, 4, 1], &one);
        assert_eq!(update, (vec![1, 1, 4, 1], vec![0.0, 0.0, 1.0, 0.0]));
    }
    #[test]
    fn windows_show_the_latest_tokens_at_their_end_or_all_slots_that_are_written() {
        let low = f32::NEG_INFINITY;
        let mask = |kind| Meaning::Mask { kind, keys: MaskKeys::Context };
        let at = |begin| Piece { ids: &[7, 8], begin, width: 2, context: 16 };
        let window = |begin| filled(mask(MaskKind::Window), "fp16", &[1, 1, 2, 3], &at(begin)).1;
        assert_eq!(window(0), [low, low, 0.0, low, 0.0, 0.0]);
        assert_eq!(window(5), [0.0; 6]);
        let ring = |begin| filled(mask(MaskKind::Ring), "fp16", &[1, 1, 2, 3], &at(begin)).1;
        assert_eq!(ring(0), [0.0, low, low, 0.0, 0.0, low]);
        assert_eq!(ring(2), [0.0; 6]);
        let slot = |begin| filled(Meaning::Ring(3), "int32", &[1], &at(begin));
        assert_eq!((slot(2), slot(7)), ((vec![1], vec![2.0]), (vec![1], vec![1.0])));
    }
}

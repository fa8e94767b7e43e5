//! Sizes that follow from open ones: found, and computed when the program runs.

use super::super::body::{element_bytes, number, tensor};
use super::super::error::{Result, refuse};
use super::Joining;
use crate::program::{Attribute, Dim, Op, Scalar, Type, ValueId};

/// A whole number and a multiple of each open size.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Sum {
    constant: i64,
    multiples: Vec<i64>,
}

impl Joining<'_> {
    /// A size as a sum of multiples of the open ones.
    pub(super) fn sum(&self, sizes: &[i64]) -> Result<Sum> {
        let unknowns = self.open.len() + 1;
        let row = |shape: usize| -> Vec<i128> {
            let open = self.open.iter().map(|open| i128::from(open[shape]));
            std::iter::once(1).chain(open).collect()
        };
        let matrix: Vec<Vec<i128>> = (0..unknowns).map(row).collect();
        let whole = determinant(&matrix);
        let mut solution = Vec::with_capacity(unknowns);
        for column in 0..unknowns {
            let mut replaced = matrix.clone();
            replaced.iter_mut().zip(sizes).for_each(|(row, &size)| row[column] = i128::from(size));
            let part = determinant(&replaced);
            match whole {
                0 => refuse!("the shapes do not tell the open sizes apart"),
                whole if part % whole == 0 => solution.push((part / whole) as i64),
                _ => refuse!("has sizes {sizes:?}, which are no sums of the open sizes"),
            }
        }
        let sum = Sum { constant: solution[0], multiples: solution[1..].to_vec() };
        let holds = |(shape, &size): (usize, &i64)| {
            let multiples = sum.multiples.iter().zip(self.open).map(|(times, open)| times * open[shape]);
            sum.constant + multiples.sum::<i64>() == size
        };
        match sizes.iter().enumerate().all(holds) {
            true => Ok(sum),
            false => refuse!("has sizes {sizes:?}, which are no sums of the open sizes"),
        }
    }

    /// A list of one integer.
    fn single(&mut self, value: i64) -> ValueId {
        let sum = Sum { constant: value, multiples: vec![0; self.open.len()] };
        if let Some(&id) = self.sizes.get(&sum) {
            return id;
        }
        let id = self.inline(tensor(Scalar::I32, &[1]), number(Scalar::I32, value as f64), true);
        self.sizes.insert(sum, id);
        id
    }

    /// An open size, taken from a shape.
    fn open_size(&mut self, open: usize) -> Result<ValueId> {
        let mut multiples = vec![0; self.open.len()];
        multiples[open] = 1;
        let sum = Sum { constant: 0, multiples };
        if let Some(&id) = self.sizes.get(&sum) {
            return Ok(id);
        }
        let Some(&(value, axis)) = self.sources.get(&open) else {
            refuse!("depends on a size that no value before it shows")
        };
        let Type::Tensor { dims, .. } = &self.types[value.0 as usize] else { refuse!("is no tensor") };
        let rank = dims.len() as u64;
        let shape = self.one("primitive.get_shape_v2", &[value], tensor(Scalar::U32, &[rank]));
        let (begin, end, step) = (self.single(axis as i64), self.single(axis as i64 + 1), self.single(1));
        let size = self.one("primitive.slice_v1", &[shape, begin, end, step], tensor(Scalar::U32, &[1]));
        let size = self.one("primitive.cast_v1", &[size], tensor(Scalar::I32, &[1]));
        self.sizes.insert(sum, size);
        Ok(size)
    }

    /// A sum, computed.
    fn computed(&mut self, sum: &Sum) -> Result<ValueId> {
        if let Some(&id) = self.sizes.get(sum) {
            return Ok(id);
        }
        let ty = || tensor(Scalar::I32, &[1]);
        let mut total = None;
        for (open, &times) in sum.multiples.iter().enumerate().filter(|(_, times)| **times != 0) {
            let mut term = self.open_size(open)?;
            if times != 1 {
                let times = self.single(times);
                term = self.one("primitive.mul_v1", &[term, times], ty());
            }
            total = Some(match total {
                Some(total) => self.one("primitive.add_v1", &[total, term], ty()),
                None => term,
            });
        }
        let total = match (total, sum.constant) {
            (None, constant) => self.single(constant),
            (Some(total), 0) => total,
            (Some(total), constant) => {
                let constant = self.single(constant);
                self.one("primitive.add_v1", &[total, constant], ty())
            }
        };
        self.sizes.insert(sum.clone(), total);
        Ok(total)
    }

    /// Sums as a list of integers.
    pub(super) fn list(&mut self, sums: Vec<Sum>, element: Scalar) -> Result<ValueId> {
        let key = (sums, element);
        if let Some(&id) = self.lists.get(&key) {
            return Ok(id);
        }
        let (sums, _) = &key;
        let parts = sums.iter().map(|sum| self.computed(sum)).collect::<Result<Vec<_>>>()?;
        let count = parts.len() as u64;
        let mut list = match parts[..] {
            [only] => only,
            _ => {
                let axis = self.inline(tensor(Scalar::I32, &[]), number(Scalar::I32, 0.0), true);
                let operands: Vec<ValueId> = std::iter::once(axis).chain(parts).collect();
                self.one("primitive.concat_v1", &operands, tensor(Scalar::I32, &[count]))
            }
        };
        if element != Scalar::I32 {
            list = self.one("primitive.cast_v1", &[list], tensor(element, &[count]));
        }
        self.lists.insert(key, list);
        Ok(list)
    }
}

/// The elements of a constant of integers.
pub(super) fn integers(op: &Op, element: Scalar) -> Result<Vec<i64>> {
    let is_signed = matches!(element, Scalar::I64 | Scalar::I32 | Scalar::I16 | Scalar::I8);
    let is_unsigned = matches!(element, Scalar::U64 | Scalar::U32 | Scalar::U16 | Scalar::U8);
    let (true, Some(Some(Attribute::DenseElements { is_splat, bytes }))) =
        (is_signed || is_unsigned, op.properties.first())
    else {
        refuse!("holds numbers that are others at another shape")
    };
    let width = element_bytes(element);
    let integer = |bytes: &[u8]| {
        let negative = is_signed && bytes.last().is_some_and(|byte| byte & 0x80 != 0);
        let mut word = if negative { [0xff; 8] } else { [0; 8] };
        word[..bytes.len()].copy_from_slice(bytes);
        i64::from_le_bytes(word)
    };
    let given: Vec<i64> = bytes.chunks_exact(width).map(integer).collect();
    let Type::Tensor { dims, .. } = &op.results[0] else { refuse!("is no tensor") };
    let sizes = dims.iter().map(|dim| if let Dim::Fixed(size) = dim { *size as usize } else { 0 });
    let count: usize = sizes.product();
    Ok(if *is_splat { vec![given.first().copied().unwrap_or(0); count] } else { given })
}

/// By expansion along the first row: there are few open sizes.
fn determinant(matrix: &[Vec<i128>]) -> i128 {
    match matrix {
        [] => 1,
        [first, rest @ ..] => first
            .iter()
            .enumerate()
            .map(|(column, &factor)| {
                let minor: Vec<Vec<i128>> = rest
                    .iter()
                    .map(|row| {
                        row.iter().enumerate().filter(|(at, _)| *at != column).map(|(_, &n)| n).collect()
                    })
                    .collect();
                let sign = if column % 2 == 0 { 1 } else { -1 };
                sign * factor * determinant(&minor)
            })
            .sum(),
    }
}

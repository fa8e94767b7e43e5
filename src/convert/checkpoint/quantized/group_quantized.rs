//! A matrix of packed integers with a scale and a zero for each group of a row: an element is `scale * (integer - zero)`.

use std::ops::Range;

use super::fields::Fields;
use crate::checkpoint::error::{CheckpointError, Result};
use crate::checkpoint::{Encoding, Stored};

/// What the integers of a matrix mean.
#[derive(Debug, PartialEq)]
pub struct GroupQuantized {
    /// Outputs and inputs.
    pub(super) shape: [usize; 2],
    pub(super) codes: Fields,
    /// Whether a line of the codes is an input; an output otherwise.
    pub(super) by_input: bool,
    /// Whether integers are in two's complement.
    pub(in crate::checkpoint) is_signed: bool,
    pub(super) scales: Table,
    pub(super) zeros: Zeros,
    pub(super) groups: Grouping,
}

/// Numbers by row and group.
#[derive(Debug, PartialEq)]
pub(super) struct Table {
    pub(super) stored: Stored,
    /// Numbers from a row to the next, and from a group to the next.
    pub(super) steps: [usize; 2],
}

/// What is taken off an integer.
#[derive(Debug, PartialEq)]
pub(super) enum Zeros {
    /// The same everywhere.
    Same(f32),
    /// Lines of packed integers, a line to a group, plus a number.
    Packed(Fields, f32),
    /// Numbers, plus a number.
    Plain(Table, f32),
}

/// Which group an input is in.
#[derive(Debug, PartialEq)]
pub(super) struct Grouping {
    /// Inputs of a group.
    pub(super) size: usize,
    /// The group of each input, where groups are not runs of inputs.
    pub(super) listed: Option<Vec<u32>>,
}

impl Table {
    /// Numbers for a matrix by tensor, row or group, as their shape says, and the inputs of a group.
    pub(super) fn of(stored: Stored, name: &str, [rows, columns]: [usize; 2]) -> Result<(Table, usize)> {
        let problem = |text: String| Err(CheckpointError::new(text).at_tensor(name));
        if !matches!(stored.encoding, Encoding::Plain(_)) {
            return problem("is not plain numbers".to_owned());
        }
        let (steps, groups) = match stored.shape[..] {
            [] | [1] | [1, 1] => ([0, 0], 1),
            [found] | [found, 1] if found == rows => ([1, 0], 1),
            [found, groups] if found == rows && groups > 0 => ([groups, 1], groups),
            _ => {
                let found = &stored.shape[..];
                return problem(format!("is {found:?}, and its matrix is {:?}", [rows, columns]));
            }
        };
        match columns > 0 && columns.is_multiple_of(groups) {
            true => Ok((Table { stored, steps }, columns / groups)),
            false => problem(format!("has {groups} groups, which do not divide {columns} inputs")),
        }
    }

    /// Numbers that go with scales of groups of `size` inputs.
    pub(super) fn beside(size: usize, stored: Stored, name: &str, shape: [usize; 2]) -> Result<Table> {
        let (table, own) = Table::of(stored, name, shape)?;
        if own == size {
            return Ok(table);
        }
        let message = format!("is for groups of {own} inputs, and its scales are for groups of {size}");
        Err(CheckpointError::new(message).at_tensor(name))
    }

    pub(super) fn get(&self, row: usize, group: usize) -> f32 {
        let at = row * self.steps[0] + group * self.steps[1];
        let mut number = [0.0];
        self.stored.read(at..at + 1, &mut number);
        number[0]
    }
}

impl GroupQuantized {
    pub(in crate::checkpoint) fn bits(&self) -> u32 {
        self.codes.bits
    }

    /// Inputs of a group.
    pub(in crate::checkpoint) fn size(&self) -> usize {
        self.groups.size
    }

    /// Whether the inputs of a group follow each other.
    pub(in crate::checkpoint) fn is_in_order(&self) -> bool {
        self.groups.listed.is_none()
    }

    /// Writes the elements of a row-major range.
    pub(in crate::checkpoint) fn read(&self, range: Range<usize>, out: &mut [f32]) {
        let width = self.shape[1];
        let mut at = range.start;
        let mut rest = &mut out[..range.len()];
        while !rest.is_empty() {
            let (row, column) = (at / width, at % width);
            let (now, later) = rest.split_at_mut((width - column).min(rest.len()));
            self.read_row(row, column, now);
            at += now.len();
            rest = later;
        }
    }

    /// Writes some elements of a row.
    fn read_row(&self, row: usize, first: usize, out: &mut [f32]) {
        let Grouping { size, listed } = &self.groups;
        let element = |(scale, zero): (f32, f32), column: usize| {
            let code = self.code(row, column);
            let number = if self.is_signed { f32::from(code.cast_signed()) } else { f32::from(code) };
            scale * (number - zero)
        };
        if let Some(listed) = listed {
            let all: Vec<_> = (0..self.shape[1] / size).map(|group| self.parameters(row, group)).collect();
            for (column, out) in (first..).zip(out) {
                *out = element(all[listed[column] as usize], column);
            }
            return;
        }
        let mut column = first;
        let mut rest = out;
        while !rest.is_empty() {
            let group = column / size;
            let (now, later) = rest.split_at_mut(((group + 1) * size - column).min(rest.len()));
            let parameters = self.parameters(row, group);
            for (column, out) in (column..).zip(&mut *now) {
                *out = element(parameters, column);
            }
            column += now.len();
            rest = later;
        }
    }

    /// Writes the integers of a run of inputs that is a group, and tells its scale and what an integer of zero is.
    pub(in crate::checkpoint) fn split(&self, group: usize, codes: &mut [u8]) -> (f32, f32) {
        let size = self.groups.size;
        let (row, group) = (group * size / self.shape[1], group * size % self.shape[1] / size);
        for (column, code) in (group * size..).zip(&mut codes[..size]) {
            *code = self.code(row, column);
        }
        let (scale, zero) = self.parameters(row, group);
        (scale, if zero == 0.0 { 0.0 } else { -zero * scale })
    }

    #[inline]
    fn code(&self, row: usize, column: usize) -> u8 {
        if self.by_input { self.codes.get(column, row) } else { self.codes.get(row, column) }
    }

    /// Scale and zero.
    fn parameters(&self, row: usize, group: usize) -> (f32, f32) {
        let zero = match &self.zeros {
            Zeros::Same(zero) => *zero,
            Zeros::Packed(fields, more) => f32::from(fields.get(group, row)) + more,
            Zeros::Plain(table, more) => table.get(row, group) + more,
        };
        (self.scales.get(row, group), zero)
    }
}

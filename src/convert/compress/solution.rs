//! Weights whose codes were chosen by data before the package is written.
//!
//! Codes go to a file, packed as the package will have them, so that memory does not grow with the model. The file is
//! mapped and may then be deleted.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::ops::Range;
use std::path::Path;

use rayon::prelude::*;

use super::encoder::{EncodedTables, Scheme};
use super::encoding::Step;
use super::gptq::SolvedRows;
use super::precision::{Granularity, Linear, Palette, Precision};
use super::weight::{Weight, rounded};
use super::{CompressError, Result};
use anemeter_kernels::quantize::{Loss, Packer};
use anemeter_kernels::tensor::{Bytes, DType, shape};
use anemeter_mil::TensorType;

/// The codes of a weight and what they stand for.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Solution {
    precision: Precision,
    /// Packed codes, row by row.
    codes: Bytes,
    parameters: Vec<f32>,
    scales: Vec<f32>,
    rows: usize,
    loss: Loss,
}

/// Solutions by the names of weights.
#[derive(Debug, Default)]
pub struct Solutions(BTreeMap<String, Solution>);

/// Solutions in the making.
pub struct SolutionWriter {
    file: BufWriter<File>,
    len: usize,
    drafts: Vec<Draft>,
}

struct Draft {
    name: String,
    precision: Precision,
    codes: Range<usize>,
    packer: Option<Packer>,
    parameters: Vec<f32>,
    scales: Vec<f32>,
    rows: usize,
    loss: Loss,
}

impl SolutionWriter {
    /// Solutions whose codes go to a file in a folder.
    pub fn new(folder: &Path) -> io::Result<SolutionWriter> {
        let path = folder.join("codes");
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
        Ok(SolutionWriter { file: BufWriter::new(file), len: 0, drafts: Vec::new() })
    }

    /// Begins a weight; the rows that are pushed next are its.
    pub fn begin(&mut self, name: &str, precision: Precision) -> io::Result<()> {
        self.end()?;
        self.drafts.push(Draft {
            name: name.to_owned(),
            precision,
            codes: self.len..self.len,
            packer: Some(Packer::new(precision.bits() as u32)),
            parameters: Vec::new(),
            scales: Vec::new(),
            rows: 0,
            loss: Loss::default(),
        });
        Ok(())
    }

    /// Adds rows to the weight that was begun last.
    ///
    /// # Panics
    /// If none was.
    pub fn push(&mut self, solved: &SolvedRows, rows: usize) -> io::Result<()> {
        let draft = self.drafts.last_mut().expect("a weight was begun");
        let packer = draft.packer.as_mut().expect("the last weight has not ended");
        let mut packed = Vec::new();
        packer.push(&solved.codes, &mut packed);
        self.file.write_all(&packed)?;
        self.len += packed.len();
        draft.parameters.extend_from_slice(&solved.parameters);
        draft.scales.extend_from_slice(&solved.scales);
        draft.rows += rows;
        draft.loss += solved.loss;
        Ok(())
    }

    fn end(&mut self) -> io::Result<()> {
        let Some(draft) = self.drafts.last_mut() else { return Ok(()) };
        if let Some(packer) = draft.packer.take() {
            let mut packed = Vec::new();
            packer.finish(&mut packed);
            self.file.write_all(&packed)?;
            self.len += packed.len();
            draft.codes.end = self.len;
        }
        Ok(())
    }

    /// All weights; the file may be deleted then.
    pub fn finish(mut self) -> io::Result<Solutions> {
        self.end()?;
        let file = self.file.into_inner().map_err(io::IntoInnerError::into_error)?;
        let bytes = Bytes::map(&file)?;
        let solution = |draft: Draft| {
            let codes = bytes.slice(draft.codes).ok_or(io::ErrorKind::UnexpectedEof)?;
            let Draft { precision, parameters, scales, rows, loss, .. } = draft;
            io::Result::Ok((draft.name, Solution { precision, codes, parameters, scales, rows, loss }))
        };
        Ok(Solutions(self.drafts.into_iter().map(solution).collect::<io::Result<_>>()?))
    }
}

impl Solutions {
    /// How many weights there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What the codes of a weight stand for, if it has any.
    pub fn reader(&self, name: &str) -> Option<SolutionReader<'_>> {
        self.0.get(name).map(SolutionReader)
    }

    /// The solution of a weight and the rows of it that one with this name has: a name ends with rows where a program holds
    /// only some, and with a number where a function holds the weight again.
    fn find(&self, name: &str) -> Option<(&Solution, Range<usize>)> {
        if let Some(whole) = self.0.get(name) {
            return Some((whole, 0..whole.rows));
        }
        let words: Vec<&str> = name.rsplitn(4, '_').collect();
        let number = |at: usize| words.get(at)?.parse::<usize>().ok();
        let base = |numbers: usize| {
            let end = words[..numbers].iter().map(|word| word.len() + 1).sum::<usize>();
            self.0.get(name.len().checked_sub(end).map(|end| &name[..end])?)
        };
        let part = |numbers: usize, first: usize, last: usize| {
            let (solution, rows) = (base(numbers)?, number(first)?..number(last)?);
            (rows.start < rows.end && rows.end <= solution.rows).then_some((solution, rows))
        };
        number(0)?;
        if let Some(again) = base(1) {
            return Some((again, 0..again.rows));
        }
        number(1)?;
        part(2, 1, 0).or_else(|| part(3, 2, 1))
    }

    /// The scheme of a weight whose codes are known, in place of one that would choose them.
    pub(super) fn scheme(
        &self,
        weight: &Weight,
        precision: Precision,
        chosen: Box<dyn Scheme>,
    ) -> Result<Box<dyn Scheme>> {
        let Some((solution, rows)) = self.find(&weight.name) else { return Ok(chosen) };
        let unfit = |why: &str| {
            CompressError::new(format!(
                "weight `{}` has codes of another form than its program: {why}",
                weight.name
            ))
        };
        if solution.precision != precision {
            return Err(unfit(&format!("they are {} and it is to be {precision}", solution.precision)));
        }
        if !weight.layout.is_by_rows() || weight.layout.channels() != rows.len() || weight.dtype != DType::F16
        {
            return Err(unfit("its rows are others"));
        }
        let (codes, parameters, scales) =
            solution.part(&rows).ok_or_else(|| unfit("palettes or bytes would have to be divided"))?;
        let tables =
            chosen.solved_tables(parameters, scales).ok_or_else(|| unfit("it has no such tables"))?;
        let len = |ty: &TensorType| {
            let elements = ty.concrete().and_then(|shape| shape::element_count(&shape))?;
            ty.dtype.byte_len(elements)
        };
        let wanted: Vec<Option<usize>> = chosen.pieces().iter().map(len).collect();
        let lens = std::iter::once(codes.len()).chain(tables.iter().map(Vec::len)).map(Some);
        if !lens.eq(wanted) {
            return Err(unfit("its pieces have other sizes"));
        }
        Ok(Box::new(SolvedScheme { chosen, codes, tables, loss: solution.loss }))
    }
}

/// A weight read back from its codes.
pub struct SolutionReader<'a>(&'a Solution);

impl SolutionReader<'_> {
    /// The elements of some rows.
    pub fn rows(&self, rows: Range<usize>) -> Vec<f32> {
        let Solution { precision, codes, parameters, scales, rows: count, .. } = self.0;
        let bits = precision.bits() as usize;
        let columns = codes.len() * 8 / bits / count.max(&1);
        let code = |at: usize| {
            let (byte, shift) = (at * bits / 8, at * bits % 8);
            let next = codes.get(byte + 1).copied().unwrap_or(0);
            let word = u16::from_le_bytes([codes[byte], next]) >> shift;
            usize::from(word) & ((1 << bits) - 1)
        };
        let value = |row: usize, column: usize| match precision {
            Precision::Palette(palette) => {
                let group = palette.group.unwrap_or(*count).max(1);
                let entry = parameters[((row / group) << bits) + code(row * columns + column)];
                entry * scales.get(row).copied().unwrap_or(1.0)
            }
            Precision::Linear(linear) => {
                let blocks = parameters.len() / 2;
                let unit = match linear.granularity {
                    Granularity::Tensor => 0,
                    Granularity::Channel => row,
                    Granularity::Block(size) => row * (blocks / count.max(&1)) + column / size,
                };
                let code = code(row * columns + column) as i32;
                let code =
                    if linear.symmetric && code >= 1 << (bits - 1) { code - (1 << bits) } else { code };
                (code as f32 - parameters[2 * unit + 1]) * parameters[2 * unit]
            }
            _ => 0.0,
        };
        let each = |at: usize| rounded(DType::F16, value(rows.start + at / columns, at % columns));
        (0..rows.len() * columns).into_par_iter().map(each).collect()
    }
}

impl Solution {
    /// Codes, parameters and scales of some rows.
    fn part(&self, rows: &Range<usize>) -> Option<(Bytes, &[f32], &[f32])> {
        let bytes = |row: usize| {
            let (product, rows) = (row.checked_mul(self.codes.len())?, self.rows.max(1));
            product.is_multiple_of(rows).then_some(product / rows)
        };
        let codes = match *rows == (0..self.rows) {
            true => self.codes.clone(),
            false => self.codes.slice(bytes(rows.start)?..bytes(rows.end)?)?,
        };
        let sharing = match self.precision {
            Precision::Linear(Linear { granularity: Granularity::Tensor, .. }) => self.rows,
            Precision::Palette(Palette { group, .. }) => group.unwrap_or(self.rows),
            _ => 1,
        };
        let units = self.rows / sharing.max(1);
        let each = self.parameters.len() / units.max(1);
        let parameters = match units {
            1 => &self.parameters[..],
            _ if rows.start.is_multiple_of(sharing) && rows.end.is_multiple_of(sharing) => {
                self.parameters.get(rows.start / sharing * each..rows.end / sharing * each)?
            }
            _ => return None,
        };
        let scales = if self.scales.is_empty() { &[] } else { self.scales.get(rows.clone())? };
        Some((codes, parameters, scales))
    }
}

/// A weight whose codes are known.
struct SolvedScheme {
    /// How they are stored.
    chosen: Box<dyn Scheme>,
    codes: Bytes,
    tables: Vec<Vec<u8>>,
    loss: Loss,
}

impl Scheme for SolvedScheme {
    fn pieces(&self) -> Vec<TensorType> {
        self.chosen.pieces()
    }

    fn write(&self, _: &Weight, _: usize, out: &mut dyn Write) -> io::Result<Option<EncodedTables>> {
        const PIECE: usize = 1 << 22;
        for start in (0..self.codes.len()).step_by(PIECE) {
            let range = start..self.codes.len().min(start + PIECE);
            out.write_all(&self.codes[range.clone()])?;
            self.codes.release(range);
        }
        Ok(Some(EncodedTables { pieces: self.tables.clone(), loss: self.loss }))
    }

    fn steps(&self) -> Vec<Step> {
        self.chosen.steps()
    }

    fn is_solved(&self) -> bool {
        true
    }
}

//! Tables in files beside the packages, of which each token gets a row: vectors of tokens, rotations of positions.

use std::path::Path;

use half::f16;

use super::input::{Piece, write};
use crate::generate::driver::buffer::Buffer;
use crate::generate::error::{GenerateError, Result};
use crate::tensor_files::{self, Content};
use anemeter_convert::bundle::contract::{RowsBy, TableRows};
use anemeter_kernels::convert::to_f32;
use anemeter_kernels::tensor::{Bytes, Tensor};

/// What a scale is divided by: the largest int8 code.
const LARGEST_CODE: f32 = 127.0;

/// Where tables are, and how many rows they need.
pub(super) struct Files<'a> {
    pub(super) folder: &'a Path,
    /// Tokens in the vocabulary.
    pub(super) vocabulary: usize,
    /// Most positions of a sequence.
    pub(super) positions: usize,
}

/// A table with a row for each token or position.
pub(super) struct Table {
    by: RowsBy,
    width: usize,
    factor: f32,
    elements: Elements,
    /// The rows of a prediction.
    rows: Vec<f32>,
}

enum Elements {
    Floats(Tensor),
    /// int8 codes, and the bytes of an fp16 per row.
    Codes {
        codes: Bytes,
        scales: Bytes,
    },
}

impl Table {
    /// Opens a table whose rows have a width.
    pub(super) fn open(described: &TableRows, width: usize, files: &Files<'_>) -> Result<Table> {
        let path = files.folder.join(&described.file);
        let count = match described.by {
            RowsBy::Token => files.vocabulary,
            RowsBy::Position => files.positions,
        };
        if width == 0 {
            let problem = format!("the rows of `{}` have no width", described.input);
            return Err(GenerateError::file(path, problem));
        }
        let elements = match &described.scales {
            Some(scales) => codes(&path, &files.folder.join(scales), (count, width))?,
            None => floats(&path, (count, width))?,
        };
        Ok(Table {
            by: described.by,
            width,
            factor: described.factor.unwrap_or(1.0) as f32,
            elements,
            rows: Vec::new(),
        })
    }

    /// Elements of a row.
    pub(super) fn width(&self) -> usize {
        self.width
    }

    /// Writes a row for each token; those of padding are zero.
    pub(super) fn write(&mut self, piece: &Piece<'_>, buffer: &mut Buffer) {
        let Table { by, width, factor, elements, rows } = self;
        rows.clear();
        rows.resize(piece.width * *width, 0.0);
        for ((at, &id), to) in piece.ids.iter().enumerate().zip(rows.chunks_exact_mut(*width)) {
            let row = match by {
                RowsBy::Token => id as usize,
                RowsBy::Position => piece.begin + at,
            };
            let range = row * *width..(row + 1) * *width;
            let scale = match elements {
                Elements::Floats(tensor) => {
                    to_f32(&tensor.view(), range, to);
                    *factor
                }
                Elements::Codes { codes, scales } => {
                    let codes = bytemuck::cast_slice::<u8, i8>(&codes[range]);
                    to.iter_mut().zip(codes).for_each(|(to, &code)| *to = f32::from(code));
                    let scale = f16::from_le_bytes([scales[2 * row], scales[2 * row + 1]]);
                    scale.to_f32() / LARGEST_CODE * *factor
                }
            };
            to.iter_mut().for_each(|value| *value *= scale);
        }
        write(buffer, |i| rows[i], |i| rows[i] as i32);
    }
}

/// A table of floats, `[rows, width]` with as many rows as are needed or more.
fn floats(path: &Path, (count, width): (usize, usize)) -> Result<Elements> {
    let content = tensor_files::read(path).map_err(|e| GenerateError::request(e.to_string()))?;
    let problem = |problem: String| GenerateError::file(path, problem);
    let Content::Unnamed(tensor) = content else {
        return Err(problem("has tensors with names, expected one array in an `.npy` file".to_owned()));
    };
    let fits = matches!(*tensor.shape(), [rows, of] if rows >= count && of == width);
    if !fits || !tensor.dtype().is_float() {
        let (dtype, shape) = (tensor.dtype(), tensor.shape());
        let expected = format!("floats of {count} rows or more, each of {width}");
        return Err(problem(format!("is {dtype} of shape {shape:?}, expected {expected}")));
    }
    Ok(Elements::Floats(tensor))
}

/// A table of int8 codes with a scale per row.
fn codes(path: &Path, scales: &Path, (count, width): (usize, usize)) -> Result<Elements> {
    let codes = of_size(path, count.checked_mul(width), &format!("{count} rows of {width} bytes"))?;
    let scales = of_size(scales, count.checked_mul(2), &format!("{count} numbers of 2 bytes"))?;
    Ok(Elements::Codes { codes, scales })
}

/// A file of a size, mapped.
fn of_size(path: &Path, bytes: Option<usize>, expected: &str) -> Result<Bytes> {
    let failed = |e: std::io::Error| GenerateError::file(path, e.to_string());
    let mapped = Bytes::map(&anemeter_base::files::open(path).map_err(failed)?).map_err(failed)?;
    match Some(mapped.len()) == bytes {
        true => Ok(mapped),
        false => Err(GenerateError::file(
            path,
            format!("has {} bytes, expected {expected}: `vocabulary` or the widths are others", mapped.len()),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anemeter_kernels::tensor::{DType, TensorView};

    fn files(folder: &Path) -> Files<'_> {
        Files { folder, vocabulary: 2, positions: 3 }
    }

    fn rows(file: &str, scales: Option<&str>, by: RowsBy) -> TableRows {
        let (input, file, scales) = ("x".to_owned(), file.to_owned(), scales.map(str::to_owned));
        TableRows { input, by, file, scales, factor: Some(2.0) }
    }

    fn put(folder: &Path, name: &str, bytes: &[u8]) {
        anemeter_base::atomic::write_file(&folder.join(name), bytes).unwrap();
    }

    fn written(table: &mut Table, piece: &Piece<'_>) -> Vec<f32> {
        let mut buffer = Buffer::zeroed(DType::F32, &[1, piece.width, table.width()]).unwrap();
        table.write(piece, &mut buffer);
        buffer.view().unwrap().slice::<f32>().unwrap().to_vec()
    }

    #[test]
    fn codes_are_scaled_by_row_and_padding_is_zero() {
        let folder = tempfile::tempdir().unwrap();
        put(folder.path(), "codes.bin", bytemuck::cast_slice(&[127i8, -127, 1, 0]));
        let scales: Vec<u8> = [1.0f32, 127.0].iter().flat_map(|&x| f16::from_f32(x).to_le_bytes()).collect();
        put(folder.path(), "scales.bin", &scales);
        let described = rows("codes.bin", Some("scales.bin"), RowsBy::Token);
        let mut table = Table::open(&described, 2, &files(folder.path())).unwrap();
        let piece = Piece { ids: &[1, 0], begin: 5, width: 3, context: 8 };
        assert_eq!(written(&mut table, &piece), [2.0, 0.0, 2.0, -2.0, 0.0, 0.0]);
        put(folder.path(), "codes.bin", &[0; 5]);
        let error = Table::open(&described, 2, &files(folder.path())).err().unwrap().to_string();
        assert!(error.contains("codes.bin: has 5 bytes, expected 2 rows of 2 bytes"), "{error}");
    }

    #[test]
    fn positions_select_rows_of_an_array() {
        let folder = tempfile::tempdir().unwrap();
        let numbers: Vec<f16> = (0..6u8).map(f16::from).collect();
        let put_array = |shape: &[usize]| {
            let view = TensorView::new(DType::F16, shape, bytemuck::cast_slice(&numbers)).unwrap();
            let document = tensor_files::Document { tensors: [("x".to_owned(), view)].into(), texts: None };
            let path = folder.path().join("cos.npy");
            put(folder.path(), "cos.npy", &tensor_files::Format::of(&path).encode(&document).unwrap());
        };
        put_array(&[3, 2]);
        let described = rows("cos.npy", None, RowsBy::Position);
        let mut table = Table::open(&described, 2, &files(folder.path())).unwrap();
        let piece = Piece { ids: &[1, 0], begin: 1, width: 2, context: 3 };
        assert_eq!(written(&mut table, &piece), [4.0, 6.0, 8.0, 10.0]);
        put_array(&[2, 3]);
        let error = Table::open(&described, 2, &files(folder.path())).err().unwrap().to_string();
        assert!(error.contains("is fp16 of shape [2, 3], expected floats of 3 rows or more"), "{error}");
    }
}

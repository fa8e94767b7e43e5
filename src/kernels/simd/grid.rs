//! A row-major matrix being written, which can be divided by rows and by columns for several threads.

use std::marker::PhantomData;

/// Exclusive access to a rectangle of a row-major matrix.
pub(crate) struct Grid<'a, T = f32> {
    start: *mut T,
    rows: usize,
    columns: usize,
    stride: usize,
    memory: PhantomData<&'a mut [T]>,
}

// SAFETY: a `Grid` is the only access to its elements, like a mutable slice of them.
unsafe impl<T: Send> Send for Grid<'_, T> {}

impl<'a, T> Grid<'a, T> {
    /// All of a matrix with `columns` columns.
    pub(crate) fn new(data: &'a mut [T], columns: usize) -> Grid<'a, T> {
        let rows = data.len().checked_div(columns).unwrap_or(0);
        Grid { start: data.as_mut_ptr(), rows, columns, stride: columns, memory: PhantomData }
    }

    /// Number of rows.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Number of columns.
    pub(crate) fn columns(&self) -> usize {
        self.columns
    }

    /// The elements of one row.
    #[inline(always)]
    pub(crate) fn row(&mut self, row: usize) -> &mut [T] {
        assert!(row < self.rows, "row {row} of {}", self.rows);
        // SAFETY: the row lies in the matrix that `new` borrowed, and `&mut self` excludes other access to
        // this rectangle; other rectangles share no element with it.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(row * self.stride), self.columns) }
    }

    /// The elements of the only row.
    pub(crate) fn into_row(self) -> &'a mut [T] {
        assert_eq!(self.rows, 1, "a single row");
        // SAFETY: the row lies in the matrix that `new` borrowed for `'a`, and this rectangle, which alone has access to
        // it, is given up.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.columns) }
    }

    /// The rows before `row` and the others.
    pub(crate) fn split_rows(self, row: usize) -> (Grid<'a, T>, Grid<'a, T>) {
        let Grid { start, rows, columns, stride, memory } = self;
        assert!(row <= rows, "row {row} of {rows}");
        // SAFETY: the offset is that of an element of the matrix, or zero where there is no such row.
        let below = unsafe { start.add(if row < rows { row * stride } else { 0 }) };
        (
            Grid { start, rows: row, columns, stride, memory },
            Grid { start: below, rows: rows - row, columns, stride, memory },
        )
    }

    /// The columns before `column` and the others.
    pub(crate) fn split_columns(self, column: usize) -> (Grid<'a, T>, Grid<'a, T>) {
        let Grid { start, rows, columns, stride, memory } = self;
        assert!(column <= columns, "column {column} of {columns}");
        // SAFETY: the first row, if there is one, has this many elements; without rows the offset is zero.
        let right = unsafe { start.add(if rows > 0 { column } else { 0 }) };
        (
            Grid { start, rows, columns: column, stride, memory },
            Grid { start: right, rows, columns: columns - column, stride, memory },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_disjoint_and_cover_everything() {
        let mut data = vec![0.0; 5 * 7];
        let (top, bottom) = Grid::new(&mut data, 7).split_rows(2);
        let (a, b) = top.split_columns(3);
        let (c, d) = bottom.split_columns(7);
        for (mark, mut part) in [a, b, c, d].into_iter().enumerate() {
            for row in 0..part.rows() {
                part.row(row).iter_mut().for_each(|x| *x += 1.0 + mark as f32);
            }
        }
        let expected = [1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 2.0];
        assert!(data[..14].chunks(7).all(|row| row == expected));
        assert!(data[14..].iter().all(|&x| x == 3.0));
    }

    #[test]
    fn parts_are_written_by_threads_of_their_own() {
        let mut data = vec![0.0; 4 * 6];
        let (left, right) = Grid::new(&mut data, 6).split_columns(2);
        let mark = |mut part: Grid<'_>, mark: f32| {
            (0..part.rows()).for_each(|row| part.row(row).fill(mark + row as f32));
        };
        std::thread::scope(|scope| {
            scope.spawn(|| mark(left, 1.0));
            scope.spawn(|| mark(right, 10.0));
        });
        for (row, found) in data.chunks(6).enumerate() {
            let (a, b) = (1.0 + row as f32, 10.0 + row as f32);
            assert_eq!(found, [a, a, b, b, b, b]);
        }
    }

    #[test]
    fn empty_matrices_divide() {
        let (top, bottom) = Grid::<f32>::new(&mut [], 3).split_rows(0);
        assert_eq!((top.rows(), bottom.rows()), (0, 0));
        let (left, right) = bottom.split_columns(2);
        assert_eq!((left.columns(), right.columns()), (2, 1));
        assert_eq!(Grid::<f32>::new(&mut [], 0).rows(), 0);
    }
}

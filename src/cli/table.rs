//! Plain tables: columns as wide as their widest cell, numbers to the right.

use std::fmt;

/// A table for the terminal. A heading that starts with `>` makes a right-aligned column.
pub(super) struct Table {
    headings: Vec<String>,
    right: Vec<bool>,
    rows: Vec<Vec<String>>,
    indent: usize,
}

impl Table {
    pub(super) fn new(headings: &[&str]) -> Table {
        Table {
            headings: headings.iter().map(|h| h.trim_start_matches('>').to_owned()).collect(),
            right: headings.iter().map(|h| h.starts_with('>')).collect(),
            rows: Vec::new(),
            indent: 0,
        }
    }

    /// Adds a row; control characters are made visible.
    pub(super) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().map(|cell| visible(&cell)).collect());
    }

    pub(super) fn indented(mut self, columns: usize) -> Table {
        self.indent = columns;
        self
    }
}

fn visible(cell: &str) -> String {
    cell.chars().map(|c| if c.is_control() { c.escape_debug().to_string() } else { c.to_string() }).collect()
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column)).chain([&self.headings[column]]);
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.headings.len()).map(width).collect();
        for row in std::iter::once(&self.headings).chain(&self.rows) {
            let mut line = " ".repeat(self.indent);
            for (column, cell) in row.iter().enumerate() {
                let pad = " ".repeat(widths[column].saturating_sub(cell.chars().count()));
                let (before, after) =
                    if self.right[column] { (pad, String::new()) } else { (String::new(), pad) };
                line.push_str(&format!("{before}{cell}{after}  "));
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&[">count", "name"]);
        table.row(["7".to_owned(), "a\nb".to_owned()]);
        table.row(["1234".to_owned(), "c".to_owned()]);
        assert_eq!(table.indented(1).to_string(), " count  name\n     7  a\\nb\n  1234  c\n");
    }
}

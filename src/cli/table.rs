//! Plain tables: columns as wide as their widest cell, numbers to the right. What is wider than the terminal is fitted to
//! it: long text goes on below, and if that is not enough each row becomes a list.

use std::fmt;
use std::io::{IsTerminal, stdout};
use std::sync::OnceLock;

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Columns that tables may take up; any number until [`fit_to_terminal`] finds a terminal.
static AVAILABLE: OnceLock<usize> = OnceLock::new();
/// Text is not cut into pieces narrower than this.
const NARROWEST: usize = 12;
/// Columns between two cells.
const GAP: usize = 2;

/// Makes tables fit the terminal, or `COLUMNS` if that is set. Into pipes and files they go as wide as they are.
pub(super) fn fit_to_terminal() {
    let asked = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let terminal = || {
        let (width, _) = stdout().is_terminal().then(terminal_size::terminal_size)??;
        Some(usize::from(width.0))
    };
    if let Some(columns) = asked.or_else(terminal).filter(|&columns| columns > 0) {
        // Set once, at the start.
        let _ = AVAILABLE.set(columns);
    }
}

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

    /// The table in at most so many columns, if that can be.
    fn laid_out(&self, available: usize) -> String {
        let mut widths: Vec<usize> = (0..self.headings.len()).map(|column| self.width(column)).collect();
        let needed = |widths: &[usize]| self.indent + widths.iter().map(|width| width + GAP).sum::<usize>();
        let columns = available.saturating_add(GAP);
        while needed(&widths) > columns {
            let text = (0..widths.len()).filter(|&column| !self.right[column] && widths[column] > NARROWEST);
            let Some(widest) = text.max_by_key(|&column| widths[column]) else {
                return self.listed(available);
            };
            widths[widest] -= 1;
        }
        let rows = std::iter::once(&self.headings).chain(&self.rows);
        rows.map(|row| self.laid_out_row(row, &widths)).collect()
    }

    fn width(&self, column: usize) -> usize {
        let cells = self.rows.iter().filter_map(|row| row.get(column)).chain([&self.headings[column]]);
        cells.map(|cell| cell.width()).max().unwrap_or(0)
    }

    fn laid_out_row(&self, row: &[String], widths: &[usize]) -> String {
        let pieces: Vec<Vec<&str>> = row.iter().zip(widths).map(|(cell, &width)| cut(cell, width)).collect();
        let height = pieces.iter().map(Vec::len).max().unwrap_or(0).max(1);
        let mut text = String::new();
        for index in 0..height {
            let mut line = " ".repeat(self.indent);
            for (column, pieces) in pieces.iter().enumerate() {
                let piece = pieces.get(index).copied().unwrap_or("");
                let pad = " ".repeat(widths[column].saturating_sub(piece.width()));
                let (before, after) = if self.right[column] { (&*pad, "") } else { ("", &*pad) };
                line.extend([before, piece, after, &" ".repeat(GAP)]);
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }

    /// Each row as lines of heading and cell.
    fn listed(&self, available: usize) -> String {
        let heading = self.headings.iter().map(|heading| heading.width()).max().unwrap_or(0);
        let room = available.saturating_sub(self.indent + heading + GAP).max(NARROWEST);
        let mut list = Table { indent: self.indent, right: vec![false; 2], ..Table::new(&["", ""]) };
        for (index, row) in self.rows.iter().enumerate() {
            if index > 0 {
                list.rows.push(vec![String::new(); 2]);
            }
            let cells = self.headings.iter().zip(row).filter(|(_, cell)| !cell.is_empty());
            list.rows.extend(cells.map(|(heading, cell)| vec![heading.clone(), cell.clone()]));
        }
        list.rows.iter().map(|row| list.laid_out_row(row, &[heading, room])).collect()
    }
}

/// Pieces of text of at most so many columns, cut after spaces and signs where there are any.
fn cut(text: &str, width: usize) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while rest.width() > width.max(1) {
        let (mut columns, mut end, mut good) = (0, 0, None);
        for (at, c) in rest.char_indices() {
            columns += c.width().unwrap_or(0);
            if columns > width && end > 0 {
                break;
            }
            end = at + c.len_utf8();
            if matches!(c, ' ' | ',' | '/' | '-' | '_' | '.' | ';') {
                good = Some(end);
            }
        }
        let (piece, after) = rest.split_at(good.unwrap_or(end));
        pieces.push(piece.trim_end());
        rest = after.trim_start();
    }
    pieces.push(rest);
    pieces
}

/// Text without control characters.
pub(super) fn visible(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { c.escape_debug().to_string() } else { c.to_string() }).collect()
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.laid_out(AVAILABLE.get().copied().unwrap_or(usize::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(&["name", ">count", "where"]);
        table.row(["model.layers.0.mlp".to_owned(), "1234".to_owned(), "in the first package".to_owned()]);
        table.row(["北京".to_owned(), "7".to_owned(), "x".to_owned()]);
        table.indented(1)
    }

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&[">count", "name"]);
        table.row(["7".to_owned(), "a\nb".to_owned()]);
        table.row(["1234".to_owned(), "c".to_owned()]);
        assert_eq!(table.indented(1).to_string(), " count  name\n     7  a\\nb\n  1234  c\n");
    }

    #[test]
    fn long_text_goes_on_below() {
        insta::assert_snapshot!(table().laid_out(40));
    }

    #[test]
    fn rows_that_cannot_fit_become_lists() {
        insta::assert_snapshot!(table().laid_out(30));
    }

    proptest::proptest! {
        #[test]
        fn nothing_is_lost_and_nothing_is_too_wide(
            cells in proptest::collection::vec("[a-z /.é京]{0,60}", 1..12), available in 1usize..120
        ) {
            let mut table = Table::new(&["one", ">two", "three"]);
            for row in cells.chunks(3).filter(|row| row.len() == 3) {
                table.row(row.iter().cloned());
            }
            let text = table.laid_out(available);
            let letters = |text: &str| {
                let mut letters: Vec<char> = text.chars().filter(|c| !c.is_whitespace()).collect();
                letters.sort_unstable();
                letters
            };
            let whole = table.laid_out(usize::MAX);
            let narrow_enough = text.lines().all(|line| line.width() <= available);
            let is_a_list = text.lines().next() != whole.lines().next();
            proptest::prop_assert!(narrow_enough || is_a_list || table.rows.is_empty(), "{}", text);
            if !is_a_list {
                proptest::prop_assert_eq!(letters(&text), letters(&whole));
            }
        }

        #[test]
        fn pieces_make_up_the_text(text in "\\PC{0,80}", width in 1usize..40) {
            let whole: String = text.chars().filter(|c| !c.is_whitespace()).collect();
            let pieces = cut(&text, width).concat();
            proptest::prop_assert_eq!(pieces.chars().filter(|c| !c.is_whitespace()).collect::<String>(), whole);
        }
    }
}

//! Tables on the terminal: columns as wide as their widest cell, numbers to the right. What is wider than the terminal
//! is fitted to it: long text goes on below, and if that is not enough each row becomes a list.

use std::fmt;
use std::sync::OnceLock;

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::table::{Align, Table};

/// Columns that tables may take up; any number until [`fit_tables`] sets it.
static AVAILABLE: OnceLock<usize> = OnceLock::new();
/// Text is not cut into pieces narrower than this.
const NARROWEST: usize = 12;
/// Columns between two cells.
const GAP: usize = 2;

/// Makes displayed tables fit a terminal of so many columns; called once, at the start.
pub fn fit_tables(columns: usize) {
    let _ = AVAILABLE.set(columns);
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.clone().visible();
        if !shown.title.is_empty() {
            writeln!(f, "{}", shown.title)?;
        }
        f.write_str(&shown.laid_out(AVAILABLE.get().copied().unwrap_or(usize::MAX)))?;
        if !shown.note.is_empty() {
            writeln!(f, "{}{}", " ".repeat(shown.indent), shown.note)?;
        }
        Ok(())
    }
}

impl Table {
    /// The table in at most so many columns, if that can be.
    fn laid_out(&self, available: usize) -> String {
        let mut widths: Vec<usize> = (0..self.columns.len()).map(|column| self.width(column)).collect();
        let needed = |widths: &[usize]| self.indent + widths.iter().map(|width| width + GAP).sum::<usize>();
        let columns = available.saturating_add(GAP);
        while needed(&widths) > columns {
            let text = (0..widths.len())
                .filter(|&column| self.columns[column].align == Align::Left && widths[column] > NARROWEST);
            let Some(widest) = text.max_by_key(|&column| widths[column]) else {
                return self.listed(available);
            };
            widths[widest] -= 1;
        }
        let headings: Vec<String> = self.columns.iter().map(|column| column.heading.clone()).collect();
        let headings = Some(&headings).filter(|headings| headings.iter().any(|heading| !heading.is_empty()));
        headings.into_iter().chain(&self.rows).map(|row| self.laid_out_row(row, &widths)).collect()
    }

    fn width(&self, column: usize) -> usize {
        let cells = self.rows.iter().filter_map(|row| row.get(column)).chain([&self.columns[column].heading]);
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
                let (before, after) = match self.columns[column].align {
                    Align::Right => (&*pad, ""),
                    Align::Left => ("", &*pad),
                };
                line.extend([before, piece, after, &" ".repeat(GAP)]);
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }

    /// Each row as lines of heading and cell.
    fn listed(&self, available: usize) -> String {
        let heading = self.columns.iter().map(|column| column.heading.width()).max().unwrap_or(0);
        let room = available.saturating_sub(self.indent + heading + GAP).max(NARROWEST);
        let mut list = Table::new(&["", ""]).indented(self.indent);
        for (index, row) in self.rows.iter().enumerate() {
            if index > 0 {
                list.rows.push(vec![String::new(); 2]);
            }
            let cells = self.columns.iter().zip(row).filter(|(_, cell)| !cell.is_empty());
            list.rows.extend(cells.map(|(column, cell)| vec![column.heading.clone(), cell.clone()]));
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

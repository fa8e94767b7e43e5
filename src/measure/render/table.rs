//! Tables: text in cells, for the terminal, Markdown and HTML.

use serde::Serialize;

use anemeter_base::text::visible;

/// A table. Displayed, it is laid out for the terminal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Table {
    /// Its heading; may be empty.
    pub title: String,
    /// What to know when reading it; may be empty.
    pub note: String,
    /// Its columns.
    pub columns: Vec<Column>,
    /// Its rows, with a cell per column.
    pub rows: Vec<Vec<String>>,
    /// Spaces before each line on the terminal.
    #[serde(skip)]
    pub(super) indent: usize,
}

/// A column of a table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Column {
    /// Its heading.
    pub heading: String,
    /// Where its cells stand.
    pub align: Align,
}

/// Alignment of a column's cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Align {
    /// To the left, as text.
    Left,
    /// To the right, as numbers.
    Right,
}

impl Table {
    /// A table with these headings; one that starts with `>` makes a column of numbers, aligned to the right.
    pub fn new<S: AsRef<str>>(headings: &[S]) -> Table {
        let column = |heading: &S| match heading.as_ref().strip_prefix('>') {
            Some(heading) => Column { heading: heading.to_owned(), align: Align::Right },
            None => Column { heading: heading.as_ref().to_owned(), align: Align::Left },
        };
        let columns = headings.iter().map(column).collect();
        Table { title: String::new(), note: String::new(), columns, rows: Vec::new(), indent: 0 }
    }

    /// The same with a title above and a note below.
    #[must_use]
    pub fn titled(self, title: impl Into<String>, note: impl Into<String>) -> Table {
        Table { title: title.into(), note: note.into(), indent: 2, ..self }
    }

    /// The same with these rows.
    #[must_use]
    pub fn with(self, rows: impl IntoIterator<Item = Vec<String>>) -> Table {
        Table { rows: rows.into_iter().collect(), ..self }
    }

    /// The same with control characters escaped, so that names do no harm where it is shown.
    #[must_use]
    pub(super) fn visible(mut self) -> Table {
        for cell in self.rows.iter_mut().flatten().chain([&mut self.title, &mut self.note]) {
            *cell = visible(cell);
        }
        for column in &mut self.columns {
            column.heading = visible(&column.heading);
        }
        self
    }

    /// The same, so many spaces to the right on the terminal.
    #[must_use]
    pub fn indented(self, indent: usize) -> Table {
        Table { indent, ..self }
    }

    /// Adds a row; control characters are made visible.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().map(|cell| visible(&cell)).collect());
    }
}

/// A table whose first column is text and whose others are numbers.
pub(super) fn table(title: &str, note: &str, headings: &[&str], rows: Vec<Vec<String>>) -> Table {
    let mut table = texts(title, headings, rows);
    table.columns.iter_mut().skip(1).for_each(|column| column.align = Align::Right);
    note.clone_into(&mut table.note);
    table
}

/// A table of text.
pub(super) fn texts(title: &str, headings: &[&str], rows: Vec<Vec<String>>) -> Table {
    Table::new(headings).titled(title, "").with(rows)
}

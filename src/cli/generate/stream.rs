//! Generated text on its way to the terminal.

use crate::cli::{Output, Result};
use crate::generate::{GenerateError, Text, TextStream};
use crate::text::visible;

/// Prints tokens as text.
pub(super) struct Printer<'a> {
    stream: TextStream<'a>,
    is_terminal: bool,
    has_begun: bool,
}

impl<'a> Printer<'a> {
    pub(super) fn new(text: &'a Text, is_terminal: bool) -> Printer<'a> {
        Printer { stream: text.tokenizer.stream(), is_terminal, has_begun: false }
    }

    /// Prints what a token completes. The outer error is the tokenizer's, the inner one the terminal's.
    pub(super) fn push(&mut self, id: u32, output: &mut Output) -> Result<Result<()>, GenerateError> {
        let text = self.stream.push(id)?;
        self.has_begun = true;
        let text = shown(text, self.is_terminal);
        Ok(output.document(text).and_then(|()| output.flush()))
    }

    /// Whether there is a line to end.
    pub(super) fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Prints what was held back, and ends the line.
    pub(super) fn finish(&mut self, output: &mut Output) -> Result<()> {
        let rest = self.stream.finish()?;
        output.document(shown(rest, self.is_terminal) + "\n")
    }
}

/// All tokens as text, or as numbers where there is no tokenizer.
pub(super) fn whole(text: Option<&Text>, ids: &[u32], is_terminal: bool) -> Result<String> {
    match text {
        Some(text) => Ok(shown(text.tokenizer.decode(ids)?, is_terminal)),
        None => Ok(ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")),
    }
}

/// A model must not control a terminal: what is neither text, tab nor new line is made visible there.
fn shown(text: String, is_terminal: bool) -> String {
    if !is_terminal {
        return text;
    }
    text.split_inclusive(['\n', '\t'])
        .map(|part| {
            let seen = part.trim_end_matches(['\n', '\t']);
            visible(seen) + &part[seen.len()..]
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminals_get_no_control_characters() {
        let text = "a\u{1b}[2Jb\r\n\tc\u{9b}";
        assert_eq!(shown(text.to_owned(), true), "a\\u{1b}[2Jb\\r\n\tc\\u{9b}");
        assert_eq!(shown(text.to_owned(), false), text);
    }
}

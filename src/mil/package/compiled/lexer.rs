//! Tokens of MIL text, and errors that say where in the text they are.

use std::borrow::Cow;
use std::fmt;

use crate::package::error::{PackageError, Result, quoted};

/// Marks, longer ones before those they start with.
const MARKS: &[&str] = &["->", "...", "(", ")", "[", "]", "{", "}", "<", ">", ",", ";", "=", "?"];

/// One token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Token<'a> {
    /// A name, a keyword, a type, `true`, `inf`, ..
    Name(&'a str),
    /// A number as it is written, `-inf` included.
    Number(&'a str),
    /// What is between the quotes of a string, escapes as they are written.
    Text(&'a str),
    /// One of [`MARKS`].
    Mark(&'static str),
    /// The end of the text.
    End,
}

/// A text and the token that comes next.
pub(super) struct Lexer<'a> {
    text: &'a str,
    token: Token<'a>,
    /// Where the next token starts.
    start: usize,
    /// Where it ends.
    end: usize,
}

impl<'a> Lexer<'a> {
    /// A lexer before the first token of a text.
    pub(super) fn new(bytes: &'a [u8]) -> Result<Lexer<'a>> {
        let text = std::str::from_utf8(bytes).map_err(|e| {
            let valid = String::from_utf8_lossy(&bytes[..e.valid_up_to()]);
            PackageError::malformed("is not valid UTF-8").at_position(position(&valid, valid.len()))
        })?;
        let mut lexer = Lexer { text, token: Token::End, start: 0, end: 0 };
        lexer.advance()?;
        Ok(lexer)
    }

    /// Bytes of the text.
    pub(super) fn byte_len(&self) -> usize {
        self.text.len()
    }

    /// The token that comes next.
    pub(super) fn peek(&self) -> Token<'a> {
        self.token
    }

    /// Where that token is, for [`Lexer::error_at`].
    pub(super) fn place(&self) -> usize {
        self.start
    }

    /// Takes the token that comes next.
    pub(super) fn take(&mut self) -> Result<Token<'a>> {
        let token = self.token;
        self.advance()?;
        Ok(token)
    }

    /// Takes a mark if it comes next.
    pub(super) fn takes(&mut self, mark: &'static str) -> Result<bool> {
        let found = self.token == Token::Mark(mark);
        if found {
            self.advance()?;
        }
        Ok(found)
    }

    /// Takes a mark that must come next.
    pub(super) fn expect(&mut self, mark: &'static str) -> Result<()> {
        match self.takes(mark)? {
            true => Ok(()),
            false => Err(self.unexpected(&format!("`{mark}`"))),
        }
    }

    /// Takes a keyword that must come next.
    pub(super) fn keyword(&mut self, word: &str) -> Result<()> {
        match self.token == Token::Name(word) {
            true => self.advance(),
            false => Err(self.unexpected(&format!("`{word}`"))),
        }
    }

    /// Takes a name that must come next.
    pub(super) fn name(&mut self, what: &str) -> Result<&'a str> {
        match self.token {
            Token::Name(name) => {
                self.advance()?;
                Ok(name)
            }
            _ => Err(self.unexpected(what)),
        }
    }

    /// Takes what `read` reads, separated by commas, up to a mark.
    pub(super) fn list<T>(
        &mut self,
        end: &'static str,
        mut read: impl FnMut(&mut Lexer<'a>) -> Result<T>,
    ) -> Result<Vec<T>> {
        let mut items = Vec::new();
        self.each(end, |lexer| {
            // Most lists have one element: room for four, which is the least that `push` makes, adds up.
            items.reserve_exact(usize::from(items.is_empty()));
            items.push(read(lexer)?);
            Ok(())
        })?;
        Ok(items)
    }

    /// Calls `read` for everything between here and a mark, separated by commas.
    pub(super) fn each(
        &mut self,
        end: &'static str,
        mut read: impl FnMut(&mut Lexer<'a>) -> Result<()>,
    ) -> Result<()> {
        if self.takes(end)? {
            return Ok(());
        }
        loop {
            read(self)?;
            if self.takes(end)? {
                return Ok(());
            }
            if !self.takes(",")? {
                return Err(self.unexpected(&format!("`,` or `{end}`")));
            }
        }
    }

    /// The error that something else than the next token is expected.
    pub(super) fn unexpected(&self, expected: &str) -> PackageError {
        self.error_at(self.start, format!("expected {expected}, found {}", self.token))
    }

    /// An error about the token at a place.
    pub(super) fn error_at(&self, place: usize, message: impl Into<String>) -> PackageError {
        self.locate(place, PackageError::malformed(message))
    }

    /// An error with a place in the text, unless it is about another file.
    pub(super) fn locate(&self, place: usize, error: PackageError) -> PackageError {
        error.at_position(position(self.text, place))
    }

    fn advance(&mut self) -> Result<()> {
        let rest = self.text[self.end..].trim_ascii_start();
        self.start = self.text.len() - rest.len();
        let Some(first) = rest.chars().next() else {
            (self.token, self.end) = (Token::End, self.start);
            return Ok(());
        };
        let (token, len) = match first {
            '"' => self.string(rest)?,
            c if c.is_ascii_alphabetic() || c == '_' || c == '@' => {
                let len = rest.find(|c| !is_part_of_name(c)).unwrap_or(rest.len());
                (Token::Name(&rest[..len]), len)
            }
            c if c.is_ascii_digit() || (matches!(c, '-' | '+') && !rest.starts_with("->")) => {
                let len = number_len(rest);
                (Token::Number(&rest[..len]), len)
            }
            c => match MARKS.iter().copied().find(|mark| rest.starts_with(mark)) {
                Some(mark) => (Token::Mark(mark), mark.len()),
                None => {
                    let text = format!("the character {} has no place in a program", quoted(&c.to_string()));
                    return Err(self.error_at(self.start, text));
                }
            },
        };
        (self.token, self.end) = (token, self.start + len);
        Ok(())
    }

    fn string(&self, rest: &'a str) -> Result<(Token<'a>, usize)> {
        let mut escaped = false;
        for (at, byte) in rest.bytes().enumerate().skip(1) {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => return Ok((Token::Text(&rest[1..at]), at + 1)),
                _ => {}
            }
        }
        Err(self.error_at(self.start, "a string does not end"))
    }
}

fn is_part_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '@' | '.')
}

/// How far a number goes: a sign is part of it at its start and after the letter of its exponent.
fn number_len(text: &str) -> usize {
    let bytes = text.as_bytes();
    let is_hex = text.trim_start_matches(['-', '+']).starts_with("0x");
    let exponent: &[u8] = if is_hex { b"pP" } else { b"eE" };
    let is_part = |at: usize| match bytes[at] {
        b'-' | b'+' => at == 0 || exponent.contains(&bytes[at - 1]),
        byte => byte.is_ascii_alphanumeric() || byte == b'.',
    };
    (0..bytes.len()).find(|&at| !is_part(at)).unwrap_or(bytes.len())
}

/// Line and column of a byte, both from 1; columns count characters.
fn position(text: &str, place: usize) -> (usize, usize) {
    let before = &text[..place];
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

/// What a string with escapes stands for; says what is wrong where one is unknown.
pub(super) fn unescaped(text: &str) -> std::result::Result<Cow<'_, str>, String> {
    if !text.contains('\\') {
        return Ok(Cow::Borrowed(text));
    }
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        out.push(match chars.next() {
            Some(plain @ ('"' | '\\' | '\'' | '/')) => plain,
            Some('n') => '\n',
            Some('t') => '\t',
            Some('r') => '\r',
            Some('0') => '\0',
            other => {
                let escape: String = ['\\'].into_iter().chain(other).collect();
                return Err(format!("a string has the unknown escape {}", quoted(&escape)));
            }
        });
    }
    Ok(Cow::Owned(out))
}

impl fmt::Display for Token<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Token::Name(text) | Token::Number(text) => f.write_str(&quoted(text)),
            Token::Mark(mark) => f.write_str(&quoted(mark)),
            Token::Text(text) => write!(f, "the string {}", quoted(text)),
            Token::End => f.write_str("the end of the text"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(text: &str) -> Vec<Token<'_>> {
        let mut lexer = Lexer::new(text.as_bytes()).unwrap();
        let mut found = Vec::new();
        while lexer.peek() != Token::End {
            found.push(lexer.take().unwrap());
        }
        found
    }

    #[test]
    fn numbers_end_where_they_do() {
        use Token::{Mark, Name, Number};
        assert_eq!(tokens("0x1.8p+3,-inf"), [Number("0x1.8p+3"), Mark(","), Number("-inf")]);
        assert_eq!(tokens("1e-5 -0x1p-24]"), [Number("1e-5"), Number("-0x1p-24"), Mark("]")]);
        assert_eq!(tokens("0x1e-5"), [Number("0x1e"), Number("-5")]);
        assert_eq!(
            tokens("}->(a_1)"),
            ["}", "->", "("].map(Mark).into_iter().chain([Name("a_1"), Mark(")")]).collect::<Vec<_>>()
        );
        assert_eq!(tokens("[?, ...]>>"), ["[", "?", ",", "...", "]", ">", ">"].map(Mark));
    }

    #[test]
    fn strings_end_at_a_quote_that_is_not_escaped() {
        assert_eq!(tokens(r#""a\"b\\" x"#), [Token::Text(r#"a\"b\\"#), Token::Name("x")]);
        assert_eq!(unescaped(r#"a\"b\\\n"#).unwrap(), "a\"b\\\n");
        assert_eq!(unescaped("größe").unwrap(), "größe");
        assert!(unescaped(r"\q").unwrap_err().ends_with(r"unknown escape `\q`"));
    }

    #[test]
    fn errors_say_line_column_and_both_sides() {
        let taken = |text: &str| Lexer::new(text.as_bytes()).and_then(|mut lexer| lexer.take()).unwrap_err();
        let expected = "the character `ö` has no place in a program (line 2, column 5)";
        assert_eq!(taken("\n\"é\" ö").to_string(), expected);
        assert_eq!(taken("a\n\"open").to_string(), "a string does not end (line 2, column 1)");
        let bytes = Lexer::new(b"a\n \xff").map(|_| ()).unwrap_err();
        assert_eq!(bytes.to_string(), "is not valid UTF-8 (line 2, column 2)");
        let other = Lexer::new(b" ; x").unwrap().expect("{").unwrap_err();
        assert_eq!(other.to_string(), "expected `{`, found `;` (line 1, column 2)");
    }
}

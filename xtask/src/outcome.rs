//! What a check came to, and how a check that could not be made is announced.

/// A check that did not fail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It was made; the text says how much was checked.
    Checked(String),
    /// It could not be made here, for this reason. Never presented as a pass.
    NotChecked(String),
}

impl Outcome {
    /// Announces a check that could not be made, so that nobody overlooks it.
    pub(crate) fn not_checked(what: &str, why: &str) -> Outcome {
        let text = format!("{what}: {why}");
        eprint!("{}", framed(&format!("NOT CHECKED: {text}")));
        Outcome::NotChecked(text)
    }
}

fn framed(text: &str) -> String {
    let width = text.lines().map(|line| line.chars().count()).max().unwrap_or(0);
    let bar = "*".repeat(width + 4);
    let body: String = text.lines().map(|line| format!("* {line:<width$} *\n")).collect();
    format!("\n{bar}\n{body}{bar}\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_fits_its_longest_line() {
        assert_eq!(framed("ab\nc"), "\n******\n* ab *\n* c  *\n******\n\n");
    }
}

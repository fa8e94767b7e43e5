//! `cargo xtask check conformance`: the library and the program against coremltools, torch, transformers' tokenizer
//! and candle.

mod compiled;
mod compression;
mod corpus;
mod foreign;
mod lint;
mod ops;
#[cfg(feature = "candle-transformers")]
mod oracle;
mod round_trip;
mod signatures;
mod tokenizer;
mod torch;
pub(crate) mod validator;

pub(crate) use corpus::folders;

use anyhow::Result;
use pico_args::Arguments;

use xtask::outcome::Outcome;
use xtask::project::Project;

/// One comparison.
struct Part {
    flag: &'static str,
    /// Whether it is made only when its flag is given.
    on_request: bool,
    run: fn(&Project, Option<usize>) -> Result<Outcome>,
}

const PARTS: &[Part] = &[
    Part { flag: "--round-trip", on_request: false, run: round_trip::check },
    Part { flag: "--signatures", on_request: false, run: |project, _| signatures::check(project) },
    Part { flag: "--ops", on_request: false, run: ops::check },
    Part { flag: "--compression", on_request: false, run: compression::check },
    Part { flag: "--oracle", on_request: false, run: |_, _| cross_check() },
    Part { flag: "--foreign", on_request: false, run: foreign::check },
    Part { flag: "--compiled", on_request: false, run: compiled::check },
    Part { flag: "--torch", on_request: true, run: torch::check },
    Part { flag: "--lint", on_request: true, run: lint::check },
    Part { flag: "--tokenizer", on_request: true, run: tokenizer::check },
];

/// What to compare, and over how many cases.
struct Selection {
    parts: Vec<&'static Part>,
    limit: Option<usize>,
}

impl Selection {
    /// Everything that need not be asked for.
    fn all() -> Selection {
        Selection { parts: PARTS.iter().filter(|part| !part.on_request).collect(), limit: None }
    }

    fn parse(mut arguments: Arguments) -> Result<Selection> {
        let parts: Vec<_> = PARTS.iter().filter(|part| arguments.contains(part.flag)).collect();
        let limit = arguments.opt_value_from_str("--limit")?;
        xtask::finish(arguments)?;
        Ok(if parts.is_empty() {
            Selection { limit, ..Selection::all() }
        } else {
            Selection { parts, limit }
        })
    }
}

/// Makes the selected comparisons.
pub(crate) fn run(project: &Project, arguments: Arguments) -> Result<Outcome> {
    let selection = Selection::parse(arguments)?;
    let parts = selection.parts.iter().map(|part| (part.flag, || (part.run)(project, selection.limit)));
    Outcome::of_parts("conformance", parts)
}

/// The oracle beside candle-transformers.
#[cfg(feature = "candle-transformers")]
fn cross_check() -> Result<Outcome> {
    oracle::check()
}

/// `cargo xtask check conformance` builds with it; the tests do not, which saves them a long build.
#[cfg(not(feature = "candle-transformers"))]
fn cross_check() -> Result<Outcome> {
    anyhow::bail!("the laboratory was built without the feature `candle-transformers`")
}

/// A share as a percentage that shows 100 only when it is complete.
fn percent(part: usize, whole: usize) -> String {
    if whole == 0 {
        return "no cases".to_owned();
    }
    let hundredths = part * 10_000 / whole;
    format!("{}.{:02} %", hundredths / 100, hundredths % 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_round_down() {
        assert_eq!(percent(1689, 1689), "100.00 %");
        assert_eq!(percent(99_999, 100_000), "99.99 %");
        assert_eq!(percent(0, 0), "no cases");
    }
}

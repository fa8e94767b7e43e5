//! The version that an asset asks for.

use super::*;

/// The first and the last version that systems of version 27 read.
const KNOWN: std::ops::RangeInclusive<u32> = 20_250_723..=20_260_409;

pub(super) static DIALECT_VERSION: Rule = Rule {
    text: RuleText {
        id: "C08",
        slug: "dialect-version",
        title: "the asset asks for a version that system 27 does not name",
        severity: Severity::Warning,
        confidence: Confidence::Executed,
        why: "Apple's tools tell from this number which systems read an asset. Outside the range of version 27 they name none.",
        evidence: &[
            "coreai-core 1.0.0b1 to b3 on Linux, executed: `summary()` names compatibility 27.0 for 20250723 to 20260409 only",
        ],
        remedy: "write the asset again for version 20260409",
        off_ane: false,
    },
    check: Check::Program(|program, sink| {
        if !KNOWN.contains(&program.version) {
            let (first, last) = KNOWN.into_inner();
            sink.program(format!("version {}, and known are {first} to {last}", program.version));
        }
    }),
    #[cfg(test)]
    examples: (|| examples::of(20_270_101), || examples::of(20_260_409)),
};

#[cfg(test)]
mod examples {
    use super::*;
    use crate::Program;

    pub(super) fn of(version: u32) -> Program {
        let mut draft = Draft::new();
        let x = draft.input("x", fixed(&[4], Scalar::F16));
        Program { version, ..draft.finish(x) }
    }
}

//! What a failing Core ML call says, and what that means.
//!
//! Core ML wraps errors in errors. The outermost one says that something failed, the innermost one why, often only as
//! a number that is documented nowhere. [`explain`] knows those that have been reported.

use std::borrow::Cow;

use anemeter_base::advice::Remedy;

/// One error of a chain.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message} ({domain} {code})")]
pub struct Reason {
    /// Who says so, such as `com.apple.CoreML`.
    pub domain: String,
    /// Its number there.
    pub code: i64,
    /// In words.
    pub message: String,
}

/// What is known of a failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// What it means.
    pub meaning: &'static str,
    /// What to do about it.
    pub remedy: Remedy,
}

/// A failure that has been reported, by words that it contains.
struct KnownFailure {
    words: &'static [&'static str],
    explanation: Explanation,
}

const KNOWN: &[KnownFailure] = &[
    KnownFailure {
        words: &["error code: -14", "(-14)", "code=-14", "error -14"],
        explanation: Explanation {
            meaning: "the Neural Engine's compiler cannot build an execution plan for this function (-14), often because of \
                      how it keeps its state",
            remedy: Remedy::OtherKvForm,
        },
    },
    KnownFailure {
        words: &["0x1d", "program inference error"],
        explanation: Explanation {
            meaning: "the Neural Engine refused to run the program (0x1d), reported for functions with several states",
            remedy: Remedy::OtherKvForm,
        },
    },
    KnownFailure {
        words: &["aneccompile", "milcompilerforane"],
        explanation: Explanation {
            meaning: "the Neural Engine's compiler failed; the model may run on other units",
            remedy: Remedy::OtherComputeUnits,
        },
    },
    KnownFailure {
        words: &["compiler version", "unsupported model version", "specification version"],
        explanation: Explanation {
            meaning: "this system's Core ML is older than the package",
            remedy: Remedy::Other(Cow::Borrowed("update macOS, or export for an older opset")),
        },
    },
    KnownFailure {
        words: &["multiple functions", "function name", "functionname"],
        explanation: Explanation {
            meaning: "Core ML does not find the function under its name",
            remedy: Remedy::ListFunctions,
        },
    },
    KnownFailure {
        words: &["no space left"],
        explanation: Explanation {
            meaning: "the disk is full, and compiled models are written to it",
            remedy: Remedy::ClearCompileCache,
        },
    },
];

/// What a chain of errors means, where that is known. Numbers count where a Core ML error carries them.
pub fn explain(chain: &[Reason]) -> Option<Explanation> {
    let by_words = |reason: &Reason| {
        let message = reason.message.to_lowercase();
        KNOWN.iter().find(|known| known.words.iter().any(|words| message.contains(words)))
    };
    let by_code = |reason: &Reason| {
        let is_engine = reason.domain.contains("appleneuralengine") || reason.domain.contains("e5rt");
        KNOWN
            .first()
            .filter(|_| reason.code == -14)
            .or(KNOWN.get(1).filter(|_| reason.code == 0x1d && is_engine))
    };
    let found = chain.iter().rev().find_map(|reason| by_words(reason).or_else(|| by_code(reason)));
    found.map(|known| known.explanation.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(domain: &str, code: i64, message: &str) -> Reason {
        Reason { domain: domain.to_owned(), code, message: message.to_owned() }
    }

    #[test]
    fn the_innermost_known_reason_counts() {
        let chain = [
            reason("com.apple.CoreML", 0, "Failed to build the model execution plan with error code: -14."),
            reason("com.apple.appleneuralengine", 11, "_ANECompiler : ANECCompile() FAILED"),
        ];
        assert!(explain(&chain).unwrap().meaning.contains("compiler failed"));
        assert_eq!(explain(&chain[..1]).unwrap().remedy, Remedy::OtherKvForm);
    }

    #[test]
    fn bare_numbers_are_known_where_they_can_mean_only_one_thing() {
        assert!(explain(&[reason("com.apple.CoreML", -14, "unknown")]).unwrap().meaning.contains("-14"));
        let engine = reason("com.apple.appleneuralengine", 0x1d, "unknown");
        assert!(explain(&[engine]).unwrap().meaning.contains("0x1d"));
        assert_eq!(explain(&[reason("NSCocoaErrorDomain", 0x1d, "unknown")]), None);
        assert_eq!(explain(&[]), None);
    }

    #[test]
    fn every_known_failure_has_words_in_lower_case_and_a_meaning() {
        for known in KNOWN {
            assert!(known.words.iter().all(|words| *words == words.to_lowercase()));
            assert!(!known.explanation.meaning.is_empty());
        }
    }
}

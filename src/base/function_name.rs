//! Names of functions that take one length each: `prefill_128` is `prefill` at a length of 128.

use std::str::FromStr;

use crate::vocabulary::{FunctionRole, KvForm, ShapesAs, UnknownRole};

/// What a function is for, and the length that it alone takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FunctionName {
    /// What it is for.
    pub role: FunctionRole,
    /// The only length it takes, if its name states one.
    pub length: Option<usize>,
}

/// The name of a function at one of its lengths.
pub fn at_length(function: &str, length: impl std::fmt::Display) -> String {
    format!("{function}_{length}")
}

/// What a function is called at a length. Those with states have the length in their role.
pub fn function_name(role: FunctionRole, length: usize, shapes_as: ShapesAs) -> String {
    match shapes_as {
        ShapesAs::Functions if role.context().is_none() => at_length(&role.to_string(), length),
        _ => role.to_string(),
    }
}

/// Whether a function only turns token ids into vectors.
pub fn is_embedding(function: &str) -> bool {
    function.parse::<FunctionName>().is_ok_and(|name| name.role == FunctionRole::Embed)
}

impl FunctionName {
    /// Whether the function runs in a form at a sequence length.
    pub fn runs_at(self, form: KvForm, seq_len: usize) -> bool {
        let fits = match self.role {
            // `embed` makes vectors of single tokens, too.
            FunctionRole::Embed => self.length.is_none_or(|length| length == seq_len || length == 1),
            _ => self.length.is_none_or(|length| length == seq_len),
        };
        fits && form.runs_at(self.role, seq_len)
    }
}

impl FromStr for FunctionName {
    type Err = UnknownRole;

    fn from_str(name: &str) -> Result<FunctionName, UnknownRole> {
        let (base, length) = match name.rsplit_once('_') {
            Some((base, digits)) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                (base, digits.parse().ok())
            }
            _ => (name, None),
        };
        let of_one_length =
            [FunctionRole::MAIN, FunctionRole::EMBED, FunctionRole::PREFILL, FunctionRole::DECODE];
        match length.filter(|_| of_one_length.contains(&base)) {
            Some(length) => Ok(FunctionName { role: base.parse()?, length: Some(length) }),
            None => Ok(FunctionName { role: name.parse()?, length: None }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_at_the_end_is_the_only_one() {
        let parsed = |name: &str| name.parse::<FunctionName>().map(|name| (name.role, name.length));
        assert_eq!(parsed("prefill_128"), Ok((FunctionRole::Prefill, Some(128))));
        assert_eq!(parsed(&at_length(FunctionRole::DECODE, 8)), Ok((FunctionRole::Decode, Some(8))));
        assert_eq!(parsed("main"), Ok((FunctionRole::Main, None)));
        let state = FunctionRole::PrefillState { context: 64, query: 8 };
        assert_eq!(parsed("prefill_c64_q8"), Ok((state, None)));
        for other in ["prefill_", "prefill_x", "decode_c8_4", "other_4", "_4", "main_99999999999999999999"] {
            assert!(parsed(other).is_err(), "{other}");
        }
    }

    #[test]
    fn functions_of_one_length_run_at_no_other() {
        let runs = |name: &str, form, length| name.parse::<FunctionName>().unwrap().runs_at(form, length);
        assert!(runs("prefill_128", KvForm::Io, 128) && !runs("prefill_128", KvForm::Io, 64));
        assert!(!runs("prefill_128", KvForm::None, 128) && runs("main_64", KvForm::None, 64));
        assert!(runs("embed_1", KvForm::Io, 64) && !runs("embed_32", KvForm::Io, 64));
        assert!(runs("decode", KvForm::Io, 5));
    }
}

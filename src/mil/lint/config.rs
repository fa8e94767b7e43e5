//! The configuration of a lint, and waivers in it.

use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wildmatch::WildMatch;

use super::{Device, Finding, LintError, Target};
use anemeter_base::files;

/// The linter's configuration file.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The system.
    pub target: Option<Target>,
    /// The chip.
    pub device: Option<Device>,
    /// Sequence lengths of the training.
    pub training_shapes: Option<Vec<u64>>,
    /// Compute units that runs ask for.
    pub compute_units: Option<String>,
    /// Findings that are accepted.
    #[serde(default)]
    pub waivers: Vec<Waiver>,
}

/// Findings that are accepted, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Waiver {
    /// The rule, by its id or its name.
    pub rule: String,
    /// The places, as `package/function/operation` with `*` for any text and `?` for any character.
    #[serde(rename = "where")]
    pub places: String,
    /// Why they are accepted.
    pub reason: String,
}

impl Waiver {
    /// Whether it accepts a finding.
    pub(super) fn covers(&self, finding: &Finding) -> bool {
        finding.rule.is_named(&self.rule) && WildMatch::new(&self.places).matches(&finding.place.path())
    }

    fn fault(&self) -> Option<String> {
        let is_empty = |text: &str| text.trim().is_empty();
        match (is_empty(&self.reason), is_empty(&self.places)) {
            (true, _) => Some(format!("the waiver of {} gives no reason", self.rule)),
            (_, true) => Some(format!("the waiver of {} says nowhere `where`; `*` is everywhere", self.rule)),
            _ => None,
        }
    }
}

impl Config {
    /// Reads a configuration; unknown keys, missing reasons, and names for which `is_rule` is false are errors.
    pub fn read(path: &Path, is_rule: impl Fn(&str) -> bool) -> Result<Config, LintError> {
        let text = files::read_text(path, files::SETTINGS)
            .map_err(|source| LintError::Io { path: path.to_owned(), source })?;
        let config =
            Config::parse(&text).map_err(|message| LintError::File { path: path.to_owned(), message })?;
        match config.waivers.iter().find(|waiver| !is_rule(&waiver.rule)) {
            Some(Waiver { rule, .. }) => Err(LintError::NoRule { path: path.to_owned(), rule: rule.clone() }),
            None => Ok(config),
        }
    }

    fn parse(text: &str) -> Result<Config, String> {
        let config: Config = serde_yaml::from_str(text).map_err(|error| error.to_string())?;
        match config.waivers.iter().find_map(Waiver::fault) {
            Some(fault) => Err(fault),
            None => Ok(config),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waivers_need_a_rule_a_place_and_a_reason() {
        let parse = |waiver: &str| Config::parse(&format!("target: ios18\nwaivers:\n  - {waiver}\n"));
        let config = parse("{rule: A10, where: '*/decode/*', reason: one token at a time}").unwrap();
        assert_eq!((config.target, config.waivers.len()), (Some(Target::Ios18), 1));
        let refused = |waiver: &str| parse(waiver).unwrap_err();
        assert!(refused("{rule: A10, where: '*', reason: ' '}").contains("gives no reason"));
        assert!(refused("{rule: A10, where: '', reason: x}").contains("nowhere"));
        assert!(refused("{rule: A10, where: '*'}").contains("reason"));
        assert!(refused("{rule: A10, where: '*', reason: x, until: May}").contains("until"));
        assert!(Config::parse("tragets: ios18").unwrap_err().contains("tragets"));
    }
}

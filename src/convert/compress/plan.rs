//! Which weight gets which precision.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};
use wildmatch::WildMatch;

use super::precision::{Granularity, Linear, Precision};
use anemeter_mil::Opset;

/// Weights with fewer elements than this stay as they are, unless a rule names them.
const SMALL: usize = 2048;

/// Names that embeddings and heads have in programs by others.
const SENSITIVE: &[&str] = &["*embed*", "*lm_head*", "head_*", "*output_projection*"];

/// A precision for everything, and rules for what differs.
#[derive(Debug, Clone, PartialEq, serde::Deserialize)]
#[serde(remote = "Self", deny_unknown_fields)]
pub struct Plan {
    /// What no rule matches gets this; embeddings and heads get int8 if this is narrower.
    pub default: Precision,
    /// The first rule that matches a weight's name decides.
    #[serde(default)]
    pub rules: Vec<Rule>,
}

/// A precision for some weights.
#[derive(Debug, Clone, PartialEq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// The pattern of their names: `*` stands for any characters, `?` for one, dots for underscores too.
    #[serde(rename = "match")]
    pub pattern: String,
    /// The precision that matching weights get.
    pub precision: Precision,
}

/// What the plan needs to know of a weight.
pub(crate) struct Candidate<'a> {
    pub(crate) name: &'a str,
    pub(crate) elements: usize,
    /// Its output channels.
    pub(crate) channels: usize,
    /// The opset of the program that it is in.
    pub(crate) opset: Opset,
    /// Whether rows of it are looked up, as those of an embedding.
    pub(crate) is_looked_up: bool,
    /// Whether it is the kernels of a convolution of each channel apart.
    pub(crate) is_depthwise: bool,
}

/// Whether a pattern stands for a name. Case does not matter, and the dots of a checkpoint's names and the underscores of a
/// program's are the same.
fn is_match(pattern: &str, name: &str) -> bool {
    let normal = |text: &str| text.to_ascii_lowercase().replace('.', "_");
    WildMatch::new(&normal(pattern)).matches(&normal(name))
}

impl From<Precision> for Plan {
    fn from(default: Precision) -> Plan {
        Plan { default, rules: Vec::new() }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.default)?;
        self.rules.iter().try_for_each(|rule| write!(f, "; {}: {}", rule.pattern, rule.precision))
    }
}

impl Plan {
    /// The rule that decides on a name.
    pub(super) fn rule(&self, name: &str) -> Option<usize> {
        self.rules.iter().position(|rule| is_match(&rule.pattern, name))
    }

    /// Whether codes of some weights can be chosen by data.
    pub fn is_solvable(&self) -> bool {
        self.default.is_solvable() || self.rules.iter().any(|rule| rule.precision.is_solvable())
    }

    pub(crate) fn precision(&self, candidate: &Candidate<'_>) -> Precision {
        match self.planned(candidate) {
            Precision::Palette(palette) => {
                let Candidate { elements, channels, opset, .. } = *candidate;
                Precision::Palette(palette.adapted(channels, elements / channels.max(1), opset))
            }
            precision => precision,
        }
    }

    /// The precision as the plan has it.
    fn planned(&self, candidate: &Candidate<'_>) -> Precision {
        let Candidate { name, elements, is_looked_up, is_depthwise, .. } = *candidate;
        if let Some(rule) = self.rule(name) {
            return self.rules[rule].precision;
        }
        let is_sensitive = is_looked_up || SENSITIVE.iter().any(|pattern| is_match(pattern, name));
        match self.default {
            _ if elements < SMALL => Precision::Keep,
            // The compiler of the Neural Engine fails on kernels of single channels that are palettes, and they are few bytes.
            Precision::Palette(_) if is_depthwise => Precision::Keep,
            default if is_sensitive && default.bits() < 8.0 => {
                Precision::Linear(Linear { bits: 8, symmetric: true, granularity: Granularity::Channel })
            }
            default => default,
        }
    }
}

impl<'de> Deserialize<'de> for Precision {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Precision, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

impl<'de> Deserialize<'de> for Plan {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Plan, D::Error> {
        struct PlanVisitor;

        impl<'de> Visitor<'de> for PlanVisitor {
            type Value = Plan;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a precision, or a map of `default` and `rules`")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Plan, E> {
                text.parse::<Precision>().map(Plan::from).map_err(de::Error::custom)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Plan, A::Error> {
                Plan::deserialize(de::value::MapAccessDeserializer::new(map))
            }
        }

        deserializer.deserialize_any(PlanVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(text: &str) -> Result<Plan, String> {
        serde_yaml::from_str(text).map_err(|e| e.to_string())
    }

    fn chosen(plan: &Plan, name: &str, elements: usize, is_looked_up: bool) -> String {
        let (channels, opset) = (50, Opset::Ios18);
        plan.precision(&Candidate { name, elements, channels, opset, is_looked_up, is_depthwise: false })
            .to_string()
    }

    #[test]
    fn patterns_pass_over_case_and_separators() {
        for (pattern, name, expected) in [
            ("*", "", true),
            ("layers.*.mlp.*", "layers_12_mlp_down_weight", true),
            ("layers.*.mlp.*", "layers_12_attention_q_weight", false),
            ("*head*", "lm_head", true),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("*ab*ab", "xababab", true),
            ("Embed*", "embedding_weight", true),
            ("", "a", false),
        ] {
            assert_eq!(is_match(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn the_first_rule_that_matches_decides() {
        let text = "{default: lut4:group=16, rules: [{match: layers.0.*, precision: int8}, \
                    {match: layers.*.mlp.*, precision: int4}, {match: tiny, precision: lut2}]}";
        let plan = plan(text).unwrap();
        let cases = [
            ("layers_0_mlp_down_weight", 5000, false, "int8:channel"),
            ("layers_10_mlp_down_weight", 5000, false, "int4:block=32"),
            ("layers_10_attention_q_weight", 5000, false, "lut4:group=16"),
            ("embedding_weight", 5000, false, "int8:channel"),
            ("table", 5000, true, "int8:channel"),
            ("norm_weight", 576, false, "fp16"),
            ("tiny", 64, false, "lut2:tensor"),
        ];
        for (name, elements, looked_up, expected) in cases {
            assert_eq!(chosen(&plan, name, elements, looked_up), expected, "{name}");
        }
    }

    #[test]
    fn kernels_of_single_channels_stay_as_they_are_unless_a_rule_names_them() {
        let text = "{default: lut4:group=16, rules: [{match: named, precision: int8}]}";
        let (plan, elements) = (plan(text).unwrap(), 5000);
        let chosen = |name| {
            let (channels, opset) = (50, Opset::Ios18);
            let kernel =
                Candidate { name, elements, channels, opset, is_looked_up: false, is_depthwise: true };
            plan.precision(&kernel).to_string()
        };
        assert_eq!([chosen("conv_weight"), chosen("named")], ["fp16", "int8:channel"]);
    }

    #[test]
    fn wide_defaults_hold_for_embeddings_too() {
        assert_eq!(chosen(&plan("fp16").unwrap(), "embedding", 5000, true), "fp16");
        assert_eq!(chosen(&plan("int8:asym").unwrap(), "embedding", 5000, true), "int8:channel:asym");
    }

    #[test]
    fn mistakes_are_named() {
        for (text, expected) in [
            ("int9", "did you mean `int8`?"),
            ("{default: int8, rule: []}", "unknown field `rule`, expected `default` or `rules`"),
            ("{rules: []}", "missing field `default`"),
            ("{default: int8, rules: [{match: a, precison: int8}]}", "unknown field `precison`"),
            ("{default: int8, rules: [{match: a, precision: lut7}]}", "`lut7` is unknown"),
            ("[int8]", "expected a precision, or a map of `default` and `rules`"),
        ] {
            let error = plan(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}

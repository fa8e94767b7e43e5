//! What a bundle loses against its checkpoint, and what it may lose. The one place that says what is good enough:
//! `verify` measures and records both, and `bless`, `gate` and sweeps read the record.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use anemeter_base::vocabulary::KvForm;

/// What may be lost.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct QualityLimits {
    /// Largest mean KL divergence of a position, in nats.
    pub kl: f64,
    /// Smallest share of positions with the same likeliest token.
    pub top1: f64,
    /// Smallest mean share of the five likeliest tokens.
    pub top5: f64,
    /// Largest increase of perplexity, in per cent.
    pub perplexity_pct: f64,
}

impl Default for QualityLimits {
    /// Near enough that a user would hardly tell the two apart; int8 weights usually are, int4 weights of small models
    /// often are not.
    fn default() -> QualityLimits {
        QualityLimits { kl: 0.1, top1: 0.8, top5: 0.8, perplexity_pct: 5.0 }
    }
}

/// What the packages lose against the checkpoint as it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct QualityLoss {
    /// The cache form.
    pub kv: KvForm,
    /// The sequence length.
    pub seq_len: usize,
    /// Positions compared.
    pub positions: usize,
    /// Mean KL divergence of the checkpoint's distribution from the packages', in nats; absent if none was finite.
    pub kl: Option<f64>,
    /// Share of positions with the same likeliest token.
    pub top1: f64,
    /// Mean share of the checkpoint's five likeliest tokens that are among the packages'.
    pub top5: f64,
    /// How well both predict a text; absent if none was given.
    pub text: Option<TextLoss>,
    /// What may be lost.
    pub limits: QualityLimits,
}

/// How well packages and checkpoint predict the same tokens.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TextLoss {
    /// Digest of the text.
    pub text_digest: String,
    /// Tokens of a window.
    pub window: usize,
    /// Tokens that were scored.
    pub tokens: usize,
    /// Perplexity of the checkpoint.
    pub checkpoint: f64,
    /// Perplexity of the packages.
    pub packages: f64,
}

impl TextLoss {
    /// By how many per cent perplexity grew.
    pub fn increase_pct(&self) -> f64 {
        (self.packages / self.checkpoint - 1.0) * 100.0
    }
}

/// A figure of quality.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum QualityFigure {
    /// Mean KL divergence.
    Kl,
    /// Share of the same likeliest tokens.
    Top1,
    /// Share of the five likeliest tokens.
    Top5,
    /// Increase of perplexity.
    Perplexity,
}

/// A figure against its limit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct QualityCheck {
    /// Which figure.
    pub figure: QualityFigure,
    /// What was found; absent if it could not be computed.
    pub found: Option<f64>,
    /// Its limit.
    pub limit: f64,
}

impl QualityFigure {
    /// Whether less of it is better.
    pub fn is_at_most(self) -> bool {
        matches!(self, QualityFigure::Kl | QualityFigure::Perplexity)
    }

    /// A value in words.
    pub fn shown(self, value: f64) -> String {
        match self {
            QualityFigure::Kl => format!("{value:.4} nats"),
            QualityFigure::Top1 | QualityFigure::Top5 => format!("{:.1} %", value * 100.0),
            QualityFigure::Perplexity => format!("{value:+.2} %"),
        }
    }

    /// Its name.
    pub fn label(self) -> &'static str {
        match self {
            QualityFigure::Kl => "mean KL",
            QualityFigure::Top1 => "top-1",
            QualityFigure::Top5 => "top-5",
            QualityFigure::Perplexity => "perplexity",
        }
    }
}

impl QualityCheck {
    /// Whether it is within its limit.
    pub fn is_good(&self) -> bool {
        let within = |found: f64| match self.figure.is_at_most() {
            true => found <= self.limit,
            false => found >= self.limit,
        };
        self.found.is_some_and(within)
    }

    /// What was found and what was asked for.
    pub fn in_words(&self) -> String {
        let found = self.found.map_or_else(|| "not computable".to_owned(), |found| self.figure.shown(found));
        let bound = if self.figure.is_at_most() { "at most" } else { "at least" };
        format!("{} is {found}, limit {bound} {}", self.figure.label(), self.figure.shown(self.limit))
    }
}

impl QualityLoss {
    /// Every figure that was measured, against its limit.
    pub fn checks(&self) -> Vec<QualityCheck> {
        let check = |figure, found, limit| QualityCheck { figure, found, limit };
        let mut checks = vec![
            check(QualityFigure::Kl, self.kl, self.limits.kl),
            check(QualityFigure::Top1, Some(self.top1), self.limits.top1),
            check(QualityFigure::Top5, Some(self.top5), self.limits.top5),
        ];
        let increase = self.text.as_ref().map(TextLoss::increase_pct);
        checks.extend(
            increase.map(|pct| check(QualityFigure::Perplexity, Some(pct), self.limits.perplexity_pct)),
        );
        checks
    }

    /// Figures beyond their limits, in words.
    pub fn failures(&self) -> Vec<String> {
        self.checks().iter().filter(|check| !check.is_good()).map(QualityCheck::in_words).collect()
    }

    /// Whether every figure is within its limit.
    pub fn is_good(&self) -> bool {
        self.checks().iter().all(QualityCheck::is_good)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loss(kl: Option<f64>, top1: f64, packages: Option<f64>) -> QualityLoss {
        let text = packages.map(|packages| TextLoss {
            text_digest: String::new(),
            window: 128,
            tokens: 500,
            checkpoint: 20.0,
            packages,
        });
        let limits = QualityLimits::default();
        QualityLoss { kv: KvForm::Io, seq_len: 128, positions: 256, kl, top1, top5: 0.9, text, limits }
    }

    #[test]
    fn what_is_within_its_limits_is_good() {
        let int8 = loss(Some(0.011), 0.95, Some(20.14));
        assert!(int8.is_good() && int8.failures().is_empty() && int8.checks().len() == 4);
        assert_eq!(loss(Some(0.0), 1.0, None).checks().len(), 3, "no text, no perplexity");
    }

    #[test]
    fn what_is_beyond_is_said_with_its_limit() {
        let failures = loss(Some(0.2), 0.5, Some(22.0)).failures();
        let expected = [
            "mean KL is 0.2000 nats, limit at most 0.1000 nats",
            "top-1 is 50.0 %, limit at least 80.0 %",
            "perplexity is +10.00 %, limit at most +5.00 %",
        ];
        assert_eq!(failures, expected);
        assert_eq!(
            loss(None, 1.0, None).failures(),
            ["mean KL is not computable, limit at most 0.1000 nats"]
        );
    }
}

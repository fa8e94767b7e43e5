//! Configuration keys as a model reads them: sizes that remember where they came from, defaults, and errors that
//! name the key with its section.

use crate::checkpoint::{Config, ConfigError};

pub(super) type Result<T> = std::result::Result<T, ConfigError>;

/// The numbers above zero that programs and `export.json` can hold.
const LEAST: f64 = f32::MIN_POSITIVE as f64;
const MOST: f64 = f32::MAX as f64;

/// A configuration or a section of it.
pub(super) struct Keys {
    config: Config,
    section: String,
    defaults: &'static [(&'static str, usize)],
}

/// A size and the expression over configuration keys that it came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) value: usize,
    pub(super) from: String,
}

impl Size {
    pub(super) fn times(&self, other: &Size) -> Size {
        let from = format!("{} * {}", self.from, other.from);
        Size { value: self.value.saturating_mul(other.value), from }
    }

    pub(super) fn plus(&self, other: &Size) -> Size {
        let from = format!("{} + {}", self.from, other.from);
        Size { value: self.value.saturating_add(other.value), from }
    }
}

impl Keys {
    /// The keys of a configuration, with the sizes that an architecture takes where a key is left out.
    pub(super) fn new(config: &Config, defaults: &'static [(&'static str, usize)]) -> Keys {
        Keys { config: config.clone(), section: String::new(), defaults }
    }

    /// A nested object, without defaults.
    pub(super) fn section(&self, key: &str) -> Result<Option<Keys>> {
        let config = self.named(self.config.opt_section(key))?;
        let section = format!("{}{key}.", self.section);
        Ok(config.map(|config| Keys { config, section, defaults: &[] }))
    }

    pub(super) fn with_defaults(self, defaults: &'static [(&'static str, usize)]) -> Keys {
        Keys { defaults, ..self }
    }

    /// Whether the key has a value.
    pub(super) fn has(&self, key: &str) -> bool {
        self.config.get(key).is_some()
    }

    /// A size above zero.
    pub(super) fn size(&self, key: &str) -> Result<Size> {
        self.opt_size(key)?.ok_or_else(|| self.wrong(key, "is missing"))
    }

    pub(super) fn opt_size(&self, key: &str) -> Result<Option<Size>> {
        let from = format!("{}{key}", self.section);
        match self.named(self.config.opt_size(key))? {
            Some(0) => Err(self.wrong(key, "is 0, expected a size above it")),
            Some(value) => Ok(Some(Size { value, from })),
            None => {
                let default = self.defaults.iter().find(|(name, _)| *name == key);
                Ok(default.map(|&(_, value)| Size { value, from: format!("{from} by default") }))
            }
        }
    }

    /// A count, which may be zero.
    pub(super) fn count_or(&self, key: &str, default: usize) -> Result<usize> {
        Ok(self.named(self.config.opt_size(key))?.unwrap_or(default))
    }

    /// The size of a head: the key's, or the width divided by the heads.
    pub(super) fn head_dim(&self, key: Option<&str>, width: &Size, heads: &Size) -> Result<Size> {
        if let Some(size) = key.map(|key| self.opt_size(key)).transpose()?.flatten() {
            return Ok(size);
        }
        if !width.value.is_multiple_of(heads.value) {
            let problem = format!("is {}, which does not divide {} {}", heads.value, width.from, width.value);
            return Err(ConfigError { key: heads.from.clone(), problem });
        }
        Ok(Size { value: width.value / heads.value, from: format!("{} / {}", width.from, heads.from) })
    }

    /// A count of layers that the checkpoint could hold.
    pub(super) fn layers(&self, key: &str, tensors: usize) -> Result<usize> {
        let layers = self.size(key)?.value;
        if layers > tensors {
            return Err(self.wrong(key, &format!("is {layers}, but there are only {tensors} tensors")));
        }
        Ok(layers)
    }

    pub(super) fn opt_float(&self, key: &str) -> Result<Option<f64>> {
        self.named(self.config.opt_float(key))
    }

    /// A number above zero that may be left out.
    pub(super) fn opt_positive(&self, key: &str) -> Result<Option<f64>> {
        match self.opt_float(key)? {
            Some(value) if value.is_nan() || value <= 0.0 => {
                Err(self.wrong(key, &format!("is {value}, expected a number above 0")))
            }
            Some(value) if !(LEAST..=MOST).contains(&value) => {
                let problem = format!("is {value:e}, expected {LEAST:.1e} to {MOST:.1e}, which fp32 has");
                Err(self.wrong(key, &problem))
            }
            value => Ok(value),
        }
    }

    /// A number above zero.
    pub(super) fn positive(&self, key: &str) -> Result<f64> {
        self.opt_positive(key)?.ok_or_else(|| self.wrong(key, "is missing"))
    }

    /// What a norm adds to a variance.
    pub(super) fn epsilon(&self, key: &str, default: f64) -> Result<f32> {
        match self.positive_or(key, default)? {
            value if value < 1.0 => Ok(value as f32),
            value => Err(self.wrong(key, &format!("is {value}, expected a number between 0 and 1"))),
        }
    }

    pub(super) fn positive_or(&self, key: &str, default: f64) -> Result<f64> {
        Ok(self.opt_positive(key)?.unwrap_or(default))
    }

    /// A number above zero; `null` says that there is none, a key that is left out the default.
    pub(super) fn positive_unless_null(&self, key: &str, default: f64) -> Result<Option<f64>> {
        let found = self.opt_positive(key)?;
        Ok(if self.config.values().contains_key(key) { found } else { Some(default) })
    }

    /// A size; `null` says that there is none, a key that is left out the default.
    pub(super) fn size_unless_null(&self, key: &str, default: usize) -> Result<Option<Size>> {
        let found = self.opt_size(key)?;
        let default = Size { value: default, from: format!("{}{key} by default", self.section) };
        Ok(if self.config.values().contains_key(key) { found } else { Some(default) })
    }

    pub(super) fn floats(&self, key: &str) -> Result<Vec<f64>> {
        self.named(self.config.opt_floats(key))?.ok_or_else(|| self.wrong(key, "is missing"))
    }

    pub(super) fn bool_or(&self, key: &str, default: bool) -> Result<bool> {
        Ok(self.named(self.config.opt_bool(key))?.unwrap_or(default))
    }

    pub(super) fn opt_text(&self, key: &str) -> Result<Option<&str>> {
        self.named(self.config.opt_text(key))
    }

    pub(super) fn opt_texts(&self, key: &str) -> Result<Option<Vec<&str>>> {
        self.named(self.config.opt_texts(key))
    }

    /// An error about a key of this section.
    pub(super) fn wrong(&self, key: &str, problem: &str) -> ConfigError {
        ConfigError { key: format!("{}{key}", self.section), problem: problem.to_owned() }
    }

    /// Labels of a classifier: as many as are named, or as are counted, or two as transformers has them.
    pub(super) fn labels(&self) -> Result<usize> {
        if let Some(names) = self.named(self.config.opt_section("id2label"))? {
            return Ok(names.values().len());
        }
        Ok(self.opt_size("num_labels")?.map_or(2, |size| size.value))
    }

    fn named<T>(&self, read: Result<T>) -> Result<T> {
        read.map_err(|error| self.wrong(&error.key, &error.problem))
    }
}

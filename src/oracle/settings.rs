//! What a configuration says of Llama and its descendants, read anew: nothing here is shared with the exporter.

use candle_nn::Activation;

use anemeter_convert::checkpoint::{Config, ConfigError};

type Result<T> = std::result::Result<T, ConfigError>;

/// Values that an architecture takes where its configuration is silent.
pub(super) type Defaults = &'static [(&'static str, f64)];

/// Llama and the student.
pub(super) const LLAMA: Defaults = &[("max_position_embeddings", 2048.0)];
/// Mistral.
pub(super) const MISTRAL: Defaults = &[("max_position_embeddings", 131_072.0)];
/// Qwen2.
pub(super) const QWEN2: Defaults = &[("max_position_embeddings", 32_768.0)];
/// Qwen3.
pub(super) const QWEN3: Defaults = &[("max_position_embeddings", 32_768.0), ("head_dim", 128.0)];
/// Phi-3.
pub(super) const PHI3: Defaults = &[
    ("rms_norm_eps", 1e-5),
    ("max_position_embeddings", 4096.0),
    ("original_max_position_embeddings", 4096.0),
];
/// Gemma 3.
pub(super) const GEMMA3: Defaults = &[
    ("vocab_size", 262_208.0),
    ("num_attention_heads", 8.0),
    ("num_key_value_heads", 4.0),
    ("head_dim", 256.0),
    ("max_position_embeddings", 131_072.0),
    ("sliding_window", 4096.0),
    ("sliding_window_pattern", 6.0),
    ("query_pre_attn_scalar", 256.0),
    ("rope_theta", 1e6),
    ("rope_local_base_freq", 1e4),
    ("tie_word_embeddings", 1.0),
];

/// Keys of a configuration with the defaults of its architecture.
pub(super) struct Keys {
    config: Config,
    defaults: Defaults,
}

impl Keys {
    pub(super) fn new(config: &Config, defaults: Defaults) -> Keys {
        Keys { config: config.clone(), defaults }
    }

    pub(super) fn opt_number(&self, key: &str) -> Result<Option<f64>> {
        let default = self.defaults.iter().find(|(name, _)| *name == key).map(|&(_, value)| value);
        Ok(self.config.opt_float(key)?.or(default))
    }

    pub(super) fn number(&self, key: &str) -> Result<f64> {
        self.opt_number(key)?.ok_or_else(|| wrong(key, "is missing"))
    }

    pub(super) fn opt_size(&self, key: &str) -> Result<Option<usize>> {
        Ok(self.opt_number(key)?.map(|value| value as usize))
    }

    pub(super) fn size(&self, key: &str) -> Result<usize> {
        Ok(self.number(key)? as usize)
    }

    pub(super) fn flag(&self, key: &str) -> Result<bool> {
        Ok(self.config.opt_bool(key)?.unwrap_or(self.opt_number(key).is_ok_and(|value| value == Some(1.0))))
    }

    /// A number whose absence is `null`; a key that is left out has the default.
    pub(super) fn number_unless_null(&self, key: &str, default: f64) -> Result<Option<f64>> {
        match self.config.values().get(key) {
            Some(_) => self.config.opt_float(key),
            None => Ok(Some(default)),
        }
    }

    pub(super) fn section(&self, key: &str) -> Result<Option<Keys>> {
        Ok(self.config.opt_section(key)?.map(|config| Keys { config, defaults: &[] }))
    }

    pub(super) fn text(&self, key: &str) -> Result<Option<&str>> {
        self.config.opt_text(key)
    }

    pub(super) fn texts(&self, key: &str) -> Result<Option<Vec<&str>>> {
        self.config.opt_texts(key)
    }

    pub(super) fn numbers(&self, key: &str) -> Result<Vec<f64>> {
        self.config.opt_floats(key)?.ok_or_else(|| wrong(key, "is missing"))
    }

    /// The activation that a key names, or the one to take without it.
    pub(super) fn activation(&self, key: &str, default: Activation) -> Result<Activation> {
        Ok(match self.text(key)? {
            None => default,
            Some("relu") => Activation::Relu,
            Some("silu" | "swish") => Activation::Silu,
            Some("sigmoid") => Activation::Sigmoid,
            Some("gelu") => Activation::Gelu,
            Some("gelu_new" | "gelu_pytorch_tanh" | "gelu_fast") => Activation::GeluPytorchTanh,
            Some(other) => {
                return Err(wrong(key, &format!("is `{other}`, for which there is no reference")));
            }
        })
    }
}

pub(super) fn wrong(key: &str, problem: &str) -> ConfigError {
    ConfigError { key: key.to_owned(), problem: problem.to_owned() }
}

/// Sizes and habits of a model of Llama's family.
pub(super) struct Settings {
    pub(super) keys: Keys,
    pub(super) hidden: usize,
    pub(super) vocabulary: usize,
    pub(super) intermediate: usize,
    pub(super) heads: usize,
    pub(super) kv_heads: usize,
    pub(super) head_dim: usize,
    pub(super) layers: usize,
    pub(super) epsilon: f64,
    pub(super) activation: Activation,
    pub(super) tied: bool,
    pub(super) attention_bias: bool,
    /// Longest sequence that will be asked for.
    pub(super) positions: usize,
}

impl Settings {
    pub(super) fn read(config: &Config, defaults: Defaults, positions: usize) -> Result<Settings> {
        let keys = Keys::new(config, defaults);
        let (hidden, heads) = (keys.size("hidden_size")?, keys.size("num_attention_heads")?);
        Ok(Settings {
            hidden,
            heads,
            vocabulary: keys.size("vocab_size")?,
            intermediate: keys.size("intermediate_size")?,
            kv_heads: keys.opt_size("num_key_value_heads")?.unwrap_or(heads),
            head_dim: keys.opt_size("head_dim")?.unwrap_or(hidden / heads.max(1)),
            layers: keys.size("num_hidden_layers")?,
            epsilon: keys.opt_number("rms_norm_eps")?.unwrap_or(1e-6),
            activation: keys.activation("hidden_act", Activation::Silu)?,
            tied: keys.flag("tie_word_embeddings")?,
            attention_bias: keys.flag("attention_bias")?,
            positions,
            keys,
        })
    }

    /// The text model of Gemma 3, which may be inside a model that sees images.
    pub(super) fn gemma3(config: &Config, positions: usize) -> Result<Settings> {
        let text = config.opt_section("text_config")?.unwrap_or_else(|| config.clone());
        let settings = Settings::read(&text, GEMMA3, positions)?;
        let activation = settings.keys.activation("hidden_activation", Activation::GeluPytorchTanh)?;
        Ok(Settings { activation, ..settings })
    }

    /// Which layers of Gemma 3 have a window.
    pub(super) fn local_layers(&self) -> Result<Vec<bool>> {
        let pattern = match self.keys.opt_size("_sliding_window_pattern")? {
            Some(pattern) => pattern,
            None => self.keys.size("sliding_window_pattern")?,
        };
        self.windowed(|layer| (layer + 1) % pattern.max(1) != 0)
    }

    /// The rotations of Gemma 3: with a window, and without.
    pub(super) fn local_and_global_rope(&self) -> Result<[Rope; 2]> {
        let (local, global) = match self.keys.section("rope_parameters")? {
            Some(parameters) => {
                (parameters.section("sliding_attention")?, parameters.section("full_attention")?)
            }
            None => (None, self.keys.section("rope_scaling")?),
        };
        Ok([
            Rope::read(self, local.as_ref(), self.keys.number("rope_local_base_freq")?)?,
            Rope::read(self, global.as_ref(), self.keys.number("rope_theta")?)?,
        ])
    }

    /// The rotation of a model with one for all layers.
    pub(super) fn rope(&self) -> Result<Rope> {
        let section = match self.keys.section("rope_parameters")? {
            Some(section) => Some(section),
            None => self.keys.section("rope_scaling")?,
        };
        let base = self.keys.opt_number("rope_theta")?.unwrap_or(10_000.0);
        Rope::read(self, section.as_ref(), base)
    }

    /// The window of Mistral and others. A key with `null` says that there is none.
    pub(super) fn window_or_4096(&self) -> Result<Option<usize>> {
        Ok(self.keys.number_unless_null("sliding_window", 4096.0)?.map(|window| window as usize))
    }

    /// The window of each layer of Qwen2 and Qwen3.
    pub(super) fn upper_windows(&self) -> Result<Vec<Option<usize>>> {
        if !self.keys.flag("use_sliding_window")? {
            return Ok(vec![None; self.layers]);
        }
        let window = self.keys.opt_size("sliding_window")?.unwrap_or(4096);
        let first = self.keys.opt_size("max_window_layers")?.unwrap_or(28);
        let windowed = self.windowed(|layer| layer >= first)?;
        Ok(windowed.into_iter().map(|windowed| windowed.then_some(window)).collect())
    }

    /// Which layers have a window, from `layer_types` or else by a rule.
    pub(super) fn windowed(&self, rule: impl Fn(usize) -> bool) -> Result<Vec<bool>> {
        Ok(match self.keys.texts("layer_types")? {
            Some(types) => types.iter().map(|&kind| kind == "sliding_attention").collect(),
            None => (0..self.layers).map(rule).collect(),
        })
    }
}

/// Rotary positions as a configuration gives them.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Rope {
    pub(super) base: f64,
    /// Rotated dimensions of a head.
    pub(super) dims: usize,
    pub(super) scaling: Scaling,
}

/// What changes the frequencies.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Scaling {
    None,
    Linear(f64),
    Llama3 {
        factor: f64,
        low: f64,
        high: f64,
        original: f64,
    },
    /// Other factors beyond the original length.
    Long {
        short: Vec<f64>,
        long: Vec<f64>,
        original: f64,
        magnitude: f64,
    },
    /// A base that grows with the sequence beyond the original length.
    Dynamic {
        factor: f64,
        original: f64,
    },
    Yarn {
        factor: f64,
        fast: f64,
        slow: f64,
        original: f64,
        truncate: bool,
        magnitude: f64,
    },
}

impl Rope {
    /// A rotation from a section of the configuration, with the base to take if it has none.
    pub(super) fn read(settings: &Settings, section: Option<&Keys>, base: f64) -> Result<Rope> {
        let whole = settings.keys.opt_number("partial_rotary_factor")?.unwrap_or(1.0);
        let dims = |share: f64| (settings.head_dim as f64 * share) as usize;
        let Some(section) = section else {
            return Ok(Rope { base, dims: dims(whole), scaling: Scaling::None });
        };
        let share = section.opt_number("partial_rotary_factor")?.unwrap_or(whole);
        let kind = match section.text("rope_type")? {
            Some(kind) => kind,
            None => section.text("type")?.unwrap_or("default"),
        };
        let scaling = match kind {
            "default" => Scaling::None,
            "dynamic" => Scaling::Dynamic {
                factor: section.number("factor")?,
                original: settings.keys.number("max_position_embeddings")?,
            },
            "linear" => Scaling::Linear(section.number("factor")?),
            "llama3" => Scaling::Llama3 {
                factor: section.number("factor")?,
                low: section.number("low_freq_factor")?,
                high: section.number("high_freq_factor")?,
                original: original(settings, section)?,
            },
            "longrope" | "su" => long(settings, section)?,
            "yarn" if section.config.get("short_factor").is_some() => long(settings, section)?,
            "yarn" => yarn(settings, section)?,
            other => {
                return Err(wrong("rope_type", &format!("is `{other}`, for which there is no reference")));
            }
        };
        Ok(Rope { base: section.opt_number("rope_theta")?.unwrap_or(base), dims: dims(share), scaling })
    }
}

/// The length a model was first trained for: outside the section, else inside it, else the longest.
fn original(settings: &Settings, section: &Keys) -> Result<f64> {
    let key = "original_max_position_embeddings";
    match settings.keys.opt_number(key)?.or(section.opt_number(key)?) {
        Some(length) => Ok(length),
        None => settings.keys.number("max_position_embeddings"),
    }
}

/// How often a length is stretched where no factor says it.
fn stretch(settings: &Settings, section: &Keys, original: f64) -> Result<f64> {
    match section.opt_number("factor")? {
        Some(factor) => Ok(factor),
        None => Ok(settings.keys.number("max_position_embeddings")? / original),
    }
}

fn long(settings: &Settings, section: &Keys) -> Result<Scaling> {
    let original = original(settings, section)?;
    let factor = stretch(settings, section, original)?;
    let usual = if factor > 1.0 { (1.0 + factor.ln() / original.ln()).sqrt() } else { 1.0 };
    let magnitude = section.opt_number("attention_factor")?.unwrap_or(usual);
    let (short, long) = (section.numbers("short_factor")?, section.numbers("long_factor")?);
    Ok(Scaling::Long { short, long, original, magnitude })
}

fn yarn(settings: &Settings, section: &Keys) -> Result<Scaling> {
    let original = original(settings, section)?;
    let factor = stretch(settings, section, original)?;
    let gain = |scale: f64| if factor > 1.0 { 0.1 * scale * factor.ln() + 1.0 } else { 1.0 };
    let usual = match (section.opt_number("mscale")?, section.opt_number("mscale_all_dim")?) {
        (Some(scale), Some(all)) => gain(scale) / gain(all),
        _ => gain(1.0),
    };
    Ok(Scaling::Yarn {
        factor,
        fast: section.opt_number("beta_fast")?.unwrap_or(32.0),
        slow: section.opt_number("beta_slow")?.unwrap_or(1.0),
        original,
        truncate: section.config.opt_bool("truncate")?.unwrap_or(true),
        magnitude: section.opt_number("attention_factor")?.unwrap_or(usual),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn settings(defaults: Defaults, more: &Value) -> Settings {
        let mut config = json!({"hidden_size": 8, "num_attention_heads": 2, "vocab_size": 8, "intermediate_size": 8,
            "num_hidden_layers": 3});
        for (key, value) in more.as_object().unwrap() {
            config[key] = value.clone();
        }
        Settings::read(&Config::new(config.as_object().unwrap().clone()), defaults, 8).unwrap()
    }

    // The expected values are those of the classes of transformers.

    #[test]
    fn windows_are_read_where_each_class_has_them() {
        let mistral = |more| settings(MISTRAL, &more).window_or_4096().unwrap();
        assert_eq!(mistral(json!({})), Some(4096));
        assert_eq!(mistral(json!({"sliding_window": null})), None);
        assert_eq!(mistral(json!({"sliding_window": 7})), Some(7));
        let qwen = |more| settings(QWEN2, &more).upper_windows().unwrap();
        assert_eq!(qwen(json!({"sliding_window": 7, "max_window_layers": 1})), [None; 3]);
        let used = json!({"use_sliding_window": true, "sliding_window": 7, "max_window_layers": 1});
        assert_eq!(qwen(used), [None, Some(7), Some(7)]);
        let listed = json!({"use_sliding_window": true, "sliding_window": 7, "layer_types":
            ["sliding_attention", "full_attention", "sliding_attention"]});
        assert_eq!(qwen(listed), [Some(7), None, Some(7)]);
        let local = |more| settings(GEMMA3, &more).local_layers().unwrap();
        assert_eq!(local(json!({"sliding_window_pattern": 2})), [true, false, true]);
        assert_eq!(local(json!({})), [true; 3]);
    }

    #[test]
    fn lengths_that_are_not_given_are_those_of_the_class() {
        let dynamic = json!({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}});
        for (defaults, expected) in [(LLAMA, 2048.0), (MISTRAL, 131_072.0), (QWEN2, 32_768.0), (PHI3, 4096.0)]
        {
            let Scaling::Dynamic { original, .. } = settings(defaults, &dynamic).rope().unwrap().scaling
            else {
                panic!("{expected}")
            };
            assert_eq!(original, expected);
        }
    }
}

//! What a `tokenizer.json` must keep to before the tokenizers crate reads it. That crate takes files for granted: some
//! values make it panic, loop, or take memory that a short text does not account for.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

/// Bytes of the largest file; vocabularies of 260,000 tokens take 34 MB.
pub(super) const LARGEST: u64 = 128 << 20;
/// Steps of a normaliser, a decoder and so on, those inside sequences included.
const MOST_STEPS: usize = 64;
/// Sequences inside one another.
const DEEPEST: usize = 4;
/// Bytes of a pattern, and of what takes its place.
const LONGEST_PATTERN: usize = 4096;
/// Bytes of a token that is found in the text before anything else.
const LONGEST_ADDED: usize = 1024;
/// Bytes of all of these.
const ALL_ADDED: usize = 8 << 20;
/// Bytes of a token in a vocabulary.
const LONGEST_TOKEN: usize = 16 << 10;
/// Bytes of a vocabulary that is read into a tree, a node for each byte.
const ALL_UNIGRAM: usize = 8 << 20;
/// Tokens around a text.
const MOST_AROUND: usize = 1024;
/// Characters of a word that WordPiece takes apart, in time that grows with the square.
const LONGEST_WORD: u64 = 4096;
/// How many times as long as a text what it is normalised to may be.
const MOST_GROWTH: f64 = 65536.0;
/// The most that the normal forms of Unicode lengthen a text by.
const NFKD_GROWTH: f64 = 12.0;

#[derive(Deserialize)]
struct Document {
    #[serde(default)]
    normalizer: Value,
    #[serde(default)]
    pre_tokenizer: Value,
    #[serde(default)]
    post_processor: Value,
    #[serde(default)]
    decoder: Value,
    #[serde(default)]
    added_tokens: Vec<Added>,
    model: Model,
}

#[derive(Deserialize)]
struct Added {
    #[serde(default)]
    content: String,
}

/// The model, without its vocabulary.
#[derive(Deserialize)]
struct Model {
    #[serde(rename = "type")]
    kind: Option<String>,
    #[serde(default)]
    vocab: Vocabulary,
    max_input_chars_per_word: Option<u64>,
    dropout: Option<f64>,
    continuing_subword_prefix: Option<String>,
    end_of_word_suffix: Option<String>,
}

/// The sizes of a vocabulary.
#[derive(Default)]
struct Vocabulary {
    bytes: usize,
    longest: usize,
    is_list: bool,
}

type Checked<T> = Result<T, String>;

/// How much longer a text may become, or what a file asks for that is not done.
pub(super) fn check(bytes: &[u8]) -> Checked<f64> {
    let document: Document = serde_json::from_slice(bytes).map_err(|e| e.to_string())?;
    check_added(&document.added_tokens)?;
    document.model.check()?;
    let mut growth = 1.0;
    let mut walk = Walk { steps: 0, visit: &mut |step| normalizer(step, &mut growth) };
    walk.step("normalizer", &document.normalizer, 0)?;
    if growth > MOST_GROWTH {
        return Err(format!(
            "its `normalizer` makes texts up to {growth:.0} times longer, at most {MOST_GROWTH}"
        ));
    }
    Walk { steps: 0, visit: &mut pre_tokenizer }.step("pre_tokenizer", &document.pre_tokenizer, 0)?;
    Walk { steps: 0, visit: &mut post_processor }.step("post_processor", &document.post_processor, 0)?;
    let mut shown = 1.0;
    Walk { steps: 0, visit: &mut |step| normalizer(step, &mut shown) }.step(
        "decoder",
        &document.decoder,
        0,
    )?;
    if shown > MOST_GROWTH {
        return Err(format!(
            "its `decoder` makes texts up to {shown:.0} times longer, at most {MOST_GROWTH}"
        ));
    }
    Ok(growth)
}

fn check_added(added: &[Added]) -> Checked<()> {
    let longest = added.iter().map(|token| token.content.len()).max().unwrap_or(0);
    if longest > LONGEST_ADDED {
        return Err(format!("an added token has {longest} bytes, at most {LONGEST_ADDED}"));
    }
    let all: usize = added.iter().map(|token| token.content.len()).sum();
    match all > ALL_ADDED {
        true => Err(format!("added tokens have {all} bytes together, at most {ALL_ADDED}")),
        false => Ok(()),
    }
}

impl Model {
    fn check(&self) -> Checked<()> {
        let Vocabulary { bytes, longest, is_list } = self.vocab;
        if longest > LONGEST_TOKEN {
            return Err(format!("a token of the vocabulary has {longest} bytes, at most {LONGEST_TOKEN}"));
        }
        let is_unigram = is_list || self.kind.as_deref() == Some("Unigram");
        if is_unigram && bytes > ALL_UNIGRAM {
            return Err(format!("its unigram vocabulary has {bytes} bytes, at most {ALL_UNIGRAM}"));
        }
        if let Some(most) = self.max_input_chars_per_word.filter(|most| *most > LONGEST_WORD) {
            return Err(format!("`max_input_chars_per_word` is {most}, at most {LONGEST_WORD}"));
        }
        if let Some(dropout) = self.dropout.filter(|dropout| *dropout != 0.0) {
            return Err(format!(
                "`dropout` is {dropout}, with which the same text gives other tokens every time"
            ));
        }
        for (key, text) in [
            ("continuing_subword_prefix", &self.continuing_subword_prefix),
            ("end_of_word_suffix", &self.end_of_word_suffix),
        ] {
            if text.as_ref().is_some_and(|text| text.len() > LONGEST_ADDED) {
                return Err(format!("`{key}` is longer than {LONGEST_ADDED} bytes"));
            }
        }
        Ok(())
    }
}

/// Goes through the steps of a part, in their order.
struct Walk<'a> {
    steps: usize,
    visit: &'a mut dyn FnMut(&Value) -> Checked<()>,
}

impl Walk<'_> {
    fn step(&mut self, part: &str, step: &Value, depth: usize) -> Checked<()> {
        if step.is_null() {
            return Ok(());
        }
        self.steps += 1;
        if self.steps > MOST_STEPS || depth > DEEPEST {
            let most = format!("{MOST_STEPS} steps, {DEEPEST} inside one another");
            return Err(format!("its `{part}` has more than {most}"));
        }
        let inner = ["normalizers", "pretokenizers", "processors", "decoders"];
        let nested = inner.iter().filter_map(|key| step.get(key)?.as_array()).flatten();
        for inner in nested {
            self.step(part, inner, depth + 1)?;
        }
        (self.visit)(step).map_err(|problem| format!("its `{part}` {problem}"))
    }
}

fn kind(step: &Value) -> &str {
    step.get("type").and_then(Value::as_str).unwrap_or_default()
}

/// A pattern in one of its two forms: its text, and whether that is a regular expression.
fn pattern(step: &Value) -> Checked<Option<(&str, bool)>> {
    let Some(pattern) = step.get("pattern") else { return Ok(None) };
    let text = |key: &str| pattern.get(key).and_then(Value::as_str);
    let found = match (pattern.as_str().or_else(|| text("String")), text("Regex")) {
        (Some(text), _) => Some((text, false)),
        (None, Some(text)) => Some((text, true)),
        (None, None) => None,
    };
    match found {
        Some(("", _)) => Err("has an empty pattern".to_owned()),
        Some((text, _)) if text.len() > LONGEST_PATTERN => {
            Err(format!("has a pattern of {} bytes, at most {LONGEST_PATTERN}", text.len()))
        }
        found => Ok(found),
    }
}

/// A step of a normaliser or a decoder, and what it multiplies the length of a text by.
fn normalizer(step: &Value, growth: &mut f64) -> Checked<()> {
    let text = |key: &str| step.get(key).and_then(Value::as_str).unwrap_or_default();
    match kind(step) {
        "Replace" => {
            let content = text("content");
            if content.len() > LONGEST_PATTERN {
                return Err(format!("puts {} bytes in the place of each match", content.len()));
            }
            if let Some((pattern, is_regex)) = pattern(step)? {
                // A regular expression may match between any two bytes.
                let each = if is_regex { 1 + content.len() } else { content.len().div_ceil(pattern.len()) };
                *growth *= each.max(1) as f64;
            }
        }
        "Prepend" => {
            let prepended = text("prepend").len();
            if prepended > LONGEST_ADDED {
                return Err(format!("puts {prepended} bytes before each text"));
            }
            // Each stretch between added tokens is a text.
            *growth *= 1.0 + prepended as f64;
        }
        "NFD" | "NFKD" | "NFC" | "NFKC" | "BertNormalizer" | "Precompiled" => *growth *= NFKD_GROWTH,
        "ByteLevel" => *growth *= 2.0,
        _ => {}
    }
    Ok(())
}

fn pre_tokenizer(step: &Value) -> Checked<()> {
    pattern(step)?;
    match (kind(step), step.get("length").and_then(Value::as_u64)) {
        ("FixedLength", Some(0)) => Err("cuts texts into pieces of no length".to_owned()),
        _ => Ok(()),
    }
}

/// Every token around a text is one that the template lists.
fn post_processor(step: &Value) -> Checked<()> {
    if kind(step) != "TemplateProcessing" {
        return Ok(());
    }
    let listed = step.get("special_tokens").and_then(Value::as_object);
    let pieces = ["single", "pair"].iter().filter_map(|key| step.get(key)?.as_array());
    for pieces in pieces {
        if pieces.len() > MOST_AROUND {
            return Err(format!("puts {} pieces together, at most {MOST_AROUND}", pieces.len()));
        }
        for id in pieces.iter().filter_map(|piece| piece.get("SpecialToken")?.get("id")?.as_str()) {
            let ids = listed.and_then(|listed| listed.get(id)?.get("ids")?.as_array());
            match ids {
                None => return Err(format!("puts `{id}` around texts, which it does not list")),
                Some(ids) if ids.len() > MOST_AROUND => {
                    return Err(format!("puts {} tokens around texts for `{id}`", ids.len()));
                }
                Some(_) => {}
            }
        }
    }
    Ok(())
}

impl<'de> Deserialize<'de> for Vocabulary {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Vocabulary, D::Error> {
        struct Sizes;

        impl<'de> Visitor<'de> for Sizes {
            type Value = Vocabulary;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a vocabulary")
            }

            fn visit_unit<E>(self) -> Result<Vocabulary, E> {
                Ok(Vocabulary::default())
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Vocabulary, A::Error> {
                let mut found = Vocabulary::default();
                while let Some(Length(token)) = map.next_key()? {
                    map.next_value::<IgnoredAny>()?;
                    found.add(token);
                }
                Ok(found)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vocabulary, A::Error> {
                let mut found = Vocabulary { is_list: true, ..Vocabulary::default() };
                while let Some((Length(token), _)) = list.next_element::<(Length, IgnoredAny)>()? {
                    found.add(token);
                }
                Ok(found)
            }
        }

        deserializer.deserialize_any(Sizes)
    }
}

impl Vocabulary {
    fn add(&mut self, token: usize) {
        self.bytes += token;
        self.longest = self.longest.max(token);
    }
}

/// The length of a string, which is not kept.
struct Length(usize);

impl<'de> Deserialize<'de> for Length {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Length, D::Error> {
        struct Text;

        impl Visitor<'_> for Text {
            type Value = Length;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a token")
            }

            fn visit_str<E>(self, text: &str) -> Result<Length, E> {
                Ok(Length(text.len()))
            }
        }

        deserializer.deserialize_str(Text)
    }
}

//! Text to tokens and back, as `tokenizer.json` says.

mod check;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anemeter_base::bounded::{Budget, bounded};
use anemeter_base::contain::contained;
use anemeter_base::files;

use super::error::{GenerateError, Result};

/// What a text may come to when it is normalised; a byte of it takes some thirty in memory.
const LONGEST_NORMALIZED: f64 = (64 << 20) as f64;

/// What reading a file may take, and the encoding of a long text.
const READING: Budget = Budget { memory: 1 << 30, time: Duration::from_secs(15) };
/// Bytes of text that any sound tokenizer encodes in a millisecond.
const SLOWEST: u64 = 50;
/// A text of so many bytes that becomes little longer is encoded where it is: regular expressions give up by themselves.
const SHORT: usize = 256;
const LITTLE_GROWTH: f64 = 64.0;

/// A tokenizer and the file it came from.
#[derive(Debug)]
pub struct Tokenizer {
    inner: Arc<tokenizers::Tokenizer>,
    path: PathBuf,
    /// How many times longer a text may become when it is normalised.
    growth: f64,
}

impl Tokenizer {
    /// Reads a `tokenizer.json`.
    pub fn open(path: &Path) -> Result<Tokenizer> {
        let bytes =
            files::read(path, check::LARGEST).map_err(|e| GenerateError::file(path, e.to_string()))?;
        Tokenizer::from_bytes(&bytes, path)
    }

    /// Reads the content of a `tokenizer.json`; errors name the path.
    pub fn from_bytes(bytes: &[u8], path: &Path) -> Result<Tokenizer> {
        let refused = |problem: String| GenerateError::file(path, format!("is not a tokenizer: {problem}"));
        let growth = check::check(bytes).map_err(refused)?;
        let copy = bytes.to_vec();
        let inner = bounded(READING, move || {
            let mut inner = tokenizers::Tokenizer::from_bytes(copy).map_err(|e| e.to_string())?;
            // A file may ask to cut or fill up texts, which is for training.
            inner.with_padding(None);
            inner.with_truncation(None).map_err(|e| e.to_string())?;
            Ok(inner)
        });
        let inner =
            inner.unwrap_or_else(|exceeded| Err(format!("reading it {exceeded}"))).map_err(refused)?;
        Ok(Tokenizer { inner: Arc::new(inner), path: path.to_owned(), growth })
    }

    /// The text of tokens. A damaged file may show only now.
    fn decoded(&self, ids: &[u32], skip_special: bool) -> Result<String> {
        let failed =
            |problem: String| GenerateError::file(&self.path, format!("cannot decode tokens: {problem}"));
        let text = contained(|| self.inner.decode(ids, skip_special)).map_err(|e| failed(e.to_string()))?;
        text.map_err(|e| failed(e.to_string()))
    }

    /// Tokens of a text, or of two as one.
    fn encoded(&self, text: &str, pair: Option<&str>, frame: bool) -> Result<tokenizers::Encoding> {
        let failed =
            |problem: String| GenerateError::file(&self.path, format!("cannot take this text: {problem}"));
        [Some(text), pair].into_iter().flatten().try_for_each(|text| self.check_length(text))?;
        let bytes = text.len() + pair.map_or(0, str::len);
        if bytes <= SHORT && self.growth <= LITTLE_GROWTH {
            let done = contained(|| encode(&self.inner, text, pair, frame));
            return done.map_err(|e| failed(e.to_string()))?.map_err(failed);
        }
        let (inner, text, pair) = (self.inner.clone(), text.to_owned(), pair.map(ToOwned::to_owned));
        let budget = Budget { time: READING.time + Duration::from_millis(bytes as u64 / SLOWEST), ..READING };
        let done = bounded(budget, move || encode(&inner, &text, pair.as_deref(), frame));
        done.map_err(|exceeded| failed(exceeded.to_string()))?.map_err(failed)
    }

    fn check_length(&self, text: &str) -> Result<()> {
        let normalized = text.len() as f64 * self.growth;
        if normalized <= LONGEST_NORMALIZED {
            return Ok(());
        }
        let (bytes, growth) = (text.len(), self.growth);
        let problem = format!(
            "takes texts of up to {:.0} bytes, since it may make them {growth:.0} times longer; this one has {bytes}: give a shorter one",
            LONGEST_NORMALIZED / growth
        );
        Err(GenerateError::file(&self.path, problem))
    }

    /// The tokens of a text. Special tokens in the text count as such; `frame` adds those that the tokenizer puts
    /// around every text, such as one for its beginning.
    pub fn encode(&self, text: &str, frame: bool) -> Result<Vec<u32>> {
        Ok(self.encoded(text, None, frame)?.get_ids().to_vec())
    }

    /// The same for texts of so many tokens, those around them included; longer ones are cut at their end.
    pub(crate) fn cut_to(mut self, longest: usize) -> Result<Tokenizer> {
        let cut = tokenizers::TruncationParams { max_length: longest, ..Default::default() };
        let inner = Arc::get_mut(&mut self.inner).ok_or_else(|| "it is in use".to_owned());
        let done =
            inner.and_then(|inner| inner.with_truncation(Some(cut)).map(|_| ()).map_err(|e| e.to_string()));
        done.map_err(|problem| {
            GenerateError::file(&self.path, format!("cannot cut texts to {longest} tokens: {problem}"))
        })?;
        Ok(self)
    }

    /// The tokens of a text, or of two as one, with those that the tokenizer puts around them, and the kind of segment
    /// of each.
    pub(crate) fn encode_framed(&self, text: &str, pair: Option<&str>) -> Result<(Vec<u32>, Vec<u32>)> {
        let encoding = self.encoded(text, pair, true)?;
        Ok((encoding.get_ids().to_vec(), encoding.get_type_ids().to_vec()))
    }

    /// The text of tokens, without special ones. Bytes that are no UTF-8 become U+FFFD.
    pub fn decode(&self, ids: &[u32]) -> Result<String> {
        self.decoded(ids, true)
    }

    /// The text of tokens, special ones included.
    pub fn decode_all(&self, ids: &[u32]) -> Result<String> {
        self.decoded(ids, false)
    }

    /// A token as the tokenizer writes it.
    pub fn token(&self, id: u32) -> Option<String> {
        self.inner.id_to_token(id)
    }

    /// The id of a token.
    pub fn id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    /// Text of tokens that come one by one.
    pub fn stream(&self) -> TextStream<'_> {
        TextStream { tokenizer: self, window: Vec::new(), prefix: 0, shown: 0 }
    }
}

fn encode(
    inner: &tokenizers::Tokenizer,
    text: &str,
    pair: Option<&str>,
    frame: bool,
) -> std::result::Result<tokenizers::Encoding, String> {
    let encoding = match pair {
        Some(pair) => inner.encode_fast((text, pair), frame),
        None => inner.encode_fast(text, frame),
    };
    encoding.map_err(|e| e.to_string())
}

/// Tokens whose text is kept for those that follow.
const WINDOW: usize = 64;
/// Bytes of a UTF-8 character that may be there without the last one; each may be shown as one U+FFFD.
const INCOMPLETE: usize = 3;

/// Turns tokens into text as they come and holds back what a later token may complete.
#[derive(Debug)]
pub struct TextStream<'a> {
    tokenizer: &'a Tokenizer,
    /// The latest tokens. How a token looks may depend on those before it.
    window: Vec<u32>,
    /// Tokens of the window whose text is complete.
    prefix: usize,
    /// Bytes of the window's text that have been given.
    shown: usize,
}

impl TextStream<'_> {
    /// Takes a token and gives the text that is now certain; may be empty.
    pub fn push(&mut self, id: u32) -> Result<String> {
        self.window.push(id);
        let text = self.tokenizer.decode(&self.window)?;
        let complete = text.trim_end_matches('\u{FFFD}').len();
        let open = (text.len() - complete) / '\u{FFFD}'.len_utf8();
        let held = if self.window.len() < WINDOW { open.min(INCOMPLETE) } else { 0 };
        let certain = text.len() - held * '\u{FFFD}'.len_utf8();
        let new = text.get(self.shown..certain).unwrap_or_default().to_owned();
        self.shown = self.shown.max(certain);
        if held == 0 {
            self.forget()?;
        }
        Ok(new)
    }

    /// Gives what was held back.
    pub fn finish(&mut self) -> Result<String> {
        let text = self.tokenizer.decode(&self.window)?;
        let rest = text.get(self.shown..).unwrap_or_default().to_owned();
        (self.window, self.prefix, self.shown) = (Vec::new(), 0, 0);
        Ok(rest)
    }

    /// Keeps the tokens since the last complete text and drops those before them.
    fn forget(&mut self) -> Result<()> {
        self.window.drain(..self.prefix);
        self.prefix = self.window.len();
        self.shown = self.tokenizer.decode(&self.window)?.len();
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod testing {
    //! A tokenizer with one token per byte and some more.

    use serde_json::{Value, json};

    /// The character that byte-level tokenizers write for a byte.
    fn shown(byte: u8) -> char {
        let is_plain = matches!(byte, 33..=126 | 161..=172 | 174..=255);
        let before = (0..byte).filter(|b| !matches!(b, 33..=126 | 161..=172 | 174..=255)).count();
        let code = if is_plain { u32::from(byte) } else { 256 + before as u32 };
        char::from_u32(code).unwrap()
    }

    /// `tokenizer.json`: ids 0 to 255 are bytes, 256 is ` a`, 257 `<|end|>`, 258 `<|begin|>`.
    pub(crate) fn byte_level() -> Vec<u8> {
        let mut vocab = serde_json::Map::new();
        for byte in 0..=255u8 {
            vocab.insert(shown(byte).to_string(), json!(byte));
        }
        vocab.insert("\u{120}a".to_owned(), json!(256));
        let special = |id: u32, content: &str| {
            json!({"id": id, "content": content, "special": true, "single_word": false, "lstrip": false,
                "rstrip": false, "normalized": false})
        };
        let bytes = |use_regex: bool| json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": use_regex});
        let document = json!({
            "version": "1.0", "truncation": {"direction": "Right", "max_length": 4, "strategy": "LongestFirst",
                "stride": 0},
            "padding": null, "added_tokens": [special(257, "<|end|>"), special(258, "<|begin|>")],
            "normalizer": null, "pre_tokenizer": bytes(true), "decoder": bytes(true),
            "post_processor": {"type": "TemplateProcessing",
                "single": [{"SpecialToken": {"id": "<|begin|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
                "special_tokens": {"<|begin|>": {"id": "<|begin|>", "ids": [258], "tokens": ["<|begin|>"]}}},
            "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
                "vocab": Value::Object(vocab), "merges": [["\u{120}", "a"]]},
        });
        document.to_string().into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tokenizer() -> Tokenizer {
        Tokenizer::from_bytes(&testing::byte_level(), Path::new("tokenizer.json")).unwrap()
    }

    #[test]
    fn text_becomes_tokens_and_text_again() {
        let tokenizer = tokenizer();
        let ids = tokenizer.encode("b a<|end|>é", true).unwrap();
        assert_eq!(ids, [258, 98, 256, 257, 0xC3, 0xA9]);
        assert_eq!(tokenizer.encode("b", false).unwrap(), [98]);
        assert_eq!(tokenizer.decode(&ids).unwrap(), "b aé");
        assert_eq!(tokenizer.decode(&[1_000_000]).unwrap(), "");
        assert_eq!((tokenizer.id("<|end|>"), tokenizer.token(257).as_deref()), (Some(257), Some("<|end|>")));
    }

    #[test]
    fn files_that_are_no_tokenizer_are_named() {
        let read = |bytes: &[u8]| {
            Tokenizer::from_bytes(bytes, Path::new("b/tokenizer.json")).unwrap_err().to_string()
        };
        assert!(read(b"{}").starts_with("b/tokenizer.json: is not a tokenizer: "), "{}", read(b"{}"));
        assert!(read(b"\xff").starts_with("b/tokenizer.json: is not a tokenizer: "));
        let missing = Tokenizer::open(Path::new("nowhere/tokenizer.json")).unwrap_err().to_string();
        assert!(missing.starts_with("nowhere/tokenizer.json: "), "{missing}");
    }

    fn pieces(ids: &[u32]) -> Vec<String> {
        let tokenizer = tokenizer();
        let mut stream = tokenizer.stream();
        let mut pieces: Vec<String> = ids.iter().map(|&id| stream.push(id).unwrap()).collect();
        pieces.push(stream.finish().unwrap());
        pieces
    }

    #[test]
    fn half_a_character_is_held_back() {
        let ids: Vec<u32> = "é😀x".bytes().map(u32::from).collect();
        assert_eq!(pieces(&ids), ["", "é", "", "", "", "😀", "x", ""]);
        assert_eq!(pieces(&[0xF0, 0x9F, 120]), ["", "", "\u{FFFD}x", ""]);
        assert_eq!(pieces(&[120, 0xF0, 0x9F]), ["x", "", "", "\u{FFFD}"]);
        let broken = pieces(&[0x80, 0x80, 0x80, 0x80, 0xC3, 0xA9]).concat();
        assert_eq!(broken, "\u{FFFD}\u{FFFD}\u{FFFD}\u{FFFD}é");
    }

    #[test]
    fn long_runs_of_anything_do_no_harm() {
        let tokenizer = tokenizer();
        for part in ["a", " ", "\0\u{1b}[31m", "<|end|", "\u{301}", "<script>\n"] {
            let text = part.repeat(200_000 / part.len());
            let ids = tokenizer.encode(&text, false).unwrap();
            assert_eq!(tokenizer.decode(&ids[..100]).unwrap(), text[..100]);
        }
    }

    proptest! {
        #[test]
        fn streamed_text_is_the_text(text in ".{0,80}") {
            let ids = tokenizer().encode(&text, true).unwrap();
            prop_assert_eq!(pieces(&ids).concat(), tokenizer().decode(&ids).unwrap());
        }

        #[test]
        fn any_tokens_are_streamed_whole(ids in prop::collection::vec(0u32..300, 0..200)) {
            let streamed = pieces(&ids).concat();
            let whole = tokenizer().decode(&ids).unwrap();
            let valid = |text: &str| text.replace('\u{FFFD}', "");
            prop_assert_eq!(valid(&streamed), valid(&whole));
        }
    }
}

//! The tokenizer of a GGUF file, rebuilt in the form of `tokenizer.json`.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use super::super::error::{Result, quoted};
use super::merges;
use super::reader::{Metadata, key_error, opt_array, opt_bool, opt_text, opt_u64};

/// What a file says of its tokens.
#[derive(Debug, Default)]
pub(super) struct Tokens {
    /// `tokenizer.json`, if the file has a tokenizer.
    pub(super) json: Option<Vec<u8>>,
    pub(super) bos: Option<u32>,
    pub(super) eos: Vec<u32>,
}

const TOKENS: &str = "tokenizer.ggml.tokens";
const TYPES: &str = "tokenizer.ggml.token_type";
const SCORES: &str = "tokenizer.ggml.scores";
const MERGES: &str = "tokenizer.ggml.merges";
const PRE: &str = "tokenizer.ggml.pre";

/// Longest token: merges of longer ones could take time without bound.
const LONGEST_TOKEN: usize = 1024;

/// Control tokens that end a turn, whatever the file says of ends.
const TURN_ENDS: &[&str] = &["<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>"];

const GPT2_PATTERN: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
const LLAMA3_PATTERN: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN2_PATTERN: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// How text is cut before byte-level merges, by `tokenizer.ggml.pre`.
struct Cut {
    names: &'static [&'static str],
    patterns: &'static [&'static str],
    composes: bool,
    ignores_merges: bool,
    adds_bos: bool,
}

const PLAIN: Cut =
    Cut { names: &[], patterns: &[GPT2_PATTERN], composes: false, ignores_merges: false, adds_bos: false };

const CUTS: &[Cut] = &[
    Cut { names: &["gpt-2", "gpt2", "default", "phi-2"], ..PLAIN },
    Cut { names: &["smollm", "starcoder", "refact"], patterns: &[r"\p{N}", GPT2_PATTERN], ..PLAIN },
    Cut {
        names: &["llama-bpe", "llama3", "llama-v3"],
        patterns: &[LLAMA3_PATTERN],
        ignores_merges: true,
        adds_bos: true,
        ..PLAIN
    },
    Cut { names: &["dbrx", "smaug-bpe"], patterns: &[LLAMA3_PATTERN], ..PLAIN },
    Cut { names: &["qwen2", "deepseek-r1-qwen"], patterns: &[QWEN2_PATTERN], composes: true, ..PLAIN },
];

/// `tokenizer.ggml.token_type`.
const NORMAL: i64 = 1;
const UNKNOWN: i64 = 2;
const CONTROL: i64 = 3;
const USER_DEFINED: i64 = 4;

/// Reads and rebuilds the tokenizer.
pub(super) fn read(metadata: &Metadata<'_>) -> Result<Tokens> {
    let kind = match opt_text(metadata, "tokenizer.ggml.model")? {
        None | Some("none") => return Ok(Tokens::default()),
        Some(kind) => kind,
    };
    let vocabulary = Vocabulary::read(metadata)?;
    let json = match kind {
        "gpt2" => vocabulary.byte_level(metadata)?,
        "llama" => vocabulary.sentence_piece(metadata)?,
        other => {
            let problem = format!("is {}, known are gpt2 and llama", quoted(other));
            return Err(key_error("tokenizer.ggml.model", &problem));
        }
    };
    Ok(Tokens {
        json: Some(json.to_string().into_bytes()),
        bos: vocabulary.special(metadata, "bos")?,
        eos: vocabulary.ends(metadata)?,
    })
}

struct Vocabulary<'a> {
    tokens: Vec<&'a str>,
    types: Vec<i64>,
    /// The first id of each text.
    ids: HashMap<&'a str, u32>,
}

impl<'a> Vocabulary<'a> {
    fn read(metadata: &Metadata<'a>) -> Result<Vocabulary<'a>> {
        let tokens = opt_array(metadata, TOKENS)?.ok_or_else(|| key_error(TOKENS, "is missing"))?;
        if u32::try_from(tokens.count).is_err() {
            return Err(key_error(TOKENS, &format!("has {} tokens", tokens.count)));
        }
        let tokens = tokens.texts(TOKENS)?;
        let types = match opt_array(metadata, TYPES)? {
            Some(types) => types.ints(TYPES)?,
            None => vec![NORMAL; tokens.len()],
        };
        if types.len() != tokens.len() {
            let problem = format!("has {} entries for {} tokens", types.len(), tokens.len());
            return Err(key_error(TYPES, &problem));
        }
        let mut ids = HashMap::with_capacity(tokens.len());
        for (&token, id) in tokens.iter().zip(0..) {
            if token.len() > LONGEST_TOKEN {
                let problem =
                    format!("has a token of {} bytes, at most {LONGEST_TOKEN} are read", token.len());
                return Err(key_error(TOKENS, &problem));
            }
            ids.entry(token).or_insert(id);
        }
        Ok(Vocabulary { tokens, types, ids })
    }

    /// The token of a role, such as `bos`.
    fn special(&self, metadata: &Metadata<'_>, role: &str) -> Result<Option<u32>> {
        let key = format!("tokenizer.ggml.{role}_token_id");
        let Some(id) = opt_u64(metadata, &key)? else { return Ok(None) };
        match u32::try_from(id) {
            // Files without the token say so with the largest number.
            Ok(u32::MAX) => Ok(None),
            Ok(id) if (id as usize) < self.tokens.len() => Ok(Some(id)),
            _ => Err(key_error(&key, &format!("is {id}, there are {} tokens", self.tokens.len()))),
        }
    }

    fn ends(&self, metadata: &Metadata<'_>) -> Result<Vec<u32>> {
        let mut ends = Vec::new();
        for role in ["eos", "eot", "eom"] {
            ends.extend(self.special(metadata, role)?);
        }
        let is_marked = |id: &u32| matches!(self.types[*id as usize], CONTROL | USER_DEFINED);
        ends.extend(TURN_ENDS.iter().filter_map(|text| self.ids.get(text).copied()).filter(is_marked));
        let mut unique = Vec::new();
        for id in ends {
            if !unique.contains(&id) {
                unique.push(id);
            }
        }
        Ok(unique)
    }

    fn byte_level(&self, metadata: &Metadata<'_>) -> Result<Value> {
        let pre = opt_text(metadata, PRE)?.unwrap_or("default");
        let cut = CUTS.iter().find(|cut| cut.names.contains(&pre)).ok_or_else(|| {
            let known: Vec<_> = CUTS.iter().flat_map(|cut| cut.names).copied().collect();
            key_error(PRE, &format!("is {}, known are {}", quoted(pre), known.join(", ")))
        })?;
        let merges = opt_array(metadata, MERGES)?.ok_or_else(|| key_error(MERGES, "is missing"))?;
        let merges = merges.texts(MERGES)?.into_iter().map(|merge| self.merge(merge));
        let splits = cut.patterns.iter().map(|pattern| {
            json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false})
        });
        let bytes = |use_regex: bool| {
            json!({
                "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": use_regex,
            })
        };
        let cuts: Vec<Value> = splits.chain([bytes(false)]).collect();
        Ok(json!({
            "version": "1.0",
            "truncation": null,
            "padding": null,
            "added_tokens": self.added_tokens(),
            "normalizer": if cut.composes { json!({"type": "NFC"}) } else { Value::Null },
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": cuts},
            "post_processor": self.template(metadata, cut.adds_bos)?,
            "decoder": bytes(true),
            "model": {
                "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
                "ignore_merges": cut.ignores_merges,
                "vocab": self.vocab(), "merges": merges.collect::<Result<Vec<_>>>()?,
            },
        }))
    }

    /// A merge of two tokens, given with a space between them.
    fn merge(&self, merge: &str) -> Result<Value> {
        let parts = merge.char_indices().skip(1).find(|c| c.1 == ' ').map(|(at, _)| merge.split_at(at));
        let parts = parts.map(|(left, right)| (left, &right[1..])).filter(|(left, right)| {
            let joined = format!("{left}{right}");
            [*left, *right, &joined].iter().all(|part| self.ids.contains_key(part))
        });
        match parts {
            Some((left, right)) => Ok(json!([left, right])),
            None => Err(key_error(MERGES, &format!("has {}, which does not join tokens", quoted(merge)))),
        }
    }

    fn sentence_piece(&self, metadata: &Metadata<'_>) -> Result<Value> {
        const SPACE: &str = "\u{2581}";
        let scores = opt_array(metadata, SCORES)?.ok_or_else(|| key_error(SCORES, "is missing"))?;
        let scores = scores.floats(SCORES)?;
        if scores.len() != self.tokens.len() {
            let problem = format!("has {} entries for {} tokens", scores.len(), self.tokens.len());
            return Err(key_error(SCORES, &problem));
        }
        let joined: Vec<_> = (self.tokens.iter().zip(scores).zip(&self.types))
            .filter(|(_, kind)| matches!(**kind, NORMAL | USER_DEFINED))
            .map(|((&token, score), _)| (token, score))
            .collect();
        let merges = merges::implied(&joined, &self.ids)
            .ok_or_else(|| key_error(TOKENS, "implies too many merges: its pieces are made of each other"))?;
        let merges: Vec<_> = merges.iter().map(|(a, b)| json!([a, b])).collect();
        let prefixes = opt_bool(metadata, "tokenizer.ggml.add_space_prefix")?.unwrap_or(true);
        let unknown = self.special(metadata, "unknown")?.map(|id| self.tokens[id as usize]);
        let mut normalizers = vec![json!({"type": "Replace", "pattern": {"String": " "}, "content": SPACE})];
        let mut decoders = vec![
            json!({"type": "Replace", "pattern": {"String": SPACE}, "content": " "}),
            json!({"type": "ByteFallback"}),
            json!({"type": "Fuse"}),
        ];
        if prefixes {
            normalizers.insert(0, json!({"type": "Prepend", "prepend": SPACE}));
            decoders.push(json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}));
        }
        Ok(json!({
            "version": "1.0",
            "truncation": null,
            "padding": null,
            "added_tokens": self.added_tokens(),
            "normalizer": {"type": "Sequence", "normalizers": normalizers},
            "pre_tokenizer": null,
            "post_processor": self.template(metadata, true)?,
            "decoder": {"type": "Sequence", "decoders": decoders},
            "model": {
                "type": "BPE", "dropout": null, "unk_token": unknown, "continuing_subword_prefix": null,
                "end_of_word_suffix": null, "fuse_unk": true, "byte_fallback": true, "ignore_merges": false,
                "vocab": self.vocab(), "merges": merges,
            },
        }))
    }

    fn vocab(&self) -> Map<String, Value> {
        let first = |(token, id): &(&&str, u32)| self.ids.get(**token) == Some(id);
        self.tokens
            .iter()
            .zip(0u32..)
            .filter(first)
            .map(|(token, id)| (token.to_string(), json!(id)))
            .collect()
    }

    /// Tokens that are found in the text before anything is cut. Those that stand for spaces are reached by
    /// merges instead: the text has no such characters yet.
    fn added_tokens(&self) -> Vec<Value> {
        let tokens = self.tokens.iter().zip(&self.types).zip(0u32..);
        tokens
            .filter(|((token, kind), id)| {
                matches!(**kind, UNKNOWN | CONTROL | USER_DEFINED)
                    && !token.is_empty()
                    && !(**kind == USER_DEFINED && token.contains('\u{2581}'))
                    && self.ids.get(**token) == Some(id)
            })
            .map(|((token, kind), id)| {
                json!({
                    "id": id, "content": token, "single_word": false, "lstrip": false, "rstrip": false,
                    "normalized": false, "special": *kind != USER_DEFINED,
                })
            })
            .collect()
    }

    /// The tokens put before and after each text.
    fn template(&self, metadata: &Metadata<'_>, adds_bos: bool) -> Result<Value> {
        let adds_bos = opt_bool(metadata, "tokenizer.ggml.add_bos_token")?.unwrap_or(adds_bos);
        let adds_eos = opt_bool(metadata, "tokenizer.ggml.add_eos_token")?.unwrap_or(false);
        let wanted = |wanted: bool, role: &str| match wanted {
            true => self.special(metadata, role),
            false => Ok(None),
        };
        let (bos, eos) = (wanted(adds_bos, "bos")?, wanted(adds_eos, "eos")?);
        if bos.is_none() && eos.is_none() {
            return Ok(Value::Null);
        }
        let text = |id: u32| self.tokens[id as usize];
        let special = |id: Option<u32>| id.map(|id| json!({"SpecialToken": {"id": text(id), "type_id": 0}}));
        let around = |name: &str| {
            let sequence = json!({"Sequence": {"id": name, "type_id": 0}});
            special(bos).into_iter().chain([sequence]).chain(special(eos)).collect::<Vec<_>>()
        };
        let entries = bos
            .into_iter()
            .chain(eos)
            .map(|id| (text(id).to_owned(), json!({"id": text(id), "ids": [id], "tokens": [text(id)]})));
        let pair = [around("A"), around("B")].concat();
        Ok(json!({
            "type": "TemplateProcessing",
            "single": around("A"),
            "pair": pair,
            "special_tokens": entries.collect::<Map<_, _>>(),
        }))
    }
}

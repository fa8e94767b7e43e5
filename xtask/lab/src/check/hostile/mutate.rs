//! Damage to good files, by a seed.

use fastrand::Rng;
use serde_json::{Map, Number, Value, json};

/// What a terminal, a log of a CI job or a spreadsheet must not get to see.
pub(super) const NAME: &str = "=a\u{1b}[2J\u{9b}1m\u{202e}b\r\n::error::c\nerror: d\u{fffe}##[error]e";

/// Bytes with a few changes.
pub(super) fn bytes(bytes: &[u8], random: &mut Rng) -> Vec<u8> {
    let mut out = bytes.to_vec();
    for _ in 0..random.usize(1..8) {
        if out.is_empty() {
            break;
        }
        // What describes a file is at its start more often than not.
        let end = if random.bool() { out.len() } else { out.len().min(512) };
        let at = random.usize(..end);
        match random.u8(..7) {
            0 => out[at] ^= 1 << random.u8(..8),
            1 => out[at] = random.u8(..),
            2 => out.truncate(at),
            3 => out.insert(at, random.u8(..)),
            4 => {
                let to = (at + random.usize(1..64)).min(out.len());
                let piece = out[at..to].to_vec();
                out.splice(at..at, piece);
            }
            5 => {
                let to = (at + 8).min(out.len());
                let value = *random.choice(&[0, 0xff, 0x7f, 0x80]).unwrap_or(&0);
                out[at..to].fill(value);
            }
            _ => {
                let to = (at + random.usize(1..64)).min(out.len());
                out.drain(at..to);
            }
        }
    }
    out
}

/// A document with a few values replaced, removed, repeated or nested.
pub(super) fn json(document: &Value, random: &mut Rng) -> Value {
    let mut document = document.clone();
    for _ in 0..random.usize(1..5) {
        let nodes = count(&document);
        let mut left = random.usize(..nodes);
        change(&mut document, &mut left, random);
    }
    document
}

fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(count).sum::<usize>(),
        Value::Object(entries) => entries.values().map(count).sum(),
        _ => 0,
    }
}

/// Changes one node of all; true when it is done.
fn change(value: &mut Value, left: &mut usize, random: &mut Rng) -> bool {
    if *left == 0 {
        replace(value, random);
        return true;
    }
    *left -= 1;
    match value {
        Value::Array(items) => items.iter_mut().any(|item| change(item, left, random)),
        Value::Object(entries) => entries.values_mut().any(|entry| change(entry, left, random)),
        _ => false,
    }
}

fn replace(value: &mut Value, random: &mut Rng) {
    match (random.u8(..8), &mut *value) {
        (0, Value::Array(items)) if !items.is_empty() => {
            let at = random.usize(..items.len());
            items.remove(at);
        }
        (1, Value::Array(items)) if !items.is_empty() => {
            let item = items[random.usize(..items.len())].clone();
            items.extend(std::iter::repeat_n(item, random.usize(1..300)));
        }
        (0 | 1, Value::Object(entries)) if !entries.is_empty() => {
            let key = entries.keys().nth(random.usize(..entries.len())).cloned().unwrap_or_default();
            if let Some(entry) = entries.remove(&key) {
                if random.bool() {
                    entries.insert(format!("{key}{NAME}"), entry);
                }
            }
        }
        (2, Value::Number(number)) => {
            let scale = [0.0, -1.0, 0.5, 2.0, 1e3, 1e9, 1e18, 1e300, 1e-300];
            let scaled = number.as_f64().unwrap_or(1.0) * scale[random.usize(..scale.len())];
            let whole = number.is_i64() || number.is_u64();
            *value = match whole {
                true => json!(scaled as i64),
                false => Number::from_f64(scaled).map_or(Value::Null, Value::Number),
            };
        }
        (3, _) => {
            let inner = value.take();
            *value = (0..random.usize(1..200)).fold(inner, |inner, _| json!([inner]));
        }
        _ => *value = hostile(random),
    }
}

/// A value that is hardly ever expected.
pub(super) fn hostile(random: &mut Rng) -> Value {
    match random.u8(..16) {
        0 => Value::Null,
        1 => json!(-1),
        2 => json!(0),
        3 => json!(1e308),
        4 => json!(1e-320),
        5 => json!(u64::MAX),
        6 => json!(i64::MIN),
        7 => json!(""),
        8 => json!(NAME),
        9 => json!("x".repeat(random.usize(1..70_000))),
        10 => json!([]),
        11 => json!({}),
        12 => json!(random.bool()),
        13 => json!(random.f64() * 1e6),
        14 => json!(random.i32(..)),
        _ => {
            let mut entries = Map::new();
            entries.insert(NAME.to_owned(), json!([1, "2"]));
            Value::Object(entries)
        }
    }
}

/// Text of lines with words replaced, lines repeated, removed or moved.
pub(super) fn lines(text: &str, random: &mut Rng) -> String {
    let mut lines: Vec<String> = text.lines().map(ToOwned::to_owned).collect();
    for _ in 0..random.usize(1..5) {
        if lines.is_empty() {
            break;
        }
        let at = random.usize(..lines.len());
        match random.u8(..5) {
            0 => {
                lines.remove(at);
            }
            1 => {
                let line = lines[at].clone();
                lines.insert(at, line);
            }
            2 => lines[at].insert_str(0, "    "),
            3 => {
                let key = lines[at].split(':').next().unwrap_or_default().to_owned();
                lines[at] = format!("{key}: {}", hostile(random));
            }
            _ => {
                let words =
                    ["&a [*a, *a]", "*a", "!!binary x", "\t", "- -", "{", ".inf", ".nan", "1e400", "~"];
                lines[at].push_str(words[random.usize(..words.len())]);
            }
        }
    }
    lines.join("\n")
}

//! State dicts written by the tests, whole and broken.

use super::super::open;
use super::super::tests::put;
use super::*;

/// A zip archive of stored entries.
fn archive(entries: &[(&str, &[u8])]) -> Vec<u8> {
    let (mut out, mut directory) = (Vec::new(), Vec::new());
    for (name, content) in entries {
        let (offset, size) = (out.len() as u32, content.len() as u32);
        let sizes = [size.to_le_bytes(), size.to_le_bytes()].concat();
        let lengths = [name.len() as u16, 0].map(u16::to_le_bytes).concat();
        out.extend([b"PK\x03\x04", &[0; 14][..], &sizes, &lengths, name.as_bytes(), content].concat());
        let place = [&[0; 10][..], &offset.to_le_bytes()].concat();
        directory.extend([b"PK\x01\x02", &[0; 16][..], &sizes, &lengths, &place, name.as_bytes()].concat());
    }
    let counts = [entries.len() as u16; 2].map(u16::to_le_bytes).concat();
    let place = [directory.len() as u32, out.len() as u32].map(u32::to_le_bytes).concat();
    [&out[..], &directory, b"PK\x05\x06\0\0\0\0", &counts, &place, &[0, 0]].concat()
}

fn text(text: &str) -> Vec<u8> {
    [&b"X"[..], &(text.len() as u32).to_le_bytes(), text.as_bytes()].concat()
}

/// A tensor over storage `0`, by its offset, shape and strides.
fn tensor(kind: &str, offset: u8, shape: [u8; 2], strides: [u8; 2]) -> Vec<u8> {
    let pair = |pair: [u8; 2]| [b'K', pair[0], b'K', pair[1], 0x86];
    let class = format!("ctorch\n{kind}\n");
    let storage = [&text("storage")[..], class.as_bytes(), &text("0"), &text("cpu"), b"K\x08"];
    let id = [b"(", &storage.concat()[..], b"tQ"].concat();
    let numbers = [&[b'K', offset][..], &pair(shape), &pair(strides), &[0x89, b'}']].concat();
    [b"ctorch._utils\n_rebuild_tensor_v2\n(", &id[..], &numbers, b"tR"].concat()
}

fn dict(entries: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let items: Vec<_> = entries.iter().flat_map(|(key, value)| [text(key), value.clone()].concat()).collect();
    [b"}q\x00(", &items[..], b"u"].concat()
}

fn opened(pickle: &[u8], storage: &[u8]) -> Result<BTreeMap<String, Stored>> {
    let pickle = [b"\x80\x02", pickle, b"."].concat();
    opened_bytes(&archive(&[("m/data.pkl", &pickle), ("m/data/0", storage)]))
}

fn opened_bytes(bytes: &[u8]) -> Result<BTreeMap<String, Stored>> {
    let folder = tempfile::tempdir().unwrap();
    put(folder.path(), "config.json", "{}");
    put(folder.path(), "pytorch_model.bin", bytes);
    open(folder.path()).map(|checkpoint| checkpoint.tensors)
}

fn storage() -> Vec<u8> {
    (0..8).flat_map(|x| (x as f32).to_le_bytes()).collect()
}

#[test]
fn tensors_are_found_at_the_top_and_one_below() {
    let weights = dict(&[("w", tensor("FloatStorage", 2, [2, 3], [3, 1])), ("epoch", b"K\x07".to_vec())]);
    let nested = dict(&[("epoch", b"K\x07".to_vec()), ("state_dict", weights.clone())]);
    for pickle in [weights, nested] {
        let tensors = opened(&pickle, &storage()).unwrap();
        assert_eq!(tensors.keys().collect::<Vec<_>>(), ["w"]);
        let stored = &tensors["w"];
        let mut values = [0.0; 2];
        stored.read(4..6, &mut values);
        assert_eq!((&stored.shape[..], values), (&[2, 3][..], [6.0, 7.0]));
    }
    let ordered = [b"ccollections\nOrderedDict\n)R(", &text("h")[..]].concat();
    let ordered = [&ordered[..], &tensor("HalfStorage", 0, [1, 8], [1, 1]), b"u}b"].concat();
    assert_eq!(opened(&ordered, &storage()).unwrap()["h"].encoding, Encoding::Plain(DType::F16));
}

#[test]
fn nothing_else_is_built() {
    let one = |value: Vec<u8>| dict(&[("w", value)]);
    let long = {
        let (tensor, shape) = (tensor("FloatStorage", 0, [1, 1], [1, 1]), b"K\x01K\x01\x86");
        let at = tensor.windows(shape.len()).position(|window| window == shape).unwrap();
        [&tensor[..at], b"(", &b"K\x01".repeat(65), b"t", &tensor[at + shape.len()..]].concat()
    };
    let cases: &[(Vec<u8>, &str)] = &[
        (one(long), "has a tensor with an offset, shape or strides that are no sizes"),
        (one([b"cposix\nsystem\n", &text("id")[..], b"\x85R"].concat()), "calls `posix.system`"),
        (
            one(tensor("FloatStorage", 3, [2, 3], [3, 1])),
            "tensor `w`: fp32 of shape [2, 3] from element 3 on",
        ),
        (one(tensor("FloatStorage", 0, [2, 3], [1, 2])), "has the strides [1, 2]"),
        (one(tensor("ComplexStorage", 0, [1, 1], [1, 1])), "elements of a `ComplexStorage`"),
        (dict(&[("a", b"K\x01".to_vec())]), "does not hold a dictionary of tensors"),
        ([one(tensor("FloatStorage", 0, [1, 1], [1, 1])), b"0h\x05".to_vec()].concat(), "recalls value 5"),
        (b"u".to_vec(), "goes back to a mark"),
        (b"\x85".to_vec(), "too few values"),
        (b"(0t".to_vec(), "takes a value where there is none"),
        (b"X\xff\xff\xff\xff".to_vec(), "needs 4294967295 more bytes"),
        (b"\x81".to_vec(), "operation 0x81"),
        (b"\x85".repeat(3), "too few values"),
    ];
    for (pickle, expected) in cases {
        let found = opened(pickle, &storage()).unwrap_err().to_string();
        assert!(found.contains(expected), "{found:?} without {expected:?}");
    }
    let twice = [("w", tensor("FloatStorage", 0, [1, 1], [1, 1])); 1];
    let twice = dict(&[twice[0].clone(), twice[0].clone()]);
    assert!(opened(&twice, &storage()).unwrap_err().to_string().contains("tensor `w`: is there twice"));
    let endless = opened(&b"N0".repeat(3_000_000), &[]).unwrap_err().to_string();
    assert!(endless.contains("has more than 6000000 operations"), "{endless}");
    let deep = [b")".to_vec(), b"\x85".repeat(1_000_000)].concat();
    assert!(opened(&deep, &[]).unwrap_err().to_string().contains("does not hold a dictionary"));
}

#[test]
fn broken_archives_are_refused() {
    let pickle = [b"\x80\x02", &dict(&[("w", tensor("FloatStorage", 0, [2, 3], [3, 1]))])[..], b"."].concat();
    let whole = archive(&[("m/data.pkl", &pickle), ("m/data/0", &storage())]);
    for end in 4..whole.len() {
        assert!(opened_bytes(&whole[..end]).is_err(), "{end}");
    }
    for at in 0..whole.len() {
        let mut changed = whole.clone();
        changed[at] ^= 0xff;
        let _ = opened_bytes(&changed);
    }
    let twice = archive(&[("m/data.pkl", &pickle), ("m/data.pkl", &pickle)]);
    assert!(opened_bytes(&twice).unwrap_err().to_string().contains("is there twice"));
    let legacy = opened_bytes(b"\x80\x02\x8a\x0a").unwrap_err();
    assert!(legacy.to_string().contains("before version 1.6"));
}

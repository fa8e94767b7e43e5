//! Opsets: which generation of the operations a function is written in.

/// The opset of a function. Later opsets contain the earlier ones, with some operations redefined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(missing_docs, reason = "each variant is the Apple release of the same name")]
pub enum Opset {
    Ios15,
    Ios16,
    Ios17,
    Ios18,
    Ios26,
}

/// Opset, key in the file, name in readable MIL, first specification version.
const TABLE: &[(Opset, &str, &str, i32)] = &[
    (Opset::Ios15, "CoreML5", "ios15", 6),
    (Opset::Ios16, "CoreML6", "ios16", 7),
    (Opset::Ios17, "CoreML7", "ios17", 8),
    (Opset::Ios18, "CoreML8", "ios18", 9),
    (Opset::Ios26, "CoreML9", "ios26", 10),
];

impl Opset {
    /// Every opset, oldest first.
    pub fn all() -> impl Iterator<Item = Opset> {
        TABLE.iter().map(|row| row.0)
    }

    /// The opset of a key such as `CoreML8`.
    pub fn from_key(key: &str) -> Option<Opset> {
        TABLE.iter().find(|row| row.1 == key).map(|row| row.0)
    }

    /// The opset of a name such as `ios18`.
    pub fn from_name(name: &str) -> Option<Opset> {
        TABLE.iter().find(|row| row.2 == name).map(|row| row.0)
    }

    /// The key that files use, such as `CoreML8`.
    pub fn key(self) -> &'static str {
        TABLE[self as usize].1
    }

    /// The name in readable MIL, such as `ios18`.
    pub fn name(self) -> &'static str {
        TABLE[self as usize].2
    }

    /// The specification version that introduced the opset.
    pub fn spec_version(self) -> i32 {
        TABLE[self as usize].3
    }
}

impl std::fmt::Display for Opset {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

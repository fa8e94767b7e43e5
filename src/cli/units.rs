//! Numbers for people.

use std::fmt;

/// Bytes, in decimal units as storage is sold.
pub(super) struct Bytes(pub(super) u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&scaled(self.0, &["B", "kB", "MB", "GB", "TB"]))
    }
}

/// A count, in thousands, millions or billions.
pub(super) struct Count(pub(super) u64);

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(scaled(self.0, &["", "k", "M", "G", "T"]).trim_end())
    }
}

fn scaled(value: u64, units: &[&str]) -> String {
    let mut scale = 0;
    let mut scaled = value as f64;
    while scaled >= 999.95 && scale + 1 < units.len() {
        scaled /= 1000.0;
        scale += 1;
    }
    if scale == 0 { format!("{value} {}", units[0]) } else { format!("{scaled:.1} {}", units[scale]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_change_where_the_digits_do() {
        assert_eq!(Bytes(999).to_string(), "999 B");
        assert_eq!(Bytes(1_000).to_string(), "1.0 kB");
        assert_eq!(Bytes(999_999).to_string(), "1.0 MB");
        assert_eq!(Count(134_515_008).to_string(), "134.5 M");
        assert_eq!(Count(12).to_string(), "12");
    }
}

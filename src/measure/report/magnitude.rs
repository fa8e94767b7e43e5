//! The largest number of a document: what is beyond all measure breaks sums, axes and tables.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};

/// No time, size or count is larger.
pub(super) const MOST: f64 = 1e100;

/// A number of a document that is larger in magnitude than any that is measured.
pub(super) fn beyond_measure(document: &impl Serialize) -> Option<f64> {
    let mut largest = Largest(0.0);
    let mut serializer = Serializer::with_formatter(io::sink(), &mut largest);
    // A sink takes everything, and keys are strings.
    document.serialize(&mut serializer).ok()?;
    Some(largest.0).filter(|found| found.abs() > MOST)
}

struct Largest(f64);

impl Formatter for &mut Largest {
    fn write_f64<W: ?Sized + Write>(&mut self, _: &mut W, value: f64) -> io::Result<()> {
        if value.abs() > self.0.abs() {
            self.0 = value;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_number_is_found() {
        assert_eq!(beyond_measure(&serde_json::json!({"a": [1.5, -1e308], "b": 1e101})), Some(-1e308));
        assert_eq!(beyond_measure(&serde_json::json!([1e99, "1e308", u64::MAX])), None);
    }
}

//! What `bench quality` exports, and how it is asked for.

use anyhow::{Result, ensure};

pub(super) const FP16: &str = "fp16";
pub(super) const INT8: &str = "int8";
pub(super) const INT4: &str = "int4";
pub(super) const LUT6: &str = "lut6:group=16";
pub(super) const LUT4: &str = "lut4:group=16";
pub(super) const UNIFORM: &str = "lut4:group=16 for every weight";
pub(super) const AUTO: &str = "auto, 4.5 bits";

/// How a precision is asked for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Asked {
    /// Flags of `export`.
    Flags(&'static [&'static str]),
    /// One precision for every weight, embedding and head too.
    Every(&'static str),
}

/// What is exported.
#[derive(Debug, Clone, Copy)]
pub(super) struct Form {
    /// The precision, which several forms have.
    pub(super) precision: &'static str,
    pub(super) asked: Asked,
    pub(super) is_rotated: bool,
    /// Whether a text is given to calibrate by.
    pub(super) is_calibrated: bool,
}

/// Whether weights are rotated, and whether codes are chosen by a text.
type Method = (bool, bool);

/// Every precision, how it is asked for, and with which methods.
const PRECISIONS: &[(&str, Asked, &[Method])] = &[
    (FP16, Asked::Flags(&["--precision", "fp16"]), &[(false, false), (true, false)]),
    (INT8, Asked::Flags(&["--precision", "int8"]), &[(false, false), (false, true)]),
    (INT4, Asked::Flags(&["--precision", "int4"]), ALL),
    (LUT6, Asked::Flags(&["--precision", "lut6:group=16"]), ALL),
    (LUT4, Asked::Flags(&["--precision", "lut4:group=16"]), ALL),
    (UNIFORM, Asked::Every("lut4:group=16"), ALL),
    (AUTO, Asked::Flags(&["--precision", "auto", "--target-bits", "4.5"]), ALL),
];

const ALL: &[Method] = &[(false, false), (false, true), (true, true)];

impl Form {
    pub(super) fn name(&self) -> String {
        let how = match (self.is_rotated, self.is_calibrated) {
            (false, false) => "",
            (false, true) => ", calibrated",
            (true, false) => ", rotated",
            (true, true) => ", rotated and calibrated",
        };
        format!("{}{how}", self.precision)
    }
}

fn all() -> Vec<Form> {
    let each = PRECISIONS.iter().flat_map(|&(precision, asked, hows)| {
        hows.iter().map(move |&(is_rotated, is_calibrated)| Form {
            precision,
            asked,
            is_rotated,
            is_calibrated,
        })
    });
    each.collect()
}

/// How many forms there are.
pub(super) fn count() -> usize {
    all().len()
}

/// The forms to measure: those whose name has a word in it, if one is given.
pub(super) fn forms(only: Option<&str>) -> Result<Vec<Form>> {
    let found: Vec<Form> =
        all().into_iter().filter(|form| only.is_none_or(|word| form.name().contains(word))).collect();
    ensure!(
        !found.is_empty(),
        "no precision is called `{}`; there are {}",
        only.unwrap_or_default(),
        all().iter().map(Form::name).collect::<Vec<_>>().join("; ")
    );
    Ok(found)
}

/// A configuration that leaves no weight out, embedding and head included.
pub(crate) fn every_weight(precision: &str) -> String {
    let rule = format!("{{default: fp16, rules: [{{match: '*', precision: '{precision}'}}]}}");
    format!("coreml:\n  precision: {rule}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_found_by_a_part_of_their_name() {
        let names = |only| forms(only).map(|found| found.iter().map(Form::name).collect::<Vec<_>>());
        assert_eq!(names(None).unwrap().len(), count());
        for precision in [INT4, LUT6, LUT4, UNIFORM, AUTO] {
            let found = names(Some(precision)).unwrap();
            for how in ["", ", calibrated", ", rotated and calibrated"] {
                assert!(found.contains(&format!("{precision}{how}")), "{found:?}");
            }
        }
        assert_eq!(names(Some("fp16")).unwrap(), ["fp16", "fp16, rotated"]);
        assert!(
            names(Some("int3")).unwrap_err().to_string().contains("there are fp16; fp16, rotated; int8; ")
        );
    }
}

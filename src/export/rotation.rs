//! `--rotate`: the model in coordinates in which no channel stands out.

use super::error::ExportError;
use super::{PrecisionPlan, Request, Source};
use crate::bundle;
use crate::model::{Decoder, Rotated, rotate};
use crate::vocabulary::Rotate;

/// Rotates the model of an export whose codes are not chosen by data, if that was asked for.
pub(super) fn apply(
    request: &Request,
    source: &Source,
) -> Result<Option<(Decoder, bundle::Rotated)>, ExportError> {
    match request.options.rotate.unwrap_or_default() {
        Rotate::Off => Ok(None),
        Rotate::On => {
            let turned = rotate(&source.decoder);
            let described = describe(&turned, true, None);
            Ok(Some((turned.decoder, described)))
        }
        Rotate::Auto => Err(ExportError::option("rotate", nothing_to_compare(request))),
    }
}

/// Why `auto` cannot decide.
fn nothing_to_compare(request: &Request) -> String {
    let compares = "is `auto`, which compares what codes cost on a calibration text, and";
    match &request.precision {
        // The text was for the range alone.
        PrecisionPlan::Calibrated { .. } => {
            let plan = request.options.precision.as_ref();
            let precision = plan.map_or_else(|| "fp16".to_owned(), ToString::to_string);
            format!("{compares} {precision} has no codes that a text chooses: give `on` or `off`")
        }
        _ => format!("{compares} there is none: give one, or `on` or `off`"),
    }
}

/// The rotations in the words of `export.json`.
pub(super) fn describe(turned: &Rotated, is_used: bool, divergence: Option<[f64; 2]>) -> bundle::Rotated {
    // A model that allows neither map is as it was.
    let has_any = turned.stream.is_ok() || turned.values.is_some();
    bundle::Rotated {
        is_used: is_used && has_any,
        stream: turned.stream.as_ref().ok().cloned(),
        values: turned.values.clone(),
        reason: turned.stream.as_ref().err().cloned(),
        divergence,
    }
}

//! What a calibration says about activations.

use super::*;

/// Largest magnitude with room to spare below 65504; a threshold of this project.
const HEADROOM: f64 = 30_000.0;

pub(super) static FP16_HEADROOM: Rule = Rule {
    title: "an activation comes close to the end of fp16",
    why: "fp16 ends at 65504. A tensor that reaches 30000 on calibration text leaves a factor of two for everything \
          else; beyond it is infinity. The threshold is this project's.",
    evidence: &[
        "Anemll: Gemma 3 is scaled down to fit fp16",
        "john-rocky/CoreML-LLM: Gemma 4 stays below 161 and needs no scaling",
    ],
    remedy: "scale the residual stream: divide embeddings and output projections; RMS norms undo it",
    check: Check::Subject(|subject, setting, sink| {
        for range in setting
            .activations
            .iter()
            .flatten()
            .filter(|range| range.max_abs.is_nan() || range.max_abs > HEADROOM)
        {
            let place = place_of(subject, &range.function, &range.tensor);
            sink.report(place, format!("reaches {} on the calibration text", range.max_abs));
        }
    }),
    #[cfg(test)]
    examples: (|| examples::calibrated(40_000.0), || examples::calibrated(161.0)),
    ..Rule::warning("A54", "fp16-headroom", WidelyReported).needing(Needs::Activations)
};

/// The place of a tensor by the names a calibration gives.
fn place_of(subject: &Subject, function: &str, tensor: &str) -> Place {
    for package in &subject.packages {
        let Some(function) = package.model.program.function(function) else { continue };
        if let Some(index) = function.values.iter().position(|value| value.name == tensor) {
            let graph = Graph::new(function, package.model.interface(&function.name), 0);
            let mut place = Place::value(&graph, ValueId::new(index));
            package.name.clone_into(&mut place.package);
            return place;
        }
    }
    Place::function(function).tensor(tensor)
}

#[cfg(test)]
mod examples {
    use super::*;

    pub(super) fn calibrated(max_abs: f64) -> Case {
        let case = on_input(&[1, 64, 1, 32], |b, x| b.op("relu").arg("x", x).named("y").push().unwrap());
        let range = ActivationRange { function: "main".to_owned(), tensor: "y".to_owned(), max_abs };
        case.with(|setting| setting.activations = Some(vec![range]))
    }
}

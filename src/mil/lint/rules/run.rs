//! What is shipped and how it is run.

use super::*;

pub(super) static COMPUTE_UNITS_HIDE_FALLBACK: Rule = Rule {
    title: "compute units that hide a fallback",
    why: "With `all`, Core ML may prefer the GPU and a run says nothing about the Neural Engine; with `cpuAndGPU` and \
          `cpuOnly` it is not used at all. Runs that measure it ask for `cpuAndNeuralEngine`; an application may still \
          ship with `all` once placement is proven.",
    evidence: &[
        "apple/coremltools, compute units: `all` lets Core ML choose, the GPU included",
        "omlx issue 2828: a tuner ranked runs in which the Neural Engine never ran",
    ],
    remedy: "measure with cpuAndNeuralEngine",
    check: Check::Subject(|subject, setting, sink| {
        let named = subject
            .packages
            .iter()
            .filter_map(|package| Some((package.name.as_str(), package.compute_units()?)));
        let given = setting.compute_units.as_deref().map(|units| ("", units));
        for (package, units) in given.into_iter().chain(named) {
            let plain: String = units.chars().filter(char::is_ascii_alphanumeric).collect();
            let plain = plain.to_ascii_lowercase();
            if !matches!(plain.as_str(), "cpuandneuralengine" | "cpuandne" | "cpuane") {
                let place = Place::package(package);
                sink.report(place, format!("asks for `{units}`"));
            }
        }
    }),
    #[cfg(test)]
    examples: (|| examples::units("all"), || examples::units("CPU_AND_NE")),
    ..Rule::warning("A55", "compute-units-hide-fallback", WidelyReported)
        .needing(Needs::ComputeUnits)
        .decided_by("compute_units")
};

pub(super) static COMPILED_MODEL_ONLY: Rule = Rule {
    title: "only a compiled model is shipped",
    why: "A compiled model (.mlmodelc) belongs to the compiler that made it: one made by a newer compiler was not \
          readable, another crashed on a newer chip.",
    evidence: &[
        "Anemll issue 14: compiled by 9.0, not readable by 8.0",
        "speech-swift issue 313: a segmentation fault on M5 Max",
    ],
    remedy: "ship the .mlpackage and compile it on the device",
    check: Check::Subject(|subject, _, sink| {
        for name in &subject.compiled {
            let place = Place::package(name);
            sink.report(place, "has no .mlpackage beside it");
        }
    }),
    #[cfg(test)]
    examples: (|| examples::shipped(&["model.mlmodelc"]), || examples::shipped(&[])),
    ..Rule::warning("A56", "compiled-model-only", WidelyReported)
};

#[cfg(test)]
mod examples {
    use super::*;

    pub(super) fn units(units: &str) -> Case {
        plain().with(|setting| setting.compute_units = Some(units.to_owned()))
    }

    pub(super) fn shipped(compiled: &[&str]) -> Case {
        let mut case = plain();
        case.subject.compiled = compiled.iter().map(|&name| name.to_owned()).collect();
        case
    }
}

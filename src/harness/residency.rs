//! From where operations are planned to run, and how long they took, to the residency of a report.

use serde::{Deserialize, Serialize};

use crate::bundle::ComputeUnits;
use crate::report::{FunctionResidency, Launch, LoadRegimes, Outcome, Request, Residency};
use crate::runtime::placement::{self, Evidence, FunctionPlacement, Share, Standing};

/// Words of the Neural Engine's compiler when it fails while a load seems to succeed.
const COMPILER_FAILURES: [&str; 2] = ["ANECCompile", "MILCompilerForANE"];

/// Where the functions of a model are planned to run, and what speaks for it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Placed {
    /// Functions of all packages.
    pub functions: Vec<PlacedFunction>,
    /// Where operations were allowed to run, as read back.
    pub units: Option<ComputeUnits>,
    /// Median time of a decoded token with the CPU only.
    pub cpu_step_ms: Option<f64>,
    /// Milliseconds of a second load in the same process.
    pub reload_ms: Option<f64>,
}

/// Where a function is planned to run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlacedFunction {
    /// The package.
    pub package: String,
    /// The function.
    pub function: String,
    /// Operations with a device.
    pub operations: usize,
    /// Operations without.
    pub unplanned: usize,
    /// Share of the operations on the Neural Engine.
    pub by_count: Option<f64>,
    /// Share of the cost.
    pub by_cost: Option<f64>,
    /// Share of the cost that could be.
    pub eligible_by_cost: Option<f64>,
    /// Changes of device.
    pub transitions: usize,
    /// Operations elsewhere, with their kind, device and whether they could be on the Neural Engine.
    pub elsewhere: Vec<String>,
}

impl PlacedFunction {
    /// What a report keeps of a placement.
    pub(super) fn new(package: &str, placement: &FunctionPlacement) -> PlacedFunction {
        let elsewhere = placement.elsewhere().map(|operation| {
            let why = if operation.eligible { "eligible" } else { "unsupported" };
            format!("{} ({}, {}, {why})", operation.name, operation.kind, operation.device)
        });
        PlacedFunction {
            package: package.to_owned(),
            function: placement.function.clone(),
            operations: placement.operations,
            unplanned: placement.unplanned,
            by_count: placement.by_count,
            by_cost: placement.by_cost,
            eligible_by_cost: placement.eligible_by_cost,
            transitions: placement.transitions,
            elsewhere: elsewhere.collect(),
        }
    }
}

/// The residency of a report and the note beside it.
pub(super) fn residency(placed: &Placed, said: &str, launches: &[Launch]) -> (Option<Residency>, String) {
    let requests: Vec<&Request> = measured(launches).flat_map(|launch| &launch.requests).collect();
    let without: Vec<&str> = placed
        .functions
        .iter()
        .filter(|function| function.by_cost.is_none())
        .map(|function| function.function.as_str())
        .collect();
    if let Some(first) = without.first() {
        let counted: Vec<String> = placed
            .functions
            .iter()
            .filter_map(|function| Some(format!("{} {:.1} %", function.function, 100.0 * function.by_count?)))
            .collect();
        let counted = if counted.is_empty() { "none".to_owned() } else { counted.join(", ") };
        let note = format!(
            "Core ML's plan of `{first}` has no costs; operations planned on the Neural Engine: {counted}"
        );
        return (None, note);
    }
    let weighted = weights(placed, &requests);
    let Some(share) = placement::overall(&weighted.iter().map(|(f, share)| (f, *share)).collect::<Vec<_>>())
    else {
        return (None, "Core ML planned none of the functions that were measured".to_owned());
    };
    let evidence = Evidence {
        units: placed.units,
        compiler_failure: compiler_failure(said),
        cpu_ms: placed.cpu_step_ms,
        measured_ms: median(requests.iter().flat_map(|request| request.steps_ms.iter().copied())),
        power: None,
    };
    let (verified, note) = match evidence.standing() {
        Standing::Verified => (true, "planned by Core ML and verified by run times".to_owned()),
        Standing::Planned(why) => (false, format!("planned by Core ML, not verified: {why}")),
    };
    let functions = placed.functions.iter().map(function_residency).collect();
    (Some(Residency { share, verified, functions }), note)
}

fn function_residency(placed: &PlacedFunction) -> FunctionResidency {
    FunctionResidency {
        function: placed.function.clone(),
        package: Some(placed.package.clone()),
        share: placed.by_cost.unwrap_or(0.0),
        by_count: placed.by_count,
        eligible: placed.eligible_by_cost,
        unplanned: placed.unplanned,
        transitions: placed.transitions,
        elsewhere: placed.elsewhere.clone(),
    }
}

/// Each function with the time that it took in the requests. Chunks of a model take equal parts of it.
fn weights(placed: &Placed, requests: &[&Request]) -> Vec<(FunctionPlacement, Share)> {
    let times = placed.functions.iter().map(|function| {
        let name = function.function.as_str();
        let context =
            name.split_once("_c").and_then(|(_, rest)| rest.split('_').next()?.parse::<usize>().ok());
        let chunks = placed.functions.iter().filter(|other| other.function == name).count().max(1);
        let at = requests.iter().filter(|request| context.is_none_or(|context| context == request.shape));
        let samples: Vec<f64> = match name {
            "embed" => at.map(|request| request.embed_ms).collect(),
            _ if name.starts_with("prefill") || name == "main" => {
                at.map(|request| request.prefill_ms).collect()
            }
            _ => at.flat_map(|request| request.steps_ms.iter().copied()).collect(),
        };
        let (calls, median_ms) = (samples.len() as f64 / chunks as f64, median(samples).unwrap_or(0.0));
        let placement = FunctionPlacement {
            function: name.to_owned(),
            operations: function.operations,
            unplanned: function.unplanned,
            by_count: function.by_count,
            by_cost: function.by_cost,
            eligible_by_count: None,
            eligible_by_cost: function.eligible_by_cost,
            transitions: function.transitions,
            islands: Vec::new(),
        };
        (placement, Share { calls, median_ms })
    });
    times.collect()
}

/// What making the model ready took in each situation; `None` if the runtime does not compile.
pub(super) fn load_regimes(placed: Option<&Placed>, launches: &[Launch]) -> Option<LoadRegimes> {
    let times = |compiled_before: bool| {
        let loads = launches.iter().filter_map(|launch| launch.load.as_ref());
        let loads = loads.filter(move |load| load.compiled_before == Some(compiled_before));
        median(loads.map(|load| load.compile_ms.unwrap_or(0.0) + load.load_ms))
    };
    let regimes = LoadRegimes {
        first_ms: times(false),
        cached_ms: times(true),
        in_process_ms: placed.and_then(|placed| placed.reload_ms),
    };
    let LoadRegimes { first_ms, cached_ms, in_process_ms } = &regimes;
    first_ms.or(*cached_ms).or(*in_process_ms).is_some().then_some(regimes)
}

fn measured(launches: &[Launch]) -> impl Iterator<Item = &Launch> {
    launches.iter().filter(|launch| launch.outcome == Outcome::Completed)
}

fn compiler_failure(said: &str) -> Option<String> {
    let line = said.lines().find(|line| COMPILER_FAILURES.iter().any(|words| line.contains(words)))?;
    Some(line.chars().take(200).collect())
}

/// The middle of samples that are in no order.
pub(super) fn median(samples: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut samples: Vec<f64> = samples.into_iter().collect();
    samples.sort_by(f64::total_cmp);
    samples.get(samples.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::testing::launch;

    fn function(name: &str, by_cost: Option<f64>) -> PlacedFunction {
        PlacedFunction {
            package: "model.mlpackage".to_owned(),
            function: name.to_owned(),
            operations: 10,
            unplanned: 1,
            by_count: Some(0.9),
            by_cost,
            eligible_by_cost: Some(1.0),
            transitions: 2,
            elsewhere: vec!["x (gather, CPU, unsupported)".to_owned()],
        }
    }

    fn placed(functions: Vec<PlacedFunction>) -> Placed {
        let units = Some(ComputeUnits::CpuAne);
        Placed { functions, units, cpu_step_ms: Some(100.0), reload_ms: Some(5.0) }
    }

    #[test]
    fn functions_weigh_by_the_time_of_the_requests() {
        let placed = placed(vec![function("prefill", Some(1.0)), function("decode", Some(0.5))]);
        let (residency, note) = residency(&placed, "", &[launch(0, 1.0)]);
        let residency = residency.unwrap();
        // Four requests of 9 to 40.5 ms to prefill, four steps each.
        let (prefill, decode) = (4.0 * 36.0, 16.0 * 8.0);
        assert!(
            (residency.share - (prefill + 0.5 * decode) / (prefill + decode)).abs() < 1e-12,
            "{}",
            residency.share
        );
        assert!(residency.verified);
        assert_eq!(note, "planned by Core ML and verified by run times");
        assert_eq!(residency.functions[0].elsewhere, ["x (gather, CPU, unsupported)"]);
    }

    #[test]
    fn functions_of_other_contexts_do_not_count() {
        let mut functions = vec![function("decode_c128", Some(1.0)), function("decode_c9999", Some(0.0))];
        assert_eq!(residency(&placed(functions.clone()), "", &[launch(0, 1.0)]).0.unwrap().share, 1.0);
        functions.remove(0);
        assert_eq!(residency(&placed(functions), "", &[launch(0, 1.0)]).0, None);
    }

    #[test]
    fn a_plan_without_costs_gives_a_note_and_no_figure() {
        let (residency, note) = residency(&placed(vec![function("decode", None)]), "", &[launch(0, 1.0)]);
        assert_eq!(residency, None);
        insta::assert_snapshot!(note, @"Core ML's plan of `decode` has no costs; operations planned on the Neural Engine: decode 90.0 %");
    }

    #[test]
    fn a_compiler_that_failed_quietly_is_heard() {
        let said = "x\nE5RT: MILCompilerForANE error: failed to compile ANE model\n";
        let (residency, note) =
            residency(&placed(vec![function("decode", Some(1.0))]), said, &[launch(0, 1.0)]);
        assert!(!residency.unwrap().verified);
        assert!(note.contains("MILCompilerForANE error"), "{note}");
    }

    #[test]
    fn loads_are_told_apart_by_whether_they_compiled() {
        assert_eq!(load_regimes(None, &[launch(0, 1.0)]), None);
        let mut launches = vec![launch(0, 10.0), launch(1, 1.0), launch(2, 2.0), launch(3, 3.0)];
        for (index, launch) in launches.iter_mut().enumerate() {
            let load = launch.load.as_mut().unwrap();
            (load.compiled_before, load.compile_ms) = (Some(index > 0), Some(1.0));
        }
        let regimes = load_regimes(Some(&placed(vec![])), &launches).unwrap();
        assert_eq!(
            (regimes.first_ms, regimes.cached_ms, regimes.in_process_ms),
            (Some(201.0), Some(41.0), Some(5.0))
        );
    }
}

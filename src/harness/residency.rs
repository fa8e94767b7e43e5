//! From where operations are planned to run, and how long they took, to the residency of a report.

use serde::{Deserialize, Serialize};

use anemeter_base::function_name::FunctionName;
use anemeter_base::vocabulary::{ComputeUnits, FunctionRole};
use anemeter_convert::bundle::contract::{Contract, ContractRole};
use anemeter_measure::report::{
    Case, FunctionResidency, Launch, LoadRegimes, Metric, OffAneOperation, Outcome, Place, Request, Residency,
};
use anemeter_measure::stats::median;
use anemeter_runtime::placement::{self, Evidence, FunctionPlacement, Share, Standing};

/// Words of the Neural Engine's compiler when it fails while a load seems to succeed.
const COMPILER_FAILURES: [&str; 2] = ["ANECCompile", "MILCompilerForANE"];

/// Where the functions of a model are planned to run, and what speaks for it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlannedPlacement {
    /// Functions of all packages.
    pub functions: Vec<FunctionResidency>,
    /// Where operations were allowed to run, as read back.
    pub units: Option<ComputeUnits>,
    /// Median time of a decoded token with the CPU only.
    pub cpu_step_ms: Option<f64>,
    /// Milliseconds of a second load in the same process.
    pub reload_ms: Option<f64>,
}

/// What a report keeps of a placement.
pub(super) fn function_residency(package: &str, placement: FunctionPlacement) -> FunctionResidency {
    let not_on_ane = placement.not_on_ane().map(|operation| OffAneOperation {
        name: operation.name.clone(),
        kind: operation.kind.clone(),
        device: operation.device,
        eligible: operation.eligible,
        reasons: Vec::new(),
    });
    FunctionResidency {
        package: package.to_owned(),
        share: placement.by_cost,
        by_count: placement.by_count,
        eligible: placement.eligible_by_cost,
        unplanned: placement.unplanned,
        transitions: placement.transitions,
        not_on_ane: not_on_ane.collect(),
        function: placement.function,
    }
}

/// What requests were.
#[derive(Clone, Copy)]
pub(super) struct MeasuredWork<'a> {
    /// Functions that were predicted one by one; none if tokens were generated.
    pub(super) cases: &'a [Case],
    /// How packages that others made were driven.
    pub(super) contract: Option<&'a Contract>,
    /// Where steps were timed with the CPU only.
    pub(super) timed: &'a Place,
}

/// The residency of a report and the note beside it.
pub(super) fn residency(
    placed: &PlannedPlacement,
    said: &str,
    launches: &[Launch],
    measured_work: MeasuredWork<'_>,
) -> (Option<Residency>, String) {
    let MeasuredWork { cases, contract, timed } = measured_work;
    let requests: Vec<&Request> = measured(launches).flat_map(|launch| &launch.requests).collect();
    let without: Vec<&str> = placed
        .functions
        .iter()
        .filter(|function| function.share.is_none())
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
    let weighted = match cases {
        [] => weights(placed, &requests, contract),
        cases => weights_of_cases(placed, cases, launches),
    };
    let Some(share) = placement::overall(&weighted) else {
        return (None, "Core ML planned none of the functions that were measured".to_owned());
    };
    let evidence = Evidence {
        units: placed.units,
        compiler_failure: compiler_failure(said),
        cpu_ms: placed.cpu_step_ms,
        measured_ms: match timed {
            Place::SeqLen(_) => median(
                &requests.iter().flat_map(|request| request.steps_ms.iter().copied()).collect::<Vec<_>>(),
            ),
            case => median(
                &measured(launches)
                    .flat_map(|launch| launch.values(Metric::Latency, case))
                    .collect::<Vec<_>>(),
            ),
        },
    };
    let (verified, note) = match evidence.standing() {
        Standing::Verified => (true, "planned by Core ML and verified by run times".to_owned()),
        Standing::Planned(why) => (false, format!("planned by Core ML, not verified: {why}")),
    };
    (Some(Residency { share, verified, functions: placed.functions.clone() }), note)
}

/// What a function is for, by its name in an export or by the contract of packages that others made.
fn role(function: &FunctionResidency, contract: Option<&Contract>) -> Option<FunctionName> {
    let Some(contract) = contract else { return function.function.parse().ok() };
    let of_any_length = |role: FunctionRole| FunctionName { role, length: None };
    let roles: Vec<ContractRole> = contract
        .functions()
        .filter(|(package, of)| (&package.package, &of.function) == (&function.package, &function.function))
        .map(|(_, of)| of.role)
        .collect();
    // A head runs for every token, and so does a function that takes prompts in as well.
    let decodes = |role: &ContractRole| matches!(role, ContractRole::Decode | ContractRole::Head);
    let role = match roles.first()? {
        _ if roles.iter().any(decodes) => FunctionRole::Decode,
        ContractRole::Embed => FunctionRole::Embed,
        ContractRole::WholeSequence => FunctionRole::Main,
        _ => FunctionRole::Prefill,
    };
    Some(of_any_length(role))
}

/// Each function with the time that it took in the requests. Functions of one role take equal parts of it.
fn weights(
    placed: &PlannedPlacement,
    requests: &[&Request],
    contract: Option<&Contract>,
) -> Vec<(Option<f64>, Share)> {
    let roles: Vec<_> = placed.functions.iter().map(|function| role(function, contract)).collect();
    let times = placed.functions.iter().zip(&roles).map(|(function, role)| {
        let Some(name) = role else { return (function.share, Share { calls: 0.0, median_ms: 0.0 }) };
        let FunctionName { role, length } = *name;
        let only_at = length.or(role.context()).filter(|_| role != FunctionRole::Embed);
        let parts = roles.iter().filter(|other| other.as_ref() == Some(name)).count();
        let at = requests.iter().filter(|request| only_at.is_none_or(|length| length == request.ran_at()));
        let samples: Vec<f64> = match role {
            FunctionRole::Embed => at.map(|request| request.embed_ms).collect(),
            FunctionRole::Main | FunctionRole::Prefill | FunctionRole::PrefillState { .. } => {
                at.map(|request| request.prefill_ms).collect()
            }
            FunctionRole::Decode | FunctionRole::DecodeState { .. } => {
                at.flat_map(|request| request.steps_ms.iter().copied()).collect()
            }
        };
        let (calls, median_ms) = (samples.len() as f64 / parts as f64, median(&samples).unwrap_or(0.0));
        (function.share, Share { calls, median_ms })
    });
    times.collect()
}

/// Each function with the time that its predictions took, over all shapes.
fn weights_of_cases(
    placed: &PlannedPlacement,
    cases: &[Case],
    launches: &[Launch],
) -> Vec<(Option<f64>, Share)> {
    let weight = |function: &FunctionResidency| {
        let of_function = cases
            .iter()
            .filter(|case| (&case.function, &case.package) == (&function.function, &function.package));
        let places: Vec<Place> = of_function.map(|case| Place::Case(case.name.clone())).collect();
        let samples: Vec<f64> = measured(launches)
            .flat_map(|launch| places.iter().flat_map(|place| launch.values(Metric::Latency, place)))
            .collect();
        let share = Share { calls: samples.len() as f64, median_ms: median(&samples).unwrap_or(0.0) };
        (function.share, share)
    };
    placed.functions.iter().map(weight).collect()
}

/// What making the model ready took in each situation; `None` if the runtime does not compile.
pub(super) fn load_regimes(placed: Option<&PlannedPlacement>, launches: &[Launch]) -> Option<LoadRegimes> {
    let times = |compiled_before: bool| {
        let loads = launches.iter().filter_map(|launch| launch.load.as_ref());
        let loads = loads.filter(move |load| load.compiled_before == Some(compiled_before));
        median(&loads.map(|load| load.compile_ms.unwrap_or(0.0) + load.load_ms).collect::<Vec<_>>())
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

#[cfg(test)]
mod tests {
    use super::*;
    use anemeter_measure::report::testing::{self, launch};

    const GENERATED: MeasuredWork<'_> =
        MeasuredWork { cases: &[], contract: None, timed: &Place::SeqLen(128) };

    fn function(name: &str, share: Option<f64>) -> FunctionResidency {
        FunctionResidency {
            package: "model.mlpackage".to_owned(),
            function: name.to_owned(),
            unplanned: 1,
            by_count: Some(0.9),
            share,
            eligible: Some(1.0),
            transitions: 2,
            not_on_ane: Vec::new(),
        }
    }

    fn placed(functions: Vec<FunctionResidency>) -> PlannedPlacement {
        let units = Some(ComputeUnits::CpuAne);
        PlannedPlacement { functions, units, cpu_step_ms: Some(100.0), reload_ms: Some(5.0) }
    }

    #[test]
    fn functions_weigh_by_the_time_of_the_requests() {
        let placed = placed(vec![function("prefill", Some(1.0)), function("decode", Some(0.5))]);
        let (residency, note) = residency(&placed, "", &[launch(0, 1.0)], GENERATED);
        let residency = residency.unwrap();
        // Four requests of 9, 13.5, 36 and 40.5 ms to prefill; of their sixteen steps the middle two take 5.25 and 8 ms.
        let (prefill, decode) = (4.0 * 24.75, 16.0 * 6.625);
        let (share, expected) = (residency.share, (prefill + 0.5 * decode) / (prefill + decode));
        assert!((share - expected).abs() < 1e-12, "{share}");
        assert!(residency.verified);
        assert_eq!(note, "planned by Core ML and verified by run times");
    }

    #[test]
    fn functions_of_others_weigh_by_what_their_contract_says() {
        let contract = "
context_length: 16
vocabulary: 24
packages:
  - package: chunk.mlpackage
    functions:
      - { function: prefill, role: prefill, inputs: {}, outputs: {} }
      - { function: infer, role: decode, inputs: {}, outputs: {} }
  - package: head.mlpackage
    functions: [{ function: main, role: head, inputs: {}, outputs: { logits: [logits] } }]
";
        let contract: Contract = serde_yaml::from_str(contract).unwrap();
        let of = |package: &str, name: &str, share| FunctionResidency {
            package: package.to_owned(),
            ..function(name, Some(share))
        };
        let placed = placed(vec![
            of("chunk.mlpackage", "prefill", 1.0),
            of("chunk.mlpackage", "infer", 0.5),
            of("head.mlpackage", "main", 0.0),
        ]);
        let work = MeasuredWork { contract: Some(&contract), ..GENERATED };
        let share = residency(&placed, "", &[launch(0, 1.0)], work).0.unwrap().share;
        // The head and the chunk share the time of a step.
        let (prefill, decode) = (4.0 * 24.75, 16.0 * 6.625);
        let expected = (prefill + 0.5 * decode / 2.0) / (prefill + decode);
        assert!((share - expected).abs() < 1e-12, "{share}");
    }

    #[test]
    fn predicted_functions_weigh_by_their_predictions() {
        let mut report = testing::predicted(2, 1.0);
        // Sixty predictions of each; those of the second case take twice as long.
        report.workload.cases[1].function = "other".to_owned();
        let placed = placed(vec![function("main", Some(1.0)), function("other", Some(0.4))]);
        let place = Place::Case(testing::CASES[0].to_owned());
        let found = residency(
            &placed,
            "",
            &report.launches,
            MeasuredWork { cases: &report.workload.cases, contract: None, timed: &place },
        );
        let share = found.0.unwrap().share;
        assert!((share - (1.0 + 2.0 * 0.4) / 3.0).abs() < 0.02, "{share}");
    }

    #[test]
    fn functions_of_other_contexts_do_not_count() {
        let mut functions = vec![function("decode_c128", Some(1.0)), function("decode_c9999", Some(0.0))];
        assert_eq!(
            residency(&placed(functions.clone()), "", &[launch(0, 1.0)], GENERATED).0.unwrap().share,
            1.0
        );
        functions.remove(0);
        assert_eq!(residency(&placed(functions), "", &[launch(0, 1.0)], GENERATED).0, None);
    }

    #[test]
    fn a_plan_without_costs_gives_a_note_and_no_figure() {
        let (residency, note) =
            residency(&placed(vec![function("decode", None)]), "", &[launch(0, 1.0)], GENERATED);
        assert_eq!(residency, None);
        insta::assert_snapshot!(note, @"Core ML's plan of `decode` has no costs; operations planned on the Neural Engine: decode 90.0 %");
    }

    #[test]
    fn a_compiler_that_failed_quietly_is_heard() {
        let said = "x\nE5RT: MILCompilerForANE error: failed to compile ANE model\n";
        let (residency, note) =
            residency(&placed(vec![function("decode", Some(1.0))]), said, &[launch(0, 1.0)], GENERATED);
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
        let found = load_regimes(Some(&placed(vec![])), &launches).unwrap();
        let expected = (Some(201.0), Some(41.0), Some(5.0));
        assert_eq!((found.first_ms, found.cached_ms, found.in_process_ms), expected);
    }
}

//! Where operations are planned to run, and what that is worth: residency, eligibility, transitions, islands.
//!
//! A plan is a prediction by Core ML. It counts as verified only if run times show that the Neural Engine did the work.

use anemeter_base::vocabulary::{ComputeUnits, Device};

/// An operation of a plan.
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedOperation {
    /// The name of its first output, or its kind.
    pub name: String,
    /// Its kind, such as `conv`.
    pub kind: String,
    /// Where it is to run; `None` if the plan does not say.
    pub preferred: Option<Device>,
    /// Where it could run.
    pub supported: Vec<Device>,
    /// Its share of the cost of the model, where the plan has one.
    pub cost: Option<f64>,
}

impl PlannedOperation {
    /// Constants are part of a program and never run.
    fn is_constant(&self) -> bool {
        self.kind == "const" || self.kind.starts_with("constexpr_")
    }
}

/// The plan of a function: its operations in program order, those of nested blocks after the one that has the block.
#[derive(Debug, Clone, PartialEq)]
pub struct FunctionPlan {
    /// The function.
    pub function: String,
    /// Its operations.
    pub operations: Vec<PlannedOperation>,
}

/// Placement of the functions of a package.
#[derive(Debug, Clone, PartialEq)]
pub struct Placement {
    /// One function each.
    pub functions: Vec<FunctionPlacement>,
}

impl Placement {
    /// Sums up what compute plans say.
    pub fn new(plans: &[FunctionPlan]) -> Placement {
        Placement { functions: plans.iter().map(FunctionPlacement::of).collect() }
    }
}

/// Placement of a function. Shares are of the Neural Engine, among the operations for which the plan names a device.
#[derive(Debug, Clone, PartialEq)]
pub struct FunctionPlacement {
    /// The function.
    pub function: String,
    /// Operations with a device.
    pub operations: usize,
    /// Operations that run, yet have no device in the plan.
    pub unplanned: usize,
    /// Share of the operations; `None` if there are none.
    pub by_count: Option<f64>,
    /// Share of the cost; `None` if the plan has no costs.
    pub by_cost: Option<f64>,
    /// Share of the cost of operations that could run there.
    pub eligible_by_cost: Option<f64>,
    /// Changes of device in program order.
    pub transitions: usize,
    /// Runs of operations that are to run elsewhere.
    pub islands: Vec<Island>,
}

/// Operations, one after the other, that are to run elsewhere than on the Neural Engine.
#[derive(Debug, Clone, PartialEq)]
pub struct Island {
    /// The operations.
    pub operations: Vec<NotOnAne>,
}

/// An operation that is to run elsewhere.
#[derive(Debug, Clone, PartialEq)]
pub struct NotOnAne {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: String,
    /// Where it is to run.
    pub device: Device,
    /// Whether the Neural Engine could run it: then it is a matter of size, else of form.
    pub eligible: bool,
}

impl FunctionPlacement {
    /// What a plan says.
    pub fn of(plan: &FunctionPlan) -> FunctionPlacement {
        let running: Vec<&PlannedOperation> =
            plan.operations.iter().filter(|operation| !operation.is_constant()).collect();
        let placed: Vec<(&PlannedOperation, Device)> =
            running.iter().filter_map(|operation| Some((*operation, operation.preferred?))).collect();
        let is_there = |(_, device): &(&PlannedOperation, Device)| *device == Device::NeuralEngine;
        let could_be_there = |(operation, device): &(&PlannedOperation, Device)| {
            *device == Device::NeuralEngine || operation.supported.contains(&Device::NeuralEngine)
        };
        FunctionPlacement {
            function: plan.function.clone(),
            operations: placed.len(),
            unplanned: running.len() - placed.len(),
            by_count: count_share(&placed, is_there),
            by_cost: cost_share(&placed, is_there),
            eligible_by_cost: cost_share(&placed, could_be_there),
            transitions: placed.windows(2).filter(|pair| pair[0].1 != pair[1].1).count(),
            islands: islands(&placed),
        }
    }

    /// Operations that are to run elsewhere.
    pub fn not_on_ane(&self) -> impl Iterator<Item = &NotOnAne> {
        self.islands.iter().flat_map(|island| &island.operations)
    }
}

type OperationOnDevice<'a> = (&'a PlannedOperation, Device);

fn count_share(
    placed: &[OperationOnDevice<'_>],
    counts: impl Fn(&OperationOnDevice<'_>) -> bool,
) -> Option<f64> {
    let count = placed.iter().filter(|operation| counts(operation)).count();
    (!placed.is_empty()).then(|| count as f64 / placed.len() as f64)
}

fn cost_share(
    placed: &[OperationOnDevice<'_>],
    counts: impl Fn(&OperationOnDevice<'_>) -> bool,
) -> Option<f64> {
    let cost = |(operation, _): &OperationOnDevice<'_>| operation.cost.unwrap_or(0.0);
    let total: f64 = placed.iter().map(cost).sum();
    let part: f64 = placed.iter().filter(|operation| counts(operation)).map(cost).sum();
    (total > 0.0).then(|| part / total)
}

fn islands(placed: &[OperationOnDevice<'_>]) -> Vec<Island> {
    let runs = placed.chunk_by(|a, b| (a.1 == Device::NeuralEngine) == (b.1 == Device::NeuralEngine));
    let not_on_ane = |(operation, device): &OperationOnDevice<'_>| NotOnAne {
        name: operation.name.clone(),
        kind: operation.kind.clone(),
        device: *device,
        eligible: operation.supported.contains(&Device::NeuralEngine),
    };
    let away = runs.filter(|run| run[0].1 != Device::NeuralEngine);
    away.map(|run| Island { operations: run.iter().map(not_on_ane).collect() }).collect()
}

/// How much of a workload a function is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Share {
    /// How often it is called.
    pub calls: f64,
    /// Median time of a call.
    pub median_ms: f64,
}

/// Share of the time of a workload on the Neural Engine: functions by cost, weighted by calls and run time. `None` if a
/// function of the workload has no share of its own.
pub fn overall(functions: &[(Option<f64>, Share)]) -> Option<f64> {
    let mut parts = (0.0, 0.0);
    for (by_cost, share) in functions {
        let time = share.calls * share.median_ms;
        parts = (parts.0 + time * (*by_cost)?, parts.1 + time);
    }
    (parts.1 > 0.0 && parts.0.is_finite() && parts.1.is_finite()).then(|| parts.0 / parts.1)
}

/// What speaks for a plan.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Evidence {
    /// Where operations were allowed to run, as read back.
    pub units: Option<ComputeUnits>,
    /// Words of a Neural Engine compiler that failed while the model was loaded.
    pub compiler_failure: Option<String>,
    /// Median time of a decoded token with the CPU only.
    pub cpu_ms: Option<f64>,
    /// Median time of a decoded token as measured.
    pub measured_ms: Option<f64>,
}

/// What a plan is worth.
#[derive(Debug, Clone, PartialEq)]
pub enum Standing {
    /// Run times show what was planned.
    Verified,
    /// It is only planned, for this reason.
    Planned(String),
}

/// The CPU alone must be slower by this factor for the Neural Engine to have done the work.
const CPU_SLOWER_BY: f64 = 1.5;

impl Evidence {
    /// Whether run times show that the Neural Engine did the work.
    pub fn standing(&self) -> Standing {
        let planned = |why: String| Standing::Planned(why);
        match self.units {
            Some(ComputeUnits::CpuAne) => {}
            Some(units) => {
                return planned(format!("compute units were {units}, only cpu+ane can be verified"));
            }
            None => return planned("the compute units in use are not known".to_owned()),
        }
        if let Some(words) = &self.compiler_failure {
            return planned(format!("the Neural Engine's compiler failed: {words}"));
        }
        let (Some(cpu), Some(measured)) = (self.cpu_ms, self.measured_ms.filter(|ms| *ms > 0.0)) else {
            return planned("decoding was not timed with the CPU only".to_owned());
        };
        let ratio = cpu / measured;
        if ratio.is_nan() || ratio < CPU_SLOWER_BY {
            let needed = format!("{CPU_SLOWER_BY} is needed");
            return planned(format!("the CPU alone takes only {ratio:.2} times as long, {needed}"));
        }
        Standing::Verified
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Device; 3] = [Device::Cpu, Device::Gpu, Device::NeuralEngine];

    fn operation(name: &str, kind: &str, preferred: Option<Device>, cost: f64) -> PlannedOperation {
        let supported = if kind == "gather" { vec![Device::Cpu] } else { ALL.to_vec() };
        let (name, kind) = (name.to_owned(), kind.to_owned());
        PlannedOperation { name, kind, preferred, supported, cost: Some(cost) }
    }

    fn plan() -> FunctionPlan {
        let ane = Some(Device::NeuralEngine);
        FunctionPlan {
            function: "decode".to_owned(),
            operations: vec![
                operation("w", "const", ane, 5.0),
                operation("lut", "constexpr_lut_to_dense", None, 5.0),
                operation("x", "gather", Some(Device::Cpu), 0.1),
                operation("q", "conv", ane, 0.6),
                operation("r", "read_state", None, 0.0),
                operation("k", "conv", ane, 0.1),
                operation("s", "softmax", Some(Device::Cpu), 0.1),
                operation("t", "argmax", Some(Device::Gpu), 0.1),
            ],
        }
    }

    #[test]
    fn constants_and_unplanned_operations_do_not_count() {
        let placement = FunctionPlacement::of(&plan());
        assert_eq!((placement.operations, placement.unplanned), (5, 1));
        assert_eq!(placement.by_count, Some(0.4));
        assert!((placement.by_cost.unwrap() - 0.7).abs() < 1e-12);
        assert_eq!(placement.transitions, 3);
    }

    #[test]
    fn islands_are_runs_whatever_device_they_are_on() {
        let placement = FunctionPlacement::of(&plan());
        let names: Vec<Vec<&str>> = placement
            .islands
            .iter()
            .map(|island| island.operations.iter().map(|operation| operation.name.as_str()).collect())
            .collect();
        assert_eq!(names, [vec!["x"], vec!["s", "t"]]);
        let eligible: Vec<bool> = placement.not_on_ane().map(|operation| operation.eligible).collect();
        assert_eq!(eligible, [false, true, true]);
    }

    #[test]
    fn a_plan_without_costs_or_operations_has_no_share_rather_than_a_full_one() {
        let mut without = plan();
        without.operations.iter_mut().for_each(|operation| operation.cost = None);
        let placement = FunctionPlacement::of(&without);
        assert_eq!((placement.by_cost, placement.by_count), (None, Some(0.4)));
        let empty = FunctionPlacement::of(&FunctionPlan { function: "f".to_owned(), operations: vec![] });
        assert_eq!((empty.by_count, empty.by_cost, empty.transitions), (None, None, 0));
    }

    #[test]
    fn functions_weigh_as_much_as_the_time_they_take() {
        let share = |calls, median_ms| Share { calls, median_ms };
        assert_eq!(overall(&[(Some(1.0), share(1.0, 30.0)), (Some(0.5), share(10.0, 1.0))]), Some(0.875));
        assert_eq!(overall(&[]), None);
        assert_eq!(overall(&[(Some(1.0), share(1.0, 1.0)), (None, share(1.0, 1.0))]), None);
    }

    fn good() -> Evidence {
        Evidence {
            units: Some(ComputeUnits::CpuAne),
            cpu_ms: Some(15.0),
            measured_ms: Some(10.0),
            ..Evidence::default()
        }
    }

    #[test]
    fn a_plan_is_verified_only_if_everything_speaks_for_it() {
        assert_eq!(good().standing(), Standing::Verified);
        let why = |evidence: Evidence| match evidence.standing() {
            Standing::Planned(why) => why,
            Standing::Verified => panic!("verified"),
        };
        insta::assert_snapshot!(why(Evidence { units: Some(ComputeUnits::All), ..good() }), @"compute units were all, only cpu+ane can be verified");
        insta::assert_snapshot!(why(Evidence { cpu_ms: Some(14.9), ..good() }), @"the CPU alone takes only 1.49 times as long, 1.5 is needed");
        insta::assert_snapshot!(why(Evidence { cpu_ms: Some(f64::NAN), ..good() }), @"the CPU alone takes only NaN times as long, 1.5 is needed");
        insta::assert_snapshot!(why(Evidence { cpu_ms: None, ..good() }), @"decoding was not timed with the CPU only");
        insta::assert_snapshot!(why(Evidence { compiler_failure: Some("ANECCompile() FAILED".into()), ..good() }), @"the Neural Engine's compiler failed: ANECCompile() FAILED");
        insta::assert_snapshot!(why(Evidence::default()), @"the compute units in use are not known");
    }
}

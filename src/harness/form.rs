//! Which form of the KV cache to take: `state` if the model runs with it, or `io`, and why.
//!
//! Whether states work depends on chip, system and graph, and a model whose states do not may end the process that
//! runs it. So the form is tried in a worker: loaded, run for hundreds of steps, and asked where it is planned to run.

use super::conversation::converse;
use super::plan::Plan;
use super::protocol::Message;
use super::run::BenchEnv;
use anemeter_base::vocabulary::KvForm;
use anemeter_measure::report::{KvChoice, Outcome};

/// Failures have been reported after one or two hundred predictions.
pub const PROBE_STEPS: usize = 500;

/// Chooses among the forms of a bundle. `plan_of` fits the workload to a form, which may fail; `floor` is the least
/// share on the Neural Engine that is good enough.
pub fn choose_form<E: std::fmt::Display>(
    forms: &[KvForm],
    plan_of: &mut dyn FnMut(KvForm) -> Result<Plan, E>,
    env: &mut BenchEnv<'_>,
    floor: f64,
) -> (KvForm, KvChoice) {
    let first = forms.first().copied().unwrap_or(KvForm::Io);
    let choice = |form: KvForm, reason: String| (form, KvChoice { form, steps: PROBE_STEPS, reason });
    if !forms.contains(&KvForm::State) {
        return choice(first, "the bundle has no form `state`".to_owned());
    }
    let tried = match plan_of(KvForm::State) {
        Ok(plan) => try_out(&plan, env, floor),
        Err(problem) => Err(format!("`state` does not fit: {problem}")),
    };
    let other = forms.iter().copied().find(|form| *form != KvForm::State);
    match (tried, other) {
        (Ok(why), _) => choice(KvForm::State, why),
        (Err(why), Some(other)) => choice(other, why),
        (Err(why), None) => choice(KvForm::State, format!("{why}; the bundle has no other form")),
    }
}

/// Why a form is good, or why not.
fn try_out(plan: &Plan, env: &mut BenchEnv<'_>, floor: f64) -> Result<String, String> {
    let mut result = None;
    let limit = plan.launch_limit().saturating_mul(2);
    let conversation = converse(env.launcher, &plan.try_out(PROBE_STEPS), limit, env.clock, &mut |message| {
        if let Message::Tried { steps, residency } = message {
            result = Some((steps, residency));
        }
    });
    if let Outcome::Failed(failure) = conversation.outcome {
        return Err(format!("a trial of `state` {failure}"));
    }
    let per_cent = |share: f64| 100.0 * share;
    match result {
        Some((steps, _)) if steps < PROBE_STEPS => {
            Err(format!("a trial of `state` ended after {steps} of {PROBE_STEPS} steps"))
        }
        Some((_, Some(share))) if share.is_nan() || share < floor => Err(format!(
            "with `state` {:.1} % is planned on the Neural Engine, {:.1} % is the least",
            per_cent(share),
            per_cent(floor)
        )),
        Some((steps, Some(share))) => Ok(format!(
            "`state` ran {steps} steps with {:.1} % planned on the Neural Engine",
            per_cent(share)
        )),
        Some((steps, None)) => Ok(format!("`state` ran {steps} steps")),
        None => Err("a trial of `state` had no result".to_owned()),
    }
}

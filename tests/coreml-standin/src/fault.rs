//! Faults on demand: what Core ML is known to do wrong, one by one.
//!
//! A test injects faults for as long as it holds the guard; a program takes them from the environment variable
//! `COREML_STANDIN_FAULTS`, a list such as `load-fails,prediction-fails:100`, so that workers have them too.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicUsize, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

/// Where a program takes its faults from.
pub const VARIABLE: &str = "COREML_STANDIN_FAULTS";

/// Something that goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// A package cannot be compiled.
    CompileFails,
    /// A compiled model cannot be loaded.
    LoadFails,
    /// Loading does not end while the fault lasts.
    LoadHangs,
    /// A function cannot be asked for by name.
    FunctionRefused,
    /// This prediction fails, the first being 1, and all after it.
    PredictionFails(usize),
    /// Predictions lack their last output.
    OutputMissing,
    /// Outputs are float32 where the description says something else.
    OutputOfOtherType,
    /// Outputs have room after every dimension, not just after rows.
    PaddedEverywhere,
    /// Output backings are proposed in vain.
    BackingsIgnored,
    /// The arrays of inputs are kept after the prediction.
    InputsKept,
    /// Compiling gives neither a result nor an error.
    CompileGivesNothing,
    /// Loading gives neither a result nor an error.
    LoadGivesNothing,
    /// Predictions give neither a result nor an error.
    PredictionGivesNothing,
    /// No state can be made.
    NoState,
    /// A state can be made but its arrays not be had.
    StateNotReadable,
    /// No pixel buffer can be made.
    NoPixelBuffer,
    /// There is no compute plan.
    NoPlan,
    /// The compute plan has no costs.
    NoCosts,
    /// The machine runs hot, to this degree of `NSProcessInfoThermalState`, from the first prediction on.
    Hot(usize),
}

/// Makes a fault from the number after its name.
type Make = fn(usize) -> Fault;

/// Faults by the names that the environment variable has.
const NAMES: &[(&str, Make)] = &[
    ("compile-fails", |_| Fault::CompileFails),
    ("load-fails", |_| Fault::LoadFails),
    ("load-hangs", |_| Fault::LoadHangs),
    ("function-refused", |_| Fault::FunctionRefused),
    ("prediction-fails", Fault::PredictionFails),
    ("output-missing", |_| Fault::OutputMissing),
    ("output-of-other-type", |_| Fault::OutputOfOtherType),
    ("padded-everywhere", |_| Fault::PaddedEverywhere),
    ("backings-ignored", |_| Fault::BackingsIgnored),
    ("inputs-kept", |_| Fault::InputsKept),
    ("compile-gives-nothing", |_| Fault::CompileGivesNothing),
    ("load-gives-nothing", |_| Fault::LoadGivesNothing),
    ("prediction-gives-nothing", |_| Fault::PredictionGivesNothing),
    ("no-state", |_| Fault::NoState),
    ("state-not-readable", |_| Fault::StateNotReadable),
    ("no-pixel-buffer", |_| Fault::NoPixelBuffer),
    ("no-plan", |_| Fault::NoPlan),
    ("no-costs", |_| Fault::NoCosts),
    ("hot", Fault::Hot),
];

/// A word that names no fault.
#[derive(Debug, PartialEq, Eq)]
pub struct UnknownFault(String);

impl fmt::Display for UnknownFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = NAMES.iter().map(|(name, _)| *name).collect();
        write!(f, "there is no fault `{}`; there are {}", self.0, names.join(", "))
    }
}

impl FromStr for Fault {
    type Err = UnknownFault;

    fn from_str(word: &str) -> Result<Fault, UnknownFault> {
        let (name, number) = word.split_once(':').unwrap_or((word, "1"));
        let known = NAMES.iter().find(|(known, _)| *known == name).map(|(_, fault)| fault);
        match (known, number.parse()) {
            (Some(fault), Ok(number)) => Ok(fault(number)),
            _ => Err(UnknownFault(word.to_owned())),
        }
    }
}

static INJECTED: Mutex<Vec<Fault>> = Mutex::new(Vec::new());
static ONE_TEST_AT_A_TIME: Mutex<()> = Mutex::new(());
static PREDICTIONS: AtomicUsize = AtomicUsize::new(0);
static THERMAL_STATE: AtomicIsize = AtomicIsize::new(0);
static LOW_POWER: AtomicBool = AtomicBool::new(false);

/// Faults that last until this is dropped. There is one such guard at a time.
pub struct Injected {
    _alone: MutexGuard<'static, ()>,
}

/// Injects faults, or none: that makes sure that nobody else does.
pub fn inject(faults: &[Fault]) -> Injected {
    let alone = ONE_TEST_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    injected().extend_from_slice(faults);
    PREDICTIONS.store(0, SeqCst);
    Injected { _alone: alone }
}

impl Injected {
    /// Makes more go wrong from now on.
    pub fn add(&self, fault: Fault) {
        PREDICTIONS.store(0, SeqCst);
        injected().push(fault);
    }

    /// Makes all of it right again.
    pub fn mend(&self) {
        injected().clear();
        THERMAL_STATE.store(0, SeqCst);
        LOW_POWER.store(false, SeqCst);
    }

    /// Changes what `NSProcessInfo` says.
    pub fn set_conditions(&self, thermal_state: isize, low_power: bool) {
        THERMAL_STATE.store(thermal_state, SeqCst);
        LOW_POWER.store(low_power, SeqCst);
    }

    /// Predictions since the last fault was injected.
    pub fn predictions(&self) -> usize {
        PREDICTIONS.load(SeqCst)
    }
}

impl Drop for Injected {
    fn drop(&mut self) {
        self.mend();
    }
}

fn injected() -> MutexGuard<'static, Vec<Fault>> {
    INJECTED.lock().unwrap_or_else(PoisonError::into_inner)
}

fn of_environment() -> &'static [Fault] {
    static FAULTS: OnceLock<Vec<Fault>> = OnceLock::new();
    FAULTS.get_or_init(|| {
        let words = std::env::var(VARIABLE).unwrap_or_default();
        let words = words.split(',').filter(|word| !word.is_empty());
        words.map(|word| word.parse().unwrap_or_else(|error| panic!("{VARIABLE}: {error}"))).collect()
    })
}

/// Whether something goes wrong.
pub(crate) fn is_on(fault: Fault) -> bool {
    any(|on| (on == fault).then_some(())).is_some()
}

fn any<T>(mut pick: impl FnMut(Fault) -> Option<T>) -> Option<T> {
    let injected: Vec<Fault> = injected().clone();
    injected.into_iter().chain(of_environment().iter().copied()).find_map(&mut pick)
}

/// Counts a prediction and says whether it fails.
pub(crate) fn prediction_fails() -> bool {
    let number = PREDICTIONS.fetch_add(1, SeqCst) + 1;
    let hot = any(|fault| if let Fault::Hot(degree) = fault { Some(degree) } else { None });
    if let Some(degree) = hot {
        THERMAL_STATE.store(degree as isize, SeqCst);
    }
    any(|fault| matches!(fault, Fault::PredictionFails(first) if number >= first).then_some(())).is_some()
}

/// Waits as long as loading hangs.
pub(crate) fn hang() {
    while is_on(Fault::LoadHangs) {
        thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn thermal_state() -> isize {
    THERMAL_STATE.load(SeqCst)
}

pub(crate) fn is_low_power() -> bool {
    LOW_POWER.load(SeqCst)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_have_names_and_numbers() {
        assert_eq!("prediction-fails:100".parse(), Ok(Fault::PredictionFails(100)));
        assert_eq!("no-costs".parse(), Ok(Fault::NoCosts));
        assert!(
            "no-cost".parse::<Fault>().unwrap_err().to_string().starts_with("there is no fault `no-cost`")
        );
        assert!("hot:very".parse::<Fault>().is_err());
    }
}

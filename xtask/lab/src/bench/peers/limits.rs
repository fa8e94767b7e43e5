//! What the machine can do at most, in the same run: reading, multiply-adds, and the products of well-known libraries.

use anemeter::kernels::probe;
use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::engine::Place;
use super::sample::last_line;
use super::{LIMITS, TASK, THREADS};
use xtask::process::read;

/// Bytes that are read to find how fast memory is: more than caches of ordinary machines hold.
const READ_BYTES: usize = 512 << 20;

/// Limits of one round.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Limits {
    pub(super) machine: Machine,
    /// Products of large fp32 matrices, if Python and its libraries were there to make them.
    pub(super) products: Option<Products>,
}

/// What the probe finds, per second.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Machine {
    pub(super) bytes: f64,
    pub(super) flops: f64,
}

/// Operations per second of a product of two fp32 matrices.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
pub(super) struct Products {
    pub(super) openblas: f64,
    pub(super) torch: f64,
}

impl Products {
    /// The faster library's.
    pub(super) fn best(&self) -> f64 {
        self.openblas.max(self.torch)
    }
}

/// Probes in this process and gives a line of JSON.
pub(super) fn probe() -> Result<String> {
    let limits = probe::limits(THREADS, READ_BYTES)?;
    let machine = Machine { bytes: limits.bytes_per_second, flops: limits.flops_per_second };
    Ok(serde_json::to_string(&machine)?)
}

/// The processor by its own name.
pub(super) fn processor() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    processor_in(&text).unwrap_or("an unnamed processor").to_owned()
}

fn processor_in(cpuinfo: &str) -> Option<&str> {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim())
}

/// Measures them in processes of their own.
pub(super) fn measure(place: &Place<'_>) -> Result<Limits> {
    let [bench, peers] = TASK.map(Into::into);
    let words = [place.worker.clone().into(), bench, peers, LIMITS.into()];
    let machine = last_line(&read(&mut place.command(&words)?)?)?;
    let products =
        products(place).inspect_err(|error| eprintln!("*** fp32 products NOT MEASURED: {error:#} ***")).ok();
    Ok(Limits { machine, products })
}

fn products(place: &Place<'_>) -> Result<Products> {
    let words = place.script("products.py")?;
    last_line(&read(&mut place.command(&words)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_processor_says_its_name() {
        let text = "processor\t: 0\nmodel name\t: Some Processor 9\nflags\t: fma\n";
        assert_eq!(processor_in(text), Some("Some Processor 9"));
        assert_eq!(processor_in("processor\t: 0\n"), None);
    }

    #[test]
    fn the_faster_library_is_the_limit() {
        let products: Products = last_line("{\"openblas\": 2e11, \"torch\": 3e11}\n").unwrap();
        assert_eq!(products.best(), 3e11);
        assert!(last_line::<Products>("{\"openblas\": 2e11}").is_err());
    }
}

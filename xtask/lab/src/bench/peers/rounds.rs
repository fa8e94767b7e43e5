//! The rounds: every engine in a fresh process, one after the other, again and again.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::engine::{ENGINES, Engine, OURS, Place, Ready};
use super::limits::{self, Limits};
use super::ours;
use super::sample::{Sample, Spread};
use crate::busy::with_one_core_busy;
use xtask::process::read;

/// All that was measured.
pub(super) struct Run {
    pub(super) limits: Vec<Limits>,
    pub(super) rows: Vec<Row>,
    /// Whether one core was busy with something else.
    pub(super) is_busy: bool,
    /// Weights that every token of a prompt is multiplied with.
    pub(super) layer_parameters: u64,
}

/// An engine and its samples, or why there are none.
pub(super) struct Row {
    pub(super) title: String,
    pub(super) outcome: Result<Series, String>,
}

/// One sample per round.
pub(super) struct Series {
    pub(super) weight_bytes: u64,
    pub(super) samples: Vec<Sample>,
}

impl Series {
    /// The most that was resident, as a multiple of the weights, in each round.
    pub(super) fn memory(&self) -> Vec<f64> {
        let weights = self.weight_bytes as f64;
        self.samples.iter().map(|sample| sample.peak_bytes as f64 / weights).collect()
    }

    pub(super) fn spread(&self, figure: impl Fn(&Sample) -> f64) -> Spread {
        Spread::of(self.samples.iter().map(figure))
    }
}

impl Run {
    /// Sets the engines up and measures them, with one core busy if asked for. An engine that fails is left out from then on;
    /// this one must not.
    pub(super) fn make(place: &Place<'_>, workload: &Path, rounds: usize, is_busy: bool) -> Result<Run> {
        let mut rows = Vec::new();
        let mut layer_parameters = 0;
        let mut ready = Vec::new();
        for engine in ENGINES {
            let prepared = ours_or(engine, (engine.set_up)(place, engine.weights))?;
            if let (OURS, Ok(Ready { command, .. })) = (engine.name, &prepared) {
                let bundle = command.last().context("a command ends with its model")?;
                layer_parameters = ours::layer_parameters(&PathBuf::from(bundle))?;
            }
            let series = |ready: &Ready| Series { weight_bytes: ready.weight_bytes, samples: Vec::new() };
            let outcome = prepared.as_ref().map(series).map_err(Clone::clone);
            rows.push(Row { title: engine.title(), outcome });
            ready.push(prepared);
        }
        let mut run = Run { limits: Vec::new(), rows, is_busy, layer_parameters };
        with_one_core_busy(is_busy, || run.measure(place, workload, rounds, &ready))?;
        Ok(run)
    }

    /// Measures engines, those that are ready, in so many rounds.
    fn measure(
        &mut self,
        place: &Place<'_>,
        workload: &Path,
        rounds: usize,
        ready: &[Result<Ready, String>],
    ) -> Result<()> {
        for round in 0..rounds {
            println!("\nround {} of {rounds}", round + 1);
            self.limits.push(limits::measure(place)?);
            let mut order: Vec<usize> = (0..ENGINES.len()).collect();
            if round % 2 == 1 {
                order.reverse();
            }
            for at in order {
                let Ok(ready) = &ready[at] else { continue };
                let row = &mut self.rows[at];
                let Ok(series) = &mut row.outcome else { continue };
                match ours_or(&ENGINES[at], sample(place, ready, workload))? {
                    Ok(sample) => {
                        println!("{}", line(&row.title, &sample));
                        series.samples.push(sample);
                    }
                    Err(why) => row.outcome = Err(why),
                }
            }
        }
        Ok(())
    }

    /// The samples of an engine, or why there are none.
    pub(super) fn series(&self, title: &str) -> Result<&Series, String> {
        let row = self.rows.iter().find(|row| row.title == title);
        let row = row.ok_or_else(|| format!("there is no {title}"))?;
        row.outcome.as_ref().map_err(|why| format!("{title}: {why}"))
    }

    /// Engines without samples, and why.
    pub(super) fn missing(&self) -> Vec<String> {
        let missing = self.rows.iter().filter_map(|row| Some((&row.title, row.outcome.as_ref().err()?)));
        missing.map(|(title, why)| format!("{title} NOT MEASURED: {why}")).collect()
    }
}

/// A failure of a peer is its reason to be left out, said loudly, and so is that of one whose file is needed; one of ours is
/// an error.
pub(super) fn ours_or<T>(engine: &Engine, result: Result<T>) -> Result<Result<T, String>> {
    match result {
        Ok(value) => Ok(Ok(value)),
        Err(error) if engine.name == OURS && !error.is::<ours::PeerFailed>() => {
            Err(error.context(engine.title()))
        }
        Err(error) => {
            let why = first_lines(&format!("{error:#}"));
            eprintln!("*** {} NOT MEASURED: {why} ***", engine.title());
            Ok(Err(why))
        }
    }
}

/// A reason that fits into a table: where it begins and where it ends, on one line.
fn first_lines(text: &str) -> String {
    const MOST: usize = 300;
    let flat = text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "/");
    let letters: Vec<char> = flat.chars().collect();
    if letters.len() <= MOST {
        return flat;
    }
    let (begin, end) = (&letters[..MOST / 3], &letters[letters.len() - MOST * 2 / 3..]);
    format!("{} … {}", begin.iter().collect::<String>(), end.iter().collect::<String>())
}

/// One round of an engine that is set up.
pub(super) fn sample(place: &Place<'_>, ready: &Ready, workload: &Path) -> Result<Sample> {
    let mut words = ready.command.clone();
    words.push(workload.into());
    Sample::parse(&read(&mut place.command(&words)?)?)
}

pub(super) fn line(title: &str, sample: &Sample) -> String {
    format!(
        "{title:<24} decode {:6.1}/s, prefill {:6.1}/s, {:5.0} MB, first token after {:6.0} ms",
        sample.decode_speed(),
        sample.prefill_speed(),
        sample.peak_bytes as f64 / 1e6,
        sample.first_token_seconds * 1e3
    )
}

#[cfg(test)]
pub(super) mod testing {
    use super::super::limits::{Machine, Products};
    use super::super::resident::Resident;
    use super::super::sample::testing::sample;
    use super::*;

    fn telling(sample: Sample, heap: u64) -> Sample {
        let resident = Resident {
            weights: 269_000_000,
            program: 4_000_000,
            libraries: 1_000_000,
            heap,
            buffers: 500_000,
        };
        Sample { resident: Some(resident), ..sample }
    }

    /// Two rounds of all engines but ONNX Runtime: ours decode at 100 and 110, peers at 50 and 60.
    pub(in crate::bench::peers) fn run() -> Run {
        let rows = ENGINES.iter().map(|engine| {
            let (first, second) = match engine.name {
                OURS => (
                    telling(sample(100.0, 900.0, 280_000_000, 0.2), 2_000_000),
                    telling(sample(110.0, 1000.0, 290_000_000, 0.3), 3_000_000),
                ),
                _ => (sample(50.0, 600.0, 600_000_000, 0.4), sample(60.0, 700.0, 600_000_000, 0.5)),
            };
            let outcome = match engine.name {
                "ONNX Runtime GenAI" => Err("pip cannot install it".to_owned()),
                _ => Ok(Series { weight_bytes: 269_000_000, samples: vec![first, second] }),
            };
            Row { title: engine.title(), outcome }
        });
        let limits = Limits {
            machine: Machine { bytes: 40e9, flops: 400e9 },
            products: Some(Products { openblas: 250e9, torch: 240e9 }),
        };
        Run { rows: rows.collect(), is_busy: false, limits: vec![limits; 2], layer_parameters: 106_000_000 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_says_why() {
        let run = testing::run();
        assert_eq!(run.missing(), ["ONNX Runtime GenAI int4 NOT MEASURED: pip cannot install it"]);
        assert!(run.series("torch fp32").is_ok());
        assert!(run.series("tinygrad").is_err());
    }

    #[test]
    fn a_failure_of_ours_is_an_error_and_one_of_a_peer_a_reason() {
        let fail = |engine: &Engine| ours_or::<()>(engine, Err(anyhow::anyhow!("no\n| luck")));
        assert_eq!(fail(&ENGINES[0]).unwrap_err().to_string(), "anemeter fp16");
        let peer = ENGINES.iter().find(|engine| engine.name != OURS).unwrap();
        assert_eq!(fail(peer).unwrap().unwrap_err(), "no / luck");
        let without_file = anyhow::anyhow!("there is no npm").context(ours::PeerFailed("Q8_0"));
        let why = ours_or::<()>(&ENGINES[0], Err(without_file)).unwrap().unwrap_err();
        assert_eq!(why, "llama.cpp made no Q8_0 file: there is no npm");
    }

    #[test]
    fn long_reasons_keep_their_end() {
        let text = format!("begin {} end", "x".repeat(1000));
        let short = first_lines(&text);
        assert!(short.starts_with("begin") && short.ends_with("end") && short.chars().count() < 310);
    }
}

//! What decode and prefill cost as sequences grow: a table and a plot.

use std::path::PathBuf;

use anemeter::atomic::write_file;
use anyhow::{Context, Result, ensure};

use super::engine::{ENGINES, Engine, Place, Ready};
use super::plot::{self, Line};
use super::rounds::ours_or;
use super::sample::{Growth, Point, Spread, last_line};
use super::workload::{self, LENGTHS, STEPS};
use xtask::outcome::Outcome;
use xtask::process::read;
use xtask::project::Project;
use xtask::record;

const SHOWN: [&str; 2] = ["anemeter fp16", "llama.cpp F16"];
const IMAGE: &str = "docs/images/growth.svg";

/// An engine's points, each the spread of its rounds.
pub(super) struct Curve {
    title: String,
    points: Vec<(usize, Spread, Spread)>,
}

pub(super) fn run(project: &Project, model: PathBuf, rounds: usize, recorded: bool) -> Result<Outcome> {
    let place = Place::new(project, model, LENGTHS)?;
    let workload = workload::growing(&place)?;
    let shown = ENGINES.iter().filter(|engine| SHOWN.contains(&engine.title().as_str()));
    let mut engines: Vec<(&Engine, Ready, Vec<Growth>)> = Vec::new();
    let mut missing = Vec::new();
    for engine in shown {
        match ours_or(engine, (engine.set_up)(&place, engine.weights))? {
            Ok(ready) => engines.push((engine, ready, Vec::new())),
            Err(why) => missing.push(format!("{} NOT MEASURED: {why}", engine.title())),
        }
    }
    for round in 1..=rounds {
        println!("round {round} of {rounds}");
        for (engine, ready, growths) in &mut engines {
            let mut words = ready.command.clone();
            words.push(workload.clone().into());
            let growth: Growth = last_line(&read(&mut place.command(&words)?)?)?;
            let lengths: Vec<usize> = growth.growth.iter().map(|point| point.length).collect();
            ensure!(lengths == LENGTHS, "{} measured at {lengths:?}", engine.title());
            growths.push(growth);
        }
    }
    let curves: Vec<Curve> =
        engines.iter().map(|(engine, _, growths)| curve(engine.title(), growths)).collect();
    let table = table(&curves) + &missing.iter().map(|line| format!("\n{line}\n")).collect::<String>();
    println!("\n{table}");
    if recorded {
        let svg = draw(&curves)?;
        write_file(&project.root.join(IMAGE), svg.as_bytes()).with_context(|| format!("write {IMAGE}"))?;
        let command = format!("cargo xtask bench peers --growth --rounds {rounds}");
        let text = format!(
            "medians of {rounds} interleaved rounds (range). Decode is the mean of the last {STEPS} tokens up to the \
             length, prefill all that comes before them.\n\n{table}\n![Cost against length]({})\n",
            IMAGE.trim_start_matches("docs/")
        );
        record::write(project, "bench peers --growth", &command, &text)?;
    }
    if !missing.is_empty() {
        return Ok(Outcome::not_checked("growth", &missing.join("\n")));
    }
    Ok(Outcome::Checked(format!("{} lengths in {rounds} rounds", LENGTHS.len())))
}

fn curve(title: String, growths: &[Growth]) -> Curve {
    let of = |at: usize, figure: fn(&Point) -> f64| {
        Spread::of(growths.iter().map(|growth| 1e3 * figure(&growth.growth[at])))
    };
    let point = |(at, &length): (usize, &usize)| {
        (length, of(at, |point| point.decode_seconds), of(at, |point| point.prefill_seconds))
    };
    Curve { title, points: LENGTHS.iter().enumerate().map(point).collect() }
}

fn table(curves: &[Curve]) -> String {
    let mut text =
        "| engine | length | decode, ms per token | prefill, ms | prefill, µs per token |\n".to_owned();
    text += "|---|---|---|---|---|\n";
    for Curve { title, points } in curves {
        for (length, decode, prefill) in points {
            let each = 1e3 * prefill.median / (length - STEPS) as f64;
            text +=
                &format!("| {title} | {length} | {} | {} | {each:.0} |\n", decode.text(1), prefill.text(0));
        }
    }
    text
}

fn draw(curves: &[Curve]) -> Result<String> {
    let lines = |pick: fn(&(usize, Spread, Spread)) -> f64| -> Vec<Line> {
        let points = |curve: &Curve| curve.points.iter().map(|point| (point.0 as f64, pick(point))).collect();
        curves.iter().map(|curve| Line { name: curve.title.clone(), points: points(curve) }).collect()
    };
    plot::pair(
        ("decode, ms per token", &lines(|point| point.1.median)),
        ("prefill, ms", &lines(|point| point.2.median)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curves() -> Vec<Curve> {
        let growth = |factor: f64| {
            let point = |&length: &usize| Point {
                length,
                decode_seconds: factor * 0.01,
                prefill_seconds: factor * length as f64 * 1e-3,
            };
            Growth { growth: LENGTHS.iter().map(point).collect() }
        };
        SHOWN.map(|title| curve(title.to_owned(), &[growth(1.0), growth(2.0), growth(1.5)])).into()
    }

    #[test]
    fn each_length_has_its_line() {
        let table = table(&curves());
        assert_eq!(table.lines().count(), 2 + SHOWN.len() * LENGTHS.len());
        assert!(
            table.contains("| anemeter fp16 | 128 | 15.0 (10.0–20.0) | 192 (128–256) | 1714 |"),
            "{table}"
        );
    }

    #[test]
    fn the_plot_shows_both_engines_and_both_costs() {
        let svg = draw(&curves()).unwrap();
        for text in ["anemeter fp16", "llama.cpp F16", "decode, ms per token", "prefill, ms", "2000"] {
            assert!(svg.contains(text), "{text}");
        }
        assert!(svg.starts_with("<svg ") && !svg.contains("NaN"));
    }
}

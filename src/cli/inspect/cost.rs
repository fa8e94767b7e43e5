//! `anemeter inspect --cost`: FLOPs, bytes and the fastest that memory allows.

use std::str::FromStr;

use serde::Serialize;

use crate::cli::units::{Bytes, Count};
use crate::cli::{Failure, Output, Result};
use crate::cost::{self, Bandwidth, Bound, FunctionCost};
use crate::graph;
use crate::hardware::Profiles;
use crate::mil::verify;
use crate::package::Package;
use crate::render::Table;

/// Kinds of operations shown per function.
const SHOWN: usize = 6;

/// What a package costs.
#[derive(Serialize)]
pub(super) struct Costs {
    schema: &'static str,
    basis: &'static str,
    package: String,
    functions: Vec<Bounded>,
}

#[derive(Serialize)]
struct Bounded {
    #[serde(flatten)]
    cost: FunctionCost,
    bounds: Vec<Bound>,
}

/// A bandwidth on the command line: `M4=64`, in GB/s.
#[derive(Clone)]
pub(super) struct GivenBandwidth(Bandwidth);

impl FromStr for GivenBandwidth {
    type Err = String;

    fn from_str(text: &str) -> Result<GivenBandwidth, String> {
        let (chip, figure) = text.split_once('=').ok_or("should be CHIP=GB/s, such as M4=64")?;
        let figure: f64 = figure.parse().map_err(|_| format!("`{figure}` is not a number of GB/s"))?;
        if !(figure.is_finite() && figure > 0.0) || chip.is_empty() {
            return Err("should be CHIP=GB/s with a positive number".to_owned());
        }
        let source = "given on the command line".to_owned();
        Ok(GivenBandwidth(Bandwidth { chip: chip.to_owned(), bytes_per_second: figure * 1e9, source }))
    }
}

impl Costs {
    pub(super) fn of(package: &Package, chips: &[GivenBandwidth]) -> Result<Costs> {
        if let Some(fault) = verify::structure(package.model()).into_iter().next() {
            return Err(Failure::at(package.path(), fault));
        }
        let chips: Vec<Bandwidth> = match chips {
            [] => listed()?,
            given => given.iter().map(|given| given.0.clone()).collect(),
        };
        let bounded = |graph: graph::Graph<'_>| {
            let cost = cost::of(&graph);
            Bounded { bounds: cost::bounds(&cost, &chips), cost }
        };
        Ok(Costs {
            schema: "anemeter-cost-1",
            basis: "from shapes, not measured",
            package: package.path().display().to_string(),
            functions: graph::graphs(package.model()).map(bounded).collect(),
        })
    }

    pub(super) fn print(&self, out: &mut Output) -> Result<()> {
        out.line("\ncost of one prediction, from shapes and not measured")?;
        let headings =
            ["function", "shape", ">FLOPs", ">weights read", ">other bytes", ">FLOPs per byte", "most by"];
        let mut table = Table::new(&headings);
        for Bounded { cost, .. } in &self.functions {
            let most: Vec<&str> = cost.kinds.iter().take(SHOWN).map(|entry| entry.kind.as_str()).collect();
            table.row([
                cost.function.clone(),
                cost.shape.clone().unwrap_or_default(),
                Count(cost.total.flops).to_string(),
                Bytes(cost.total.weight_bytes).to_string(),
                Bytes(cost.total.activation_bytes).to_string(),
                format!("{:.2}", cost.intensity),
                most.join(" "),
            ]);
        }
        out.text(table.indented(2))?;
        self.print_bounds(out)
    }

    /// Bounds of functions that take one token, which is where memory decides, or else of all; at the default shape,
    /// because weights are the same at every one.
    fn print_bounds(&self, out: &mut Output) -> Result<()> {
        let mut shown: Vec<&Bounded> = Vec::new();
        for function in self.functions.iter().filter(|function| function.cost.total.weight_bytes > 0) {
            if shown.iter().all(|of| of.cost.function != function.cost.function) {
                shown.push(function);
            }
        }
        if shown.iter().any(|function| function.cost.tokens == Some(1)) {
            shown.retain(|function| function.cost.tokens == Some(1));
        }
        if shown.iter().all(|function| function.bounds.is_empty()) {
            return Ok(());
        }
        out.line("\nat most, if every weight is read once per prediction")?;
        let mut table = Table::new(&["function", "chip", ">GB/s", ">predictions/s", ">tokens/s", "source"]);
        let figure = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.1}"));
        for Bounded { cost, bounds } in shown {
            for bound in bounds {
                table.row([
                    cost.function.clone(),
                    bound.chip.clone(),
                    format!("{:.0}", bound.bytes_per_second / 1e9),
                    figure(bound.predictions_per_second),
                    figure(bound.tokens_per_second),
                    bound.source.clone(),
                ]);
            }
        }
        out.text(table.indented(2))
    }
}

/// The chips of the hardware profiles: what their Neural Engine was seen to read, or else what the whole chip can.
fn listed() -> Result<Vec<Bandwidth>> {
    let profiles = Profiles::built_in()?;
    let mut chips: Vec<Bandwidth> = Vec::new();
    for profile in profiles.listed() {
        let Some(name) = &profile.chip else { continue };
        let engine = profile.ane_bandwidth.as_ref().map(|listed| (format!("{name}, Neural Engine"), listed));
        let whole = profile.memory_bandwidth.as_ref().map(|listed| (format!("{name}, whole chip"), listed));
        let Some((chip, listed)) = engine.or(whole) else { continue };
        if chips.iter().all(|known| known.chip != chip) {
            let source = listed.source.clone();
            chips.push(Bandwidth { chip, bytes_per_second: listed.gb_per_s * 1e9, source });
        }
    }
    Ok(chips)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_listed_chip_has_one_figure_with_its_source() {
        let chips = listed().unwrap();
        let find = |name: &str| chips.iter().find(|chip| chip.chip == name).unwrap();
        assert_eq!(find("Apple M1 Max, Neural Engine").bytes_per_second, 55e9);
        assert_eq!(find("Apple M1 Pro, whole chip").bytes_per_second, 200e9);
        let mut names: Vec<&str> = chips.iter().map(|chip| chip.chip.as_str()).collect();
        names.dedup();
        assert_eq!(names.len(), chips.len());
        assert!(chips.iter().all(|chip| !chip.source.is_empty()));
    }

    #[test]
    fn bandwidths_are_a_chip_and_a_figure() {
        let given: GivenBandwidth = "M4 Pro=126".parse().unwrap();
        assert_eq!((given.0.chip.as_str(), given.0.bytes_per_second), ("M4 Pro", 126e9));
        for wrong in ["M4", "M4=", "M4=fast", "=64", "M4=0", "M4=inf"] {
            assert!(wrong.parse::<GivenBandwidth>().is_err(), "{wrong}");
        }
    }
}

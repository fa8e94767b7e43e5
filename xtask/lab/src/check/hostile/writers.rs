//! Commands that write, with and without something in the place: what they leave is old or new, whatever happens.

use std::fs;
use std::path::Path;
use std::process::Command;

use anemeter::bundle::Bundle;
use anemeter::package::Package;
use anemeter::report::Report;
use anyhow::{Context, Result, bail};

use super::scene::{Scene, copy};

/// A command that writes to `out` in a folder of its own.
pub(super) struct Writer {
    pub(super) name: &'static str,
    arguments: fn(&Scene) -> String,
    /// Whether something is there before.
    replaces: bool,
    whole: fn(&Scene, &Path) -> Result<()>,
}

/// What is in the place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Empty,
    Whole,
}

const fn writer(
    name: &'static str,
    arguments: fn(&Scene) -> String,
    replaces: bool,
    whole: fn(&Scene, &Path) -> Result<()>,
) -> Writer {
    Writer { name, arguments, replaces, whole }
}

fn path(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn export(scene: &Scene) -> String {
    format!("export {} -o out --shapes 16 --overwrite --quiet", path(&scene.checkpoint))
}

fn compress(scene: &Scene) -> String {
    format!("compress {} -o out --precision int8 --overwrite", path(&scene.package))
}

fn bench(scene: &Scene) -> String {
    let (bundle, workload) = (path(&scene.bundle), path(&scene.workload));
    format!("bench {bundle} --workload {workload} --runtime cpu -o out --force --quiet")
}

fn bless(scene: &Scene) -> String {
    format!("bless {} --baselines out --scratch", path(&scene.report))
}

fn report(scene: &Scene) -> String {
    format!("report {} --format html -o out", path(&scene.report))
}

pub(super) const WRITERS: &[Writer] = &[
    writer("export", export, false, whole_bundle),
    writer("export over a bundle", export, true, whole_bundle),
    writer("compress", compress, false, whole_package),
    writer("compress over a package", compress, true, whole_package),
    writer("bench", bench, false, whole_report),
    writer("bench over a report", bench, true, whole_report),
    writer("bless", bless, false, whole_store),
    writer("bless into a store", bless, true, whole_store),
    writer("report", report, false, whole_page),
    writer("report over a page", report, true, whole_page),
];

fn whole_bundle(_: &Scene, out: &Path) -> Result<()> {
    let bundle = Bundle::open(out)?;
    for chunk in &bundle.manifest().chunks {
        Package::open(bundle.path(&chunk.file.name))?;
    }
    Ok(())
}

fn whole_package(_: &Scene, out: &Path) -> Result<()> {
    Package::open(out)?;
    Ok(())
}

fn whole_report(_: &Scene, out: &Path) -> Result<()> {
    // The folder comes first, its files each as a whole.
    if out.join("report.json").exists() {
        Report::read(&out.join("report.json"))?;
    }
    Ok(())
}

/// A store in which nothing is found to be wrong; one that is not there yet is empty.
fn whole_store(scene: &Scene, out: &Path) -> Result<()> {
    let json = fs::read_dir(out)?.filter_map(Result::ok).any(|entry| entry.path().is_dir());
    if !json {
        return Ok(());
    }
    let audit =
        Command::new(&scene.program).args(["baselines", "verify", "--baselines"]).arg(out).output()?;
    match audit.status.success() {
        true => Ok(()),
        false => {
            bail!("{}{}", String::from_utf8_lossy(&audit.stdout), String::from_utf8_lossy(&audit.stderr))
        }
    }
}

fn whole_page(_: &Scene, out: &Path) -> Result<()> {
    let page = fs::read_to_string(out)?;
    match page.trim_end().ends_with("</html>") {
        true => Ok(()),
        false => bail!("the page has no end"),
    }
}

impl Writer {
    /// The command, started in a folder.
    pub(super) fn command(&self, scene: &Scene, folder: &Path) -> Command {
        let mut command = Command::new(&scene.program);
        let arguments = (self.arguments)(scene);
        command.current_dir(folder).args(arguments.split(' ')).env_remove("GITHUB_ACTIONS");
        command
    }

    /// Puts into a folder what is there before: nothing, or what the command made once.
    pub(super) fn prepare(&self, folder: &Path, made: &Path) -> Result<()> {
        if !self.replaces {
            return Ok(());
        }
        match made.is_dir() {
            true => copy(made, &folder.join("out")),
            false => fs::copy(made, folder.join("out")).map(drop).context("copy what was made"),
        }
    }

    /// What is in the place; something that is neither old nor new is an error.
    pub(super) fn place(&self, scene: &Scene, folder: &Path) -> Result<Place> {
        let out = folder.join("out");
        if out.symlink_metadata().is_err() {
            return if self.replaces {
                bail!("{}: neither old nor new is there", self.name)
            } else {
                Ok(Place::Empty)
            };
        }
        (self.whole)(scene, &out).with_context(|| format!("{}: half of it is there", self.name))?;
        Ok(Place::Whole)
    }
}

/// Names of unfinished content in a folder.
pub(super) fn leftovers(folder: &Path) -> Result<Vec<String>> {
    let names = fs::read_dir(folder)?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    Ok(names.filter(|name| name.ends_with(".anemeter-tmp") || name.ends_with(".anemeter-old")).collect())
}

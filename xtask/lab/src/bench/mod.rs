//! `cargo xtask bench WHAT`: measurements, most of them judged by targets.

mod auto;
mod build;
mod commits;
mod compress;
mod decode;
mod export;
mod history;
mod overhead;
mod package;
mod peers;
mod quality;

use crate::Task;

pub(crate) const TASKS: &[Task] = &[
    ("auto", auto::run),
    ("build", build::run),
    ("commits", commits::run),
    ("compress", compress::run),
    ("decode", decode::run),
    ("export", export::run),
    ("history", history::run),
    ("overhead", overhead::run),
    ("package", package::run),
    ("peers", peers::run),
    ("quality", quality::run),
];

//! Statistics of measurements: pure functions of numbers, no clock, no files, no chance that a seed does not fix.
//!
//! Percentiles are of type 7 on slow-oriented logarithms: the p95 of a time is its slow tail, and so is the p95 of a
//! rate. The launch is the unit of every interval: requests inside one launch are correlated.

mod change_point;
mod cosine;
mod divergence;
mod extremes;
mod interval;
mod location;
mod median;
mod mix;
mod quantile;
mod randomise;
mod shift;
mod slope;
mod summary;
mod tail;
mod unit;

pub use change_point::{ChangePoint, SHORTEST as SHORTEST_SEGMENT, change_points};
pub use cosine::cosine;
pub use divergence::{kl_divergence, negative_log_likelihood};
pub use extremes::least;
pub use interval::{Interval, launch_interval, mean_interval, students_t};
pub use location::{Location, locate};
pub use median::{median, spread};
pub use mix::{Mix, mix};
pub use quantile::{Ordered, Percentile};
pub use randomise::{BLOCK, Orders, family_probabilities};
pub use shift::{ExtraVariance, Shift, one_sided_t};
pub use slope::{Slope, theil_sen};
pub use summary::{Percentiles, Summary, summarise};
pub use tail::{centre, launch_medians, launch_tails, pooled_tails};
pub use unit::{Direction, Unit};

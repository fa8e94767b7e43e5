//! Series as other tools read them.

mod bencher;
mod benchmark_action;
mod otava_csv;

pub use bencher::bencher;
pub use benchmark_action::benchmark_action;
pub use otava_csv::otava_csv;

use super::Series;

/// What a series is called where there is one name for everything.
fn full_name(series: &Series) -> String {
    format!("{}/{}/{}/{}", series.profile, series.model, series.workload, at(series))
}

/// Where a series holds, `launch` for metrics of whole launches.
fn at(series: &Series) -> &str {
    series.place.as_deref().unwrap_or("launch")
}

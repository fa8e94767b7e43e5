//! Energy of the machine, where the system tells it without special rights.

use anemeter_base::hardware::Source;

const ZONES: &str = "/sys/class/powercap";

/// Joules that all processor packages have used since some fixed moment.
pub(super) fn joules(source: &dyn Source) -> Option<f64> {
    // Packages are `intel-rapl:0`; what has a second colon is a part of one.
    let packages = source.names(ZONES).into_iter().filter(|zone| zone.matches(':').count() == 1);
    let microjoules: Option<Vec<f64>> = packages
        .map(|zone| source.file(&format!("{ZONES}/{zone}/energy_uj"))?.trim().parse::<f64>().ok())
        .collect();
    microjoules.filter(|all| !all.is_empty()).map(|all| all.iter().sum::<f64>() / 1e6)
}

/// Joules per token between two readings; `None` if a counter ran over or nothing was generated.
pub(super) fn per_token(before: Option<f64>, after: Option<f64>, tokens: usize) -> Option<f64> {
    let used = after? - before?;
    (used >= 0.0 && tokens > 0).then(|| used / tokens as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Zones(Vec<(&'static str, Option<&'static str>)>);

    impl Source for Zones {
        fn file(&self, path: &str) -> Option<String> {
            let zone = path.strip_prefix(ZONES)?.trim_start_matches('/').strip_suffix("/energy_uj")?;
            self.0.iter().find(|(name, _)| *name == zone)?.1.map(str::to_owned)
        }

        fn names(&self, _: &str) -> Vec<String> {
            self.0.iter().map(|(name, _)| (*name).to_owned()).collect()
        }

        fn command(&self, _: &str, _: &[&str]) -> Option<String> {
            None
        }
    }

    #[test]
    fn packages_add_up_and_their_parts_do_not_count_twice() {
        let zones = Zones(vec![
            ("intel-rapl", None),
            ("intel-rapl:0", Some("1500000\n")),
            ("intel-rapl:0:0", Some("900000\n")),
            ("intel-rapl:1", Some("500000\n")),
        ]);
        assert_eq!(joules(&zones), Some(2.0));
    }

    #[test]
    fn what_may_not_be_read_is_absent() {
        assert_eq!(joules(&Zones(vec![("intel-rapl:0", None)])), None);
        assert_eq!(joules(&Zones(vec![])), None);
        assert_eq!(per_token(Some(1.0), Some(3.0), 4), Some(0.5));
        assert_eq!(per_token(Some(3.0), Some(1.0), 4), None);
        assert_eq!(per_token(Some(1.0), Some(3.0), 0), None);
        assert_eq!(per_token(None, Some(3.0), 4), None);
    }
}

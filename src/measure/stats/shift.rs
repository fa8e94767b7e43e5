//! How far one arm of launches lies from another: a Huberised two-sample t.
//!
//! ```text
//! d = c[1] - c[0]         se = sqrt(v / n[0] + v / n[1] + e)         d -+ t(nu) * se
//! ```
//!
//! `c` and `v` are the centres and the pooled variance of `location.rs`, on logarithms: `exp(d) - 1` is the relative
//! change. `e` is an extra variance that launches of one session cannot show, such as that between sessions. Where `e`
//! was measured, the degrees of freedom `nu` are Welch-Satterthwaite's (F. E. Satterthwaite, Biometrics Bulletin 2, 1946).

use statrs::distribution::{ContinuousCDF, StudentsT};

use super::location::{Location, locate};

/// A difference of centres on a logarithmic scale, with what is known of its error.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shift {
    /// The second arm's centre less the first's.
    pub estimate: f64,
    /// The first arm's centre.
    pub origin: f64,
    /// Variance of one launch around its arm's centre.
    pub launch_variance: f64,
    /// Degrees of freedom of that variance.
    pub launch_degrees: f64,
    /// Launches of each arm.
    pub launches: [usize; 2],
    /// What is added to the squared error besides launches.
    pub extra_variance: ExtraVariance,
}

/// A variance that launches of one session cannot show.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ExtraVariance {
    /// Added to the squared error.
    pub variance: f64,
    /// Its degrees of freedom if it was measured; taken as known otherwise.
    pub degrees: Option<f64>,
}

impl Shift {
    /// From the first arm to the second; `None` where [`locate`] gives none.
    pub fn between(first: &[f64], second: &[f64]) -> Option<Shift> {
        let location = locate([first, second])?;
        Some(Shift::of(&location, [first.len(), second.len()]))
    }

    pub(super) fn of(location: &Location<2>, launches: [usize; 2]) -> Shift {
        Shift {
            estimate: location.centres[1] - location.centres[0],
            origin: location.centres[0],
            launch_variance: location.variance,
            launch_degrees: location.degrees,
            launches,
            extra_variance: ExtraVariance::default(),
        }
    }

    /// The same with a variance added to its squared error.
    pub fn with_extra_variance(self, extra_variance: ExtraVariance) -> Shift {
        Shift { extra_variance, ..self }
    }

    /// The same as it would be expected with other numbers of launches.
    pub fn with_launches(self, launches: [usize; 2]) -> Shift {
        // The part of the degrees of freedom that clipping took stays the same.
        let spare = |launches: [usize; 2]| (launches[0] + launches[1]) as f64 - 2.0;
        let launch_degrees = self.launch_degrees * spare(launches) / spare(self.launches).max(1.0);
        Shift { launches, launch_degrees, ..self }
    }

    /// Variance of the estimate that comes from launches.
    fn variance_of_launches(&self) -> f64 {
        self.launches.map(|count| self.launch_variance / count as f64).iter().sum()
    }

    /// Standard error of the estimate.
    pub fn error(&self) -> f64 {
        (self.variance_of_launches() + self.extra_variance.variance).sqrt()
    }

    /// The estimate in standard errors.
    pub fn t(&self) -> f64 {
        self.estimate / self.error()
    }

    /// Degrees of freedom of the error, by Satterthwaite where two variances were measured.
    pub fn degrees(&self) -> f64 {
        let ExtraVariance { variance, degrees: Some(degrees) } = self.extra_variance else {
            return self.launch_degrees;
        };
        let launches = self.variance_of_launches();
        (launches + variance).powi(2) / (launches.powi(2) / self.launch_degrees + variance.powi(2) / degrees)
    }

    /// The true shift is below this, but for a chance of `tail`.
    pub fn upper(&self, tail: f64) -> f64 {
        self.estimate + self.reach(tail)
    }

    /// The true shift is above this, but for a chance of `tail`.
    pub fn lower(&self, tail: f64) -> f64 {
        self.estimate - self.reach(tail)
    }

    /// How often no shift at all would look like this one or worse.
    pub fn tail_probability(&self) -> f64 {
        // Without degrees of freedom nothing is significant.
        StudentsT::new(0.0, 1.0, self.degrees()).map_or(1.0, |t| t.sf(self.t()))
    }

    fn reach(&self, tail: f64) -> f64 {
        one_sided_t(tail, self.degrees()) * self.error()
    }
}

/// How many standard errors leave a chance of `tail` beyond them; infinite where that is not defined.
pub fn one_sided_t(tail: f64, degrees: f64) -> f64 {
    match StudentsT::new(0.0, 1.0, degrees) {
        Ok(t) if tail > 0.0 && tail < 1.0 => -t.inverse_cdf(tail),
        _ => f64::INFINITY,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tabled_values_of_one_sided_t() {
        for (tail, degrees, expected) in
            [(0.05, 18.0, 1.734), (0.005, 10.0, 3.169), (0.000_5, 30.0, 3.646), (0.000_5, 4.0, 8.610)]
        {
            let found = one_sided_t(tail, degrees);
            assert!((found - expected).abs() < 2e-3, "{tail} {degrees} {found}");
        }
        assert_eq!(one_sided_t(0.05, 0.0), f64::INFINITY);
        assert_eq!(one_sided_t(0.0, 5.0), f64::INFINITY);
    }

    #[test]
    fn a_shift_and_its_bounds() {
        let first = [0.00, 0.01, 0.02, 0.03, 0.04];
        let second = first.map(|y| y + 0.05);
        let shift = Shift::between(&first, &second).unwrap();
        assert!((shift.estimate - 0.05).abs() < 1e-12);
        assert!((shift.error() - 0.01).abs() < 1e-12);
        assert_eq!(shift.degrees(), 8.0);
        assert!((shift.upper(0.05) - 0.05 - 1.8595 * 0.01).abs() < 1e-5);
        assert!((shift.lower(0.05) - 0.05 + 1.8595 * 0.01).abs() < 1e-5);
        assert!((shift.tail_probability() - 0.000_526).abs() < 1e-5, "{}", shift.tail_probability());
    }

    #[test]
    fn a_charge_widens_and_a_measured_one_costs_degrees() {
        let shift = Shift::between(&[0.0, 0.01, 0.02, 0.03], &[0.0, 0.01, 0.02, 0.03]).unwrap();
        let known = shift.with_extra_variance(ExtraVariance { variance: 1e-4, degrees: None });
        let measured = shift.with_extra_variance(ExtraVariance { variance: 1e-4, degrees: Some(4.0) });
        assert!(known.error() > shift.error() && known.degrees() == shift.degrees());
        assert!(measured.degrees() < 10.0 && measured.degrees() > 4.0);
    }

    #[test]
    fn more_launches_narrow_it() {
        let shift = Shift::between(&[0.0, 0.01, 0.02, 0.03], &[0.0, 0.01, 0.02, 0.03]).unwrap();
        let more = shift.with_launches([8, 8]);
        assert!((more.error() * 2f64.sqrt() - shift.error()).abs() < 1e-12);
        assert_eq!((shift.degrees(), more.degrees()), (6.0, 14.0));
    }
}

//! What the operating system tells a process, in plain words.

/// The version of the system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OsVersion {
    /// As the system says it, such as `Version 15.2 (Build 24C101)`.
    pub text: String,
    /// The number before the first dot.
    pub major: Option<u32>,
    /// The build, such as `24C101`; the whole text where there is none.
    pub build: String,
}

impl OsVersion {
    /// Reads what the system says.
    pub fn parse(text: &str) -> OsVersion {
        let after = |word: &str| text.split_once(word).map(|(_, rest)| rest);
        let digits = after("Version ").map(|rest| rest.split(|c: char| !c.is_ascii_digit()).next());
        let build = after("(Build ").and_then(|rest| rest.split(')').next());
        OsVersion {
            text: text.to_owned(),
            major: digits.flatten().and_then(|digits| digits.parse().ok()),
            build: build.unwrap_or(text).to_owned(),
        }
    }
}

/// How hot the machine is, as far as it limits itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Thermal {
    /// As it should be.
    Nominal,
    /// Slightly hot.
    Fair,
    /// So hot that it slows down.
    Serious,
    /// So hot that it has to slow down a lot.
    Critical,
}

/// The state of the system at a moment. What it does not tell is absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SystemState {
    /// How hot it is.
    pub thermal: Option<Thermal>,
    /// Whether it saves power at the cost of speed.
    pub low_power_mode: Option<bool>,
}

/// The state of the system now.
#[cfg(any(target_os = "macos", coreml_standin))]
pub fn system_state() -> SystemState {
    super::coreml::observe()
}

/// The state of the system now, of which this one tells nothing.
#[cfg(not(any(target_os = "macos", coreml_standin)))]
pub fn system_state() -> SystemState {
    SystemState::default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_and_build_are_found() {
        let version = OsVersion::parse("Version 15.2 (Build 24C101)");
        assert_eq!((version.major, version.build.as_str()), (Some(15), "24C101"));
        let odd = OsVersion::parse("Something else");
        assert_eq!((odd.major, odd.build.as_str()), (None, "Something else"));
        assert_eq!(OsVersion::parse("Version 99999999999 (Build").major, None);
    }
}

//! Classes of checkpoints that a check has not seen often enough.

use std::collections::BTreeMap;

/// Configurations that every class is checked with at least.
const CONFIGURATIONS: usize = 2;

/// The known classes of which there are too few among those that were found, each with how many there are.
pub(super) fn too_few<'a>(
    known: impl Iterator<Item = &'static str>,
    found: impl Iterator<Item = &'a str>,
) -> Vec<String> {
    let mut counts: BTreeMap<&str, usize> = known.map(|class| (class, 0)).collect();
    for class in found {
        if let Some(count) = counts.get_mut(class) {
            *count += 1;
        }
    }
    let few = counts.into_iter().filter(|(_, count)| *count < CONFIGURATIONS);
    few.map(|(class, count)| format!("{class} ({count} of {CONFIGURATIONS} configurations)")).collect()
}

#[cfg(test)]
mod tests {
    use super::too_few;

    #[test]
    fn a_class_with_fewer_configurations_than_wanted_is_named() {
        let few = |found: &[&str]| too_few(["A", "B"].into_iter(), found.iter().copied());
        assert_eq!(few(&["A", "B", "B", "A", "C"]), Vec::<String>::new());
        assert_eq!(few(&["B", "B", "A"]), ["A (1 of 2 configurations)"]);
        assert_eq!(few(&["A", "A"]), ["B (0 of 2 configurations)"]);
    }
}

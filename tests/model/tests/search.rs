//! The table in the size of a test, except the part that `given_up.rs` searches. It ends at the first configuration that breaks a rule, and
//! prints the way there.
//!
//! `cargo test --profile model -p leasehold-model`; without optimisation it takes half an hour.

use leasehold_model::{Rule, Size, beyond_assumptions, check, configurations, patient};

/// Two tests, for two cores.
#[test]
fn no_configuration_breaks_a_rule() {
    search(0);
}

#[test]
fn nor_does_any_of_the_other_half() {
    search(1);
}

fn search(half: usize) {
    for configuration in patient(Size::Test).iter().skip(half).step_by(2) {
        let report = check(configuration, 1);
        assert!(report.finding.is_none() && report.to_the_end, "{report}");
    }
}

/// Who sees nothing in a world that is broken on purpose would see nothing in the others.
#[test]
fn a_broken_world_is_caught() {
    let expected = [
        Rule::EffectsInOrder,
        Rule::EffectsInOrder,
        Rule::TakeoverNeedsEvidence,
        Rule::OneBeliever,
        Rule::AbsenceIsFinal,
        Rule::TakeoverNeedsEvidence,
        Rule::OneBeliever,
        Rule::TakeoverNeedsEvidence,
    ];
    assert_eq!(beyond_assumptions().len(), expected.len(), "each broken world has its rule");
    for (configuration, rule) in beyond_assumptions().iter().zip(expected) {
        let report = check(configuration, 1);
        let broken = report.finding.as_ref().map_or(&[][..], |finding| &finding.rules);
        assert!(broken.contains(&rule), "{rule} is not seen to be broken: {report}");
    }
}

#[test]
fn names_differ() {
    for size in [Size::Test, Size::Full] {
        let mut names: Vec<_> = configurations(size).iter().map(|configuration| configuration.name).collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all, "two configurations have one name");
    }
}

//! The part of the table in which requests are given up while the store fails, in the size of a test. Mutants of the code that repeats a
//! failed attempt run only these tests.

use leasehold_model::{Configuration, Size, check, given_up};

#[test]
fn places() {
    hold(&given_up::places(Size::Test));
}

#[test]
fn upgrades() {
    hold(&given_up::upgrades(Size::Test));
}

#[test]
fn thefts() {
    hold(&given_up::thefts(Size::Test));
}

#[test]
fn ranks() {
    hold(&given_up::ranks(Size::Test));
}

#[test]
fn several_keys() {
    hold(&given_up::several_keys(Size::Test));
}

fn hold(configurations: &[Configuration]) {
    for configuration in configurations {
        let report = check(configuration, 1);
        assert!(report.finding.is_none() && report.to_the_end, "{report}");
    }
}

//! The tests that are to notice, by where they are. Whoever renames or moves tests changes this file only.

use std::fmt;

/// Some of the crate's tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Suite {
    /// Random operations against the rules of the record.
    Properties,
    /// Random histories in a simulated world of this kind.
    Histories(&'static str),
    /// Simulated scenarios whose name contains this.
    Scenario(&'static str),
    /// The tests on tokio whose names contain this.
    Tokio(&'static str),
    /// The machine's own tests of one rule: inputs and outputs in a fixed order.
    Rule(&'static str),
    /// The tests of what a store does: one batch after the other.
    Store(&'static str),
    /// The test of this name in the model's `given_up.rs`.
    Model(&'static str),
}

impl Suite {
    /// What `cargo test` builds for it.
    pub(crate) fn target(self) -> &'static [&'static str] {
        const CORE: &[&str] = &["--features", "tokio,test-util", "--lib"];
        const PROPERTIES: &[&str] = &["--features", "tokio,test-util", "--test", "properties"];
        const SCENARIOS: &[&str] = &["--features", "tokio,test-util", "--test", "scenarios"];
        const MODEL: &[&str] = &["--profile", "model", "-p", "leasehold-model", "--test", "given_up"];
        const TOKIO: &[&str] = &["--features", "tokio,test-util", "--test", "tokio"];
        match self {
            Self::Properties => PROPERTIES,
            Self::Tokio(_) => TOKIO,
            Self::Model(_) => MODEL,
            Self::Histories(_) | Self::Scenario(_) => SCENARIOS,
            Self::Rule(_) | Self::Store(_) => CORE,
        }
    }

    /// The workshop in which it is built. Mutants of two workshops are tested side by side: neither rebuilds what the other changed.
    pub const fn workshop(self) -> &'static str {
        match self {
            Self::Rule(_) | Self::Store(_) | Self::Model(_) => "core",
            Self::Properties | Self::Histories(_) | Self::Scenario(_) | Self::Tokio(_) => "scenarios",
        }
    }

    /// Which of the tests in there run.
    pub(crate) fn filter(self) -> String {
        match self {
            Self::Properties => "forged::".to_owned(),
            Self::Histories(kind) => format!("histories::{kind}"),
            Self::Scenario(name) | Self::Tokio(name) | Self::Model(name) => name.to_owned(),
            Self::Rule(name) => format!("machine::context::machine_tests::{name}"),
            Self::Store(name) => format!("machine::record::{name}"),
        }
    }

    /// What they are told. The same seeds each time, or a mutant would be caught on some days only.
    pub(crate) fn environment(self) -> Vec<(&'static str, &'static str)> {
        match self {
            Self::Properties => {
                vec![("PROPTEST_RNG_SEED", "1"), ("PROPTEST_CASES", "256"), ("PROPTEST_MAX_SHRINK_ITERS", "0")]
            }
            Self::Histories(_) => vec![("HISTORIES", "400")],
            Self::Scenario(_) | Self::Tokio(_) | Self::Rule(_) | Self::Store(_) | Self::Model(_) => Vec::new(),
        }
    }
}

impl fmt::Display for Suite {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Properties => out.write_str("properties"),
            Self::Histories(kind) => write!(out, "histories {kind}"),
            Self::Scenario(name) => write!(out, "scenario {name}"),
            Self::Tokio(name) => write!(out, "tokio test {name}"),
            Self::Rule(name) => write!(out, "machine test {name}"),
            Self::Store(name) => write!(out, "store test {name}"),
            Self::Model(name) => write!(out, "model {name}"),
        }
    }
}

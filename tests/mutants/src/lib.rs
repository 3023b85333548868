//! leasehold broken on purpose: each rule of its protocol once at least, in a copy of its source, and the tests that
//! must notice. A search that finds nothing proves something only if it finds what is there.

mod list;
mod run;
mod suite;
mod tree;

pub use list::all;
pub use run::{Run, Workshop};
pub use suite::Suite;

/// A change of the source that breaks a promise.
#[derive(Clone, Copy, Debug)]
pub struct Mutant {
    /// What it does wrong.
    pub name: &'static str,
    /// The rule that it breaks.
    pub rule: &'static str,
    /// All are made together.
    pub edits: &'static [Edit],
    /// The tests of which one must fail.
    pub caught_by: Suite,
    /// Whether it makes them wait for ever: then a time-out is what is expected.
    pub hangs: bool,
    /// What is to be known of it besides.
    pub note: &'static str,
}

/// In `file`, `from` becomes `to`.
#[derive(Clone, Copy, Debug)]
pub struct Edit {
    /// Below the crate's folder.
    pub file: &'static str,
    /// It stands there exactly once.
    pub from: &'static str,
    /// What stands there instead.
    pub to: &'static str,
}

impl Mutant {
    const fn new(rule: &'static str, name: &'static str, caught_by: Suite, edits: &'static [Edit]) -> Self {
        Self { name, rule, edits, caught_by, hangs: false, note: "" }
    }

    const fn noting(self, note: &'static str) -> Self {
        Self { note, ..self }
    }
}

const fn edit(file: &'static str, from: &'static str, to: &'static str) -> Edit {
    Edit { file, from, to }
}

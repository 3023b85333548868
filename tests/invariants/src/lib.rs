//! The invariants of every record between two transactions, and of every request for several keys. What a *change* may do is not here: the
//! model, the histories and the properties each judge that themselves, because they see states, commits and single operations.

mod record;
#[cfg(test)]
mod record_tests;
mod several;

pub use record::{Unsound, check, ended_are_gone, head_waits, is_exhausted, rank};
pub use several::Several;

use leasehold::machine::{Action, Mode, Outcome};

/// Whether two may hold a key together: the rule, restated independently of the crate.
pub const fn fit(one: Mode, other: Mode) -> bool {
    matches!((one, other), (Mode::Shared, Mode::Shared))
}

/// Whether an operation with this answer only read the records: it did not even remove what ended sessions left there.
pub const fn only_looks(action: &Action, outcome: &Outcome) -> bool {
    match action {
        Action::Inspect | Action::Fence { .. } => true,
        Action::AcquireAll(_) => {
            matches!(outcome, Outcome::NoSession | Outcome::TooLate | Outcome::UnreadableAt(..))
        }
        _ => false,
    }
}

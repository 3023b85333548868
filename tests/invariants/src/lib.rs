//! What holds of every record between two transactions, whatever happened before, and of every request for several keys. The model, the
//! histories and the properties judge by these functions. Each of them says by itself what a *change* may do, because each sees changes
//! from another side: as states, as commits, or as single operations.

mod record;
mod several;

pub use record::{Unsound, check, ended_are_gone, head_waits, is_exhausted, rank};
pub use several::Several;

use leasehold::machine::{Action, Mode, Outcome};

/// Whether two may hold a key together: the rule, written down anew.
pub const fn fit(one: Mode, other: Mode) -> bool {
    matches!((one, other), (Mode::Shared, Mode::Shared))
}

/// Whether an operation with this answer has looked at the records only, and has not even removed what ended sessions left there.
pub const fn only_looks(action: &Action, outcome: &Outcome) -> bool {
    match action {
        Action::Inspect | Action::Fence { .. } => true,
        Action::AcquireAll(_) => {
            matches!(outcome, Outcome::NoSession | Outcome::TooLate | Outcome::Unreadable(_))
        }
        _ => false,
    }
}

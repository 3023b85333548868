//! Which transactions reserve records in an optimistic store, so that others do not overtake them again and again.

use crate::machine::{Action, Batch};

/// Whether a batch waits for a lease or gives one back, so that it writes whatever it finds. A batch that only tries would often find the
/// key taken and write nothing. Its reservation would stay, and keep the holder from giving the lease back.
pub(super) fn writes_in_any_case(batch: &Batch) -> bool {
    let is_try = |action: &Action| match action {
        Action::Acquire(ask) => !ask.wait,
        Action::AcquireAll(_) => true,
        _ => false,
    };
    let writes = |action: &Action| match action {
        Action::Acquire(ask) => ask.wait,
        Action::Release { .. } | Action::Withdraw { .. } => true,
        _ => false,
    };
    let mut actions = batch.operations.iter().map(|operation| &operation.action);
    actions.clone().any(writes) && !actions.any(is_try)
}

//! Which transactions reserve records in an optimistic store, so that others do not overtake them again and again.

use std::vec::Vec;

use crate::machine::{Action, Batch, Key};

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

/// The keys of a batch that may be reserved, and whose reservations count for it; none if there are more than `most`. Whether a record is
/// forgotten is decided by the way: others' reservations of it do not matter.
pub(super) fn contested(batch: &Batch, most: usize) -> Vec<Key> {
    let mut keys = batch.keys();
    keys.retain(|key| !batch.forgets.contains(key));
    if keys.len() > most {
        keys.clear();
    }
    keys
}

//! What a user's fenced transactions need from the context that holds the lease.

use super::Driver;
use crate::executor::Shared;
use crate::machine::{FenceRefusal, Input, Now, Reply, Slot, StoreId, Ticket, TurnId};
use crate::store::OpenTransaction;

impl Driver {
    /// What the user's transaction must check for this guard; `None` if its lease is lost or released.
    pub(crate) fn ticket(&self, turn: TurnId, slot: &Slot, renew: bool, now: Now) -> Option<Ticket> {
        let mut core = self.core();
        let ticket = core.machine.ticket(turn, slot, renew, now)?;
        if renew {
            self.step(core, Input::Tick);
        }
        Some(ticket)
    }

    /// Whether a user's transaction that found this may commit.
    pub(crate) fn judge(
        &self,
        turn: TurnId,
        slot: &Slot,
        ticket: &Ticket,
        found: (Option<StoreId>, &Reply),
    ) -> Result<(), FenceRefusal> {
        let now = self.executor.now();
        self.core().machine.judge_fence(turn, slot, ticket, found, now)
    }

    /// From now on the transaction that this ticket fences may be open, until [`end_fence`](Self::end_fence).
    pub(crate) fn begin_fence(&self, slot: &Slot, ticket: &Ticket) {
        self.core().machine.begin_fence(slot, ticket);
    }

    pub(crate) fn end_fence(&self, slot: &Slot, ticket: &Ticket) {
        self.core().machine.end_fence(slot, ticket);
    }

    /// Notes an open transaction of the user's, and returns its number.
    pub(crate) fn opened(&self, transaction: Shared<dyn OpenTransaction>) -> u64 {
        self.core().open.add(transaction)
    }

    pub(crate) fn over(&self, place: u64) {
        // Dropped after the lock is released.
        let transaction = self.core().open.remove(place);
        drop(transaction);
    }
}

//! Leases that are taken out of a guard, on their way to another one.

use super::{
    super::{
        Grant, id,
        mode::Mode,
        operation::{Acquire, Outcome},
        session::Session,
        token::Token,
    },
    Transition,
};
use id::{RequestId, SessionId};

impl Transition<'_> {
    /// Moves the grant to a separate session, which nobody renews.
    // Protocol: docs/protocol.md#s15.
    pub(super) fn detach(&mut self, token: Token, request: RequestId, to: SessionId, lease_ms: u64) -> Outcome {
        if self.grant_of(to, token).is_some() {
            return Outcome::Detached;
        }
        // When a lease is resumed, its token stays and its request changes.
        let Some(at) = self.own_grant_of(request, token) else { return self.not_current(token) };
        let instance = self.sessions.own(self.holder).map_or_else(Default::default, |row| row.instance.clone());
        let (heard_at, deadline) = (self.now.wall, self.now.deadline(lease_ms));
        let row = Session { beat: 1, lease_ms, instance, heard_at, deadline, ..Session::default() };
        self.sessions.open(to, row);
        self.record.grants[at].holder = to;
        self.changed();
        Outcome::Detached
    }

    /// Moves the grant to this session and request, and ends the session to which it was detached. A shared grant is not resumed as
    /// exclusive. An exclusive one becomes shared if its guard had downgraded it, because the downgrade may not have been sent. If it is
    /// resumed as shared, the grant itself may be the latest exclusive one, so the new holder is told of every exclusive grant up to now.
    // Protocol: docs/protocol.md#s15.
    pub(super) fn resume(
        &mut self,
        givers: [SessionId; 2],
        token: Token,
        request: RequestId,
        ask: &Acquire,
    ) -> Outcome {
        let is_left = |grant: &Grant| {
            let suits = grant.mode == ask.mode || ask.mode == Mode::Shared;
            suits && givers.contains(&grant.holder) && (grant.block.first, grant.request) == (token, request)
        };
        let Some(at) = self.record.grants.iter().position(is_left) else { return self.not_current(token) };
        let grant = &mut self.record.grants[at];
        let giver = core::mem::replace(&mut grant.holder, self.holder);
        (grant.request, grant.mode, grant.info) = (ask.request, ask.mode, ask.info.clone());
        if ask.mode == Mode::Shared {
            grant.previous = self.record.last_exclusive;
        }
        self.changed();
        if giver == givers[0] {
            self.sessions.end(giver);
        }
        self.adopt(at)
    }
}

//! What one operation did to one record, and what it may do.

use leasehold::machine::{Mode, SessionId};

use crate::port::{Deal, EntryView, RecordView};

/// What one operation did to the record.
pub(crate) struct Change<'a> {
    pub(crate) key: usize,
    pub(crate) by: SessionId,
    pub(crate) deal: Deal,
    /// Whether it was refused because its session has ended, or because it comes late.
    pub(crate) refused: bool,
    /// Whether it only read the record: it did not even remove what ended sessions left.
    pub(crate) only_looked: bool,
    pub(crate) before: &'a RecordView,
    pub(crate) after: &'a RecordView,
}

impl Change<'_> {
    /// The grants that were not there before.
    pub(crate) fn granted(&self) -> impl Iterator<Item = EntryView> {
        let known = |grant: &EntryView| self.before.grants.iter().any(|old| old.is_of_one(grant));
        self.after.grants.iter().filter(move |grant| !known(grant)).copied()
    }

    /// The grants that went over to another session.
    pub(crate) fn moved(&self) -> impl Iterator<Item = EntryView> {
        let known =
            |grant: &EntryView| self.before.grants.iter().any(|old| old.is_of_one(grant) && !old.is_same(grant));
        self.after.grants.iter().filter(move |grant| known(grant)).copied()
    }

    /// The entries that are gone, and that their holder did not give up itself. A place that was granted is not gone.
    pub(crate) fn taken(&self) -> impl Iterator<Item = &EntryView> {
        let stays = |entry: &EntryView| {
            let goes_on = |new: &EntryView| new.is_same(entry) || self.may_move() && new.is_of_one(entry);
            self.after.grants.iter().chain(&self.after.queue).any(goes_on)
        };
        let granted =
            |place: &EntryView| self.granted().any(|new| (new.session, new.request) == (place.session, place.request));
        let grants = (self.before.grants.iter())
            .filter(move |grant| !stays(grant) && !self.gives_up(grant) && !self.was_upgraded(grant));
        let places = (self.before.queue.iter()).filter(move |place| {
            place.session != self.by && !stays(place) && !granted(place) && !self.is_orphaned(place)
        });
        grants.chain(places)
    }

    /// Whether a new grant of the same holder takes its place.
    pub(crate) fn was_upgraded(&self, grant: &EntryView) -> bool {
        let exchanges = |place: &&EntryView| place.session == grant.session && place.upgrades == grant.first();
        let asked = self.before.queue.iter().find(exchanges).map(|place| place.request);
        let asks =
            self.by == grant.session && matches!(self.deal, Deal::Upgrade(token) if Some(token) == grant.first());
        self.granted().any(|new| new.session == grant.session && (asks || Some(new.request) == asked))
    }

    /// Whether the operation may bring a grant to another session.
    fn may_move(&self) -> bool {
        matches!(self.deal, Deal::Detach | Deal::Resume)
    }

    /// Whether the grant is gone that this place would take the place of.
    fn is_orphaned(&self, place: &EntryView) -> bool {
        let gives = |grant: &EntryView| grant.session == place.session && grant.first() == place.upgrades;
        place.upgrades.is_some() && !self.after.grants.iter().any(gives)
    }

    /// A downgrade leaves no exclusive grant.
    pub(crate) fn lets_in(&self) -> bool {
        let Deal::Downgrade(token) = self.deal else { return true };
        let named = |grant: &&EntryView| grant.session == self.by && grant.first() == Some(token);
        self.after.grants.iter().find(named).is_none_or(|grant| grant.mode == Mode::Shared)
    }

    /// Whether the operation gives back this grant for its holder.
    fn gives_up(&self, grant: &EntryView) -> bool {
        let first = grant.block.map(|block| block.0);
        let named = match self.deal {
            Deal::Release(token, request) => first == Some(token) || grant.request == request,
            Deal::Withdraw(request) => grant.request == request,
            _ => false,
        };
        named && grant.session == self.by
    }

    /// What an operation may change if what it acts for is no longer there: at most the place of its own request.
    pub(crate) fn is_harmless(&self) -> bool {
        let (before, after) = (self.before, self.after);
        let holds = before.grants.iter().any(|grant| match self.deal {
            Deal::Verify(token) | Deal::Downgrade(token) => grant.session == self.by && grant.first() == Some(token),
            _ => self.gives_up(grant),
        });
        let without = |request| {
            let own = |place: &&EntryView| (place.session, place.request) != (self.by, request);
            before.queue.iter().filter(own).eq(&after.queue) && before.grants == after.grants
        };
        match self.deal {
            Deal::Verify(_) if holds => {
                others(before, self.by) == others(after, self.by) && before.queue == after.queue
            }
            Deal::Release(..) | Deal::Withdraw(_) | Deal::Downgrade(_) if holds => true,
            Deal::Release(_, request) | Deal::Withdraw(request) => without(request),
            Deal::Acquire | Deal::Steal | Deal::Upgrade(_) | Deal::Resume if self.refused => before == after,
            Deal::Verify(_) | Deal::Downgrade(_) | Deal::End | Deal::Look => before == after,
            Deal::Acquire | Deal::Steal | Deal::Upgrade(_) | Deal::Resume | Deal::Detach => true,
        }
    }
}

fn others(record: &RecordView, session: SessionId) -> Vec<EntryView> {
    record.grants.iter().filter(|grant| grant.session != session).copied().collect()
}

//! The store, and what is known of its past: each operation is compared with the record before and after it.

use leasehold::machine::{Answer, Batch, Beacon, Incarnation, Mode, Records, StoreClock, StoreNow, Tombstone};

use crate::{
    configuration::Configuration,
    port::{self, Deal, EntryView, RecordView},
    rules::{Broken, Rule},
    state::State,
};

/// The records, and their history.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ledger {
    /// What the shipped operations work on.
    pub records: Records,
    /// All grants, in the order in which they were committed.
    pub history: Vec<EntryView>,
    /// Since when each present entry stands still.
    pub since: Vec<(EntryView, u64)>,
    /// The keys and tokens of all guards.
    pub handed_out: Vec<(usize, u64)>,
    /// The grants of the history that were stolen, and when.
    pub robbed: Vec<(usize, u64)>,
    /// The grants of the history that took the place of one that was shared: the old one, the new one.
    pub grown: Vec<(usize, usize)>,
    /// Those who left a tombstone, and whether it stands.
    pub gone: Vec<(Incarnation, bool)>,
}

/// What surrounds a transaction.
pub struct Scene<'a> {
    /// The world before it.
    pub state: &'a State,
    /// What the world is like.
    pub configuration: &'a Configuration,
    /// By what time it is applied.
    pub now: StoreNow,
}

impl Ledger {
    /// Applies a batch, operation by operation, and as a whole to compare.
    pub fn apply(&mut self, batch: &Batch, scene: &Scene<'_>, broken: &mut Broken) -> Vec<Answer> {
        let mut whole = self.records.clone();
        let answers = batch.apply(&mut whole, scene.now);
        let mut parts = Vec::new();
        for operation in &batch.0 {
            let keys = port::keys_of(operation);
            let befores: Vec<_> = keys.iter().map(|key| port::record(&self.records, *key)).collect();
            parts.extend(Batch(vec![operation.clone()]).apply(&mut self.records, scene.now));
            let (mut granted, mut fresh) = (0, false);
            for (key, before) in keys.iter().zip(&befores) {
                let after = port::record(&self.records, *key);
                let asked: Vec<_> = after.grants.iter().filter(|grant| port::asks_for(operation, grant)).collect();
                granted += asked.len();
                fresh |= asked.iter().any(|grant| !before.grants.iter().any(|old| old.is_same(grant)));
                let change =
                    Change { key: *key, by: operation.holder, deal: port::deal(operation), before, after: &after };
                self.judge(&change, scene, broken);
                self.note(*key, &after, scene.state.now_ms);
            }
            broken.unless(!fresh || granted == keys.len(), Rule::AllOrNothing);
        }
        broken.unless(whole == self.records && parts == answers, Rule::BatchIsItsParts);
        self.collect();
        answers
    }

    /// Somebody is gone.
    pub fn entomb(&mut self, tombstone: Tombstone) {
        self.gone.push((tombstone.holder, true));
        self.records.entomb(tombstone);
    }

    /// Whether a tombstone says that this holder is gone.
    pub fn is_gone(&self, name: Incarnation) -> bool {
        self.gone.contains(&(name, true))
    }

    /// Tombstones go that nothing needs any more.
    fn collect(&mut self) {
        for (holder, _) in self.records.changed_tombstones().iter().filter(|(_, left)| left.is_none()) {
            self.gone.iter_mut().filter(|(name, _)| name == holder).for_each(|(_, stands)| *stands = false);
        }
    }

    fn judge(&mut self, change: &Change<'_>, scene: &Scene<'_>, broken: &mut Broken) {
        let after = change.after;
        // What the gone left is removed by whatever comes next.
        let cleans = change.before.grants.iter().chain(&change.before.queue).any(|entry| self.is_gone(entry.name));
        broken.unless(cleans || change.is_harmless(), Rule::StaleIsHarmless);
        let gone = after.grants.iter().chain(&after.queue).any(|entry| self.is_gone(entry.name));
        broken.unless(!gone, Rule::StaleIsHarmless);
        broken.unless(self.tokens_grow(change), Rule::TokensGrow);
        let evident = change.taken().all(|entry| self.is_evident(entry, change, scene));
        broken.unless(evident, Rule::TakeoverNeedsEvidence);
        broken.unless(fit(&after.grants), Rule::GrantsFit);
        broken.unless(change.head_waits(), Rule::HeadIsNotGrantable);
        broken.unless(differ(&after.grants) && differ(&after.queue), Rule::OneGrantPerRequest);
        broken.unless(change.lets_in(), Rule::DowngradeLetsIn);
        self.rob(change, scene.state.now_ms);
        self.weaken(change);
        self.grow(change);
        self.history.extend(change.granted());
    }

    fn tokens_grow(&self, change: &Change<'_>) -> bool {
        let mut last = (self.history.iter().filter(|grant| grant.key == change.key))
            .filter_map(|grant| grant.block)
            .map(|block| block.1)
            .max()
            .unwrap_or(0);
        let grown = change.granted().all(|grant| {
            let Some((first, end)) = grant.block else { return false };
            let grows = first > last && first <= end;
            last = end;
            grows
        });
        grown && change.after.last_token >= last && change.after.last_token >= change.before.last_token
    }

    /// Whether an entry that somebody else removed was dead, silent for long enough, or over by a trusted clock.
    fn is_evident(&self, entry: &EntryView, change: &Change<'_>, scene: &Scene<'_>) -> bool {
        let since = self.since.iter().find(|(known, _)| known.stands_still(entry)).map_or(0, |(_, since)| *since);
        let still_ms = scene.state.now_ms - since;
        let evicted = change.evicts(entry);
        let beacon = Beacon { holder: entry.name, generation: entry.beacon };
        let gone = entry.beacon > 0 && !scene.state.stands(beacon);
        let silent = still_ms >= scene.configuration.silence_ms(entry.lease_ms);
        let over = scene.configuration.clock == StoreClock::Trusted && still_ms >= entry.lease_ms;
        (evicted && (gone || silent))
            || over
            || self.is_gone(entry.name)
            || (change.deal == Deal::Steal && entry.block.is_some())
    }

    /// Any change of an entry starts its silence anew.
    fn note(&mut self, key: usize, after: &RecordView, now_ms: u64) {
        let since = |entry: &EntryView| {
            let known = self.since.iter().find(|(known, _)| known.stands_still(entry));
            known.map_or(now_ms, |(_, since)| *since)
        };
        let mut all: Vec<_> = after.grants.iter().chain(&after.queue).map(|entry| (*entry, since(entry))).collect();
        all.extend(self.since.iter().filter(|(entry, _)| entry.key != key));
        all.sort_by_key(|(entry, _)| entry.key);
        self.since = all;
    }

    /// The grants that a theft takes.
    fn rob(&mut self, change: &Change<'_>, now_ms: u64) {
        let stolen = change.taken().filter(|entry| change.deal == Deal::Steal && entry.block.is_some());
        let stolen: Vec<_> =
            stolen.filter_map(|entry| self.history.iter().rposition(|grant| grant.is_same(entry))).collect();
        self.robbed.extend(stolen.into_iter().map(|grant| (grant, now_ms)));
    }

    /// When a grant was stolen, or what it grew into.
    pub fn robbed_at(&self, grant: usize) -> Option<u64> {
        let stolen = self.robbed.iter().find(|(robbed, _)| *robbed == grant).map(|(_, at)| *at);
        let grown = || self.grown.iter().find(|(old, _)| *old == grant).and_then(|(_, new)| self.robbed_at(*new));
        stolen.or_else(grown)
    }

    /// Notes what a shared grant grows into.
    fn grow(&mut self, change: &Change<'_>) {
        let gone = change.before.grants.iter().filter(|grant| change.was_upgraded(grant));
        let old: Vec<_> = gone.filter_map(|gone| self.history.iter().rposition(|grant| grant.is_same(gone))).collect();
        let next = self.history.len();
        self.grown.extend(old.into_iter().map(|old| (old, next)));
    }

    /// A grant that lets others in goes with them from then on.
    fn weaken(&mut self, change: &Change<'_>) {
        for grant in &change.after.grants {
            let known = self.history.iter_mut().rfind(|known| known.is_same(grant));
            known.into_iter().for_each(|known| known.mode = grant.mode);
        }
    }

    /// The grant that a guard with this token stands on.
    pub fn grant_of(&self, who: usize, key: usize, token: u64) -> Option<usize> {
        let covers = |grant: &EntryView| grant.block.is_some_and(|(first, last)| (first..=last).contains(&token));
        self.history.iter().rposition(|grant| (grant.who, grant.key) == (who, key) && covers(grant))
    }

    /// Whether the fence lets an effect of this grant through.
    pub fn lets_through(&self, grant: usize) -> bool {
        self.history.get(grant).is_some_and(|grant| port::fence(&self.records, grant))
    }

    /// An effect of this grant commits.
    pub fn effect(&self, grant: usize, broken: &mut Broken) {
        let newer = self.history.iter().skip(grant + 1).any(|newer| newer.conflicts(&self.history[grant]));
        broken.unless(!newer, Rule::EffectsInOrder);
    }
}

/// What one operation did to the record.
struct Change<'a> {
    key: usize,
    by: Incarnation,
    deal: Deal,
    before: &'a RecordView,
    after: &'a RecordView,
}

impl Change<'_> {
    /// The grants that were not there before.
    fn granted(&self) -> impl Iterator<Item = EntryView> {
        let known = |grant: &EntryView| self.before.grants.iter().any(|old| old.is_same(grant));
        self.after.grants.iter().filter(move |grant| !known(grant)).copied()
    }

    /// The entries that are gone, and that their holder did not give up itself. A place that was granted is not gone.
    fn taken(&self) -> impl Iterator<Item = &EntryView> {
        let stays = |entry: &EntryView| self.after.grants.iter().chain(&self.after.queue).any(|new| new.is_same(entry));
        let granted =
            |place: &EntryView| self.granted().any(|new| (new.name, new.request) == (place.name, place.request));
        let grants = (self.before.grants.iter())
            .filter(move |grant| !stays(grant) && !self.gives_up(grant) && !self.was_upgraded(grant));
        let places = (self.before.queue.iter())
            .filter(move |place| place.name != self.by && !stays(place) && !granted(place) && !self.is_orphaned(place));
        grants.chain(places)
    }

    /// Whether a new grant of the same holder takes its place.
    fn was_upgraded(&self, grant: &EntryView) -> bool {
        let exchanges = |place: &&EntryView| place.name == grant.name && place.upgrades == grant.first();
        let asked = self.before.queue.iter().find(exchanges).map(|place| place.request);
        let asks = self.by == grant.name && matches!(self.deal, Deal::Upgrade(token) if Some(token) == grant.first());
        self.granted().any(|new| new.name == grant.name && (asks || Some(new.request) == asked))
    }

    /// Whether the grant is gone that this place would take the place of.
    fn is_orphaned(&self, place: &EntryView) -> bool {
        let gives = |grant: &EntryView| grant.name == place.name && grant.first() == place.upgrades;
        place.upgrades.is_some() && !self.after.grants.iter().any(gives)
    }

    /// A downgrade leaves no exclusive grant.
    fn lets_in(&self) -> bool {
        let Deal::Downgrade(token) = self.deal else { return true };
        let named = |grant: &&EntryView| grant.name == self.by && grant.first() == Some(token);
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
        named && grant.name == self.by
    }

    /// Whether the operation names exactly this entry as it stood.
    fn evicts(&self, entry: &EntryView) -> bool {
        let Deal::Evict { whose, grant, place, beat } = self.deal else { return false };
        let named = match entry.block {
            Some((first, _)) => grant == Some(first),
            None => place == Some(entry.request),
        };
        named && (whose, beat) == (entry.name, entry.beat)
    }

    /// What an operation may change if what it acts for is no longer there: at most the place of its own request.
    fn is_harmless(&self) -> bool {
        let (before, after) = (self.before, self.after);
        let holds = before.grants.iter().any(|grant| match self.deal {
            Deal::Renew(token) | Deal::Downgrade(token) => grant.name == self.by && grant.first() == Some(token),
            _ => self.gives_up(grant),
        });
        let named = before.grants.iter().chain(&before.queue).any(|entry| self.evicts(entry));
        let without = |request| {
            let own = |place: &&EntryView| (place.name, place.request) != (self.by, request);
            before.queue.iter().filter(own).eq(&after.queue) && before.grants == after.grants
        };
        match self.deal {
            Deal::Renew(_) if holds => others(before, self.by) == others(after, self.by) && before.queue == after.queue,
            Deal::Release(..) | Deal::Withdraw(_) | Deal::Downgrade(_) if holds => true,
            Deal::Release(_, request) | Deal::Withdraw(request) => without(request),
            Deal::Evict { .. } => named || before == after,
            Deal::Renew(_) | Deal::Downgrade(_) | Deal::Inspect => before == after,
            Deal::Acquire | Deal::Steal | Deal::Upgrade(_) => true,
        }
    }

    fn head_waits(&self) -> bool {
        let Some(head) = self.after.queue.first() else { return true };
        let gives = |grant: &EntryView| grant.name == head.name && grant.first() == head.upgrades;
        self.after.grants.iter().any(|grant| !gives(grant) && !port::fit(grant.mode, head.mode))
    }
}

fn others(record: &RecordView, name: Incarnation) -> Vec<EntryView> {
    record.grants.iter().filter(|grant| grant.name != name).copied().collect()
}

fn fit(grants: &[EntryView]) -> bool {
    grants.iter().enumerate().all(|(at, grant)| grants[at + 1..].iter().all(|other| !grant.conflicts(other)))
}

fn differ(entries: &[EntryView]) -> bool {
    let name = |entry: &EntryView| (entry.name, entry.request);
    entries.iter().enumerate().all(|(at, entry)| entries[at + 1..].iter().all(|other| name(entry) != name(other)))
}

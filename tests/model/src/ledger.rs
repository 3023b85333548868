//! The store, and what is known of its past: each operation is compared with the record before and after it.

use leasehold::machine::{
    Answer, Batch, Operation, Outcome, Record, Records, Reply, SessionId, SessionStep, StoreNow, Ticket,
};

use leasehold_invariants::{check, ended_are_gone, head_waits, only_looks};

use crate::{
    change::Change,
    configuration::{Configuration, Flaw},
    evidence::Evidence,
    port::{self, Deal, EntryView, RecordView},
    rows,
    rules::{Broken, Rule},
    statements::Reading,
};

/// The records, and their history.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ledger {
    /// What the shipped operations work on.
    pub records: Records,
    /// All grants, in the order in which they were committed.
    pub history: Vec<EntryView>,
    /// The rows of the sessions, and who saw them stand still.
    pub evidence: Evidence,
    /// The keys and tokens of all guards.
    pub handed_out: Vec<(usize, u64)>,
    /// The grants of the history that were stolen, and when.
    pub robbed: Vec<(usize, u64)>,
    /// The grants of the history that took the place of one that was shared: the old one, the new one.
    pub grown: Vec<(usize, usize)>,
}

/// What surrounds a transaction.
pub struct Scene<'a> {
    /// True time, in ms.
    pub now_ms: u64,
    /// Which context sent it.
    pub who: usize,
    /// What the world is like.
    pub configuration: &'a Configuration,
    /// By what time it is applied.
    pub now: StoreNow,
    /// Whether it is still sure of its session.
    pub sure: bool,
    /// What it read without a lock, if the store's transactions are several statements.
    pub reading: Option<&'a Reading>,
    /// The sessions whose rows other transactions have locked.
    pub locked: &'a [SessionId],
}

impl Default for Ledger {
    /// An empty store.
    fn default() -> Self {
        Self {
            records: Records::whole(port::STORE),
            history: Vec::new(),
            evidence: Evidence::default(),
            handed_out: Vec::new(),
            robbed: Vec::new(),
            grown: Vec::new(),
        }
    }
}

impl Ledger {
    /// Applies a batch. There is no reply if it was rolled back.
    pub fn apply(&mut self, batch: &Batch, scene: &Scene<'_>, broken: &mut Broken) -> Option<Reply> {
        let Some(reading) = scene.reading else { return Some(self.apply_at_once(batch, scene, broken)) };
        let seen = reading.seen_in(&self.records, &self.evidence.opened);
        let mut applied = seen.clone();
        batch.apply(&mut applied, scene.now);
        let written = applied.take_changed();
        let compares = scene.configuration.flaw != Some(Flaw::OverwritesUnread);
        if compares && reading.is_overtaken(&written, &self.records, scene.locked) {
            return None;
        }
        let stored = core::mem::replace(&mut self.records, seen);
        let reply = self.apply_at_once(batch, scene, broken);
        self.records = Reading::commit(&written, applied, &stored, &self.evidence.opened);
        self.judge_sessions(batch, scene, broken);
        Some(reply)
    }

    /// Applies a batch, part by part, and as a whole to compare.
    fn apply_at_once(&mut self, batch: &Batch, scene: &Scene<'_>, broken: &mut Broken) -> Reply {
        let mut whole = self.records.clone();
        let reply = batch.apply(&mut whole, scene.now);
        let changed = whole.take_changed();
        let same =
            !scene.configuration.rows || rows::suffice(batch, scene.now, &self.records, (&whole, &changed), &reply);
        broken.unless(same, Rule::RowsSuffice);
        let same = !scene.sure || rows::record_suffices(batch, scene.now, &self.records, (&whole, &changed), &reply);
        broken.unless(same, Rule::RecordSuffices);
        let closes = batch.step == SessionStep::Close;
        let step = if closes { SessionStep::Stay } else { batch.step.clone() };
        let nothing = Batch::new(batch.session, Vec::new());
        let mut parts = self.part(&Batch { step, ends: batch.ends.clone(), ..nothing.clone() }, scene, broken);
        for operation in &batch.operations {
            let done = self.operate(batch.session, operation, scene, broken);
            parts.robbed = done.robbed;
            parts.answers.extend(done.answers);
        }
        let step = if closes { SessionStep::Close } else { SessionStep::Stay };
        self.part(&Batch { step, forgets: batch.forgets.clone(), ..nothing }, scene, broken);
        let same = (&parts.robbed, &parts.answers) == (&reply.robbed, &reply.answers);
        broken.unless(same && whole == self.records, Rule::BatchIsItsParts);
        reply
    }

    /// One operation of a batch.
    fn operate(&mut self, by: SessionId, operation: &Operation, scene: &Scene<'_>, broken: &mut Broken) -> Reply {
        let keys = port::keys_of(operation);
        let befores: Vec<_> = keys.iter().map(|key| port::record(&self.records, *key)).collect();
        let reply = self.part(&Batch::new(by, vec![operation.clone()]), scene, broken);
        let (mut granted, mut fresh) = (0, false);
        for (key, before) in keys.iter().zip(&befores) {
            let after = port::record(&self.records, *key);
            let asked: Vec<_> = after.grants.iter().filter(|grant| port::asks_for(by, operation, grant)).collect();
            granted += asked.len();
            fresh |= asked.iter().any(|grant| !before.grants.iter().any(|old| old.is_same(grant)));
            let only_looked = reply.answers.iter().all(|answer| only_looks(&operation.action, &answer.outcome));
            let (deal, refused) = (port::deal(operation), reply.answers.iter().any(is_refusal));
            let change = Change { key: *key, by, deal, refused, only_looked, before, after: &after };
            self.judge(&change, scene, broken);
        }
        broken.unless(!fresh || granted == keys.len(), Rule::AllOrNothing);
        reply
    }

    /// A part of a batch, or a whole one: what it does to the sessions is compared with what it may do.
    fn part(&mut self, part: &Batch, scene: &Scene<'_>, broken: &mut Broken) -> Reply {
        let reply = part.apply(&mut self.records, scene.now);
        self.records.take_changed();
        // A transaction of several statements does not see the rows of all sessions as they are now. It is judged by what it commits.
        if scene.reading.is_none() {
            self.judge_sessions(part, scene, broken);
        }
        reply
    }

    fn judge_sessions(&mut self, part: &Batch, scene: &Scene<'_>, broken: &mut Broken) {
        broken.unless(self.evidence.justifies(part, &self.records, scene), Rule::TakeoverNeedsEvidence);
        broken.unless(self.evidence.note(part, &self.records, scene.now_ms), Rule::AbsenceIsFinal);
    }

    /// The row of a session is deleted blindly.
    pub fn abandon(&mut self, session: SessionId) {
        self.records.abandon(session);
        self.records.take_changed();
        self.evidence.forget(&self.records);
    }

    /// Somebody deletes everything: the store is another one from then on.
    pub fn wipe(&mut self) {
        self.records = Records::whole(port::store_after(self.records.store()));
        self.evidence.forget(&self.records);
    }

    /// Whether a session has no row.
    pub fn has_ended(&self, session: SessionId) -> bool {
        self.records.session(session).is_none()
    }

    fn judge(&mut self, change: &Change<'_>, scene: &Scene<'_>, broken: &mut Broken) {
        let (before, after) = (change.before, change.after);
        let ended = |entry: &EntryView| self.has_ended(entry.session);
        // What the dead left is removed by whatever comes next.
        let cleans = before.grants.iter().chain(&before.queue).any(ended);
        broken.unless(cleans || change.is_harmless(), Rule::StaleIsHarmless);
        let left_alone = change.only_looked && before == after;
        let idle = Record::default();
        let record = port::stored(&self.records, change.key).unwrap_or(&idle);
        let cleaned = ended_are_gone(record, |session| self.has_ended(session));
        broken.unless(left_alone || cleaned, Rule::StaleIsHarmless);
        broken.unless(self.tokens_grow(change), Rule::TokensGrow);
        let stolen = |entry: &EntryView| change.deal == Deal::Steal && entry.block.is_some();
        broken.unless(change.taken().all(|entry| ended(entry) || stolen(entry)), Rule::TakeoverNeedsEvidence);
        broken.unless(check(record).is_ok(), Rule::RecordIsSound);
        broken.unless(left_alone || head_waits(record, scene.now.wall.as_ms()), Rule::HeadIsNotGrantable);
        broken.unless(change.lets_in(), Rule::DowngradeLetsIn);
        self.rob(change, scene.now_ms);
        self.weaken(change);
        self.grow(change);
        self.history.extend(change.granted());
        self.history.extend(change.moved());
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
        // A record that nobody used may have been forgotten.
        let forgotten = *change.after == RecordView::default();
        let goes_on = change.after.last_token >= last && change.after.last_token >= change.before.last_token;
        grown && (forgotten || goes_on)
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

    /// The grant under which the fence lets this ticket's write commit, if any: the ticket's own, or the one that it was upgraded to.
    pub fn lets_through(&self, ticket: &Ticket) -> Option<usize> {
        let named = port::passes(&self.records, ticket)?;
        self.history.iter().rposition(|grant| grant.is_same(&named))
    }

    /// An effect of this grant commits.
    pub fn effect(&self, grant: usize, broken: &mut Broken) {
        let newer = self.history.iter().skip(grant + 1).any(|newer| newer.conflicts(&self.history[grant]));
        broken.unless(!newer, Rule::EffectsInOrder);
    }
}

fn is_refusal(answer: &Answer) -> bool {
    matches!(answer.outcome, Outcome::NoSession | Outcome::Superseded | Outcome::TooLate)
}

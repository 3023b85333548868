//! A context's own session: its row, and until when the context may consider its leases valid.
//!
//! All leases of a context share the session's validity, doubt and loss. A lease has none of its own.

use alloc::vec::Vec;

use super::{
    config::{belief_ms, lease_for_belief_ms},
    id::SessionId,
    input::Slot,
    key::Key,
    pending::Sent,
    record::{Beat, Ending, Peer},
    sorted::SortedMap,
    time::Monotonic,
    token::Token,
};

/// How many other sessions are watched, whether or not they block this one.
const WATCHED_PEERS: usize = 64;

/// How many of its own earlier sessions a context tries to end: the latest ones. After an hour of silence, a store would otherwise have to
/// end hundreds in one transaction.
const STALE: usize = 64;

/// What a context knows of its own session.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct OwnSession {
    id: SessionId,
    /// Whether its row was inserted, and has not been found missing since.
    is_open: bool,
    /// How many ids were drawn for separate sessions.
    drawn: u64,
    /// Earlier sessions of this context that must end and may still exist, because their opening or their end was not answered.
    stale: Vec<SessionId>,
    /// When those are ended at the latest. `None`: by the next transaction.
    stale_at: Option<Monotonic>,
    stale_failures: u32,
    /// When the leases stop being valid. This counts from the moment before the last confirmed opening or heartbeat was sent.
    valid_until: Monotonic,
    /// The lease that the latest heartbeat asked for, in ms.
    asked_ms: u64,
    /// The latest transaction whose heartbeat asked for another lease than the one before it.
    changed_by: u64,
    /// The leases that users have extended, and until when.
    extensions: SortedMap<Slot, Monotonic>,
    /// The transaction that was sent last when the doubt began. No answer to it or to an earlier one ends the doubt.
    doubted: Option<u64>,
    told_suspect: bool,
    /// The latest transaction of this session that was never answered. It may still be applied, and must change nothing then. `None` once
    /// the row has a higher floor.
    unanswered: Option<u64>,
    /// Whether the next transaction carries a heartbeat.
    beat_wanted: bool,
    /// Whether the next transaction deletes the row.
    close_wanted: bool,
    /// How many heartbeats failed in a row.
    failures: u32,
    /// Whether the row was opened with a beacon, and each heartbeat since has confirmed it.
    shown_beacon: bool,
    /// Grants that were stolen. No answer or message makes them valid again.
    robbed: SortedMap<(Key, Token), ()>,
    /// Other sessions that existed when this one or an earlier one opened, and when they were read.
    peers: Vec<(Peer, Monotonic)>,
    /// Whether the last session ended because the store was wiped, and none has been opened since.
    was_wiped: bool,
}

impl OwnSession {
    pub(super) fn new(id: SessionId) -> Self {
        Self {
            id,
            is_open: false,
            drawn: 0,
            stale: Vec::new(),
            stale_at: None,
            stale_failures: 0,
            valid_until: Monotonic::default(),
            asked_ms: 0,
            changed_by: 0,
            extensions: SortedMap::new(),
            doubted: None,
            told_suspect: false,
            unanswered: None,
            beat_wanted: false,
            close_wanted: false,
            failures: 0,
            shown_beacon: false,
            robbed: SortedMap::new(),
            peers: Vec::new(),
            was_wiped: false,
        }
    }

    pub(super) fn id(&self) -> SessionId {
        self.id
    }

    pub(super) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Its row was inserted, and these peers were read with it.
    pub(super) fn opened(&mut self, peers: &[Peer], now: Monotonic) {
        (self.is_open, self.was_wiped) = (true, false);
        self.meet_peers(peers, now);
    }

    pub(super) fn wants_beat(&self) -> bool {
        self.beat_wanted
    }

    pub(super) fn wants_close(&self) -> bool {
        self.close_wanted
    }

    /// Ends the session. The next one gets a fresh id, because no id is ever inserted twice. What still concerns the next one is kept:
    /// earlier sessions that must end, a doubt, and the peers that are watched.
    // Protocol: docs/protocol.md#s3, #s10.
    pub(super) fn end(&mut self) {
        let (stale, peers) = (core::mem::take(&mut self.stale), core::mem::take(&mut self.peers));
        let Self { id, stale_at, stale_failures, doubted, was_wiped, .. } = *self;
        let next = Self::new(id.next());
        *self = Self { stale, stale_at, stale_failures, doubted, peers, was_wiped, ..next };
    }

    /// The same, if it is unknown whether the row exists. The next session need not wait for another end that failed.
    // Protocol: docs/protocol.md#s1.
    pub(super) fn end_unsure(&mut self, now: Monotonic) {
        self.stale_at = Some(now);
        self.stale.push(self.id);
        self.end();
    }

    /// The same, if the store was told to delete the row without a transaction, which may not have happened. The next transaction deletes
    /// it again.
    pub(super) fn end_abandoned(&mut self) {
        self.stale_at = self.stale_at();
        self.stale.push(self.id);
        self.end();
    }

    /// Notes that the session ends because the store was wiped.
    pub(super) fn note_wipe(&mut self) {
        self.was_wiped = true;
    }

    /// Whether the store was wiped under the last session, and none has been opened since.
    pub(super) fn was_wiped(&self) -> bool {
        self.was_wiped
    }

    /// Whether others certainly know of the beacon, if the row exists.
    pub(super) fn has_shown_beacon(&self) -> bool {
        self.shown_beacon
    }

    /// A new id for a lease that is taken out of its guard.
    pub(super) fn draw_id(&mut self) -> SessionId {
        self.drawn += 1;
        self.id.beside(self.drawn)
    }

    /// How long the leases are still valid, in ms.
    // Protocol: docs/protocol.md#s16.
    pub(super) fn belief_left(&self, now: Monotonic) -> u64 {
        if self.doubted.is_some() || !self.is_open { 0 } else { self.valid_until.since(now) }
    }

    /// Whether the session has not expired yet, even if it is in doubt.
    pub(super) fn was_valid(&self, now: Monotonic) -> bool {
        self.is_open && now < self.valid_until
    }

    /// Whether the session expired this long ago, in ms, and its end was not heard of.
    pub(super) fn has_expired_for(&self, ms: u64, now: Monotonic) -> bool {
        self.is_open && now >= self.valid_until.plus(ms)
    }

    /// The store confirmed an opening or a heartbeat that was sent at this moment. Returns whether that ends a doubt of which the guards
    /// were told.
    pub(super) fn confirm(&mut self, sent: Sent, lease_ms: u64, now: Monotonic) -> bool {
        self.valid_until = self.valid_until.max(sent.at.plus(belief_ms(lease_ms)));
        if self.doubted.is_some_and(|doubted| sent.transaction > doubted) {
            self.doubted = None;
        }
        let ends_doubt = self.told_suspect && self.belief_left(now) > 0;
        self.told_suspect &= !ends_doubt;
        ends_doubt
    }

    /// All leases are in doubt until a transaction after this one is answered.
    pub(super) fn doubt(&mut self, last_transaction: u64) {
        self.doubted = Some(last_transaction);
    }

    /// Notes that the guards are told of a doubt. Returns whether they were not told before.
    pub(super) fn suspect(&mut self) -> bool {
        !core::mem::replace(&mut self.told_suspect, true)
    }

    /// When the leases come into doubt, unless the guards were told of a doubt already.
    pub(super) fn belief_ends(&self) -> Option<Monotonic> {
        (self.is_open && !self.told_suspect).then_some(self.valid_until)
    }

    /// Until when a lease was extended.
    pub(super) fn extended_until(&self, slot: &Slot) -> Option<Monotonic> {
        self.extensions.get(slot).copied()
    }

    pub(super) fn want_beat(&mut self) {
        self.beat_wanted = self.is_open;
    }

    pub(super) fn want_close(&mut self) {
        self.close_wanted = self.is_open;
    }

    /// Keeps the session, because it is needed again.
    pub(super) fn stay(&mut self) {
        self.close_wanted = false;
    }

    /// Counts a failed attempt to end a stale session. Returns how many failed before.
    pub(super) fn note_stale_failure(&mut self) -> u32 {
        self.stale_failures += 1;
        self.stale_failures - 1
    }

    /// Resets that count, because the sessions have ended or were given up.
    pub(super) fn forget_stale_failures(&mut self) {
        self.stale_failures = 0;
    }

    /// Whether an attempt may still arrive at the store after later ones. The next heartbeat makes the store refuse it.
    pub(super) fn has_unanswered(&self) -> bool {
        self.unanswered.is_some()
    }

    /// Whether the last heartbeat failed.
    pub(super) fn has_failed(&self) -> bool {
        self.failures > 0
    }

    /// Counts a failed heartbeat. Returns how many failed before.
    pub(super) fn note_failure(&mut self) -> u32 {
        self.failures += 1;
        self.failures - 1
    }

    /// Notes that the heartbeat of this transaction was answered. It raised the floor above all transactions that were unanswered when it
    /// was sent.
    pub(super) fn beat_answered(&mut self, transaction: u64) {
        self.failures = 0;
        self.unanswered = self.unanswered.filter(|late| *late > transaction);
    }

    /// Sends the heartbeat next, at once, because the transaction that carried it was too large.
    // Protocol: docs/protocol.md#p6.
    pub(super) fn beat_by_itself(&mut self) {
        self.note_failure();
        self.want_beat();
    }

    /// Notes a transaction of this session that may be applied at any time, or never.
    pub(super) fn note_unanswered(&mut self, transaction: u64) {
        self.unanswered = self.unanswered.max(Some(transaction));
    }

    /// Notes that a grant was stolen. Returns whether that was not known before.
    pub(super) fn note_theft(&mut self, key: &Key, token: Token) -> bool {
        let is_news = !self.was_robbed(key, token);
        if is_news {
            self.robbed.insert((key.clone(), token), ());
        }
        is_news
    }

    pub(super) fn was_robbed(&self, key: &Key, token: Token) -> bool {
        !self.robbed.is_empty() && self.robbed.contains_key(&(key.clone(), token))
    }

    /// Whether this grant of the key was stolen, or a later one.
    pub(super) fn was_robbed_since(&self, key: &Key, token: Token) -> bool {
        self.robbed.keys().any(|(known, robbed)| known == key && *robbed >= token)
    }

    /// Extends a lease until this moment.
    pub(super) fn extend(&mut self, slot: &Slot, until: Monotonic) {
        let known = self.extensions.get(slot).copied();
        self.extensions.insert(slot.clone(), known.map_or(until, |known| known.max(until)));
    }

    /// Ends the extension of a lease.
    pub(super) fn end_extension(&mut self, slot: &Slot) {
        self.extensions.remove(slot);
    }

    /// The heartbeat for a transaction. If it asks for a shorter lease, the leases count as valid only for that long from then on.
    // Protocol: docs/protocol.md#s11, #s13, #s16.
    pub(super) fn beat(&mut self, sent: Sent, lease_ms: u64, beacon: bool) -> Beat {
        let lease_ms = self.wanted_lease_ms(sent.at, lease_ms);
        if self.is_open {
            self.valid_until = self.valid_until.min(sent.at.plus(belief_ms(lease_ms)));
        }
        if self.asked_ms != lease_ms {
            (self.asked_ms, self.changed_by) = (lease_ms, sent.transaction);
        }
        self.shown_beacon = beacon && (self.shown_beacon || !self.is_open);
        let floor = if self.unanswered.is_some() { sent.transaction } else { 0 };
        Beat { beat: sent.transaction, beacon, lease_ms, floor }
    }

    /// Notes that the wanted heartbeat is under way. One in a fenced transaction does not count, because it may not be committed.
    pub(super) fn beat_is_sent(&mut self) {
        self.beat_wanted = false;
    }

    /// Whether all heartbeats since this transaction, including its own, have asked for the same lease. Then it does not matter which of
    /// them the store counts.
    // Protocol: docs/protocol.md#s13.
    pub(super) fn has_asked_alike_since(&self, transaction: u64) -> bool {
        self.changed_by <= transaction
    }

    /// The lease that users want, in ms: the usual one, or a longer one for now.
    pub(super) fn wanted_lease_ms(&mut self, now: Monotonic, lease_ms: u64) -> u64 {
        self.extensions.retain(|_, until| *until > now);
        let longest = self.extensions.values().map(|until| until.since(now)).max();
        longest.map_or(lease_ms, |left_ms| lease_ms.max(lease_for_belief_ms(left_ms)))
    }

    /// Whether the next transaction must carry a heartbeat, even if none is due: a lease that is granted when the session is about to
    /// expire is of no use; and a heartbeat raises the floor, which refuses attempts that are too late.
    pub(super) fn needs_beat(&self, acquires: bool, now: Monotonic) -> bool {
        let nearly_over = acquires && self.belief_left(now) < belief_ms(self.asked_ms) / 2;
        self.beat_wanted || self.unanswered.is_some() || nearly_over
    }

    /// The sessions that the next transaction ends, at most this many: the context's own earlier ones, and those that have been silent
    /// since this one opened.
    pub(super) fn endings(&mut self, most: usize, silent_since: impl Fn(&Peer, Monotonic) -> bool) -> Vec<Ending> {
        let mut endings = Vec::new();
        for session in self.stale.drain(..most.min(self.stale.len())) {
            endings.push(Ending { session, beat: None });
        }
        self.peers.retain(|(peer, read_at)| {
            let silent = endings.len() < most && silent_since(peer, *read_at);
            if silent {
                endings.push(Ending { session: peer.session, beat: Some(peer.beat) });
            }
            !silent
        });
        endings
    }

    /// How many earlier sessions of this context the next transaction should end.
    pub(super) fn stale(&self) -> usize {
        self.stale.len()
    }

    /// Plans to end the context's own sessions among these at this time, because the last attempt failed.
    pub(super) fn end_later(&mut self, endings: &[Ending], at: Monotonic) {
        for ending in endings.iter().filter(|ending| ending.beat.is_none()) {
            self.stale.push(ending.session);
        }
        // The newest come first, so the oldest are dropped.
        self.stale.truncate(STALE);
        self.stale_at = Some(at);
    }

    /// Plans to end a session that was opened after all, although the context has given it up.
    pub(super) fn end_too(&mut self, session: SessionId) {
        self.stale_at.get_or_insert_default();
        self.stale.push(session);
    }

    /// Watches these peers. A peer that an earlier session of this context saw counts as watched since then.
    fn meet_peers(&mut self, peers: &[Peer], now: Monotonic) {
        self.peers.retain(|(known, _)| peers.iter().all(|peer| peer.session != known.session || peer == known));
        for peer in peers {
            if self.peers.len() < WATCHED_PEERS && self.peers.iter().all(|(known, _)| known != peer) {
                self.peers.push((*peer, now));
            }
        }
    }

    /// Gives up ending stale sessions by a transaction.
    pub(super) fn forget_stale(&mut self) {
        self.stale.clear();
    }

    /// The sessions whose rows are still there, or may be. The present one is the last.
    pub(super) fn unended(&self) -> impl Iterator<Item = Ending> {
        let sessions = self.stale.iter().copied().chain(self.is_open.then_some(self.id));
        sessions.map(|session| Ending { session, beat: None })
    }

    /// When the stale sessions are ended, if no other transaction ends them earlier.
    pub(super) fn stale_at(&self) -> Option<Monotonic> {
        self.stale_at.filter(|_| !self.stale.is_empty())
    }
}

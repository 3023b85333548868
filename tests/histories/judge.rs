//! The rules for every history, whether its contexts live in simulated time or are processes on real servers.
#![allow(dead_code, reason = "no test program needs all of it")]

use std::{
    collections::{BTreeMap, HashSet},
    fmt::Write as _,
    sync::{Arc, Mutex},
};

use leasehold::{LostReason, machine::Monotonic};

/// Counts what happened: a world in which nothing goes wrong proves nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally(Arc<Mutex<BTreeMap<&'static str, u64>>>);

impl Tally {
    /// Counts it, and passes the value on.
    pub(crate) fn count<T>(&self, what: &'static str, value: T) -> T {
        *self.0.lock().unwrap().entry(what).or_default() += 1;
        value
    }

    /// What never happened.
    pub(crate) fn missing(&self, expected: impl IntoIterator<Item = &'static str>) -> Vec<&'static str> {
        let counts = self.0.lock().unwrap();
        expected.into_iter().filter(|what| !counts.contains_key(what)).collect()
    }

    /// How often each thing happened, a line each.
    pub(crate) fn table(&self) -> String {
        self.0.lock().unwrap().iter().fold(String::new(), |mut table, (what, count)| {
            writeln!(table, "{count:>12} {what}").unwrap();
            table
        })
    }
}

/// Reports the state of a guard: the guard itself, or the process that wrote its state down.
pub(crate) trait Witness {
    /// A machine that sleeps cannot be asked.
    fn is_awake(&self) -> bool;
    fn is_valid(&self) -> bool;
    fn is_shared(&self) -> bool;
    /// An upgrade changes the token.
    fn token(&self) -> u64;
    fn loss(&self) -> Option<LostReason>;
    /// When it stops believing, and when at the latest by all that it has asked the store so far; by its own clock, if it has one.
    fn certainty(&self) -> Option<(Monotonic, Monotonic)> {
        None
    }
}

/// A guard that somebody has, and what the judge saw of it.
pub(crate) struct Watched<W> {
    pub(crate) witness: W,
    pub(crate) context: u64,
    pub(crate) key: usize,
    pub(crate) token: u64,
    /// The first token of its grant: later grants have larger ones.
    pub(crate) grant: u64,
    pub(crate) shares_in_process: bool,
    /// It asked to downgrade: from then on it must not count on being alone.
    pub(crate) downgrades: bool,
    doubted: bool,
    /// Its loss was reported, and the judge has checked it.
    lost: bool,
    /// Its lease was stolen: how long it may believe in it all the same, by its own clock.
    misled_until: Option<Monotonic>,
}

impl<W: Witness> Watched<W> {
    pub(crate) fn new(witness: W, context: u64, (key, token, grant): (usize, u64, u64)) -> Self {
        let (shares_in_process, downgrades, doubted, lost) = (false, false, false, false);
        let misled_until = None;
        Self { witness, context, key, token, grant, shares_in_process, downgrades, doubted, lost, misled_until }
    }

    fn shares(&self) -> bool {
        self.downgrades || self.witness.is_shared()
    }

    /// Its lease was stolen, and it has not been notified. What it asked the store before may still confirm its lease; what it asks
    /// afterwards may not.
    fn is_misled_for_too_long(&mut self) -> bool {
        let Some((until, latest)) = self.witness.certainty() else { return false };
        let longest = until.max(latest);
        until > *self.misled_until.get_or_insert(longest)
    }
}

/// Sees all guards, learns what became of their grants, and records each broken rule.
pub(crate) struct Judge<W> {
    pub(crate) guards: Vec<Watched<W>>,
    pub(crate) tally: Tally,
    /// The tokens of all guards so far, by key.
    tokens: HashSet<(usize, u64)>,
    /// By key, the newest grant of all that a guard was handed out for, and the newest exclusive one.
    handed: BTreeMap<usize, (u64, u64)>,
    /// The token of the last fenced write, by key.
    written: BTreeMap<usize, u64>,
    /// The holders of these grants believe in them until they are notified.
    robbed: HashSet<(usize, u64)>,
    /// These grants were stolen, and their holders may be notified of that.
    stolen: HashSet<(usize, u64)>,
    /// These grants were upgraded. Their holders may learn what became of the new grant before they know that they have it.
    upgraded: HashSet<(usize, u64)>,
    /// Another context ended the sessions that held these grants.
    evicted: HashSet<(usize, u64)>,
    /// The other reasons for which a context may lose a lease.
    losses: Vec<(u64, LostReason)>,
    /// The store lost a commit. Until this time belief may be wrong.
    shaken_until: Monotonic,
    /// The store has lost a commit: from then on a loss may have any reason.
    shaken: bool,
    wrong: Vec<String>,
}

impl<W: Witness> Judge<W> {
    pub(crate) fn new(tally: Tally) -> Self {
        Self {
            guards: Vec::new(),
            tally,
            tokens: HashSet::new(),
            handed: BTreeMap::new(),
            written: BTreeMap::new(),
            robbed: HashSet::new(),
            stolen: HashSet::new(),
            upgraded: HashSet::new(),
            evicted: HashSet::new(),
            losses: Vec::new(),
            shaken_until: Monotonic::default(),
            shaken: false,
            wrong: Vec::new(),
        }
    }

    pub(crate) fn accuse(&mut self, wrong: String) {
        self.wrong.push(wrong);
    }

    pub(crate) fn wrong(&self) -> &[String] {
        &self.wrong
    }

    /// Notes that the store lost a commit.
    pub(crate) fn shake(&mut self, until: Monotonic) {
        self.shaken_until = until;
        self.shaken = true;
        self.handed.clear();
    }

    /// The newest grant of a key that a guard was handed out for, and the newest exclusive one.
    pub(crate) fn newest(&self, key: usize) -> (u64, u64) {
        self.handed.get(&key).copied().unwrap_or_default()
    }

    /// A guard was handed out, perhaps late. It must be the newest only if it is valid.
    pub(crate) fn hand_out(&mut self, watched: Watched<W>, now: Monotonic) {
        if !self.tokens.insert((watched.key, watched.token)) {
            self.wrong.push(format!("{} of k{} was handed out twice", watched.token, watched.key));
        }
        if now >= self.shaken_until && watched.witness.is_valid() {
            self.is_held(watched.key, watched.grant, watched.shares());
        }
        self.guards.push(watched);
    }

    /// The holder of this guard believes in it, so no earlier holder of the key may.
    fn is_held(&mut self, key: usize, grant: u64, shares: bool) {
        let (newest, newest_exclusive) = self.handed.entry(key).or_default();
        *newest = grant.max(*newest);
        if !shares {
            *newest_exclusive = grant.max(*newest_exclusive);
        }
    }

    /// The holder of the guard in this place began to believe in it.
    pub(crate) fn believes(&mut self, at: usize) {
        let watched = &mut self.guards[at];
        watched.doubted = false;
        let (key, grant, shares) = (watched.key, watched.grant, watched.shares());
        self.is_held(key, grant, shares);
    }

    pub(crate) fn is_robbed(&self, key: usize, grant: u64) -> bool {
        self.robbed.contains(&(key, grant))
    }

    /// A guard became exclusive, and so has another grant.
    pub(crate) fn upgraded(&mut self, at: usize, token: u64, grant: u64, now: Monotonic) {
        let mut watched = self.guards.swap_remove(at);
        (watched.token, watched.grant, watched.downgrades) = (token, grant, false);
        self.hand_out(watched, now);
    }

    /// A grant was replaced by an upgrade. Until its holder is notified, and has the new token, it believes in the old grant.
    pub(crate) fn was_upgraded(&mut self, key: usize, grant: u64) {
        self.upgraded.insert((key, grant));
        self.robbed.insert((key, grant));
    }

    /// A grant was stolen. Until its holder is notified, it believes in that grant.
    pub(crate) fn was_stolen(&mut self, key: usize, grant: u64) {
        self.stolen.insert((key, grant));
        self.tally.count("a grant was stolen", self.robbed.insert((key, grant)));
    }

    /// Another context ended the session that held this grant: the holder must have stopped believing before. A grant that was stolen
    /// before does not count.
    pub(crate) fn was_evicted(&mut self, key: usize, grant: u64, now: Monotonic) {
        self.tally.count("a grant was evicted", ());
        self.evicted.insert((key, grant));
        if now >= self.shaken_until && !self.robbed.contains(&(key, grant)) && self.is_believed(key, grant) {
            self.wrong.push(format!("{grant} of k{key} was evicted while its holder believed in it"));
        }
    }

    /// The holder of this grant ended its session itself: it must have stopped believing before.
    pub(crate) fn was_given_up(&mut self, key: usize, grant: u64) {
        if self.is_believed(key, grant) {
            self.wrong.push(format!("{grant} of k{key} is believed in although its holder has ended the session"));
        }
    }

    /// The holder of this grant has given it back. Nobody may believe in it by then. A grant that an upgrade had replaced
    /// does not count: if the store forgets the upgrade, that grant stands there again, and its holder gives it back.
    pub(crate) fn was_given_back(&mut self, key: usize, grant: u64) {
        if !self.upgraded.contains(&(key, grant)) && self.is_believed(key, grant) {
            self.wrong.push(format!("{grant} of k{key} is believed in although its holder has given it back"));
        }
    }

    /// A context may be told from now on that it lost what it holds, for this reason.
    pub(crate) fn may_lose(&mut self, context: u64, reason: LostReason) {
        self.losses.push((context, reason));
    }

    /// A write that was fenced by an exclusive lease was committed: none may come after one with a larger token.
    pub(crate) fn written(&mut self, key: usize, token: u64) {
        let last = self.written.entry(key).or_default();
        if token < *last {
            self.wrong.push(format!("a write by {token} of k{key} was committed after one by {last}"));
        }
        *last = token.max(*last);
    }

    fn is_believed(&self, key: usize, grant: u64) -> bool {
        let of_it = |watched: &&Watched<W>| (watched.key, watched.grant) == (key, grant) && watched.witness.is_awake();
        self.guards.iter().filter(of_it).any(|watched| watched.witness.is_valid())
    }

    /// Every reported loss has a reason that was possible.
    pub(crate) fn look_at_losses(&mut self) {
        let Self { guards, stolen, upgraded, evicted, losses, wrong, shaken, tally, .. } = self;
        for watched in guards.iter_mut().filter(|watched| !watched.lost) {
            let Some(reason) = watched.witness.loss() else { continue };
            watched.lost = tally.count("a loss was told", true);
            let of_it = (watched.key, watched.grant);
            let possible = match reason {
                LostReason::Stolen if stolen.contains(&of_it) => tally.count("a loss by theft was told", true),
                // A thief in the same context need not be observed: what it takes is released, whatever became of it.
                LostReason::Stolen => tally.count("a loss by a neighbour's theft was told", true),
                LostReason::Evicted => tally.count("a loss by eviction was told", evicted.contains(&of_it)),
                LostReason::Expired => tally.count("a loss by expiry was told", true),
                LostReason::Suspended | LostReason::Closed | LostReason::StoreFailed | LostReason::StoreFull => {
                    losses.contains(&(watched.context, reason))
                }
                _ => false,
            };
            if !possible && !*shaken && !upgraded.contains(&of_it) {
                wrong.push(format!("{} of k{} was lost for a wrong reason: {reason:?}", watched.token, watched.key));
            }
        }
    }

    /// Two contexts never believe at once, not even for a moment, unless both share. Nobody believes once a guard of a later grant that
    /// conflicts was handed out, or once it was notified of the loss.
    pub(crate) fn look(&mut self, now: Monotonic) {
        self.look_at_losses();
        let Self { guards, handed, robbed, stolen, wrong, shaken_until, tally, .. } = self;
        let mut believers = Vec::<(usize, u64, bool, bool)>::new();
        for watched in guards.iter_mut().filter(|watched| watched.witness.is_awake()) {
            if !watched.witness.is_valid() {
                watched.doubted = true;
                continue;
            }
            if std::mem::take(&mut watched.doubted) {
                tally.count("a doubt was dispelled", ());
            }
            let Watched { key, token, grant, .. } = *watched;
            if watched.witness.loss().is_some() {
                wrong.push(format!("{token} of k{key} is valid though its loss was told"));
            }
            // If it was just upgraded, the judge learns that in a moment.
            let upgraded = watched.witness.token() != token;
            if upgraded || now < *shaken_until {
                continue;
            }
            if robbed.contains(&(key, grant)) {
                if stolen.contains(&(key, grant)) && watched.is_misled_for_too_long() {
                    wrong.push(format!("{token} of k{key} was stolen, and its lease was confirmed afterwards"));
                }
                continue;
            }
            let shares = watched.shares();
            let (newest, newest_exclusive) = handed.get(&key).copied().unwrap_or_default();
            let newer = if shares { newest_exclusive } else { newest };
            if newer > grant {
                wrong.push(format!("{token} of k{key} is valid after {newer}"));
            }
            let together = |other: &(usize, u64, bool, bool)| {
                (shares && other.2) || (other.1 == grant && watched.shares_in_process && other.3)
            };
            if let Some(other) = believers.iter().find(|other| other.0 == key && !together(other)) {
                wrong.push(format!("at {now:?} guards of {grant} and {} of k{key} are valid at once", other.1));
            }
            believers.push((key, grant, shares, watched.shares_in_process));
        }
    }
}

//! Who watches every guard at every moment, and counts what happened.

use std::{
    collections::{BTreeMap, HashSet},
    fmt::Write as _,
    sync::{Arc, Mutex},
};

use leasehold::{
    LeaseGuard, LeaseParts, LeaseState, LeaseWatch, LostReason, Mode,
    executor::{Executor, SimExecutor},
    machine::Monotonic,
};

use crate::support::{doubles::PausingExecutor, ghost::End, vault::Vault};

/// What happened, and how often: a world in which nothing goes wrong proves nothing.
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

/// Sees the guards that are alive in all contexts, and is told what the store did to their grants.
#[derive(Clone)]
pub(crate) struct Oracle {
    seen: Arc<Mutex<Seen>>,
    sim: SimExecutor,
    pub(crate) tally: Tally,
    loud: bool,
}

#[derive(Default)]
struct Seen {
    guards: Vec<Watched>,
    /// Of all guards ever, by key.
    tokens: HashSet<(usize, u64)>,
    /// The newest grants that a guard was handed out of, by key: of all, and of the exclusive ones.
    handed: BTreeMap<usize, (u64, u64)>,
    /// Whoever held these believes in them until it is told.
    robbed: HashSet<(usize, u64)>,
    /// Whoever held these may be told that they were stolen.
    stolen: HashSet<(usize, u64)>,
    /// These became others: what became of those, their holders may be told before they know of them.
    upgraded: HashSet<(usize, u64)>,
    /// Somebody ended the sessions that held these.
    evicted: HashSet<(usize, u64)>,
    /// For what other reasons a context may lose something.
    losses: Vec<(u64, LostReason)>,
    /// The store lost a commit: until then belief may be wrong.
    shaken_until: Monotonic,
    /// It did so once: since then a loss may have any reason.
    shaken: bool,
    wrong: Vec<String>,
    parcels: Vec<LeaseParts>,
    granted: u64,
    over: bool,
    calm: bool,
}

struct Watched {
    guard: Arc<LeaseGuard>,
    watch: LeaseWatch,
    executor: PausingExecutor,
    context: u64,
    key: usize,
    token: u64,
    grant: u64,
    shares_in_process: bool,
    /// It asked to share: from then on it must not count on being alone.
    downgrades: bool,
    doubted: bool,
    /// Its loss was told, and looked at.
    lost: bool,
}

impl Oracle {
    pub(crate) fn new(sim: SimExecutor, tally: Tally) -> Self {
        Self { seen: Arc::default(), sim, tally, loud: std::env::var_os("HISTORY_TRACE").is_some() }
    }

    /// Whether everything is to be told as it happens.
    pub(crate) fn is_loud(&self) -> bool {
        self.loud
    }

    pub(crate) fn tell(&self, what: impl FnOnce() -> String) {
        if self.loud {
            eprintln!("{:>8} {}", self.sim.now().monotonic.as_ms(), what());
        }
    }

    /// Where things go on that no context can stop.
    pub(crate) fn world(&self) -> SimExecutor {
        self.sim.clone()
    }

    /// How many guards were handed out.
    pub(crate) fn granted(&self) -> u64 {
        self.seen.lock().unwrap().granted
    }

    /// Whether everybody is to come to an end.
    pub(crate) fn is_over(&self) -> bool {
        self.seen.lock().unwrap().over
    }

    pub(crate) fn set_over(&self, over: bool) {
        self.seen.lock().unwrap().over = over;
    }

    /// Whether all is to be left in order.
    pub(crate) fn is_calm(&self) -> bool {
        self.seen.lock().unwrap().calm
    }

    pub(crate) fn calm_down(&self) {
        let mut seen = self.seen.lock().unwrap();
        seen.calm = true;
        seen.parcels.clear();
    }

    /// Something is wrong. Told by [`verdict`](Self::verdict): a panic here would go through the code that is tested.
    pub(crate) fn accuse(&self, wrong: String) {
        self.seen.lock().unwrap().wrong.push(wrong);
    }

    /// Looks at all guards, and says what was wrong so far.
    pub(crate) fn verdict(&self) -> Result<(), String> {
        self.look();
        let seen = self.seen.lock().unwrap();
        seen.wrong.iter().for_each(|wrong| self.tell(|| format!("WRONG {wrong}")));
        if seen.wrong.is_empty() { Ok(()) } else { Err(seen.wrong.join("; ")) }
    }

    /// The store lost a commit.
    pub(crate) fn shake(&self, until: Monotonic) {
        let mut seen = self.seen.lock().unwrap();
        seen.shaken_until = until;
        seen.shaken = true;
        seen.handed.clear();
    }

    /// A guard was handed out. That may be late: only if it is valid it must be the newest.
    pub(crate) fn welcome(&self, guard: &Arc<LeaseGuard>, place: &Place<'_>) {
        let token = guard.token().as_u64();
        let Some(grant) = place.vault.grant_of(place.key, guard.token()) else {
            return self.accuse(format!("{token} was never granted"));
        };
        let watched = Watched {
            guard: guard.clone(),
            watch: guard.watch(),
            executor: place.executor.clone(),
            context: place.context,
            key: place.key,
            token,
            grant,
            shares_in_process: place.shares_in_process,
            downgrades: false,
            doubted: false,
            lost: false,
        };
        self.tell(|| {
            format!("{} gets {token} of k{} {:?} valid {}", place.context, place.key, guard.mode(), guard.is_valid())
        });
        let mut seen = self.seen.lock().unwrap();
        seen.granted += 1;
        seen.hand_out(&watched, self.sim.now().monotonic);
        seen.guards.push(watched);
        drop(seen);
        self.look();
    }

    /// The guard is about to share.
    pub(crate) fn downgrades(&self, guard: &Arc<LeaseGuard>) {
        let mut seen = self.seen.lock().unwrap();
        seen.of(guard).into_iter().for_each(|watched| watched.downgrades = true);
    }

    /// The guard became exclusive, and so another one.
    pub(crate) fn upgraded(&self, guard: &Arc<LeaseGuard>, vault: &Vault) {
        let mut seen = self.seen.lock().unwrap();
        let Some(watched) = seen.of(guard) else { return };
        let token = guard.token();
        if token.as_u64() == watched.token {
            return;
        }
        let grant = vault.grant_of(watched.key, token).unwrap_or(0);
        (watched.token, watched.grant, watched.downgrades) = (token.as_u64(), grant, false);
        let at = seen.guards.iter().position(|watched| Arc::ptr_eq(&watched.guard, guard)).unwrap();
        let watched = seen.guards.swap_remove(at);
        seen.hand_out(&watched, self.sim.now().monotonic);
        seen.guards.push(watched);
        drop(seen);
        self.look();
    }

    /// The store ended these grants. Who was taken for dead must have stopped believing before.
    pub(crate) fn ended(&self, grants: &[(usize, u64, End)]) {
        let mut seen = self.seen.lock().unwrap();
        for &(key, grant, end) in grants {
            match end {
                End::ByItsHolder => {}
                // Until its holder is told, and gets another token, it believes in what is no more.
                End::Upgraded => {
                    seen.upgraded.insert((key, grant));
                    seen.robbed.insert((key, grant));
                }
                End::Stolen => {
                    seen.stolen.insert((key, grant));
                    self.tally.count("a grant was stolen", seen.robbed.insert((key, grant)));
                }
                // When its session ended it was judged.
                End::Lapsed => self.tally.count("a grant went after its session", ()),
            }
        }
    }

    /// Somebody ended the session that held these grants: it must have stopped believing before. What was stolen from it
    /// before does not count.
    pub(crate) fn evicted(&self, grants: &[(usize, u64)]) {
        let mut seen = self.seen.lock().unwrap();
        let shaken = self.sim.now().monotonic < seen.shaken_until;
        for &(key, grant) in grants {
            self.tally.count("a grant was evicted", ());
            seen.evicted.insert((key, grant));
            if !shaken && !seen.robbed.contains(&(key, grant)) && seen.is_believed(key, grant) {
                seen.wrong.push(format!("{grant} of k{key} was evicted while its holder believed in it"));
            }
        }
    }

    /// The holder of these grants ended its session itself: it must have stopped believing before.
    pub(crate) fn given_up(&self, grants: &[(usize, u64)]) {
        let mut seen = self.seen.lock().unwrap();
        for &(key, grant) in grants {
            if seen.is_believed(key, grant) {
                seen.wrong.push(format!("{grant} of k{key} is believed in although its session has ended itself"));
            }
        }
    }

    /// A context may be told from now on that it lost what it holds, for this reason.
    pub(crate) fn may_lose(&self, context: u64, reason: LostReason) {
        self.seen.lock().unwrap().losses.push((context, reason));
    }

    /// Never do two contexts believe, not even for a moment, unless both share; nor does anybody once a later grant that
    /// conflicts was handed out, nor once told of the loss.
    pub(crate) fn look(&self) {
        let now = self.sim.now().monotonic;
        self.seen.lock().unwrap().look(now, &self.tally);
    }

    /// Its owner is about to give it back.
    pub(crate) fn dismiss(&self, guard: &Arc<LeaseGuard>) {
        if !guard.is_valid() {
            self.tally.count("a guard was lost or in doubt at its end", ());
        }
        let mut seen = self.seen.lock().unwrap();
        let Some(at) = seen.guards.iter().position(|watched| Arc::ptr_eq(&watched.guard, guard)) else { return };
        seen.look_at_losses(&self.tally);
        let watched = seen.guards.swap_remove(at);
        drop(seen);
        self.tell(|| format!("{} ends {} of k{}", watched.context, watched.token, watched.key));
    }

    /// Its context crashed: what it held is nobody's.
    pub(crate) fn bury(&self, context: u64) -> Vec<Arc<LeaseGuard>> {
        let mut seen = self.seen.lock().unwrap();
        let dead = seen.guards.extract_if(.., |watched| watched.context == context);
        dead.map(|watched| watched.guard).collect()
    }

    /// A lease on its way, for whoever takes it.
    pub(crate) fn leave(&self, parts: LeaseParts) {
        self.seen.lock().unwrap().parcels.push(parts);
    }

    pub(crate) fn take_parcel(&self) -> Option<LeaseParts> {
        self.seen.lock().unwrap().parcels.pop()
    }
}

/// Where a guard was handed out.
pub(crate) struct Place<'a> {
    pub(crate) vault: &'a Vault,
    pub(crate) executor: &'a PausingExecutor,
    pub(crate) context: u64,
    pub(crate) key: usize,
    pub(crate) shares_in_process: bool,
}

impl Watched {
    fn shares(&self) -> bool {
        self.downgrades || self.guard.mode() == Mode::Shared
    }
}

impl Seen {
    fn of(&mut self, guard: &Arc<LeaseGuard>) -> Option<&mut Watched> {
        self.guards.iter_mut().find(|watched| Arc::ptr_eq(&watched.guard, guard))
    }

    fn hand_out(&mut self, watched: &Watched, now: Monotonic) {
        if !self.tokens.insert((watched.key, watched.token)) {
            self.wrong.push(format!("{} of k{} was handed out twice", watched.token, watched.key));
        }
        if now >= self.shaken_until && watched.guard.is_valid() {
            let (newest, newest_exclusive) = self.handed.entry(watched.key).or_default();
            *newest = watched.grant.max(*newest);
            if !watched.shares() {
                *newest_exclusive = watched.grant.max(*newest_exclusive);
            }
        }
    }

    fn is_believed(&self, key: usize, grant: u64) -> bool {
        let of_it = |watched: &&Watched| (watched.key, watched.grant) == (key, grant) && !watched.executor.is_paused();
        self.guards.iter().filter(of_it).any(|watched| watched.guard.is_valid())
    }

    /// Every loss is told with a reason that was possible.
    fn look_at_losses(&mut self, tally: &Tally) {
        let Self { guards, stolen, upgraded, evicted, losses, wrong, shaken, .. } = self;
        for watched in guards.iter_mut().filter(|watched| !watched.lost) {
            let LeaseState::Lost(reason) = watched.watch.state() else { continue };
            watched.lost = tally.count("a loss was told", true);
            let of_it = (watched.key, watched.grant);
            let possible = match reason {
                LostReason::Stolen if stolen.contains(&of_it) => tally.count("a loss by theft was told", true),
                // A thief of the same context is not waited for: what it takes is given back, whatever became of it.
                LostReason::Stolen => tally.count("a loss by a neighbour's theft was told", true),
                LostReason::Evicted => tally.count("a loss by eviction was told", evicted.contains(&of_it)),
                LostReason::Expired => tally.count("a loss by expiry was told", true),
                LostReason::Suspended | LostReason::Closed => losses.contains(&(watched.context, reason)),
                _ => false,
            };
            if !possible && !*shaken && !upgraded.contains(&of_it) {
                wrong.push(format!("{} of k{} was lost, it says, because {reason:?}", watched.token, watched.key));
            }
        }
    }

    fn look(&mut self, now: Monotonic, tally: &Tally) {
        self.look_at_losses(tally);
        let Self { guards, handed, robbed, wrong, shaken_until, .. } = self;
        let mut believers = Vec::<(usize, u64, bool, bool)>::new();
        // Nobody can ask a machine that sleeps.
        for watched in guards.iter_mut().filter(|watched| !watched.executor.is_paused()) {
            if !watched.guard.is_valid() {
                watched.doubted = true;
                continue;
            }
            if std::mem::take(&mut watched.doubted) {
                tally.count("a doubt was dispelled", ());
            }
            let Watched { key, token, grant, .. } = *watched;
            if matches!(watched.watch.state(), LeaseState::Lost(_)) {
                wrong.push(format!("{token} of k{key} is valid though its loss was told"));
            }
            // One that was upgraded in this moment is told to us in a moment.
            let upgraded = watched.guard.token().as_u64() != token;
            if upgraded || now < *shaken_until || robbed.contains(&(key, grant)) {
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

impl std::fmt::Debug for Oracle {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Oracle")
    }
}

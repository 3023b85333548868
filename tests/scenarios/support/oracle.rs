//! Who watches every guard at every moment, and counts what happened.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use leasehold::{
    LeaseGuard, LeaseParts, LeaseState, LeaseWatch, LostReason, Mode,
    executor::{Executor, SimExecutor},
    machine::Monotonic,
};

pub(crate) use crate::support::judge::Tally;
use crate::support::{
    doubles::PausingExecutor,
    ghost::End,
    judge::{Judge, Watched, Witness},
    vault::Vault,
};

/// Sees the guards that are alive in all contexts, and is told what the store did to their grants.
#[derive(Clone)]
pub(crate) struct Oracle {
    seen: Arc<Mutex<Seen>>,
    /// How long the leases of each context are, or were asked to be.
    leases_ms: Arc<Mutex<BTreeMap<u64, Arc<AtomicU64>>>>,
    sim: SimExecutor,
    pub(crate) tally: Tally,
    lease: Duration,
    loud: bool,
}

struct Seen {
    judge: Judge<Guard>,
    parcels: Vec<LeaseParts>,
    granted: u64,
    over: bool,
    calm: bool,
}

/// A guard tells of itself.
struct Guard {
    guard: Arc<LeaseGuard>,
    watch: LeaseWatch,
    executor: PausingExecutor,
    /// How long a lease of its context is, or was asked to be.
    lease_ms: Arc<AtomicU64>,
}

impl Witness for Guard {
    fn is_awake(&self) -> bool {
        !self.executor.is_paused()
    }

    fn is_valid(&self) -> bool {
        self.guard.is_valid()
    }

    fn is_shared(&self) -> bool {
        self.guard.mode() == Mode::Shared
    }

    fn token(&self) -> u64 {
        self.guard.token().as_u64()
    }

    fn loss(&self) -> Option<LostReason> {
        match self.watch.state() {
            LeaseState::Lost(reason) => Some(reason),
            _ => None,
        }
    }

    fn certainty(&self) -> Option<(Monotonic, Monotonic)> {
        let now = self.executor.now().monotonic;
        Some((now.plus(self.guard.remaining().as_millis() as u64), now.plus(self.lease_ms.load(Relaxed))))
    }
}

impl Oracle {
    pub(crate) fn new(sim: SimExecutor, tally: Tally, lease: Duration) -> Self {
        let judge = Judge::new(tally.clone());
        let seen = Seen { judge, parcels: Vec::new(), granted: 0, over: false, calm: false };
        let loud = std::env::var_os("HISTORY_TRACE").is_some();
        Self { seen: Arc::new(Mutex::new(seen)), leases_ms: Arc::default(), sim, tally, lease, loud }
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
        self.seen.lock().unwrap().judge.accuse(wrong);
    }

    /// Looks at all guards, and says what was wrong so far.
    pub(crate) fn verdict(&self) -> Result<(), String> {
        self.look();
        let seen = self.seen.lock().unwrap();
        let wrong = seen.judge.wrong();
        wrong.iter().for_each(|wrong| self.tell(|| format!("WRONG {wrong}")));
        if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ")) }
    }

    /// The store lost a commit.
    pub(crate) fn shake(&self, until: Monotonic) {
        self.seen.lock().unwrap().judge.shake(until);
    }

    /// A guard was handed out. That may be late: only if it is valid it must be the newest.
    pub(crate) fn welcome(&self, guard: &Arc<LeaseGuard>, place: &Place<'_>) {
        let token = guard.token().as_u64();
        let Some(grant) = place.vault.grant_of(place.key, guard.token()) else {
            return self.accuse(format!("{token} was never granted"));
        };
        let (watch, lease_ms) = (guard.watch(), self.lease_ms(place.context));
        let witness = Guard { guard: guard.clone(), watch, executor: place.executor.clone(), lease_ms };
        let mut watched = Watched::new(witness, place.context, (place.key, token, grant));
        watched.shares_in_process = place.shares_in_process;
        self.tell(|| {
            format!("{} gets {token} of k{} {:?} valid {}", place.context, place.key, guard.mode(), guard.is_valid())
        });
        let mut seen = self.seen.lock().unwrap();
        seen.granted += 1;
        seen.judge.hand_out(watched, self.sim.now().monotonic);
        drop(seen);
        self.look();
    }

    fn lease_ms(&self, context: u64) -> Arc<AtomicU64> {
        let own = || Arc::new(AtomicU64::new(self.lease.as_millis() as u64));
        self.leases_ms.lock().unwrap().entry(context).or_insert_with(own).clone()
    }

    /// A context asks for a lease of this length, which concerns all that it holds.
    pub(crate) fn extends(&self, context: u64, span: Duration) {
        self.lease_ms(context).fetch_max(span.as_millis() as u64, Relaxed);
    }

    /// The guard is about to share.
    pub(crate) fn downgrades(&self, guard: &Arc<LeaseGuard>) {
        let mut seen = self.seen.lock().unwrap();
        if let Some(at) = seen.position(guard) {
            seen.judge.guards[at].downgrades = true;
        }
    }

    /// The guard became exclusive, and so another one.
    pub(crate) fn upgraded(&self, guard: &Arc<LeaseGuard>, vault: &Vault) {
        let mut seen = self.seen.lock().unwrap();
        let Some(at) = seen.position(guard) else { return };
        let (watched, token) = (&seen.judge.guards[at], guard.token());
        if token.as_u64() == watched.token {
            return;
        }
        let grant = vault.grant_of(watched.key, token).unwrap_or(0);
        seen.judge.upgraded(at, token.as_u64(), grant, self.sim.now().monotonic);
        drop(seen);
        self.look();
    }

    /// The store ended these grants. Who was taken for dead must have stopped believing before.
    pub(crate) fn ended(&self, grants: &[(usize, u64, End)]) {
        let mut seen = self.seen.lock().unwrap();
        for &(key, grant, end) in grants {
            match end {
                End::ByItsHolder => seen.judge.was_given_back(key, grant),
                End::Upgraded => seen.judge.was_upgraded(key, grant),
                End::Stolen => seen.judge.was_stolen(key, grant),
                // When its session ended it was judged.
                End::Lapsed => self.tally.count("a grant went after its session", ()),
            }
        }
    }

    /// Somebody ended the session that held these grants: it must have stopped believing before. What was stolen from it
    /// before does not count.
    pub(crate) fn evicted(&self, grants: &[(usize, u64)]) {
        let mut seen = self.seen.lock().unwrap();
        grants.iter().for_each(|&(key, grant)| seen.judge.was_evicted(key, grant, self.sim.now().monotonic));
    }

    /// The holder of these grants ended its session itself: it must have stopped believing before.
    pub(crate) fn given_up(&self, grants: &[(usize, u64)]) {
        let mut seen = self.seen.lock().unwrap();
        grants.iter().for_each(|&(key, grant)| seen.judge.was_given_up(key, grant));
    }

    /// A context may be told from now on that it lost what it holds, for this reason.
    pub(crate) fn may_lose(&self, context: u64, reason: LostReason) {
        self.seen.lock().unwrap().judge.may_lose(context, reason);
    }

    /// Looks at all guards.
    pub(crate) fn look(&self) {
        let now = self.sim.now().monotonic;
        self.seen.lock().unwrap().judge.look(now);
    }

    /// Its owner is about to give it back.
    pub(crate) fn dismiss(&self, guard: &Arc<LeaseGuard>) {
        if !guard.is_valid() {
            self.tally.count("a guard was lost or in doubt at its end", ());
        }
        let mut seen = self.seen.lock().unwrap();
        let Some(at) = seen.position(guard) else { return };
        seen.judge.look_at_losses();
        let watched = seen.judge.guards.swap_remove(at);
        drop(seen);
        self.tell(|| format!("{} ends {} of k{}", watched.context, watched.token, watched.key));
    }

    /// Its context crashed: what it held is nobody's.
    pub(crate) fn bury(&self, context: u64) -> Vec<Arc<LeaseGuard>> {
        let mut seen = self.seen.lock().unwrap();
        let dead = seen.judge.guards.extract_if(.., |watched| watched.context == context);
        dead.map(|watched| watched.witness.guard).collect()
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

impl Seen {
    fn position(&self, guard: &Arc<LeaseGuard>) -> Option<usize> {
        self.judge.guards.iter().position(|watched| Arc::ptr_eq(&watched.witness.guard, guard))
    }
}

impl std::fmt::Debug for Oracle {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Oracle")
    }
}

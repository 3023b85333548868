//! Who watches every guard at every moment, and counts what happened.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

use futures::future::FutureExt;
use leasehold::{LeaseGuard, machine::Incarnation};

use crate::doubles::PausingExecutor;

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
}

/// Sees the guards that are alive in all contexts.
#[derive(Clone)]
pub(crate) struct Oracle {
    seen: Arc<Mutex<Seen>>,
    pub(crate) tally: Tally,
}

#[derive(Default)]
struct Seen {
    guards: Vec<Watched>,
    tokens: BTreeMap<String, BTreeSet<u64>>,
    granted: u64,
}

struct Watched {
    guard: Arc<LeaseGuard>,
    context: Incarnation,
    executor: PausingExecutor,
    doubted: bool,
}

impl Oracle {
    pub(crate) fn new(tally: Tally) -> Self {
        Self { seen: Arc::default(), tally }
    }

    /// How many guards were handed out.
    pub(crate) fn granted(&self) -> u64 {
        self.seen.lock().unwrap().granted
    }

    /// A guard was handed out. That may be late: only if it is valid it must be the newest.
    pub(crate) fn welcome(&self, context: Incarnation, executor: &PausingExecutor, guard: &Arc<LeaseGuard>) {
        let watched = Watched { guard: guard.clone(), context, executor: executor.clone(), doubted: false };
        let mut seen = self.seen.lock().unwrap();
        let token = guard.token().as_u64();
        let is_new = seen.tokens.entry(guard.key().to_owned()).or_default().insert(token);
        seen.granted += 1;
        seen.guards.push(watched);
        // Not under the lock, which others still need while this history ends.
        drop(seen);
        assert!(is_new, "{token} was handed out twice");
        self.look();
    }

    /// Never do two contexts believe, not even for a moment; nor does anybody once a larger token was handed out, nor
    /// once told of the loss.
    pub(crate) fn look(&self) {
        let mut seen = self.seen.lock().unwrap();
        let wrong = seen.look(&self.tally);
        drop(seen);
        assert!(wrong.is_empty(), "{}", wrong.join("; "));
    }

    /// Its owner is about to give it back.
    pub(crate) fn dismiss(&self, guard: &Arc<LeaseGuard>) {
        if !guard.is_valid() {
            self.tally.count("a guard was lost or in doubt at its end", ());
        }
        if guard.lost().now_or_never().is_some() {
            self.tally.count("a loss was told", ());
        }
        self.seen.lock().unwrap().guards.retain(|watched| !Arc::ptr_eq(&watched.guard, guard));
    }

    /// Its context crashed: what it held is nobody's.
    pub(crate) fn bury(&self, context: Incarnation) -> Vec<Arc<LeaseGuard>> {
        let mut seen = self.seen.lock().unwrap();
        let dead = seen.guards.extract_if(.., |watched| watched.context == context);
        dead.map(|watched| watched.guard).collect()
    }
}

impl Seen {
    fn look(&mut self, tally: &Tally) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut believers = BTreeMap::<_, Vec<_>>::new();
        // Nobody can ask a machine that sleeps.
        for watched in self.guards.iter_mut().filter(|watched| !watched.executor.is_paused()) {
            let (guard, token) = (&watched.guard, watched.guard.token().as_u64());
            if !guard.is_valid() {
                watched.doubted = true;
                continue;
            }
            if std::mem::take(&mut watched.doubted) {
                tally.count("a doubt was dispelled", ());
            }
            if guard.lost().now_or_never().is_some() {
                wrong.push(format!("{token} of {} is valid though its loss was told", guard.key()));
            }
            let newest = self.tokens[guard.key()].last();
            if newest.is_none_or(|newest| *newest > token) {
                wrong.push(format!("{token} of {} is valid after {newest:?}", guard.key()));
            }
            believers.entry(guard.key()).or_default().push((watched.context, token));
        }
        let crowds = believers.into_iter().filter(|(_, crowd)| crowd.len() > 1);
        wrong.extend(crowds.map(|(key, crowd)| format!("guards of {key} are valid at once: {crowd:?}")));
        wrong
    }
}

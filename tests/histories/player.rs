//! A process of a history: two contexts, in each of which a few workers take leases.

use std::{
    path::PathBuf,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use futures::future::join_all;
use leasehold::{AcquireError, LeaseGuard, LeaseManager, LeaseManagerBuilder, LeaseState, ReleaseOutcome};
use tokio::{
    runtime::Runtime,
    time::{sleep, timeout},
};

use super::{Dice, KEYS, Note, Notebook, What, note::now};
use crate::other::{say, told};

/// The shortest lease that is allowed.
pub(crate) const LEASE: Duration = Duration::from_secs(1);
const CONTEXTS: u64 = 2;
const WORKERS: u64 = 3;
/// Longer than any fault and its consequences last, however busy the machine is.
const BUSY: Duration = Duration::from_secs(60);
/// The worker gives up on a write that takes longer.
const PATIENCE: Duration = Duration::from_secs(2);

/// The outcome of a fenced write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    Yes,
    /// It was refused, or its outcome is unknown.
    No,
}

/// Writes tokens, each as a new row, so that the store can report their order afterwards.
pub(crate) trait Desk {
    async fn write(&self, guard: &LeaseGuard, key: usize) -> Written;
}

/// A process's part in a history, encoded in the name of its role.
pub(crate) struct Part {
    number: u64,
    seed: u64,
    notebook: PathBuf,
}

impl Part {
    pub(crate) fn role(number: u64, seed: u64, notebook: &std::path::Path) -> String {
        format!("history {number} {seed} {}", notebook.display())
    }

    fn read(role: &str) -> Option<Self> {
        let mut words = role.strip_prefix("history ")?.splitn(3, ' ');
        let (number, seed) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        Some(Self { number, seed, notebook: words.next()?.into() })
    }
}

/// If the role is a part in a history, plays it until the first process says that the history is over. Returns whether it was one.
pub(crate) fn play<D: Desk>(role: &str, open: impl AsyncFn() -> (LeaseManagerBuilder, D)) -> bool {
    let Some(part) = Part::read(role) else { return false };
    let over = Arc::new(AtomicBool::new(false));
    let hears = Arc::clone(&over);
    std::thread::spawn(move || {
        told().take(1).for_each(|_| hears.store(true, SeqCst));
        // This process does not outlive the first one, however that one dies.
        if !hears.load(SeqCst) {
            std::process::exit(0);
        }
    });
    let notebook = Notebook::open(&part.notebook);
    Runtime::new().unwrap().block_on(async {
        let contexts = join_all((0..CONTEXTS).map(|number| context(&open, &part, number))).await;
        let players = contexts.iter().map(|(leases, desk, number)| {
            let played =
                Played { leases, desk, notebook: &notebook, over: &over, context: *number, guards: AtomicU64::new(0) };
            played.work_all(part.seed)
        });
        let ended = timeout(BUSY * 3, join_all(players)).await;
        for (leases, ..) in &contexts {
            leases.close().await;
        }
        say(if ended.is_ok() { "done" } else { "stuck" });
    });
    true
}

/// The server may be down at this moment.
async fn context<D>(
    open: &impl AsyncFn() -> (LeaseManagerBuilder, D),
    part: &Part,
    number: u64,
) -> (LeaseManager, D, u64) {
    let (builder, desk) = open().await;
    (builder.lease(LEASE).build().expect("the options fit together"), desk, part.number * CONTEXTS + number)
}

struct Played<'a, D> {
    leases: &'a LeaseManager,
    desk: &'a D,
    notebook: &'a Notebook,
    over: &'a AtomicBool,
    context: u64,
    guards: AtomicU64,
}

/// A guard, and its number in the notes.
struct Held {
    guard: LeaseGuard,
    number: u64,
    key: usize,
    shared: bool,
}

impl<D: Desk> Played<'_, D> {
    async fn work_all(self, seed: u64) {
        let workers = (0..WORKERS).map(|worker| self.work(Dice(seed ^ (self.context << 8) ^ (worker << 32))));
        join_all(workers).await;
    }

    fn note(&self, guard: u64, what: What) {
        self.notebook.write(Note { at: now(), context: self.context, guard, what });
    }

    async fn work(&self, mut dice: Dice) {
        while !self.over.load(SeqCst) {
            sleep(Duration::from_millis(dice.below(10))).await;
            if let Some(held) = self.ask(&mut dice).await {
                self.hold(held, &mut dice).await;
            }
        }
    }

    async fn ask(&self, dice: &mut Dice) -> Option<Held> {
        let (number, key) = (self.guards.fetch_add(1, SeqCst), dice.index(KEYS));
        let (steals, shared) = (dice.one_in(50), dice.one_in(4));
        let request = self.leases.lock(&format!("k{key}"));
        let request = if shared && !steals { request.shared() } else { request };
        self.note(number, What::Asks { key, steals });
        let wait = Duration::from_millis(50 + dice.below(3_000));
        let granted: Result<_, AcquireError> = match dice.below(4) {
            _ if steals => request.steal().await.map(Some),
            0 => request.try_acquire().await,
            1 => {
                // It is dropped in the end, whatever is under way.
                let asked = pin!(request.acquire());
                timeout(wait, asked).await.map_or(Ok(None), |granted| granted.map(Some))
            }
            _ => request.timeout(wait).acquire().await.map(Some),
        };
        let Ok(Some(guard)) = granted else {
            self.note(number, What::Refused);
            return None;
        };
        let shared = shared && !steals;
        self.note(number, What::Granted { token: guard.token().as_u64(), shared });
        Some(Held { guard, number, key, shared })
    }

    /// Holds the lease until the time is over and the guard is certain, or until its loss is reported.
    async fn hold(&self, held: Held, dice: &mut Dice) {
        // Some hold for longer than a fault lasts.
        let span = if dice.one_in(6) { 500 + dice.below(2_500) } else { dice.below(60) };
        let (until, mut writes) = (Instant::now() + Duration::from_millis(span), dice.below(3));
        let (watch, mut doubted) = (held.guard.watch(), None::<Instant>);
        loop {
            let since = now();
            if held.guard.is_valid() {
                self.note(held.number, What::Valid { since });
                doubted = None;
                if Instant::now() >= until {
                    break;
                }
            } else if let LeaseState::Lost(reason) = watch.state() {
                return self.note(held.number, What::Lost(reason));
            } else if doubted.get_or_insert_with(Instant::now).elapsed() > BUSY {
                return self.note(held.number, What::Untold);
            }
            // It writes in doubt too: then the fence must decide.
            if !held.shared && writes > 0 {
                writes -= 1;
                let written = timeout(PATIENCE, self.desk.write(&held.guard, held.key)).await;
                self.note(held.number, if written == Ok(Written::Yes) { What::Wrote } else { What::WroteNot });
            }
            sleep(Duration::from_millis(1 + dice.below(4))).await;
        }
        self.leave(held, dice).await;
    }

    async fn leave(&self, held: Held, dice: &mut Dice) {
        self.note(held.number, What::Leaves);
        if dice.one_in(4) {
            return drop(held);
        }
        if held.guard.release().await == Ok(ReleaseOutcome::Released) {
            self.note(held.number, What::Released);
        }
    }
}

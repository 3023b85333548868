//! Processes that count under a fence, each with several tasks of one manager, while one after the other is killed at random. Each store
//! keeps the counts in its own way.

use std::{
    collections::hash_map::RandomState,
    future::poll_fn,
    hash::{BuildHasher, Hasher},
    pin::pin,
    process,
    task::Poll,
    thread,
    time::{Duration, Instant},
};

use futures::future::join_all;
use leasehold::{FenceError, LeaseGuard, LeaseManager};
use tokio::time::{sleep, timeout};

use crate::other::{Other, kills_more, say, told};

/// The shortest that a manager accepts: others wait this long for whoever is killed while it holds.
pub(crate) const LEASE: Duration = Duration::from_secs(1);
/// Longer than anything takes, however busy the machine is.
const BUSY: Duration = Duration::from_secs(60);
/// How long a holder works before each write: most are killed and stopped while they have the lease, but no lock of the store.
const WORK: Duration = Duration::from_millis(10);
/// The tasks of a process. When a write is dropped, another task of the same manager may be the next to get the lease.
pub(crate) const TASKS: u64 = 3;
/// A write may be dropped at each point where it waits, its commit included. No write waits more often than this.
const WAITS: u64 = 16;
/// The longest time before a waiting write is dropped, in ms.
const LATEST_DROP_MS: u64 = 30;
/// The longest pause before a death.
const LONGEST_PAUSE_US: u64 = 150_000;
/// Three leases: by then, the key is granted to another context. Until it is, a holder that goes on may renew its lease.
const STOP: Duration = Duration::from_secs(3);
/// The time between two stops.
const BETWEEN_STOPS: Duration = Duration::from_secs(10);

const COUNTED: &str = "counted";
const DROPPED: &str = "dropped";
const LOST: &str = "lost: ";

pub(crate) fn below(limit: u64) -> u64 {
    RandomState::new().build_hasher().finish() % limit
}

/// The other process: each of its tasks writes the next count again and again under each lease that it is granted, as fast as it can, until
/// the process is killed.
pub(crate) async fn count<Write>(leases: &LeaseManager, writes: impl IntoIterator<Item = Write>)
where
    Write: AsyncFnMut(&LeaseGuard, u64) -> Result<(), FenceError>,
{
    // It does not outlive the first process, whatever that one died of.
    thread::spawn(|| {
        told().for_each(drop);
        process::exit(0);
    });
    join_all(writes.into_iter().map(async |mut write| {
        loop {
            // On a busy machine the store may not answer for as long as such a short lease: then it asks anew.
            let Ok(guard) = leases.lock("k").timeout(BUSY).acquire().await else { continue };
            take_turn(guard, &mut write).await;
        }
    }))
    .await;
}

async fn take_turn(guard: LeaseGuard, write: &mut impl AsyncFnMut(&LeaseGuard, u64) -> Result<(), FenceError>) {
    for step in 0..3 {
        sleep(WORK).await;
        let patience = if below(4) == 0 { below(WAITS) } else { u64::MAX };
        match dropped_after(patience, write(&guard, step)).await {
            Some(Ok(())) => say(COUNTED),
            // The write may go on in the store, or may never have begun. Nobody awaits the release, either.
            None => return say(DROPPED),
            Some(Err(FenceError::Lost { .. })) => {
                let told = timeout(BUSY, guard.lost()).await.expect("a holder whose lease is lost is told so");
                return say(&format!("{LOST}{}", told.name()));
            }
            Some(Err(FenceError::Store(_))) => break,
            Some(Err(why)) => panic!("{why}"),
        }
    }
    drop(guard.release().await);
}

/// Drops the work in its next wait after `waits` waits: as soon as that one begins, or a moment later, when a server has been asked.
async fn dropped_after<T>(mut waits: u64, work: impl Future<Output = T>) -> Option<T> {
    let mut work = pin!(work);
    let done = poll_fn(|context| match work.as_mut().poll(context) {
        Poll::Ready(value) => Poll::Ready(Some(value)),
        Poll::Pending if waits == 0 => Poll::Ready(None),
        Poll::Pending => {
            waits -= 1;
            Poll::Pending
        }
    });
    match done.await {
        None if below(2) == 0 => timeout(Duration::from_millis(below(LATEST_DROP_MS)), work).await.ok(),
        done => done,
    }
}

/// How many were killed, and what they said.
#[derive(Debug, Default)]
pub(crate) struct Told {
    kills: usize,
    counts: usize,
    losses: usize,
    drops: usize,
}

impl Told {
    const fn proves_enough(&self) -> bool {
        self.kills > 10 && self.counts > 100 && self.losses > 0 && self.drops > 10
    }

    fn hear(&mut self, said: &str) {
        match said {
            COUNTED => self.counts += 1,
            DROPPED => self.drops += 1,
            said if said.starts_with(LOST) => self.losses += 1,
            said => panic!("{said:?}"),
        }
    }

    fn kill(&mut self, other: &mut Other) {
        self.kills += 1;
        for said in other.kill_at_work() {
            self.hear(&said);
        }
    }
}

/// Kills one after the other, each anywhere in its work, and starts another in its place. Now and then it stops all but one, among them the
/// one that has just spoken, for so long that a holder loses its lease; then they go on.
pub(crate) fn at_random(processes: usize, start: impl Fn() -> Other) -> Told {
    let mut others: Vec<Other> = (0..processes).map(|_| start()).collect();
    let (began, mut told, mut stops) = (Instant::now(), Told::default(), BETWEEN_STOPS / 2);
    for turn in (0..processes).cycle() {
        if !kills_more(began, || told.proves_enough()) {
            break;
        }
        let said = others[turn].hear_within(BUSY);
        told.hear(&said.unwrap_or_else(|| panic!("it does not get on: {told:?}")));
        if began.elapsed() > stops {
            stops = began.elapsed() + BETWEEN_STOPS;
            // Whoever speaks now has the key. What it had said before may be old.
            while let Some(said) = others[turn].hear_within(Duration::ZERO) {
                told.hear(&said);
            }
            told.hear(&others[turn].hear_within(BUSY).unwrap_or_else(|| panic!("it does not get on: {told:?}")));
            let going_on = (turn + 1) % processes;
            let stopped = (0..processes).filter(|number| *number != going_on).map(|number| &others[number]);
            // So the stop comes before a holder's check, or between the check and the write.
            thread::sleep(Duration::from_micros(below(30_000)));
            Other::stop_together(stopped.clone());
            thread::sleep(STOP);
            stopped.for_each(Other::go_on);
            continue;
        }
        thread::sleep(Duration::from_micros(below(LONGEST_PAUSE_US)));
        told.kill(&mut others[turn]);
        others[turn] = start();
    }
    others.iter_mut().for_each(|other| told.kill(other));
    told
}

/// A count, the token of the lease that it was written under, and how many were written under this lease before.
pub(crate) type Count = (u64, u64, u64);

/// Judges the counts, in their order: each is there once, and each holder's token is larger than those of all holders before it.
pub(crate) fn judge(told: &Told, counts: impl IntoIterator<Item = Count>) {
    // A second holder of the same token would begin at the first step again.
    let mut last = (0, 0);
    let mut written = 0;
    for (expected, (count, token, step)) in (1..).zip(counts) {
        assert_eq!(count, expected, "a count is missing, or there twice");
        assert!((token, step) > last, "{:?}, a token and a step, came after {last:?}", (token, step));
        (last, written) = ((token, step), written + 1);
    }
    println!("{written} counts, last token {}, {told:?}", last.0);
    assert!(told.counts <= written, "what was said was committed: {written} counts, {told:?}");
    assert!(told.proves_enough(), "{told:?} proves little");
}

//! Several threads at once: a store that blocks its thread is interrupted only by other threads.

use alloc::{boxed::Box, vec::Vec};
use core::time::Duration;
use std::{
    panic::resume_unwind,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    thread,
};

use futures::future::LocalBoxFuture;

use super::client::{Client, Seen};
use crate::machine::Token;
use crate::store::Store;

const THREADS: u128 = 4;
const TURNS: usize = 50;
/// Between two tries of a thread that finds the key taken.
const PAUSE: Duration = Duration::from_millis(1);
/// How often a thread finds the key taken before it says that a release was lost: a minute at least.
const TRIES: usize = 60_000;

/// What all threads see of each other.
#[derive(Default)]
struct Arena {
    inside: AtomicBool,
    largest: AtomicU64,
    /// One of them saw a rule broken.
    over: AtomicBool,
}

/// Threads take turns on one key, each over a connection of its own.
///
/// `open` makes a new connection to the same, empty store, on the thread that uses it; `block_on` runs a future there to its
/// end. With tokio that is a [`Handle::block_on`](https://docs.rs/tokio/latest/tokio/runtime/struct.Handle.html#method.block_on)
/// of a runtime with several threads. It works natively only: a browser has no such threads.
///
/// # Panics
/// With a sentence that names the rule, if the store breaks one.
///
/// ```
/// # use leasehold::{executor::SimExecutor, store::{MemoryStore, contract}};
/// let shared = MemoryStore::new();
/// contract::in_threads(async || shared.clone(), |work| futures::executor::block_on(work));
/// ```
pub fn in_threads<S: Store>(open: impl AsyncFn() -> S + Sync, block_on: impl Fn(LocalBoxFuture<'_, ()>) + Sync) {
    let arena = Arena::default();
    let work = &|me| {
        let _over = Over(&arena);
        block_on(Box::pin(take_turns(&open, me, &arena)));
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (70..70 + THREADS).map(|me| scope.spawn(move || work(me))).collect();
        for thread in threads {
            if let Err(sentence) = thread.join() {
                resume_unwind(sentence);
            }
        }
    });
}

/// Ends the others' turns when its thread panics.
struct Over<'a>(&'a Arena);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.over.store(true, SeqCst);
        }
    }
}

async fn take_turns<S: Store>(open: impl AsyncFn() -> S, me: u128, arena: &Arena) {
    let mut client = Client::new(open().await, me);
    for _ in 0..TURNS {
        turn(&mut client, arena).await;
    }
}

async fn turn<S: Store>(client: &mut Client<S>, arena: &Arena) {
    let Some(token) = take(client, arena).await else { return };
    let alone = !arena.inside.swap(true, SeqCst);
    assert!(
        alone,
        "two threads hold one key: read, apply and write in one transaction that no other can interleave with"
    );
    let earlier = arena.largest.swap(token.as_u64(), SeqCst);
    assert!(earlier < token.as_u64(), "tokens grow: {token:?} comes after {earlier}");
    thread::yield_now();
    arena.inside.store(false, SeqCst);
    let released = client.give_back("threads", token).await;
    assert_eq!(released, Seen::Released, "what was granted is there until its release, whatever other threads write");
}

/// A lease, or `None` when another thread saw a rule broken.
async fn take<S: Store>(client: &mut Client<S>, arena: &Arena) -> Option<Token> {
    for _ in 0..TRIES {
        if arena.over.load(SeqCst) {
            return None;
        }
        match client.acquire("threads").await {
            Seen::Granted(token) => return Some(token),
            other => assert_eq!(other, Seen::Busy, "who is not granted finds the key taken"),
        }
        thread::sleep(PAUSE);
    }
    panic!("the key stays taken although every holder released it: no update is lost");
}

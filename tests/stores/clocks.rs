//! Wall clocks that jump, in servers and in processes. No store's leases may depend on them.

use std::time::{Duration, Instant};

use leasehold::{LeaseGuard, LeaseManagerBuilder, LeaseState};
use tokio::runtime::Runtime;

use crate::{
    other::{Other, Shared, say, told},
    wall_clock::{BACK, JUMPS, WallClock},
};

/// A lease short enough that a test can wait for its end.
pub(crate) const LEASE: Duration = Duration::from_secs(5);
/// Longer than a take-over takes, however busy the machine is, and much less than a clock jumps.
const BOUND: Duration = Duration::from_secs(60);

/// The other process: holds the key, and says on request whether it still does, by its own belief and by the store. On a busy machine it
/// may be in doubt.
pub(crate) fn hold(lease: Duration, open: impl AsyncFnOnce() -> LeaseManagerBuilder) {
    let runtime = Runtime::new().unwrap();
    let leases = runtime.block_on(open()).lease(lease).build().unwrap();
    let guard = runtime.block_on(leases.lock("k").acquire()).unwrap();
    say("held");
    for _ in told() {
        say(belief(&runtime, &guard));
    }
}

/// What a process that holds the key says when it is asked.
pub(crate) fn belief(runtime: &Runtime, guard: &LeaseGuard) -> &'static str {
    let current = runtime.block_on(guard.verify());
    match (guard.watch().state(), current) {
        (LeaseState::Lost(_), _) | (_, Ok(false)) => "lost",
        (_, Ok(true)) if guard.is_valid() => "valid",
        _ => "in doubt",
    }
}

/// The other process: waits for the key, and says when it is in the queue and when it is granted.
pub(crate) fn wait(lease: Duration, open: impl AsyncFnOnce() -> LeaseManagerBuilder) {
    Runtime::new().unwrap().block_on(async {
        let leases = open().await.lease(lease).build().unwrap();
        let queued = async {
            while leases.status("k").await.unwrap().queue.is_empty() {
                tokio::task::yield_now().await;
            }
            say("waits");
        };
        let (granted, ()) = futures::join!(leases.lock("k").timeout(BOUND * 2).acquire(), queued);
        say(&granted.map_or_else(|error| error.to_string(), |guard| format!("valid: {}", guard.is_valid())));
        told().for_each(drop);
    });
}

/// The clock of one process, or of the server, jumps while `hold` and `wait` run in two processes. The living holder keeps the lease; then
/// it dies, and is replaced.
pub(crate) fn a_jump_moves_no_lease(clock: &WallClock, mut holder: Other, waiter: impl FnOnce() -> Other) {
    assert_eq!(holder.hear(), "held");
    let mut waiter = waiter();
    assert_eq!(waiter.hear(), "waits");
    for seconds in JUMPS {
        clock.jump(seconds);
        // A watcher that takes a jump for silence would take over within this time.
        let (since, mut said) = (Instant::now(), String::new());
        while since.elapsed() < LEASE * 6 / 5 || said == "in doubt" {
            said = holder.ask("still?");
            assert_ne!(said, "lost", "after a jump to {seconds} s");
            assert!(since.elapsed() < BOUND, "the holder is in doubt after a jump to {seconds} s");
        }
    }
    clock.jump(BACK);
    holder.kill();
    let killed = Instant::now();
    assert_eq!(waiter.hear(), "valid: true");
    println!("replaced after {:?}", killed.elapsed());
    assert!(killed.elapsed() < BOUND, "a dead holder was replaced after {:?} only", killed.elapsed());
}

/// Another process of this program, by this clock.
pub(crate) fn start_by(clock: &WallClock, role: &str, shared: &impl Shared) -> Other {
    let program = std::env::current_exe().expect("this test is a file");
    Other::start_by(&program, role, shared, |command| {
        command.envs(clock.environment());
    })
}

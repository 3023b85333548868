//! Processes and servers that are killed while a heartbeat is under way: its request has left the holder, and its answer has not arrived.
//!
//! The holder is another process, which reaches its server through a proxy. Two contexts that need no proxy wait for its lease. The proxy
//! either keeps the heartbeat back, so that a server that still runs gets it later (`IsKept`), or keeps its answer (`IsUnanswered`).

use std::time::Duration;

use leasehold::{AcquireError, LeaseGuard, LeaseManagerBuilder, ReleaseOutcome};
use tokio::{
    runtime::Runtime,
    sync::mpsc::{UnboundedReceiver, error::TryRecvError, unbounded_channel},
    time::timeout,
};

use crate::{
    jumps::belief,
    other::{Other, say, told},
    proxy::{Commit, Proxy},
    until::wait_until,
};

/// Longer than anything takes, however busy the machine is.
const BUSY: Duration = Duration::from_secs(60);
const HEARTBEAT: Duration = Duration::from_secs(1);
/// The lease of a holder that dies. Others wait for its end.
const SHORT: Duration = Duration::from_secs(6);
/// This lease outlasts the restart of a server on a busy machine.
const LONG: Duration = Duration::from_secs(120);
/// Names the other process's role. The lease follows in whole seconds.
const ROLE: &str = "renews ";

pub(crate) fn dying_holder(start: impl FnOnce(&str) -> Other) -> Other {
    start(&format!("{ROLE}{}", SHORT.as_secs()))
}

pub(crate) fn lasting_holder(start: impl FnOnce(&str) -> Other) -> Other {
    start(&format!("{ROLE}{}", LONG.as_secs()))
}

/// The other process: holds the key and says its token. Then it says on request whether it still holds the key, and releases it when it
/// is told to. Returns whether this is its role.
pub(crate) fn take_part(role: &str, open: impl AsyncFnOnce() -> LeaseManagerBuilder) -> bool {
    let Some(seconds) = role.strip_prefix(ROLE) else { return false };
    let (runtime, lease) = (Runtime::new().unwrap(), Duration::from_secs(seconds.parse().unwrap()));
    let leases = runtime.block_on(open()).lease(lease).heartbeat(HEARTBEAT).build().unwrap();
    let guard = runtime.block_on(leases.lock("k").timeout(BUSY).acquire()).unwrap();
    say(&guard.token().as_u64().to_string());
    for word in told() {
        if word == "release" {
            say(&format!("{:?}", runtime.block_on(guard.release())));
        } else {
            say(belief(&runtime, &guard));
        }
    }
    true
}

/// Returns when a heartbeat is under way. `fate` says for how long.
fn catch_a_heartbeat(proxy: &Proxy, fate: Commit) {
    // When a heartbeat has passed, the holder has nothing else to send.
    let before = proxy.commits();
    wait_until("a heartbeat passes", || proxy.commits() > before);
    proxy.let_next_commit(fate);
    wait_until("a heartbeat is under way", || proxy.hits() > 0);
}

/// Contexts that wait for the key, and what they are granted.
struct Waiters {
    runtime: Runtime,
    granted: UnboundedReceiver<Result<LeaseGuard, AcquireError>>,
}

impl Waiters {
    fn start(near: &impl AsyncFn() -> LeaseManagerBuilder) -> Self {
        let (runtime, (tell, granted)) = (Runtime::new().unwrap(), unbounded_channel());
        runtime.block_on(async {
            for place in 1..=2 {
                let leases = near().await.lease(LONG).heartbeat(HEARTBEAT).build().unwrap();
                let (waiting, tell) = (leases.lock("k").timeout(BUSY * 3).acquire(), tell.clone());
                tokio::spawn(async move { tell.send(waiting.await) });
                while leases.status("k").await.unwrap().queue.len() < place {
                    tokio::task::yield_now().await;
                }
            }
        });
        Self { runtime, granted }
    }

    fn next(&mut self) -> LeaseGuard {
        let next = self.runtime.block_on(async { timeout(BUSY * 2, self.granted.recv()).await });
        next.expect("somebody is granted the lease").expect("two wait").unwrap()
    }

    fn assert_nobody_is_granted_it(&mut self) {
        assert!(matches!(self.granted.try_recv(), Err(TryRecvError::Empty)), "it is granted to another context");
    }
}

/// The holder dies. Another context is granted the lease, and only one; the heartbeat that arrives later changes nothing.
pub(crate) fn a_holder_that_is_killed_while_it_renews_is_replaced_once(
    fate: Commit,
    proxy: &Proxy,
    mut holder: Other,
    near: impl AsyncFn() -> LeaseManagerBuilder,
) {
    let held: u64 = holder.hear().parse().unwrap();
    let mut waiters = Waiters::start(&near);
    catch_a_heartbeat(proxy, fate);
    holder.kill();
    let first = waiters.next();
    assert!(first.token().as_u64() > held, "tokens grow");
    proxy.let_next_commit(Commit::Passes);
    wait_until("the server has all that the holder sent", || proxy.open() == 0);
    assert!(waiters.runtime.block_on(first.verify()).unwrap(), "a late heartbeat revived the dead holder");
    waiters.assert_nobody_is_granted_it();
    assert_eq!(waiters.runtime.block_on(first.release()), Ok(ReleaseOutcome::Released));
    assert!(waiters.next().token() > first.token(), "tokens grow");
}

/// The server dies and comes back within the lease: the holder keeps its lease, and whoever waits is granted it after the release.
pub(crate) fn a_server_that_is_killed_while_a_holder_renews_costs_no_lease(
    fate: Commit,
    proxy: &Proxy,
    mut holder: Other,
    near: impl AsyncFn() -> LeaseManagerBuilder,
    mut serve: impl FnMut(bool),
) {
    let held: u64 = holder.hear().parse().unwrap();
    let mut waiters = Waiters::start(&near);
    catch_a_heartbeat(proxy, fate);
    serve(false);
    proxy.let_next_commit(Commit::Passes);
    proxy.cut();
    serve(true);
    wait_until("the holder has renewed its lease", || match holder.ask("still?").as_str() {
        "valid" => true,
        // It cannot reach the store yet.
        "in doubt" => false,
        other => panic!("the holder kept its lease, and says: {other}"),
    });
    waiters.assert_nobody_is_granted_it();
    assert_eq!(holder.ask("release"), "Ok(Released)");
    let first = waiters.next();
    assert!(first.token().as_u64() > held, "tokens grow");
    assert_eq!(waiters.runtime.block_on(first.release()), Ok(ReleaseOutcome::Released));
    assert!(waiters.next().token() > first.token(), "tokens grow");
}

//! Wall clocks that jump: of the server, and of the processes that share it.

use std::time::Duration;

use leasehold::{AcquireError, LeaseManager, LeaseManagerBuilder, executor::TokioExecutor};
use tokio::runtime::Runtime;

use crate::{
    jumps::{self, LEASE, a_jump_moves_no_lease, start_by},
    other::Other,
    server::{Place, Server, connect},
    until::until,
    wall_clock::WallClock,
};

/// Long enough that only the end of a beacon can show a death.
const LONG_LEASE: Duration = Duration::from_secs(3_600);

async fn builder(place: &Place, beacons: bool) -> LeaseManagerBuilder {
    let store = if beacons { place.builder().with_beacons() } else { place.builder() }.connect().await.unwrap();
    store.migrate().await.unwrap();
    let builder = LeaseManager::builder(store, TokioExecutor::new());
    // If a busy server has the first request go without its beacon, the next heartbeat tells of the beacon.
    if beacons { builder.heartbeat(Duration::from_secs(5)) } else { builder }
}

/// The other process.
pub(crate) fn take_part(role: &str, url: &str, prefix: &str) {
    let place = Place { url: url.into(), prefix: prefix.into() };
    let beacons = prefix.ends_with("beacons");
    let lease = if beacons { LONG_LEASE } else { LEASE };
    let open = async || builder(&place, beacons).await;
    if role == "holder" { jumps::hold(lease, open) } else { jumps::wait(lease, open) }
}

/// A server whose clock can jump.
async fn told_by(place: &Place) -> f64 {
    let now = "SELECT extract(epoch FROM clock_timestamp())::float8";
    connect(&place.url).await.query_one(now, &[]).await.unwrap().get(0)
}

fn the_server_s_clock_moves_no_lease(prefix: &str) {
    let Some(clock) = WallClock::new() else { return };
    let Some(server) = Server::start_by(&clock) else { return };
    let (place, runtime) = (Place { url: server.url(), prefix: prefix.into() }, Runtime::new().unwrap());
    let before = runtime.block_on(told_by(&place));
    clock.jump(7_200);
    assert!(runtime.block_on(told_by(&place)) >= before + 7_200.0, "its clock is the one that jumps");
    clock.jump(0);
    a_jump_moves_no_lease(&clock, Other::start("holder", &place), || Other::start("waiter", &place));
}

#[test]
fn a_server_s_clock_moves_no_lease() {
    the_server_s_clock_moves_no_lease("clocks_silence");
}

/// The waiter sees a death although, by the clock, the server has not started yet.
#[test]
fn a_server_s_clock_moves_no_lease_with_beacons() {
    the_server_s_clock_moves_no_lease("clocks_beacons");
}

#[test]
fn a_holder_s_clock_moves_no_lease() {
    let (Some(clock), Some(place)) = (WallClock::new(), Place::new("clocks_holder")) else { return };
    a_jump_moves_no_lease(&clock, start_by(&clock, "holder", &place), || Other::start("waiter", &place));
}

#[test]
fn a_waiter_s_clock_moves_no_lease() {
    let (Some(clock), Some(place)) = (WallClock::new(), Place::new("clocks_waiter")) else { return };
    a_jump_moves_no_lease(&clock, Other::start("holder", &place), || start_by(&clock, "waiter", &place));
}

/// A restart ends the beacons of living contexts, and a context that is still cut off cannot record that in the store. Meanwhile the clock
/// is set right, as on a machine that booted with a wrong one.
#[test]
fn a_holder_that_is_cut_off_by_a_restart_is_not_dead_because_the_clock_jumps() {
    let Some(clock) = WallClock::new() else { return };
    let Some(server) = Server::start_by(&clock) else { return };
    Runtime::new().unwrap().block_on(async {
        let place = Place { url: server.url(), prefix: "leasehold".into() };
        let proxy = place.proxy();
        let holders = builder(&place.behind(proxy.port), true).await.lease(LONG_LEASE).build().unwrap();
        let guard = holders.lock("k").acquire().await.unwrap();
        let user = connect(&place.url).await;
        let stands = "SELECT count(*) FROM leasehold_session WHERE text LIKE '%\"beacon\":1%'";
        until("its beacon stands", async || user.query_one(stands, &[]).await.unwrap().get::<_, i64>(0) == 1).await;
        proxy.lead_to(crate::port::free_port());
        server.crash();
        server.restart();
        clock.jump(7_200);
        let waiters = builder(&place, true).await.lease(LONG_LEASE).build().unwrap();
        let early = waiters.lock("k").timeout(Duration::from_secs(4)).acquire().await;
        assert!(matches!(early, Err(AcquireError::Timeout { .. })), "{early:?}");
        proxy.lead_to(place.port());
        // While its beacon is lost and it cannot reach the store, the holder is in doubt.
        until("it believes again", async || guard.is_valid()).await;
        assert!(guard.verify().await.unwrap(), "nobody took the holder for dead");
    });
}

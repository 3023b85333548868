//! Wall clocks that jump.

use crate::{
    jumps::{a_jump_moves_no_lease, start_by},
    other::Other,
    server::Server,
    shared,
    wall_clock::WallClock,
};

#[test]
fn the_server_s_clock_moves_no_lease() {
    let Some(clock) = WallClock::new() else { return };
    let Some(server) = Server::start_by(&clock) else { return };
    let now = || server.ask::<Vec<i64>>(&["TIME"])[0];
    let before = now();
    clock.jump(7_200);
    assert!(now() >= before + 7_200, "its clock is the one that jumps");
    clock.jump(0);
    let (url, place) = (server.url(), "server clock");
    let place = (url.as_str(), place);
    a_jump_moves_no_lease(&clock, Other::start("holder", &place), || Other::start("waiter", &place));
}

#[test]
fn a_holder_s_clock_moves_no_lease() {
    let (Some(clock), Some(server)) = (WallClock::new(), shared()) else { return };
    let url = server.url();
    let place = (url.as_str(), "holder clock");
    a_jump_moves_no_lease(&clock, start_by(&clock, "holder", &place), || Other::start("waiter", &place));
}

#[test]
fn a_waiter_s_clock_moves_no_lease() {
    let (Some(clock), Some(server)) = (WallClock::new(), shared()) else { return };
    let url = server.url();
    let place = (url.as_str(), "waiter clock");
    a_jump_moves_no_lease(&clock, Other::start("holder", &place), || start_by(&clock, "waiter", &place));
}

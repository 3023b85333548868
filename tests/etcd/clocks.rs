//! Wall clocks that jump.

use crate::{
    Scratch,
    jumps::{a_jump_moves_no_lease, start_by},
    other::Other,
    prefix,
    server::{self, Server},
    skipped::skip,
    start,
    wall_clock::WallClock,
};

/// A program that is linked statically preloads no library, so the clock of such an etcd cannot be moved.
#[test]
fn the_server_s_clock_moves_no_lease() {
    let Some(clock) = WallClock::new().filter(|_| server::is_installed()) else { return };
    let server = Server::start_by(&clock);
    let before = server.now();
    clock.jump(7_200);
    if server.now() < before + 7_200 {
        return skip("this etcd is linked statically, and its clock cannot be moved");
    }
    clock.jump(0);
    let (scratch, address) = (Scratch::new(), server.address());
    a_jump_moves_no_lease(&clock, start("holder", &scratch, &address), || start("waiter", &scratch, &address));
}

#[test]
fn a_holder_s_clock_moves_no_lease() {
    let (Some(clock), Some(address)) = (WallClock::new(), server::shared()) else { return };
    let scratch = Scratch::new();
    let holder = start_by(&clock, "holder", &(address.as_str(), prefix(&scratch.0).as_str()));
    a_jump_moves_no_lease(&clock, holder, || start("waiter", &scratch, &address));
}

#[test]
fn a_waiter_s_clock_moves_no_lease() {
    let (Some(clock), Some(address)) = (WallClock::new(), server::shared()) else { return };
    let scratch = Scratch::new();
    let place = prefix(&scratch.0);
    let waiter = || -> Other { start_by(&clock, "waiter", &(address.as_str(), place.as_str())) };
    a_jump_moves_no_lease(&clock, start("holder", &scratch, &address), waiter);
}

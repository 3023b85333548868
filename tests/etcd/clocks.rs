//! Wall clocks that jump, in processes. The clock of etcd alone cannot be moved: etcd is written in Go, and asks the kernel directly. Its
//! own leases run by a monotonic clock.

use crate::{
    Scratch,
    jumps::{a_jump_moves_no_lease, start_by},
    other::Other,
    prefix, server, start,
    wall_clock::WallClock,
};

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

//! Wall clocks that jump.

use crate::{
    Scratch,
    jumps::{a_jump_moves_no_lease, start_by},
    other::Other,
    wall_clock::WallClock,
};

#[test]
fn a_holder_s_clock_moves_no_lease() {
    let Some(clock) = WallClock::new() else { return };
    let scratch = Scratch::new();
    let holder = start_by(&clock, "jumping holder", &scratch);
    a_jump_moves_no_lease(&clock, holder, || Other::start("jumping waiter", &scratch));
}

#[test]
fn a_waiter_s_clock_moves_no_lease() {
    let Some(clock) = WallClock::new() else { return };
    let scratch = Scratch::new();
    let holder = Other::start("jumping holder", &scratch);
    a_jump_moves_no_lease(&clock, holder, || start_by(&clock, "jumping waiter", &scratch));
}

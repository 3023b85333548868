//! What the search found once, step by step: each of these broke a rule, and must not do so again.

use leasehold_model::{
    Action::{self, Answer, Apply, Ask, Close, Do, Doubt, Lose, Refuse, Signal, TakeOver, Tick, Wake},
    Budget, Configuration,
    Deed::{Cancel, Detach, Release},
    Want, World, fair,
};
use stateright::Model as _;

const A: usize = 0;
const B: usize = 1;

/// Goes this way, then runs the world to rest.
fn goes_well(configuration: Configuration, steps: &[Action]) {
    let world = World { configuration };
    let mut state = world.init_states().pop().expect("a world begins somewhere");
    for action in steps {
        world.step(&mut state, *action);
        assert!(!state.broken.any(), "{action:?} breaks a rule: {:?}", state.broken.rules().collect::<Vec<_>>());
    }
    let end = fair::run(&world, &state);
    assert!(end.is_good(), "at rest a rule is broken: {:?}", end.broken());
}

/// The grant went with the session whose opening nobody answered, and nobody asked for another one.
#[test]
fn a_grant_that_is_signalled_before_its_opening_is_answered_may_be_lost_with_it() {
    let granted = [Ask(A, Want::Wait), Ask(B, Want::Wait), Apply(1), Apply(0), Answer(1), Do(B, 1, Release)];
    let signalled = [Apply(1), Answer(1), Signal(0)];
    let doubtful = Configuration::new("an opening in doubt").budget(0, |left| left.doubts = 1);
    goes_well(doubtful, &[&granted[..], &signalled, &[Doubt(0)]].concat());
}

/// It woke up again and again at the same moment.
#[test]
fn who_is_to_end_an_earlier_session_waits_for_the_store_in_peace() {
    let opened = [Ask(A, Want::Wait), Ask(B, Want::Wait), Apply(1), Apply(0)];
    let passed = [Tick, Wake(A), Wake(B)];
    let lost = Configuration::new("an end that is lost").budget(1, |left| left.losses = 1);
    goes_well(lost, &[&opened[..], &passed, &passed, &passed, &[Lose(3)]].concat());
}

/// Its row stood there until the context asked for something else.
#[test]
fn a_session_is_closed_although_its_last_errand_was_not_sent_any_more() {
    let opened = [Ask(A, Want::Wait), Ask(B, Want::Wait), Apply(1), Apply(0), Answer(0), Answer(0), Tick];
    let refused = [Wake(A), Do(B, 1, Release), Refuse(0), Apply(0), Answer(0), Signal(0)];
    let released = [Do(A, 1, Release), Apply(0), Answer(0)];
    let refusing = Configuration::new("a look that is refused").budget(1, |left| left.refusals = 1);
    goes_well(refusing, &[&opened[..], &refused, &released].concat());
}

/// The lease was moved a second time, away from the guard that had taken it over: that one believed on.
#[test]
fn a_detachment_that_is_tried_again_does_not_move_what_was_resumed() {
    let left = [Ask(A, Want::Wait), Apply(0), Answer(0), Do(A, 1, Detach), Apply(0), Doubt(0)];
    let doubtful = Configuration::new("a detachment in doubt").budget(1, |left: &mut Budget| {
        (left.detaches, left.doubts) = (1, 1);
    });
    goes_well(doubtful, &[&left[..], &[Tick, TakeOver(A, 0), Apply(0)]].concat());
}

/// Its grant stayed with the session, as long as that had anything else to keep alive.
#[test]
fn a_request_that_is_given_up_while_its_session_opens_is_withdrawn() {
    let asked = [Ask(A, Want::Wait), Ask(A, Want::Second), Do(A, 1, Cancel), Ask(B, Want::Wait)];
    let opened = [Apply(0), Answer(0), Apply(0), Answer(0)];
    let cancelled = Configuration::new("a first request that is cancelled").budget(0, |left| left.cancels = 1);
    goes_well(cancelled, &[&asked[..], &opened].concat());
}

/// Its last errand was dropped, and so it was over before its session was.
#[test]
fn who_is_closed_closes_its_session_although_its_last_errand_was_not_sent_any_more() {
    let released = [Tick, Do(A, 1, Release), Apply(0), Answer(0)];
    let closed = [Tick, Wake(B), Close(B), Tick, Wake(B)];
    let closing = Configuration::new("a context that is closed").queued().budget(3, |left| {
        (left.closes, left.delays) = (1, 1);
    });
    goes_well(closing, &[&released[..], &closed].concat());
}

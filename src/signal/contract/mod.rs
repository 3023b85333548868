//! The contract of signals, as tests that any signals run: [`all`] within one process, [`between`] over two, and
//! [`a_death_is_seen`], in which one of them is killed.
//!
//! ```
//! use leasehold::{executor::SimExecutor, signal::{LocalSignals, contract}, store::Reach};
//!
//! let open = async || LocalSignals::new(&Reach::Process(1));
//! SimExecutor::new(1).block_on(contract::all(open, async || ()));
//! ```
//!
//! The suite speaks with its two contexts in lines of text, so that each of them may live in another process: there a
//! [`Half`] obeys the lines that it reads, and writes the answers.
//!
//! ```no_run
//! # use leasehold::{signal::{LocalSignals, contract::Half}, store::Reach};
//! # let signals = LocalSignals::new(&Reach::Process(1));
//! let half = Half::new(signals);
//! for line in std::io::stdin().lines() {
//!     println!("{}", half.obey(&line.unwrap()));
//! }
//! ```

mod half;
mod side;

use alloc::string::String;

pub use half::Half;
use side::Side;

use super::Signals;
use crate::machine::SessionId;

/// Runs the whole contract within this process. `open` makes the signals of a new context each time it is called; `settle`
/// returns when what is on its way has most likely arrived. Signals that deliver before `send` returns need no time for it.
///
/// # Panics
/// With a sentence that names the rule, if the signals break one.
pub async fn all<S: Signals>(open: impl AsyncFn() -> S, settle: impl AsyncFn()) {
    let (one, other) = (Half::new(open().await), Half::new(open().await));
    between(async |line: String| one.obey(&line), async |line: String| other.obey(&line), settle).await;
}

/// Runs the whole contract between two contexts, each of which takes a line for its [`Half`] and gives back the answer.
/// For `settle` see [`all`].
///
/// # Panics
/// With a sentence that names the rule, if the signals break one.
pub async fn between(
    one: impl AsyncFn(String) -> String,
    other: impl AsyncFn(String) -> String,
    settle: impl AsyncFn(),
) {
    let (one, other) = (Side::new(1, &one, &settle), Side::new(2, &other, &settle));
    let beacons = one.raises_beacons().await;
    assert_eq!(other.raises_beacons().await, beacons, "all contexts that share a store have the same kind of beacons");
    a_message_reaches_the_other_and_not_its_sender(&one, &other).await;
    a_message_for_one_reaches_that_one(&one, &other).await;
    nothing_arrives_after_a_rest(&one, &other).await;
    if beacons {
        a_beacon_that_stands_is_not_gone(&one, &other).await;
        a_lowered_beacon_is_gone_once(&one, &other).await;
        a_watch_that_ended_says_nothing(&one, &other).await;
        an_absent_beacon_is_gone(&one, &other).await;
    } else {
        without_beacons_nothing_is_gone(&one, &other).await;
    }
    who_rests_wakes_again(&one, &other).await;
}

/// One context dies without a word, by `kill`: of its process, say. The other sees its beacon gone, and not before.
///
/// # Panics
/// With a sentence that names the rule, if the signals break it; and if they raise no beacons.
pub async fn a_death_is_seen(
    one: impl AsyncFn(String) -> String,
    other: impl AsyncFn(String) -> String,
    kill: impl AsyncFn(),
    settle: impl AsyncFn(),
) {
    let (one, other) = (Side::new(3, &one, &settle), Side::new(4, &other, &settle));
    one.wake().await;
    let Some(beacon) = other.wake().await else { panic!("only signals with beacons show a death") };
    one.watch(1, beacon).await;
    one.settle().await;
    assert_eq!(one.goings(1).await, 0, "{STANDS}");
    kill().await;
    assert!(one.sees_gone(1).await, "the beacon of a context that died is gone");
    one.rest().await;
}

const STANDS: &str = "a beacon that stands is not reported gone: a waiter would evict a living holder";

async fn a_message_reaches_the_other_and_not_its_sender<'a>(one: &Side<'a>, other: &Side<'a>) {
    both_wake(one, other).await;
    for (sender, receiver, name) in [(one, other, "from one"), (other, one, "from the other")] {
        assert!(sender.reaches(receiver, name, None).await, "a message reaches all other contexts that are awake");
        assert!(!sender.heard(name).await, "a message does not come back to its sender");
    }
    both_rest(one, other).await;
}

async fn a_message_for_one_reaches_that_one(one: &Side<'_>, other: &Side<'_>) {
    both_wake(one, other).await;
    let recipient = Some(other.session());
    assert!(one.reaches(other, "for one", recipient).await, "a message for one context reaches that one");
    assert!(!one.heard("for one").await, "a message does not come back to its sender");
    both_rest(one, other).await;
}

async fn nothing_arrives_after_a_rest(one: &Side<'_>, other: &Side<'_>) {
    both_wake(one, other).await;
    other.rest().await;
    one.send("after a rest", None).await;
    one.settle().await;
    assert!(!other.heard("after a rest").await, "who rests hears nothing");
    one.rest().await;
}

async fn a_beacon_that_stands_is_not_gone(one: &Side<'_>, other: &Side<'_>) {
    let [mine, others] = both_raise(one, other).await;
    one.watch(10, others).await;
    other.watch(11, mine).await;
    // Neither messages nor the end of another watch change that.
    one.watch(12, others).await;
    one.unwatch(12).await;
    assert!(one.reaches(other, "beside a watch", None).await, "a message reaches all other contexts that are awake");
    one.settle().await;
    assert_eq!((one.goings(10).await, other.goings(11).await), (0, 0), "{STANDS}");
    both_rest(one, other).await;
}

async fn a_lowered_beacon_is_gone_once(one: &Side<'_>, other: &Side<'_>) {
    let [_, beacon] = both_raise(one, other).await;
    one.watch(20, beacon).await;
    one.watch(21, beacon).await;
    one.watch(22, beacon).await;
    one.unwatch(22).await;
    one.settle().await;
    assert_eq!(one.goings(20).await, 0, "{STANDS}");
    other.rest().await;
    for watch in [20, 21] {
        assert!(one.sees_gone(watch).await, "each watch reports that its beacon was lowered");
    }
    one.settle().await;
    assert_eq!((one.goings(20).await, one.goings(21).await), (1, 1), "a watch reports a beacon gone exactly once");
    one.rest().await;
}

async fn a_watch_that_ended_says_nothing(one: &Side<'_>, other: &Side<'_>) {
    let [_, beacon] = both_raise(one, other).await;
    one.watch(30, beacon).await;
    one.unwatch(30).await;
    one.unwatch(31).await;
    other.rest().await;
    one.settle().await;
    assert_eq!(one.goings(30).await, 0, "a watch that was ended reports nothing");
    one.rest().await;
    let [_, beacon] = both_raise(one, other).await;
    one.watch(32, beacon).await;
    one.rest().await;
    other.rest().await;
    one.settle().await;
    assert_eq!(one.goings(32).await, 0, "a rest ends all watches");
}

async fn an_absent_beacon_is_gone(one: &Side<'_>, other: &Side<'_>) {
    let [_, lowered] = both_raise(one, other).await;
    other.rest().await;
    one.settle().await;
    let standing = other.raise().await;
    one.watch(42, standing).await;
    one.watch(40, lowered).await;
    assert!(one.sees_gone(40).await, "a beacon that was lowered stays gone, whatever its context raised since");
    one.watch(41, side::never()).await;
    assert!(one.sees_gone(41).await, "a beacon that never stood is absent, and that is reported");
    one.watch(43, standing).await;
    one.settle().await;
    assert_eq!((one.goings(42).await, one.goings(43).await), (0, 0), "{STANDS}");
    both_rest(one, other).await;
}

async fn without_beacons_nothing_is_gone<'a>(one: &Side<'a>, other: &Side<'a>) {
    for side in [one, other] {
        assert_eq!(side.wake().await, None, "signals that say `Beacons::None` raise none");
    }
    one.watch(50, other.session()).await;
    one.watch(51, side::never()).await;
    one.settle().await;
    other.rest().await;
    one.settle().await;
    assert_eq!((one.goings(50).await, one.goings(51).await), (0, 0), "without beacons an absent one proves nothing");
    one.rest().await;
}

async fn who_rests_wakes_again(one: &Side<'_>, other: &Side<'_>) {
    for name in ["awake again", "and again", "and once more"] {
        both_wake(one, other).await;
        assert!(one.reaches(other, name, None).await, "who rests may wake again, and hears messages then");
        both_rest(one, other).await;
        both_rest(one, other).await;
    }
}

async fn both_wake(one: &Side<'_>, other: &Side<'_>) {
    one.wake().await;
    other.wake().await;
}

async fn both_raise(one: &Side<'_>, other: &Side<'_>) -> [SessionId; 2] {
    [one.raise().await, other.raise().await]
}

async fn both_rest(one: &Side<'_>, other: &Side<'_>) {
    one.rest().await;
    other.rest().await;
}

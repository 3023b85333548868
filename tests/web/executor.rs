//! `WebExecutor`: clocks, timers, tasks, random bits.

use std::time::Duration;

use futures::{FutureExt, channel::oneshot};
use js_sys::{Array, Function, Reflect, global};
use leasehold::executor::{Executor, WebExecutor};
use wasm_bindgen::prelude::*;
use wasm_bindgen_test::wasm_bindgen_test as test;

use super::platform::{Replaced, settle, soon};

#[test]
async fn sleep_never_ends_early() {
    let executor = WebExecutor::new();
    for ms in [0, 1, 2, 3, 5, 8, 13, 21] {
        let before = executor.now();
        executor.sleep(Duration::from_millis(ms)).await;
        let after = executor.now();
        assert!(after.monotonic.since(before.monotonic) >= ms, "slept less than {ms} ms");
    }
}

#[test]
async fn a_part_of_a_millisecond_is_slept_too() {
    let executor = WebExecutor::new();
    let before = executor.now();
    executor.sleep(Duration::from_nanos(1)).await;
    assert!(executor.now().monotonic > before.monotonic);
}

#[test]
async fn a_sleep_longer_than_a_timer_can_be_does_not_end() {
    let delays = Array::new();
    let note = Function::new_with_args(
        "delays, original",
        "return (done, delay) => { delays.push(delay); return original(done, delay) }",
    );
    let original = Reflect::get(&global(), &"setTimeout".into()).unwrap();
    let noting = note.call2(&JsValue::UNDEFINED, &delays, &original).unwrap();
    for long in [Duration::from_millis(1 << 31), Duration::from_millis(1 << 32), Duration::MAX] {
        let noted = Replaced::new(&global(), "setTimeout", &noting);
        let mut sleep = WebExecutor::new().sleep(long);
        assert!((&mut sleep).now_or_never().is_none());
        drop(noted);
        settle().await;
        assert!(sleep.now_or_never().is_none());
    }
    // More than this, and they would fire at once.
    let longest = f64::from(i32::MAX);
    assert!(delays.iter().all(|delay| delay.as_f64().is_some_and(|delay| (1e9..=longest).contains(&delay))));
    assert!(delays.length() >= 3);
}

#[test]
async fn spawned_tasks_run() {
    let (ran, has_run) = oneshot::channel();
    WebExecutor::new().spawn(Box::pin(async move { ran.send("ran").unwrap() }));
    assert_eq!(soon(has_run).await, Ok("ran"));
}

#[test]
fn the_wall_clock_shows_this_century() {
    let year_2025_ms = 1_735_689_600_000;
    let year_2100_ms = 4_102_444_800_000;
    assert!((year_2025_ms..year_2100_ms).contains(&WebExecutor::new().now().wall.as_ms()));
}

#[test]
fn random_bits_are_not_drawn_twice() {
    let drawn: std::collections::BTreeSet<_> = (0..100).map(|_| WebExecutor::new().random()).collect();
    assert_eq!(drawn.len(), 100);
    assert!(drawn.iter().any(|bits| bits >> 96 != 0) && drawn.iter().any(|bits| bits << 96 != 0));
}

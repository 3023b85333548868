//! Wakers are outside code, and one of them may panic.

use alloc::vec::{IntoIter, Vec};
use core::{mem, task::Waker};

use super::is_panicking;
use crate::executor::after_panic;

/// Wakes all. If one of them panics, another thread wakes those after it: a second panic on this one would end the process.
pub(super) fn wake_all(wakers: Vec<Waker>) {
    let mut left = Left(wakers.into_iter());
    for waker in left.0.by_ref() {
        waker.wake();
    }
}

/// Adds these to the wakers that are woken last. Where no panic unwinds, as in a page, they are woken at once, which takes less code.
pub(super) fn wake_with(others: &mut Vec<Waker>, mut wakers: Vec<Waker>) {
    if cfg!(panic = "unwind") { others.append(&mut wakers) } else { wake_all(wakers) }
}

/// The wakers that were not woken yet.
struct Left(IntoIter<Waker>);

impl Drop for Left {
    fn drop(&mut self) {
        if is_panicking() && !self.0.as_slice().is_empty() {
            let wakers = mem::take(&mut self.0);
            after_panic(move || wake_all(wakers.collect()));
        }
    }
}

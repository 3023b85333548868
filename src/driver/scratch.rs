//! Scratch buffers for the outputs and deeds of one input. They belong to the thread, because a context that waits would keep buffers that
//! it does not use.

use alloc::{collections::VecDeque, vec::Vec};
use core::cell::Cell;
use std::thread::LocalKey;

use super::pump::Deed;
use crate::machine::Output;

/// A larger buffer is freed.
const MOST: usize = 64;

std::thread_local! {
    static OUTPUTS: Cell<Vec<Output>> = const { Cell::new(Vec::new()) };
    static DEEDS: Cell<VecDeque<Deed>> = const { Cell::new(VecDeque::new()) };
}

/// The thread's buffer, or a new one: a thread that is ending has none.
fn take<T: Default>(buffer: &'static LocalKey<Cell<T>>) -> T {
    buffer.try_with(Cell::take).unwrap_or_default()
}

fn keep<T>(buffer: &'static LocalKey<Cell<T>>, capacity: usize, empty: T) {
    if (1..=MOST).contains(&capacity) {
        // If the thread is ending, the buffer is dropped.
        let _ = buffer.try_with(|buffer| buffer.set(empty));
    }
}

pub(super) fn take_outputs() -> Vec<Output> {
    take(&OUTPUTS)
}

pub(super) fn keep_outputs(empty: Vec<Output>) {
    keep(&OUTPUTS, empty.capacity(), empty);
}

pub(super) fn take_deeds() -> VecDeque<Deed> {
    take(&DEEDS)
}

pub(super) fn keep_deeds(empty: VecDeque<Deed>) {
    keep(&DEEDS, empty.capacity(), empty);
}

//! The command line, as people and scripts use it: the built program, real signals, a real terminal.
#![cfg(unix)]
#![expect(clippy::disallowed_methods, reason = "real time and real processes")]

mod codes;
mod elect;
mod guide;
mod harness;
mod loss;
mod manual;
mod show;
mod signals;
mod stores;
mod terminal;
mod turns;
mod words;

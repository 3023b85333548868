//! The command line, as people and scripts use it: the built program, real signals, a real terminal.
#![cfg(unix)]
#![expect(clippy::disallowed_methods, reason = "real time and real processes")]

mod codes;
mod elect;
mod guide;
mod harness;
mod loss;
mod manual;
#[cfg(feature = "store-redis")]
#[path = "../processes/other.rs"]
mod other;
#[cfg(feature = "store-redis")]
#[path = "../redis/server.rs"]
#[allow(dead_code, reason = "the tests of the store need the rest")]
mod redis_server;
#[cfg(feature = "store-redis")]
mod server;
mod show;
mod signals;
mod stores;
mod terminal;
mod turns;
#[cfg(feature = "store-redis")]
#[path = "../processes/wall_clock.rs"]
#[allow(dead_code, reason = "the tests of the stores need it")]
mod wall_clock;
mod words;

//! The command line, as people and scripts use it: the built program, real signals, a real terminal.
#![cfg(unix)]
#![expect(clippy::disallowed_methods, reason = "real time and real processes")]

mod bench;
mod blocked;
mod codes;
mod early;
mod elect;
#[cfg(feature = "store-etcd")]
#[path = "../etcd/server.rs"]
#[allow(dead_code, reason = "the tests of the store need the rest")]
mod etcd_server;
mod foreground;
mod gone;
mod guide;
mod harness;
mod litter;
mod looks;
mod loss;
mod manual;
#[path = "../processes/other.rs"]
mod other;
#[cfg(any(feature = "store-redis", feature = "store-postgres"))]
mod outage;
#[cfg(any(feature = "store-redis", feature = "store-postgres", feature = "store-etcd"))]
#[path = "../processes/port.rs"]
mod port;
#[cfg(feature = "store-postgres")]
#[path = "../postgres/server.rs"]
#[allow(dead_code, reason = "the tests of the store need the rest")]
mod postgres_server;
#[cfg(feature = "store-postgres")]
#[path = "../postgres/programs.rs"]
mod programs;
#[cfg(any(feature = "store-redis", feature = "store-postgres", feature = "store-etcd"))]
#[path = "../processes/proxy.rs"]
mod proxy;
#[cfg(feature = "store-redis")]
#[path = "../redis/server.rs"]
#[allow(dead_code, reason = "the tests of the store need the rest")]
mod redis_server;
mod secrets;
#[cfg(any(feature = "store-redis", feature = "store-postgres", feature = "store-etcd"))]
mod server;
mod show;
mod signals;
#[path = "../processes/skipped.rs"]
mod skipped;
mod stores;
mod terminal;
mod terminal_codes;
mod turns;
#[path = "../processes/until.rs"]
mod until;
mod visitors;
#[path = "../processes/wall_clock.rs"]
#[allow(dead_code, reason = "the tests of the stores need it")]
mod wall_clock;
mod words;

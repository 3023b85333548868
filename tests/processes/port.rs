//! Ports for the servers of tests and benchmarks.

use std::{
    net::{Ipv4Addr, TcpListener},
    process::id,
    sync::atomic::{AtomicU32, Ordering},
};

/// Below the ports that Linux gives to connections: between the choice and the server's start, no connection takes the port. A node
/// of a Redis cluster opens a second one, 10,000 above, and that is below them too.
const FIRST: u16 = 12_000;
const COUNT: u16 = 10_000;

/// A port that nobody listens at, and that this process was not given before. Each process begins elsewhere, so that two of them
/// seldom choose the same.
pub(crate) fn free_port() -> u16 {
    static GIVEN: AtomicU32 = AtomicU32::new(0);
    let begin = id().wrapping_mul(7_919);
    for _ in 0..COUNT {
        let number = begin.wrapping_add(GIVEN.fetch_add(1, Ordering::Relaxed)) % u32::from(COUNT);
        let port = FIRST + u16::try_from(number).expect("it is less than COUNT");
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
    panic!("no port from {FIRST} to {} is free", FIRST + COUNT - 1);
}

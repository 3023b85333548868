//! A context that is used in another runtime than the one in which its store was made.

use std::thread;

use leasehold::AcquireError;
use tokio::{
    runtime::{Builder, Runtime},
    task::yield_now,
    time::timeout,
};

use crate::{BUSY, LONG_LEASE, client_of, context, proxy_before, shared};

fn without_io() -> Runtime {
    Builder::new_current_thread().enable_time().build().unwrap()
}

/// A port at which no server listens.
const NOBODY: u16 = 1;

/// If it tried to connect, tokio would panic.
#[test]
fn a_context_without_io_is_told_so_when_it_has_to_connect_again() {
    let Some(server) = shared() else { return };
    let (made_in, proxy, bare) = (Runtime::new().unwrap(), proxy_before(server.port()), without_io());
    let leases = made_in.block_on(async { context(&client_of(&proxy), "no_io").await.1.build().unwrap() });
    let turn = async || {
        let guard = leases.lock("k").acquire().await?;
        guard.release().await.map(drop).map_err(AcquireError::from)
    };
    let turn_in = |runtime: &Runtime| runtime.block_on(async { timeout(BUSY, turn()).await });
    turn_in(&bare).expect("the connection stands").unwrap();
    // Otherwise the runtime that hears messages would connect again first.
    proxy.lead_to(NOBODY);
    let refused = turn_in(&bare).expect("it is told at once");
    let Err(AcquireError::Unsupported(error)) = refused else { panic!("{refused:?}") };
    assert!(error.message.contains("no I/O") && error.message.contains("enable_all()"), "{error}");
    proxy.lead_to(server.port());
    turn_in(&made_in).expect("another runtime connects").unwrap();
    made_in.block_on(leases.close());
}

/// It hears messages in the runtime in which its manager was made. Otherwise it would look into the store at its next heartbeat, in a
/// quarter of an hour.
#[test]
fn a_context_without_io_hears_of_a_release() {
    let Some(server) = shared() else { return };
    let made_in = Runtime::new().unwrap();
    let made = async || context(&server.client(), "no_ear").await.1.lease(LONG_LEASE).build().unwrap();
    let (holder, waiter) = made_in.block_on(async { (made().await, made().await) });
    let guard = made_in.block_on(holder.lock("k").acquire()).unwrap();
    let waits = waiter.clone();
    let waiting = thread::spawn(move || without_io().block_on(waits.lock("k").timeout(BUSY).acquire()));
    made_in.block_on(async {
        while holder.status("k").await.unwrap().queue.is_empty() {
            yield_now().await;
        }
        guard.release().await.unwrap();
    });
    assert!(waiting.join().unwrap().is_ok(), "it was told");
    made_in.block_on(async {
        holder.close().await;
        waiter.close().await;
    });
}

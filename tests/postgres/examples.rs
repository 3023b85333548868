//! The example that grew from Synapse's worker locks, on a real server.

use crate::server::on_server;

#[path = "../../examples/worker_locks.rs"]
#[expect(dead_code, reason = "its main is for people")]
mod worker_locks;

#[test]
fn the_worker_locks_of_the_example_keep_their_promises() {
    on_server("example_workers", |place| async move {
        let separator = if place.url.contains('?') { '&' } else { '?' };
        let url = format!("{}{separator}prefix={}", place.url, place.prefix);
        worker_locks::a_purge_waits_for_events_and_keeps_them_out(&url).await.unwrap();
        worker_locks::many_workers_take_turns(&url).await.unwrap();
    });
}

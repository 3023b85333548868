//! The example that grew from gitea's global locks, on a real server.

use crate::shared;

#[path = "../../examples/lock_and_do.rs"]
#[expect(dead_code, reason = "its main is for people")]
mod lock_and_do;

#[tokio::test]
async fn the_global_locks_of_the_example_keep_their_promises() {
    let Some(server) = shared() else { return };
    let url = format!("redis+{}?prefix=example", server.url());
    lock_and_do::fifty_workers_count_exactly(&url).await.unwrap();
    lock_and_do::a_taken_lock_is_refused(&url).await.unwrap();
}

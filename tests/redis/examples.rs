//! The examples that grew from gitea's global locks and from matrix-rust-sdk's lock between processes, on a real server.

use crate::shared;

#[path = "../../examples/lock_and_do.rs"]
#[expect(dead_code, reason = "its main is for people")]
mod lock_and_do;
#[path = "../stores/matrix.rs"]
mod matrix;
#[path = "../../examples/matrix_try_lock.rs"]
#[expect(dead_code, reason = "its main is for people")]
mod matrix_try_lock;

#[tokio::test]
async fn the_global_locks_of_the_example_keep_their_promises() {
    let Some(server) = shared() else { return };
    let url = format!("redis+{}?prefix=example", server.url());
    lock_and_do::fifty_workers_count_exactly(&url).await.unwrap();
    lock_and_do::a_taken_lock_is_refused(&url).await.unwrap();
}

#[tokio::test]
async fn the_lock_of_the_example_keeps_the_promises_of_a_cross_process_lock() {
    let Some(server) = shared() else { return };
    matrix::all(&format!("redis+{}?prefix=matrix", server.url())).await;
}

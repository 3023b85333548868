//! The example that implements matrix-rust-sdk's `TryLock`, on a file.

use crate::{Scratch, file};

#[path = "../stores/matrix.rs"]
mod matrix;
#[path = "../../examples/matrix_try_lock.rs"]
#[expect(dead_code, reason = "its main is for people")]
mod matrix_try_lock;

#[tokio::test]
async fn the_lock_of_the_example_keeps_the_promises_of_a_cross_process_lock() {
    let scratch = Scratch::new();
    matrix::all(&format!("sqlite:{}", file(&scratch.0).display())).await;
}

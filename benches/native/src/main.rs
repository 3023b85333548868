//! What a lease costs natively, beside a bare mutex and matrix-sdk-common in the same run. Writes
//! `target/bench/native.json`.
//!
//! Stores are in memory, but for those that processes share (`sqlite`). Each holder has a lock object of its own under a name of its own. A lock is *released*
//! when another holder can take it, and a *hand-off* goes from the start of the release in one holder to the arrival in
//! the waiting task of another. With the argument `costs` only the curves are measured, with `sqlite` only that store, and nothing is written.

mod bare_mutex;
mod contest;
mod costs;
mod counted;
mod crowds;
mod figures;
mod idle;
mod leases;
mod matrix;
mod memory;
mod partner;
mod queues;
mod singles;
mod sqlite;

use std::future::Future;

use tokio::{
    runtime::{Builder, Runtime},
    task::spawn,
};

use figures::Figures;

fn main() {
    if let Some(role) = partner::role() {
        let place = std::env::args().nth(1).expect("a role comes with a place");
        return sqlite::play(&role, place.as_ref());
    }
    let mut figures = Figures::default();
    if std::env::args().any(|argument| argument == "sqlite") {
        return on_one_thread(sqlite::measure(&mut figures));
    }
    if std::env::args().any(|argument| argument == "costs") {
        return on_one_thread(costs::measure(&mut figures));
    }
    figures = on_two_threads(singles::measure(figures));
    figures = on_two_threads(crowds::measure(figures));
    figures = on_two_threads(idle::measure(figures));
    figures = on_two_threads(queues::measure_tasks(figures));
    on_one_thread(queues::measure_contexts(&mut figures));
    on_one_thread(memory::measure(&mut figures));
    on_one_thread(costs::measure(&mut figures));
    on_one_thread(sqlite::measure(&mut figures));
    figures.write();
}

/// Runs the program as a task: a thread that only blocks on it would be woken from outside the runtime at each turn.
fn on_two_threads<T: Send + 'static>(program: impl Future<Output = T> + Send + 'static) -> T {
    let runtime = started(Builder::new_multi_thread().worker_threads(2));
    runtime.block_on(async { spawn(program).await }).expect("the program does not panic")
}

/// Runs the program where nothing else spends time or memory.
fn on_one_thread(program: impl Future<Output = ()>) {
    started(&mut Builder::new_current_thread()).block_on(program);
}

fn started(builder: &mut Builder) -> Runtime {
    builder.enable_time().build().expect("the machine can start two threads")
}

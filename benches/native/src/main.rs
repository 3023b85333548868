//! What a lease costs natively, beside a bare mutex and matrix-sdk-common in the same run. Writes
//! `target/bench/native.json`.
//!
//! Stores are in memory, but for those that processes share. Each holder has a lock object of its own under a name of its own. A
//! lock is *released* when another holder can take it, and a *hand-off* goes from the start of the release in one holder to the
//! arrival in the waiting task of another. The arguments name the only parts to measure: `costs` are the curves of the core, `names` those
//! of lists and statuses, and `sqlite`, `postgres`, `redis` and `etcd` these stores. Then nothing is written. A part during which other
//! programs use much of the processors is not judged.

mod bare_context;
mod bare_mutex;
mod contest;
mod costs;
mod counted;
mod crowd;
mod crowds;
mod etcd;
mod figures;
mod idle;
mod keep_alive;
mod leases;
mod matrix;
mod memory;
mod names;
mod partner;
#[path = "../../../tests/processes/port.rs"]
mod port;
mod postgres;
mod queues;
mod redis;
mod servers;
mod singles;
mod sqlite;
mod trial;
mod waiting;

use std::{env, future::Future};

use tokio::{
    runtime::{Builder, Runtime},
    task::spawn,
};

use etcd::Etcd;
use figures::Figures;
use postgres::Postgres;
use redis::Redis;
use sqlite::Sqlite;
use trial::Engine;

/// The curves of the core.
const COSTS: &str = "costs";
/// The curves of lists and statuses, over each store.
const NAMES: &str = "names";
/// The stores that processes share.
const ENGINES: [&str; 4] = [Sqlite::NAME, Postgres::NAME, Redis::NAME, Etcd::NAME];

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if let Some(role) = partner::role() {
        let [engine, url] = &arguments[..] else { panic!("a role comes with an engine and its URL") };
        return on_one_thread(play(&role, engine, url));
    }
    if !arguments.is_empty() {
        check(&arguments);
        arguments.iter().fold(Figures::begin(), |figures, part| measured(figures, part));
        return;
    }
    let mut figures = Figures::begin();
    figures = figures.part("turns and hand-offs", |figures| on_two_threads(singles::measure(figures)));
    figures = figures.part("crowds", |figures| on_two_threads(crowds::measure(figures)));
    figures = figures.part("idle keys", |figures| on_two_threads(idle::measure(figures)));
    figures = figures.part("queues of tasks", |figures| on_two_threads(queues::measure_tasks(figures)));
    figures = figures.part("queues of contexts", |mut figures| {
        on_one_thread(queues::measure_contexts(&mut figures));
        figures
    });
    figures = figures.part("memory", |mut figures| {
        on_one_thread(memory::measure(&mut figures));
        figures
    });
    figures = [COSTS, NAMES].iter().chain(&ENGINES).fold(figures, |figures, part| measured(figures, part));
    figures.write();
}

/// Refuses unknown parts before the first one is measured.
fn check(parts: &[String]) {
    for part in parts {
        let is_known = [COSTS, NAMES].iter().chain(&ENGINES).any(|known| known == part);
        assert!(is_known, "there is no part {part:?}; name {COSTS}, {NAMES}, or some of {}", ENGINES.join(", "));
    }
}

/// Adds the figures of a part that can be measured alone.
fn measured(figures: Figures, part: &str) -> Figures {
    figures.part(part, |mut figures| {
        on_one_thread(measure(&mut figures, part));
        figures
    })
}

async fn measure(figures: &mut Figures, part: &str) {
    match part {
        COSTS => costs::measure(figures).await,
        NAMES => {
            names::measure_memory(figures).await;
            names::measure::<Sqlite>(figures).await;
            names::measure::<Postgres>(figures).await;
            names::measure::<Redis>(figures).await;
            names::measure::<Etcd>(figures).await;
        }
        Sqlite::NAME => trial::measure::<Sqlite>(figures).await,
        Postgres::NAME => trial::measure::<Postgres>(figures).await,
        Redis::NAME => trial::measure::<Redis>(figures).await,
        Etcd::NAME => trial::measure::<Etcd>(figures).await,
        unknown => panic!("there is no part {unknown:?}"),
    }
}

async fn play(role: &str, engine: &str, url: &str) {
    match engine {
        Sqlite::NAME => trial::play::<Sqlite>(role, url).await,
        Postgres::NAME => trial::play::<Postgres>(role, url).await,
        Redis::NAME => trial::play::<Redis>(role, url).await,
        Etcd::NAME => trial::play::<Etcd>(role, url).await,
        unknown => panic!("no engine is called {unknown:?}"),
    }
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
    builder.enable_all().build().expect("the machine can start two threads")
}

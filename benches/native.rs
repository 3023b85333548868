//! What a lease costs natively, beside a bare mutex in the same run. Writes `target/bench/native.json`.
//!
//! A *release* has ended when another context could be granted. A *hand-off* goes from the start of `release()` in one
//! context to the grant's arrival in the waiting task of another.
#![expect(clippy::disallowed_methods, reason = "a benchmark reads clocks and spawns its contestants itself")]

use std::{
    fmt::Write as _,
    fs,
    future::Future,
    path::Path,
    sync::{Arc, Mutex as Shared},
    time::{Duration, Instant},
};

use futures::future::join_all;
use leasehold::{LeaseManager, executor::TokioExecutor, store::MemoryStore};
use tokio::{runtime::Builder, sync::Mutex, task::spawn, time::sleep};

type Figures = Vec<Figure>;

/// One figure: its name with the unit last, its value, and what the value should be at most or at least.
struct Figure {
    name: &'static str,
    value: f64,
    target: Target,
}

enum Target {
    None,
    AtMost(f64),
    AtLeast(f64),
}

fn main() {
    let mut figures = Figures::new();
    run(uncontended(&mut figures));
    run(many_keys(&mut figures));
    run(hand_off(&mut figures));
    run(crowd(&mut figures, 10, 10, 5, ["10x10_hold_5ms_vs_mutex_ratio", "10x10_hold_5ms_handoffs_of_99"]));
    run(crowd(&mut figures, 100, 1, 1, ["100x1_hold_1ms_vs_mutex_ratio", "100x1_hold_1ms_handoffs_of_99"]));
    report(&figures);
}

fn run(program: impl Future<Output = ()>) {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_time().build();
    runtime.expect("the machine can start two threads").block_on(program);
}

fn now() -> Instant {
    Instant::now()
}

fn micros_since(start: Instant) -> f64 {
    now().duration_since(start).as_secs_f64() * 1e6
}

fn percentile(samples: &mut [f64], percent: usize) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[(samples.len() - 1) * percent / 100]
}

fn manager(store: &MemoryStore) -> LeaseManager {
    let built = LeaseManager::builder(store.clone(), TokioExecutor::new()).build();
    built.expect("the default options fit together")
}

async fn uncontended(figures: &mut Figures) {
    let leases = manager(&MemoryStore::new());
    let mut samples = Vec::new();
    for round in 0..110_000 {
        let start = now();
        let guard = leases.lock("k").acquire().await.expect("a memory store grants");
        guard.release().await.expect("a memory store releases");
        if round >= 10_000 {
            samples.push(micros_since(start));
        }
    }
    let value = percentile(&mut samples, 50);
    figures.push(Figure { name: "acquire_release_p50_us", value, target: Target::AtMost(5.0) });
    let value = percentile(&mut samples, 99);
    figures.push(Figure { name: "acquire_release_p99_us", value, target: Target::None });
}

async fn many_keys(figures: &mut Figures) {
    let leases = manager(&MemoryStore::new());
    let names: Vec<_> = (0..1_000).map(|key| format!("key {key}")).collect();
    let mut guards = Vec::new();
    let start = now();
    for name in &names {
        guards.push(leases.lock(name).acquire().await.expect("a memory store grants"));
    }
    let value = micros_since(start) / 1_000.0;
    figures.push(Figure { name: "acquire_1000_keys_each_us", value, target: Target::None });
}

/// Two contexts hand one key to and fro, each in a task of its own.
async fn hand_off(figures: &mut Figures) {
    let store = MemoryStore::new();
    let stamps = Arc::new(Shared::new((None::<Instant>, Vec::new())));
    let players = (0..2).map(|_| {
        let (leases, stamps) = (manager(&store), stamps.clone());
        spawn(async move {
            for _ in 0..5_000 {
                let guard = leases.lock("k").acquire().await.expect("a memory store grants");
                let arrived = now();
                let waited_for = stamps.lock().expect("no player panics").0.take();
                if let Some(released) = waited_for {
                    let micros = arrived.duration_since(released).as_secs_f64() * 1e6;
                    stamps.lock().expect("no player panics").1.push(micros);
                }
                // Let the other one queue, so that the next release is a hand-off.
                sleep(Duration::from_micros(1)).await;
                stamps.lock().expect("no player panics").0 = Some(now());
                guard.release().await.expect("a memory store releases");
            }
        })
    });
    for player in join_all(players).await {
        player.expect("no player panics");
    }
    let samples = &mut stamps.lock().expect("no player panics").1;
    let value = percentile(samples, 50);
    figures.push(Figure { name: "handoff_p50_us", value, target: Target::AtMost(100.0) });
    let value = percentile(samples, 99);
    figures.push(Figure { name: "handoff_p99_us", value, target: Target::None });
}

/// Many holders take turns; the same program over a bare mutex, interleaved with it.
async fn crowd(figures: &mut Figures, holders: usize, turns: usize, hold_ms: u64, names: [&'static str; 2]) {
    let hold = Duration::from_millis(hold_ms);
    let (mut ratios, mut handoffs) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        let start = now();
        over_mutex(holders, turns, hold).await;
        let mutex = micros_since(start);
        let start = now();
        let order = over_leases(holders, turns, hold).await;
        ratios.push(micros_since(start) / mutex);
        let changes = order.windows(2).filter(|pair| pair[0] != pair[1]).count();
        handoffs.push(f64::from(u32::try_from(changes).unwrap_or(u32::MAX)));
    }
    let value = percentile(&mut ratios, 50);
    figures.push(Figure { name: names[0], value, target: Target::AtMost(1.15) });
    let value = percentile(&mut handoffs, 0);
    figures.push(Figure { name: names[1], value, target: Target::AtLeast(90.0) });
}

async fn over_mutex(holders: usize, turns: usize, hold: Duration) {
    let mutex = Arc::new(Mutex::new(()));
    let tasks = (0..holders).map(|_| {
        let mutex = mutex.clone();
        spawn(async move {
            for _ in 0..turns {
                let guard = mutex.lock().await;
                sleep(hold).await;
                drop(guard);
            }
        })
    });
    for task in join_all(tasks).await {
        task.expect("no holder panics");
    }
}

async fn over_leases(holders: usize, turns: usize, hold: Duration) -> Vec<usize> {
    let store = MemoryStore::new();
    let order = Arc::new(Shared::new(Vec::new()));
    let tasks = (0..holders).map(|holder| {
        let (leases, order) = (manager(&store), order.clone());
        spawn(async move {
            for _ in 0..turns {
                let guard = leases.lock("k").acquire().await.expect("a memory store grants");
                order.lock().expect("no holder panics").push(holder);
                sleep(hold).await;
                guard.release().await.expect("a memory store releases");
            }
        })
    });
    for task in join_all(tasks).await {
        task.expect("no holder panics");
    }
    let order = order.lock().expect("no holder panics");
    order.clone()
}

fn report(figures: &Figures) {
    let mut json = String::from("{");
    println!("{:<36} {:>10}   target", "native, memory store", "measured");
    for (index, Figure { name, value, target }) in figures.iter().enumerate() {
        let verdict = match *target {
            Target::None => String::new(),
            Target::AtMost(limit) => format!("≤ {limit}{}", missed(*value > limit)),
            Target::AtLeast(limit) => format!("≥ {limit}{}", missed(*value < limit)),
        };
        println!("{name:<36} {value:>10.2}   {verdict}");
        let comma = if index == 0 { "" } else { "," };
        let _ = write!(json, "{comma}\n  \"{name}\": {value:.3}");
    }
    json.push_str("\n}\n");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/bench");
    let written = fs::create_dir_all(&folder).and_then(|()| fs::write(folder.join("native.json"), json));
    written.expect("target/bench can be written");
}

const fn missed(is_missed: bool) -> &'static str {
    if is_missed { "   MISSED" } else { "" }
}

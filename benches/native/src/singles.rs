//! One turn, and one hand-off.

use leasehold::store::MemoryStore;

use crate::{
    bare_mutex::BareMutex,
    contest::{Contest, hand_offs, uncontended},
    figures::{Figures, Target, micros, now, percentile},
    leases::{self, Leases},
    matrix::Matrix,
};

pub(crate) async fn measure(mut figures: Figures) -> Figures {
    turns(&mut figures).await;
    many_keys(&mut figures).await;
    let mut samples = hand_offs(&Leases::default(), 400).await;
    let handoff = percentile(&mut samples, 50);
    figures.add("handoff_p50_us", handoff, Target::AtMost(100.0));
    figures.add("handoff_p99_us", percentile(&mut samples, 99), Target::None);
    let mut samples = hand_offs(&BareMutex::default(), 400).await;
    let bare = percentile(&mut samples, 50);
    figures.add("mutex_handoff_p50_us", bare, Target::None);
    figures.add("handoff_vs_mutex_ratio", handoff / bare, Target::AtMost(4.0));
    // Each takes tens of ms.
    let mut samples = hand_offs(&Matrix::default(), 40).await;
    figures.add("matrix_handoff_p50_us", percentile(&mut samples, 50), Target::None);
    figures
}

async fn turns(figures: &mut Figures) {
    let mut samples = uncontended(leases::eager(MemoryStore::new()), 100_000).await;
    let cold = percentile(&mut samples, 50);
    figures.add("acquire_release_p50_us", cold, Target::AtMost(5.0));
    figures.add("acquire_release_p99_us", percentile(&mut samples, 99), Target::None);
    let mut samples = uncontended(leases::context(MemoryStore::new()), 100_000).await;
    let linger = percentile(&mut samples, 50);
    figures.add("linger_hit_p50_us", linger, Target::AtMost(1.0));
    let mut samples = uncontended(BareMutex::default(), 100_000).await;
    let bare = percentile(&mut samples, 50);
    figures.add("mutex_acquire_release_p50_us", bare, Target::None);
    figures.add("acquire_release_vs_mutex_ratio", cold / bare, Target::AtMost(20.0));
    figures.add("linger_hit_vs_mutex_ratio", linger / bare, Target::AtMost(8.0));
    let mut samples = uncontended(Matrix::default().holder(0), 100_000).await;
    figures.add("matrix_acquire_p50_us", percentile(&mut samples, 50), Target::None);
    figures.add("matrix_acquire_p99_us", percentile(&mut samples, 99), Target::None);
}

async fn many_keys(figures: &mut Figures) {
    let context = leases::context(MemoryStore::new());
    let names: Vec<_> = (0..1_000).map(|key| format!("key {key}")).collect();
    let mut guards = Vec::new();
    let start = now();
    for name in &names {
        guards.push(context.lock(name).acquire().await.expect("a memory store grants"));
    }
    figures.add("acquire_1000_keys_each_us", micros(start.elapsed()) / 1_000.0, Target::None);
    let store = Matrix::default();
    let mut guards = Vec::new();
    let start = now();
    for name in &names {
        let lock = store.lock(name, 0);
        guards.push(lock.try_lock_once().await);
    }
    figures.add("matrix_acquire_1000_keys_each_us", micros(start.elapsed()) / 1_000.0, Target::None);
}

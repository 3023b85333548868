//! What a list and a status cost, by how many names are in use, and by how many were.

use std::ops::Range;

use futures::future::join_all;
use leasehold::{LeaseGuard, LeaseManager, store::MemoryStore};

use crate::{
    figures::{Figures, Target, micros, now, number, percentile},
    leases,
    trial::{Engine, LONG, Place, eager},
};

const COUNTS: [usize; 3] = [1, 100, 10_000];
/// How often each list and each status is measured.
const SAMPLES: usize = 9;
const LISTED: &str = "name";

/// Over a store in memory.
pub(crate) async fn measure_memory(figures: &mut Figures) {
    let store = MemoryStore::new();
    in_use(figures, "", &leases::eager(store.clone()), &leases::eager(store)).await;
    let store = MemoryStore::new();
    let (holder, reader) = (leases::eager(store.clone()), leases::eager(store));
    that_were(figures, "", [&holder, &reader], async || None).await;
}

/// Each curve has a store of its own, so that the records of one do not change the other.
pub(crate) async fn measure<E: Engine>(figures: &mut Figures) {
    let engine = format!("{}_", E::NAME);
    let Some(Place { url, keeper }) = E::start().await else { return };
    let (holder, reader) = (eager::<E>(&url, LONG).await, eager::<E>(&url, LONG).await);
    in_use(figures, &engine, &holder, &reader).await;
    close(holder, reader).await;
    drop(keeper);
    let Some(Place { url, keeper }) = E::start().await else { return };
    let (holder, reader) = (eager::<E>(&url, LONG).await, eager::<E>(&url, LONG).await);
    let mut raw = E::connect(&url).await;
    that_were(figures, &engine, [&holder, &reader], async || Some(raw.records().await)).await;
    close(holder, reader).await;
    drop(keeper);
}

async fn close(holder: LeaseManager, reader: LeaseManager) {
    holder.close().await;
    reader.close().await;
}

/// Reads while another context holds each of these numbers of names.
async fn in_use(figures: &mut Figures, engine: &str, holder: &LeaseManager, reader: &LeaseManager) {
    let (mut guards, mut least) = (Vec::new(), f64::INFINITY);
    for count in COUNTS {
        guards.extend(acquired(holder, guards.len()..count).await);
        let list =
            median_us(async || assert_eq!(reader.list(LISTED).await.expect("the store works").len(), count)).await;
        let each = list / number(count);
        figures.add(format!("{engine}list_of_{count}_in_use_each_us"), each, twice(least));
        least = least.min(each);
        figures.add(format!("{engine}status_beside_{count}_in_use_us"), status_us(reader).await, Target::None);
    }
}

/// Reads while one name is in use, after each of these numbers of others were: one after the other, and then all at once. `stored` counts
/// the records that the store has.
async fn that_were(
    figures: &mut Figures,
    engine: &str,
    [holder, reader]: [&LeaseManager; 2],
    mut stored: impl AsyncFnMut() -> Option<usize>,
) {
    let _guard = acquired(holder, 0..1).await;
    let (mut were, mut first) = (0, f64::INFINITY);
    for count in COUNTS {
        for number in were..count {
            released(acquired(holder, number + 1..number + 2).await).await;
        }
        were = count;
        let list = read(figures, engine, &format!("after_{count}_names"), reader, first, stored().await).await;
        first = first.min(list);
    }
    released(acquired(holder, were + 1..2 * were + 1).await).await;
    read(figures, engine, &format!("after_{were}_names_at_once"), reader, first, stored().await).await;
}

/// What the list and the status of the one name cost, and how many records the store had before.
async fn read(
    figures: &mut Figures,
    engine: &str,
    when: &str,
    reader: &LeaseManager,
    first: f64,
    stored: Option<usize>,
) -> f64 {
    let list = median_us(async || assert_eq!(reader.list(LISTED).await.expect("the store works").len(), 1)).await;
    figures.add(format!("{engine}list_{when}_us"), list, twice(first));
    figures.add(format!("{engine}status_{when}_us"), status_us(reader).await, Target::None);
    if let Some(stored) = stored {
        figures.add(format!("{engine}names_stored_{when}"), number(stored), Target::None);
    }
    list
}

/// The goal by the first measurement, which has none itself.
const fn twice(first: f64) -> Target {
    if first.is_finite() { Target::AtMost(first * 2.0) } else { Target::None }
}

async fn acquired(holder: &LeaseManager, numbers: Range<usize>) -> Vec<LeaseGuard> {
    let names: Vec<_> = numbers.map(|number| format!("{LISTED} {number}")).collect();
    let granted = join_all(names.iter().map(|name| holder.lock(name).acquire())).await;
    granted.into_iter().map(|granted| granted.expect("nobody else wants it")).collect()
}

async fn released(guards: Vec<LeaseGuard>) {
    for released in join_all(guards.iter().map(LeaseGuard::release)).await {
        released.expect("the store works");
    }
}

async fn status_us(reader: &LeaseManager) -> f64 {
    let name = format!("{LISTED} 0");
    median_us(async || assert_eq!(reader.status(&name).await.expect("the store works").holders.len(), 1)).await
}

async fn median_us(work: impl AsyncFn()) -> f64 {
    let mut samples = Vec::with_capacity(SAMPLES);
    for _ in 0..SAMPLES {
        let start = now();
        work().await;
        samples.push(micros(start.elapsed()));
    }
    percentile(&mut samples, 50)
}

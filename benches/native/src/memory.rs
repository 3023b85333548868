//! What the hot paths allocate.

use std::{
    alloc::System,
    future::{Future, poll_fn},
    pin::{Pin, pin},
    task::Poll,
};

use leasehold::store::MemoryStore;
use stats_alloc::{INSTRUMENTED_SYSTEM, Stats, StatsAlloc};

use crate::{
    contest::{Contest, Holder},
    figures::{Figures, Target, number},
    leases::{self, Leases},
    matrix::Matrix,
};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const ROUNDS: usize = 1_000;

/// Counts from its start on, in all threads.
pub(crate) struct Meter(Stats);

impl Meter {
    pub(crate) fn start() -> Self {
        Self(ALLOCATOR.stats())
    }

    /// How often memory was asked for.
    pub(crate) fn allocations(&self) -> f64 {
        let since = ALLOCATOR.stats() - self.0;
        number(since.allocations + since.reallocations)
    }

    /// How much more is in use now.
    pub(crate) fn bytes(&self) -> f64 {
        let since = ALLOCATOR.stats() - self.0;
        number(since.bytes_allocated.saturating_sub(since.bytes_deallocated))
    }
}

pub(crate) async fn measure(figures: &mut Figures) {
    let eager = per_turn(leases::eager(MemoryStore::new())).await;
    figures.add("acquire_release_allocations", eager, Target::AtMost(10.0));
    let lingering = per_turn(leases::context(MemoryStore::new())).await;
    figures.add("linger_hit_allocations", lingering, Target::AtMost(2.0));
    figures.add("matrix_acquire_allocations", per_turn(Matrix::default().holder(0)).await, Target::None);
    hand_off(figures).await;
}

async fn per_turn(mut holder: impl Holder) -> f64 {
    let mut meter = Meter::start();
    for round in 0..2 * ROUNDS {
        if round == ROUNDS {
            meter = Meter::start();
        }
        let guard = holder.take().await;
        holder.give_back(guard).await;
    }
    meter.allocations() / number(ROUNDS)
}

async fn hand_off(figures: &mut Figures) {
    let contest = Leases::default();
    let (mut giver, mut taker) = (contest.holder(0), contest.holder(1));
    let (mut queuing, mut handing) = (0.0, 0.0);
    for round in 0..2 * ROUNDS {
        let guard = giver.take().await;
        let meter = Meter::start();
        let mut waiting = pin!(taker.take());
        queue_up(waiting.as_mut()).await;
        let queued = meter.allocations();
        giver.give_back(guard).await;
        let guard = waiting.await;
        let handed = meter.allocations();
        if round >= ROUNDS {
            queuing += queued;
            handing += handed - queued;
        }
        guard.release().await.expect("a memory store releases");
    }
    figures.add("queue_allocations", queuing / number(ROUNDS), Target::None);
    figures.add("handoff_allocations", handing / number(ROUNDS), Target::None);
}

/// Has a request take its place in the queue.
pub(crate) async fn queue_up<T>(mut request: Pin<&mut impl Future<Output = T>>) {
    let is_waiting = poll_fn(|context| Poll::Ready(request.as_mut().poll(context).is_pending())).await;
    assert!(is_waiting, "the lock is held");
}

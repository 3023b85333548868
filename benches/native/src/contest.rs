//! What all contestants have in common, and the programs that each of them runs alike.

use std::{
    future::Future,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::future::join_all;
use tokio::{task::spawn, time::sleep};

use crate::figures::{micros, now};

/// One lock of some kind, and those who share it.
pub(crate) trait Contest {
    type Holder: Holder;

    /// A holder with lock objects of its own, who is nobody else to the lock.
    fn holder(&self, number: usize) -> Self::Holder;
}

pub(crate) trait Holder: Send + 'static {
    type Guard: Send;

    /// Waits for the lock, however long that takes.
    fn take(&mut self) -> impl Future<Output = Self::Guard> + Send;

    fn give_back(&mut self, guard: Self::Guard) -> impl Future<Output = ()> + Send;
}

/// How many µs each turn takes while nobody else wants one.
pub(crate) async fn uncontended(mut holder: impl Holder, turns: usize) -> Vec<f64> {
    let mut samples = Vec::with_capacity(turns);
    for turn in 0..turns + turns / 10 {
        let start = now();
        let guard = holder.take().await;
        holder.give_back(guard).await;
        let is_warm = turn >= turns / 10;
        samples.extend(is_warm.then(|| micros(start.elapsed())));
    }
    samples
}

/// How many µs it takes until the lock arrives at a holder who has waited for it for 5 ms.
pub(crate) async fn hand_offs(contest: &impl Contest, count: usize) -> Vec<f64> {
    let (mut giver, mut taker) = (contest.holder(0), contest.holder(1));
    let mut samples = Vec::with_capacity(count);
    for _ in 0..count {
        let guard = giver.take().await;
        let waiting = spawn(async move {
            let guard = taker.take().await;
            let arrived = now();
            taker.give_back(guard).await;
            (taker, arrived)
        });
        sleep(Duration::from_millis(5)).await;
        let released = now();
        giver.give_back(guard).await;
        let (waited, arrived) = waiting.await.expect("no holder panics");
        samples.push(micros(arrived.duration_since(released)));
        taker = waited;
    }
    samples
}

/// Many holders who take their turns at once.
#[derive(Clone, Copy)]
pub(crate) struct Crowd {
    pub(crate) holders: usize,
    pub(crate) turns: usize,
    pub(crate) hold: Duration,
}

/// How that went.
pub(crate) struct Course {
    pub(crate) seconds: f64,
    /// How often the lock really went from one holder to another.
    pub(crate) handoffs: usize,
}

impl Crowd {
    pub(crate) async fn run(self, contest: &impl Contest) -> Course {
        let order = Arc::new(Mutex::new(Vec::new()));
        let start = now();
        let tasks = (0..self.holders).map(|number| {
            let (holder, order) = (contest.holder(number), order.clone());
            spawn(self.take_turns(holder, move || order.lock().expect("no holder panics").push(number)))
        });
        for task in join_all(tasks).await {
            task.expect("no holder panics");
        }
        let seconds = start.elapsed().as_secs_f64();
        let order = order.lock().expect("no holder panics");
        Course { seconds, handoffs: order.windows(2).filter(|pair| pair[0] != pair[1]).count() }
    }

    async fn take_turns(self, mut holder: impl Holder, entered: impl Fn()) {
        for _ in 0..self.turns {
            let guard = holder.take().await;
            entered();
            sleep(self.hold).await;
            holder.give_back(guard).await;
        }
    }
}

//! Long queues: of tasks in one context, and of contexts.

use std::{
    future::Future,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use cpu_time::ProcessTime;
use futures::future::join_all;
use leasehold::{LeaseManager, store::MemoryStore};
use tokio::task::{JoinHandle, spawn, yield_now};

use crate::{
    bare_mutex::BareMutex,
    contest::{Contest, Holder},
    figures::{Figures, Target, micros, now, number},
    leases::{self, Leases},
    memory::{Meter, queue_up},
};

const TASKS: usize = 10_000;

/// Tasks that wait for one turn each.
struct Queue {
    tasks: Vec<JoinHandle<()>>,
}

impl Queue {
    /// Comes back when all of them wait.
    async fn form<H: Holder>(holders: impl Iterator<Item = H>) -> Self {
        let waiting = Arc::new(AtomicUsize::new(0));
        let tasks: Vec<_> = holders.map(|holder| spawn(Self::one_turn(holder, waiting.clone()))).collect();
        while waiting.load(Ordering::Relaxed) < tasks.len() {
            yield_now().await;
        }
        Self { tasks }
    }

    async fn one_turn(mut holder: impl Holder, waiting: Arc<AtomicUsize>) {
        let guard = {
            let mut request = pin!(holder.take());
            queue_up(request.as_mut()).await;
            waiting.fetch_add(1, Ordering::Relaxed);
            request.await
        };
        holder.give_back(guard).await;
    }

    async fn served(self) {
        for task in join_all(self.tasks).await {
            task.expect("no waiter panics");
        }
    }
}

pub(crate) async fn measure_tasks(mut figures: Figures) -> Figures {
    let total_s = tasks_of(leases::context(MemoryStore::new())).await;
    figures.add("10000_local_waiters_total_s", total_s, Target::AtMost(1.0));
    let bytes = waits_of(leases::context(MemoryStore::new())).await;
    figures.add("10000_local_waiters_each_bytes", bytes, Target::AtMost(300.0));
    figures.add("mutex_10000_local_waiters_total_s", tasks_of(BareMutex::default()).await, Target::None);
    figures.add("mutex_10000_local_waiters_each_bytes", waits_of(BareMutex::default()).await, Target::None);
    figures
}

/// How many seconds pass until as many tasks of one context have queued and were served.
async fn tasks_of<H: Holder + Clone>(mut holder: H) -> f64 {
    let guard = holder.take().await;
    let start = now();
    let queue = Queue::form((0..TASKS).map(|_| holder.clone())).await;
    holder.give_back(guard).await;
    queue.served().await;
    start.elapsed().as_secs_f64()
}

/// How many bytes a waiting request occupies: its future, and whatever that has allocated. A task would come on top.
async fn waits_of<H: Holder + Clone>(mut holder: H) -> f64 {
    let mut holders: Vec<_> = (0..TASKS).map(|_| holder.clone()).collect();
    let mut requests = Vec::with_capacity(TASKS);
    let _guard = holder.take().await;
    let meter = Meter::start();
    for holder in &mut holders {
        let mut request = Box::pin(holder.take());
        queue_up(request.as_mut()).await;
        requests.push(request);
    }
    meter.bytes() / number(TASKS)
}

pub(crate) async fn measure_contexts(figures: &mut Figures) {
    let few = contexts(10, 100).await;
    let many = contexts(1_000, 1).await;
    figures.add("queue_behind_10_contexts_cpu_us", few.queue_us, Target::None);
    figures.add("queue_behind_1000_contexts_cpu_us", many.queue_us, Target::None);
    figures.add("grant_10_contexts_queued_cpu_us", few.grant_us, Target::None);
    figures.add("grant_1000_contexts_queued_cpu_us", many.grant_us, Target::None);
    figures.add("grant_1000_vs_10_contexts_ratio", many.grant_us / few.grant_us, Target::AtMost(3.0));
    // With the task that waits.
    figures.add("queued_1000_contexts_each_bytes", many.bytes, Target::AtMost(2_000.0));
}

/// What each of the contexts that queue for one key costs.
struct Each {
    queue_us: f64,
    grant_us: f64,
    bytes: f64,
}

async fn contexts(count: usize, rounds: usize) -> Each {
    let mut sum = Each { queue_us: 0.0, grant_us: 0.0, bytes: 0.0 };
    for _ in 0..rounds {
        let contest = Leases::default();
        let mut first = contest.holder(0);
        // They all live on until everybody was served.
        let others: Vec<LeaseManager> = (1..=count).map(|number| contest.holder(number)).collect();
        let guard = first.take().await;
        let meter = Meter::start();
        let (queue, queue_us) = cpu_us(Queue::form(others.iter().cloned())).await;
        sum.bytes += meter.bytes();
        let ((), grant_us) = cpu_us(async {
            first.give_back(guard).await;
            queue.served().await;
        })
        .await;
        sum.queue_us += queue_us;
        sum.grant_us += grant_us;
    }
    let grants = number(count * rounds);
    Each { queue_us: sum.queue_us / grants, grant_us: sum.grant_us / grants, bytes: sum.bytes / grants }
}

async fn cpu_us<T>(work: impl Future<Output = T>) -> (T, f64) {
    let cpu = ProcessTime::now();
    let done = work.await;
    (done, micros(cpu.elapsed()))
}

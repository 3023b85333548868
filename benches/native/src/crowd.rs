//! Many contexts that queue for one key: what waiting costs, and whether all get their turns alike.

use std::{marker::PhantomData, sync::Arc, time::Duration};

use futures::future::join_all;
use leasehold::{LeaseGuard, LeaseManager, executor::TokioExecutor};
use tokio::time::sleep;

use crate::{
    figures::{Figures, Target, number},
    partner::{Partner, moment, say, told},
    trial::{Engine, eager},
};

const TURNS: usize = 5;
/// How long the CPU time of the waiters is measured.
const WAITING: Duration = Duration::from_secs(20);
/// The default.
pub(crate) const USUAL_LEASE: Duration = Duration::from_secs(20);
/// Contexts with leases this long send hardly a heartbeat during the measurement, so it shows what they do between heartbeats.
pub(crate) const PATIENT_LEASE: Duration = Duration::from_secs(600);
/// How long the waiters queue before the measurement. On PostgreSQL they look at beacons more often in the first 10 s of a connection.
const SETTLED: Duration = Duration::from_secs(12);
/// In each turn a correct lock writes twice: when it is acquired, and when it is released.
const WRITES: f64 = 2.0;

/// What one process of the crowd does, which is told how many contexts it has, and their lease in ms.
pub(crate) async fn play<E: Engine>(url: &str) {
    let mut requests = told();
    let store = Arc::new(E::store(url).await);
    say("ready");
    let told = requests.recv().await.expect("it is told two numbers");
    let (contexts, lease_ms) = told.split_once(' ').expect("it is told two numbers");
    let lease = Duration::from_millis(lease_ms.parse().expect("it is a number"));
    let contexts: Vec<_> = (0..contexts.parse().expect("it is a number"))
        .map(|_| {
            LeaseManager::builder(store.clone(), TokioExecutor::new()).lease(lease).build().expect("the lease fits")
        })
        .collect();
    join_all(contexts.iter().enumerate().map(|(number, leases)| take_turns(number, leases))).await;
    while requests.recv().await.is_some() {}
}

async fn take_turns(number: usize, leases: &LeaseManager) {
    for _ in 0..TURNS {
        let guard = leases.lock("crowd").acquire().await.expect("the store works");
        say(format!("{number} {}", moment()));
        guard.release().await.expect("the store works");
    }
}

/// Contexts in several processes, which wait until this one releases the key.
pub(crate) struct Crowd<'a, E> {
    url: &'a str,
    processes: Vec<Partner>,
    contexts: usize,
    leases: LeaseManager,
    guard: LeaseGuard,
    engine: PhantomData<E>,
}

impl<'a, E: Engine> Crowd<'a, E> {
    /// Waits until all of them queue, with leases as long as this.
    pub(crate) async fn queue(url: &'a str, processes: usize, contexts: usize, lease: Duration) -> Self {
        let leases = eager::<E>(url, Duration::from_secs(20)).await;
        let guard = leases.lock("crowd").acquire().await.expect("the store works");
        let mut processes: Vec<_> = (0..processes).map(|_| Partner::start::<E>("crowd", url)).collect();
        for one in &mut processes {
            one.hear().await;
            one.tell(&format!("{contexts} {}", lease.as_millis()));
        }
        let all = processes.len() * contexts;
        while leases.status("crowd").await.expect("the store works").queue.len() < all {
            sleep(Duration::from_millis(50)).await;
        }
        sleep(SETTLED).await;
        Self { url, processes, contexts, leases, guard, engine: PhantomData }
    }

    /// How much of a core its processes use while they wait, in percent.
    pub(crate) async fn cpu_percent(&self) -> f64 {
        let cpu_ms = || self.processes.iter().map(Partner::cpu_ms).sum::<f64>();
        let (before, start) = (cpu_ms(), moment());
        sleep(WAITING).await;
        (cpu_ms() - before) / (moment() - start) * 1e5
    }

    /// Lets each context take its turns.
    pub(crate) async fn serve(mut self, figures: &mut Figures, crowd: &str) {
        let (engine, all) = (E::NAME, self.processes.len() * self.contexts);
        let mut raw = E::connect(self.url).await;
        let (before, trips_before, start) = (raw.transactions().await, raw.round_trips().await, moment());
        self.guard.release().await.expect("the store works");
        let mut moments = vec![Vec::new(); all];
        for (process, one) in self.processes.iter_mut().enumerate() {
            for _ in 0..self.contexts * TURNS {
                let said = one.hear().await;
                let (context, moment) = said.split_once(' ').expect("it says who, and when");
                let context: usize = context.parse().expect("it says a number");
                let moment: f64 = moment.parse().expect("it says a moment");
                moments[process * self.contexts + context].push(moment - start);
            }
        }
        let trips = raw.round_trips().await.zip(trips_before).map(|(trips, before)| trips - before);
        let transactions = raw.transactions().await - before;
        self.leases.close().await;
        let last = moments.iter().flatten().fold(0.0, |last, moment| f64::max(last, *moment));
        let turns = number(all * TURNS);
        figures.add(format!("{engine}_{crowd}_5_turns_each_us"), last / turns, Target::None);
        if E::COUNTS_ALL {
            let goal = Target::AtMost(WRITES);
            figures.add(format!("{engine}_{crowd}_transactions_per_turn"), number(transactions) / turns, goal);
        }
        if let Some(trips) = trips {
            figures.add(format!("{engine}_{crowd}_round_trips_per_turn"), number(trips) / turns, Target::None);
        }
        figures.add(format!("{engine}_{crowd}_jain"), jain(&moments), Target::AtLeast(0.99));
    }
}

/// In a fair queue, all have had the same number of turns at the end of each round: then it is 1.
fn jain(moments: &[Vec<f64>]) -> f64 {
    let mut all: Vec<f64> = moments.iter().flatten().copied().collect();
    all.sort_by(f64::total_cmp);
    let end = all[TURNS / 2 * moments.len() - 1];
    let had: Vec<f64> = moments.iter().map(|one| number(one.iter().filter(|moment| **moment <= end).count())).collect();
    let (sum, squares) = (had.iter().sum::<f64>(), had.iter().map(|had| had * had).sum::<f64>());
    sum * sum / (squares * number(moments.len()))
}

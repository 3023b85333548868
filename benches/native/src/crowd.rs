//! A hundred processes that queue for one key: what waiting costs, and whether all get their turns alike.

use std::{marker::PhantomData, time::Duration};

use leasehold::{LeaseGuard, LeaseManager, executor::TokioExecutor};
use tokio::time::sleep;

use crate::{
    figures::{Figures, Target, number},
    partner::{Partner, moment, say, told},
    trial::{Engine, eager},
};

const PROCESSES: usize = 100;
const TURNS: usize = 5;
/// How long the CPU time of the waiters is measured.
const WAITING: Duration = Duration::from_secs(20);
/// The default.
const USUAL_LEASE: Duration = Duration::from_secs(20);
/// Contexts with leases this long send no heartbeat during the measurement, so it shows what they do between heartbeats.
const PATIENT_LEASE: Duration = Duration::from_secs(3_600);
/// How long the waiters queue before the measurement. On PostgreSQL they look at beacons more often in the first 10 s of a connection.
const SETTLED: Duration = Duration::from_secs(12);
/// In each turn a correct lock writes twice: when it is acquired, and when it is released.
const WRITES: f64 = 2.0;

/// Measures what the processes use while they wait, with heartbeats and without, and what their turns take.
pub(crate) async fn measure<E: Engine>(figures: &mut Figures, url: &str) {
    let patient = Crowd::<E>::queue(url, PATIENT_LEASE).await;
    let (percent, engine) = (patient.cpu_percent().await, E::NAME);
    figures.add(format!("{engine}_100_waiting_processes_polling_percent"), percent, Target::AtMost(1.0));
    patient.serve(figures).await;
    let usual = Crowd::<E>::queue(url, USUAL_LEASE).await;
    figures.add(format!("{engine}_100_waiting_processes_cpu_percent"), usual.cpu_percent().await, Target::None);
}

/// What one process of the crowd does, which is told its lease in ms.
pub(crate) async fn play<E: Engine>(url: &str) {
    let mut requests = told();
    let store = E::store(url).await;
    say("ready");
    let lease_ms = requests.recv().await.expect("it is told its lease").parse().expect("it is a number");
    let builder = LeaseManager::builder(store, TokioExecutor::new());
    let leases = builder.lease(Duration::from_millis(lease_ms)).build().expect("the lease fits");
    for _ in 0..TURNS {
        let guard = leases.lock("crowd").acquire().await.expect("the store works");
        say(moment());
        guard.release().await.expect("the store works");
    }
    requests.recv().await.expect("it is told that all had their turns");
    leases.close().await;
    say("closed");
}

/// Processes that wait until this one releases the key.
struct Crowd<'a, E> {
    url: &'a str,
    processes: Vec<Partner>,
    leases: LeaseManager,
    guard: LeaseGuard,
    engine: PhantomData<E>,
}

impl<'a, E: Engine> Crowd<'a, E> {
    /// Waits until all of them queue, with leases as long as this.
    async fn queue(url: &'a str, lease: Duration) -> Self {
        let leases = eager::<E>(url, USUAL_LEASE).await;
        let guard = leases.lock("crowd").acquire().await.expect("the store works");
        let mut processes = Vec::with_capacity(PROCESSES);
        while processes.len() < PROCESSES {
            let mut one = Partner::start::<E>("crowd", url);
            one.hear().await;
            one.tell(&lease.as_millis().to_string());
            processes.push(one);
        }
        // A busy server may not answer in time.
        let queued = async || leases.status("crowd").await.map_or(0, |status| status.queue.len());
        while queued().await < PROCESSES {
            sleep(Duration::from_millis(50)).await;
        }
        sleep(SETTLED).await;
        Self { url, processes, leases, guard, engine: PhantomData }
    }

    /// How much of a core they use while they wait, in percent.
    async fn cpu_percent(&self) -> f64 {
        let cpu_ms = || self.processes.iter().map(Partner::cpu_ms).sum::<f64>();
        let (before, start) = (cpu_ms(), moment());
        sleep(WAITING).await;
        (cpu_ms() - before) / (moment() - start) * 1e5
    }

    /// Lets each process take its turns.
    async fn serve(mut self, figures: &mut Figures) {
        let (mut raw, mut moments) = (E::connect(self.url).await, Vec::with_capacity(PROCESSES));
        let (before, trips_before, start) = (raw.transactions().await, raw.round_trips().await, moment());
        self.guard.release().await.expect("the store works");
        for one in &mut self.processes {
            let mut own = Vec::with_capacity(TURNS);
            for _ in 0..TURNS {
                own.push(one.hear_moment().await - start);
            }
            moments.push(own);
        }
        let trips = raw.round_trips().await.zip(trips_before).map(|(trips, before)| trips - before);
        let transactions = raw.transactions().await - before;
        self.leases.close().await;
        let last = moments.iter().flatten().fold(0.0, |last, moment| f64::max(last, *moment));
        let (turns, crowd) = (number(PROCESSES * TURNS), format!("{}_100_processes", E::NAME));
        figures.add(format!("{crowd}_5_turns_each_us"), last / turns, Target::None);
        figures.add(format!("{crowd}_transactions_per_turn"), number(transactions) / turns, Target::AtMost(WRITES));
        if let Some(trips) = trips {
            figures.add(format!("{crowd}_round_trips_per_turn"), number(trips) / turns, Target::None);
        }
        figures.add(format!("{crowd}_jain"), jain(&moments), Target::AtLeast(0.99));
        // Processes that were killed would leave work to those that come after them.
        for one in &mut self.processes {
            one.tell("all had their turns");
            one.hear().await;
        }
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

//! Stores that processes share, each beside the raw engine under it and the lock that its users usually take.
//!
//! A correct lock needs one transaction to acquire and one to release: as many raw transactions, each with a read and a write of
//! a row, are what a turn is compared with. A hand-off is compared with one such transaction and one notification.

use std::{any::Any, time::Duration};

use futures::future::join_all;
use leasehold::{
    LeaseManager,
    executor::TokioExecutor,
    machine::SessionId,
    store::{self, Store},
};
use tokio::time::sleep;

use crate::{
    contest::uncontended,
    crowd,
    figures::{Figures, Target, micros, now, number, percentile},
    partner::{Partner, moment, say, told},
};

/// Each contestant takes this many turns.
const TURNS: usize = 1_000;
/// They take them alternately, in so many rounds that what else the machine does in between does not hit only one of them.
const ROUNDS: usize = 50;
const HAND_OFFS: usize = 200;
const USUAL_HAND_OFFS: usize = 50;
/// By then a process that queues also listens.
const SETTLING: Duration = Duration::from_millis(10);
/// By then another process waits in the usual lock, which does not tell who queues. etcd looks every 100 ms for those who began to wait.
const WAITING: Duration = Duration::from_millis(150);
/// The heartbeats over which transactions are counted.
const BEATS: usize = 5;
/// By then a store has done what it does once in its life: over PostgreSQL, it tries out after a second whether notifications arrive.
const ONCE: Duration = Duration::from_secs(3);
/// Nobody waits for the end of such a lease.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// Where the contexts meet. What runs there ends with this value.
pub(crate) struct Place {
    pub(crate) url: String,
    pub(crate) keeper: Box<dyn Any>,
}

/// A connection to the raw engine, and what is particular about the store on it.
pub(crate) trait Engine: Sized {
    /// The names of its figures begin with this.
    const NAME: &'static str;
    /// The turn of the usual lock, as it is called in the figures.
    const USUAL: &'static str;
    /// Whether the usual lock wakes the next process that waits for it.
    const USUAL_HANDS_OFF: bool = false;
    /// What wakes a process that waits, as it is called in the figures.
    const NEWS: &'static str;
    const KEYS: &'static [usize] = &[1, 100, 1_000, 10_000];
    const HAND_OFF: Target = Target::None;
    /// The leases of holders that are killed. If beacons show a death, nobody waits for the end of such a lease.
    const MORTAL: Duration = LONG;
    const DEATHS: usize = 10;
    const TAKE_OVER: Target = Target::AtMost(100.0);

    /// Starts what the store needs; `None` if the machine does not have it.
    async fn start() -> Option<Place>;

    async fn store(url: &str) -> Box<dyn Store> {
        store::from_url(url).await.expect("the place is ready")
    }

    async fn connect(url: &str) -> Self;

    /// The version of the running engine.
    async fn version(&mut self) -> String;

    /// Reads a row and writes it in one transaction. Each turn writes another text: an engine may skip what is there already.
    async fn transact(&mut self, turn: usize);

    /// Sends a notification to the process that listens.
    async fn notify(&mut self);

    /// Listens from now on.
    async fn listen(&mut self);

    /// Waits for the next notification.
    async fn hear(&mut self);

    async fn lock(&mut self);

    async fn unlock(&mut self);

    /// How many transactions that write has the store run so far?
    async fn transactions(&mut self) -> usize;

    /// How many round trips has the store made so far? Attempts that were refused because rows had changed count, too. `None` if the server
    /// does not count round trips.
    async fn round_trips(&mut self) -> Option<usize> {
        None
    }

    /// How many bytes has the engine appended to its log so far? A log that begins anew counts from its new beginning.
    async fn logged(&mut self) -> f64;

    /// The session's row as the store keeps it.
    async fn row(&mut self, session: SessionId) -> String;

    /// How many records of names does the store have?
    async fn records(&mut self) -> usize;

    /// What a heartbeat costs, beside the engine's own sign of life, if it has one.
    async fn heartbeats(_figures: &mut Figures, _url: &str) {}
}

/// What the other process does.
pub(crate) async fn play<E: Engine>(role: &str, url: &str) {
    match role {
        "raw taker" => raw_taker(E::connect(url).await).await,
        "usual taker" => usual_taker(E::connect(url).await).await,
        "taker" => taker(eager::<E>(url, LONG).await).await,
        "holder" => holder(eager::<E>(url, E::MORTAL).await).await,
        "crowd" => crowd::play::<E>(url).await,
        unknown => panic!("no role is called {unknown:?}"),
    }
}

pub(crate) async fn measure<E: Engine>(figures: &mut Figures) {
    let Some(Place { url, keeper }) = E::start().await else {
        return println!("SKIPPED: {} is not installed; .ci/setup {} installs it", E::NAME, E::NAME);
    };
    figures.server(E::NAME, E::connect(&url).await.version().await);
    turns::<E>(figures, &url).await;
    // This comes before any process is killed: what the store later removes of it would be counted.
    for keys in E::KEYS {
        held::<E>(figures, &url, *keys).await;
    }
    E::heartbeats(figures, &url).await;
    hand_offs::<E>(figures, &url).await;
    deaths::<E>(figures, &url).await;
    crowd::measure::<E>(figures, &url).await;
    drop(keeper);
}

pub(crate) async fn eager<E: Engine>(url: &str, lease: Duration) -> LeaseManager {
    let builder = LeaseManager::builder(E::store(url).await, TokioExecutor::new());
    builder.lease(lease).linger(Duration::ZERO).build().expect("the options fit together")
}

async fn turns<E: Engine>(figures: &mut Figures, url: &str) {
    let (mut raw, leases) = (E::connect(url).await, eager::<E>(url, LONG).await);
    let (mut floor, mut ours, mut usual) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let turns = TURNS / ROUNDS;
        for turn in round * turns..(round + 1) * turns {
            let start = now();
            raw.transact(2 * turn).await;
            raw.transact(2 * turn + 1).await;
            floor.push(micros(start.elapsed()));
        }
        ours.extend(uncontended(leases.clone(), turns).await);
        for _ in 0..turns {
            let start = now();
            raw.lock().await;
            raw.unlock().await;
            usual.push(micros(start.elapsed()));
        }
    }
    leases.close().await;
    let (engine, floor, turn) = (E::NAME, percentile(&mut floor, 50), percentile(&mut ours, 50));
    figures.add(format!("{engine}_raw_two_transactions_p50_us"), floor, Target::None);
    figures.add(format!("{engine}_acquire_release_p50_us"), turn, Target::None);
    figures.add(format!("{engine}_acquire_release_p99_us"), percentile(&mut ours, 99), Target::None);
    figures.add(format!("{engine}_acquire_release_vs_raw_ratio"), turn / floor, Target::AtMost(1.3));
    figures.add(format!("{}_p50_us", E::USUAL), percentile(&mut usual, 50), Target::None);
}

async fn raw_taker(mut raw: impl Engine) {
    raw.listen().await;
    say("ready");
    loop {
        raw.hear().await;
        say(moment());
    }
}

async fn usual_taker(mut raw: impl Engine) {
    let mut requests = told();
    while requests.recv().await.is_some() {
        raw.lock().await;
        let arrived = moment();
        raw.unlock().await;
        say(arrived);
    }
}

async fn taker(leases: LeaseManager) {
    let mut requests = told();
    while requests.recv().await.is_some() {
        let guard = leases.lock("k").acquire().await.expect("the store works");
        let arrived = moment();
        guard.release().await.expect("the store works");
        say(arrived);
    }
}

async fn hand_offs<E: Engine>(figures: &mut Figures, url: &str) {
    let (engine, news) = (E::NAME, E::NEWS);
    let floor = percentile(&mut raw_hand_offs::<E>(url).await, 50);
    let (leases, mut partner) = (eager::<E>(url, LONG).await, Partner::start::<E>("taker", url));
    let mut samples = Vec::with_capacity(HAND_OFFS);
    for _ in 0..HAND_OFFS {
        let guard = leases.lock("k").acquire().await.expect("the store works");
        partner.tell("take it");
        queued(&leases).await;
        let start = moment();
        guard.release().await.expect("the store works");
        samples.push(partner.hear_moment().await - start);
    }
    leases.close().await;
    let hand_off = percentile(&mut samples, 50);
    figures.add(format!("{engine}_raw_write_and_{news}_p50_us"), floor, Target::None);
    figures.add(format!("{engine}_handoff_p50_us"), hand_off, E::HAND_OFF);
    figures.add(format!("{engine}_handoff_p99_us"), percentile(&mut samples, 99), Target::None);
    figures.add(format!("{engine}_handoff_vs_raw_ratio"), hand_off / floor, Target::AtMost(1.5));
    if E::USUAL_HANDS_OFF {
        let usual = percentile(&mut usual_hand_offs::<E>(url).await, 50);
        figures.add(format!("{}_handoff_p50_us", E::USUAL), usual, Target::None);
    }
}

async fn raw_hand_offs<E: Engine>(url: &str) -> Vec<f64> {
    let (mut raw, mut partner) = (E::connect(url).await, Partner::start::<E>("raw taker", url));
    partner.hear().await;
    let mut samples = Vec::with_capacity(HAND_OFFS);
    for turn in 0..HAND_OFFS {
        // Pauses as long as our own hand-offs do: an idle machine answers more slowly.
        sleep(SETTLING).await;
        let start = moment();
        raw.transact(turn).await;
        raw.notify().await;
        samples.push(partner.hear_moment().await - start);
    }
    samples
}

async fn usual_hand_offs<E: Engine>(url: &str) -> Vec<f64> {
    let (mut raw, mut partner) = (E::connect(url).await, Partner::start::<E>("usual taker", url));
    let mut samples = Vec::with_capacity(USUAL_HAND_OFFS);
    for _ in 0..USUAL_HAND_OFFS {
        raw.lock().await;
        partner.tell("take it");
        sleep(WAITING).await;
        let start = moment();
        raw.unlock().await;
        samples.push(partner.hear_moment().await - start);
    }
    samples
}

/// Waits until another context queues, and lets it settle.
async fn queued(leases: &LeaseManager) {
    while leases.status("k").await.expect("the store works").queue.is_empty() {
        sleep(Duration::from_millis(2)).await;
    }
    sleep(SETTLING).await;
}

async fn holder(leases: LeaseManager) {
    let guard = leases.lock("k").acquire().await.expect("the store works");
    say("held");
    let mut requests = told();
    while requests.recv().await.is_some() {}
    drop(guard);
}

/// From the end of the holder's process to the grant in this one.
async fn deaths<E: Engine>(figures: &mut Figures, url: &str) {
    let mut samples = Vec::new();
    for _ in 0..E::DEATHS {
        let (leases, mut partner) = (eager::<E>(url, E::MORTAL).await, Partner::start::<E>("holder", url));
        partner.hear().await;
        let looks = leases.clone();
        let waiting = tokio::spawn(async move {
            let guard = leases.lock("k").acquire().await.expect("the store works");
            let arrived = moment();
            guard.release().await.expect("the store works");
            leases.close().await;
            arrived
        });
        // Over PostgreSQL, whoever has not yet seen the beacon waits for 10 s.
        queued(&looks).await;
        sleep(Duration::from_millis(200)).await;
        partner.kill();
        let start = moment();
        samples.push(waiting.await.expect("it does not panic") - start);
    }
    let (engine, half, all) = (E::NAME, percentile(&mut samples, 50), percentile(&mut samples, 100));
    figures.add(format!("{engine}_takeover_after_a_kill_p50_ms"), half / 1e3, E::TAKE_OVER);
    figures.add(format!("{engine}_takeover_after_a_kill_max_ms"), all / 1e3, E::TAKE_OVER);
}

/// What it takes to acquire many keys at one moment, how often a context that holds them commits, how much the engine logs for that, and
/// what its session's row weighs.
async fn held<E: Engine>(figures: &mut Figures, url: &str, keys: usize) {
    let heartbeat = Duration::from_millis(1_000);
    let builder = LeaseManager::builder(E::store(url).await, TokioExecutor::new()).linger(Duration::ZERO);
    let leases = builder.lease(LONG).heartbeat(heartbeat).build().expect("the options fit together");
    // The session begins with the first key of all.
    let first = leases.lock("key 0").acquire().await.expect("the store works");
    first.release().await.expect("the store works");
    let names: Vec<_> = (0..keys).map(|key| format!("key {key}")).collect();
    let start = now();
    let granted = join_all(names.iter().map(|name| leases.lock(name).acquire())).await;
    let each = micros(start.elapsed()) / number(keys);
    let guards: Vec<_> = granted.into_iter().map(|granted| granted.expect("nobody else wants it")).collect();
    let (mut raw, session) = (E::connect(url).await, leases.session());
    while start.elapsed() < ONCE {
        beat(&mut raw, session).await;
    }
    let first = beat(&mut raw, session).await;
    let (mut last, mut logged) = (first, Vec::with_capacity(BEATS));
    for _ in 0..BEATS {
        let next = beat(&mut raw, session).await;
        logged.push(next.logged - last.logged);
        last = next;
    }
    let (engine, row) = (E::NAME, raw.row(session).await);
    figures.add(format!("{engine}_acquire_{keys}_keys_at_once_each_us"), each, Target::None);
    let commits = number(last.transactions - first.transactions) / number(BEATS);
    figures.add(format!("{engine}_idle_{keys}_keys_commits_per_heartbeat"), commits, Target::AtMost(1.0));
    figures.add(format!("{engine}_idle_{keys}_keys_row_bytes"), number(row.len()), Target::AtMost(300.0));
    // The usual heartbeat: the first one after a checkpoint writes more. PostgreSQL then logs the whole page, for example.
    let logged = percentile(&mut logged, 50);
    figures.add(format!("{engine}_idle_{keys}_keys_log_bytes_per_heartbeat"), logged, Target::AtMost(300.0));
    drop(guards);
    leases.close().await;
}

/// What an engine had counted just after a heartbeat.
#[derive(Clone, Copy)]
struct Count {
    transactions: usize,
    logged: f64,
}

/// Waits for the next heartbeat, which is seen as a new row: there are far fewer than looks.
async fn beat(raw: &mut impl Engine, session: SessionId) -> Count {
    let row = raw.row(session).await;
    while raw.row(session).await == row {
        sleep(Duration::from_millis(5)).await;
    }
    Count { transactions: raw.transactions().await, logged: raw.logged().await }
}

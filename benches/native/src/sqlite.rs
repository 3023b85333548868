//! Leases in an SQLite file, beside the raw engine and flock(2) in the same run.
//!
//! A correct lock in SQLite needs one synced write transaction to acquire and one to release: so many raw transactions, each with
//! a read and a write of a row, are what a turn is compared with. A hand-off is compared with one such transaction and one datagram.

use std::{
    fs::{self, File},
    os::unix::net::UnixDatagram,
    path::{Path, PathBuf},
    time::Duration,
};

use leasehold::{LeaseManager, executor::TokioExecutor, store::SqliteStore};
use rusqlite::Connection;
use tokio::time::sleep;

use crate::{
    contest::uncontended,
    figures::{Figures, Target, micros, now, number, percentile},
    leases,
    partner::{Partner, moment, say, told},
};

const TURNS: usize = 1_000;
const HAND_OFFS: usize = 200;
const DEATHS: usize = 10;
const CROWD: usize = 100;
const CROWD_TURNS: usize = 5;
/// Nobody waits for the end of such a lease.
const LONG: Duration = Duration::from_secs(3_600);

/// What the other process does.
pub(crate) fn play(role: &str, directory: &Path) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime starts");
    match role {
        "raw taker" => raw_taker(directory),
        "taker" => runtime.block_on(taker(directory)),
        "holder" => runtime.block_on(holder(directory)),
        "one of many" => runtime.block_on(one_of_many(directory)),
        unknown => panic!("no role is called {unknown:?}"),
    }
}

pub(crate) async fn measure(figures: &mut Figures) {
    let directory = scratch();
    turns(figures, &directory).await;
    hand_offs(figures, &directory).await;
    deaths(figures, &directory).await;
    for (keys, names) in [
        (1_000, ["sqlite_idle_1000_keys_commits_per_heartbeat", "sqlite_idle_1000_keys_row_bytes"]),
        (10_000, ["sqlite_idle_10000_keys_commits_per_heartbeat", "sqlite_idle_10000_keys_row_bytes"]),
    ] {
        idle(figures, &directory, keys, names).await;
    }
    crowd(figures, &directory).await;
    fs::remove_dir_all(directory).expect("it is ours");
}

/// On a disk: `target` is.
fn scratch() -> PathBuf {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/bench/sqlite");
    drop(fs::remove_dir_all(&directory));
    fs::create_dir_all(&directory).expect("target/bench can be written");
    fs::canonicalize(directory).expect("it is there")
}

fn open(directory: &Path) -> SqliteStore {
    SqliteStore::open(directory.join("leases.db")).expect("the file can be opened")
}

fn eager(directory: &Path, lease: Duration) -> LeaseManager {
    let builder = LeaseManager::builder(open(directory), TokioExecutor::new()).lease(lease).linger(Duration::ZERO);
    builder.build().expect("the options fit together")
}

/// The raw engine with the same settings: a row is read and written in a synced transaction.
struct Raw(Connection);

impl Raw {
    fn open(directory: &Path) -> Self {
        let connection = Connection::open(directory.join("raw.db")).expect("the file can be opened");
        connection.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL").expect("it is SQLite");
        connection
            .execute_batch("CREATE TABLE IF NOT EXISTS lock (key TEXT PRIMARY KEY, state TEXT NOT NULL)")
            .expect("it can be written");
        Self(connection)
    }

    /// Another state each time: SQLite does not write what is there already.
    fn transact(&self, turn: usize) {
        let state = format!("{turn:300}");
        self.0.execute_batch("BEGIN IMMEDIATE").expect("nobody else writes");
        let mut read = self.0.prepare("SELECT state FROM lock WHERE key = 'k'").expect("it is SQL");
        assert!(read.exists([]).is_ok(), "it is read");
        let sql = "INSERT INTO lock VALUES ('k', ?1) ON CONFLICT (key) DO UPDATE SET state = excluded.state";
        self.0.execute(sql, [state]).expect("it is written");
        self.0.execute_batch("COMMIT").expect("the disk works");
    }
}

async fn turns(figures: &mut Figures, directory: &Path) {
    let raw = Raw::open(directory);
    let mut samples: Vec<_> = (0..TURNS)
        .map(|turn| {
            let start = now();
            raw.transact(2 * turn);
            raw.transact(2 * turn + 1);
            micros(start.elapsed())
        })
        .collect();
    let floor = percentile(&mut samples, 50);
    let mut samples = uncontended(leases::eager(open(directory)), TURNS).await;
    let turn = percentile(&mut samples, 50);
    figures.add("sqlite_raw_two_transactions_p50_us", floor, Target::None);
    figures.add("sqlite_acquire_release_p50_us", turn, Target::None);
    figures.add("sqlite_acquire_release_p99_us", percentile(&mut samples, 99), Target::None);
    figures.add("sqlite_acquire_release_vs_raw_ratio", turn / floor, Target::AtMost(1.3));
    let lock = File::create(directory.join("flock")).expect("it can be made");
    let mut samples: Vec<_> = (0..TURNS)
        .map(|_| {
            let start = now();
            lock.lock().expect("nobody else has it");
            lock.unlock().expect("it is locked");
            micros(start.elapsed())
        })
        .collect();
    figures.add("flock_lock_unlock_p50_us", percentile(&mut samples, 50), Target::None);
}

fn raw_taker(directory: &Path) {
    let socket = UnixDatagram::bind(directory.join("raw.socket")).expect("it can be made");
    say("ready");
    let mut bytes = [0; 512];
    while socket.recv(&mut bytes).is_ok() {
        say(moment());
    }
}

async fn taker(directory: &Path) {
    let leases = eager(directory, LONG);
    for _ in told() {
        let guard = leases.lock("k").acquire().await.expect("the store works");
        let arrived = moment();
        guard.release().await.expect("the store works");
        say(arrived);
    }
}

async fn hand_offs(figures: &mut Figures, directory: &Path) {
    let (raw, mut partner) = (Raw::open(directory), Partner::start("raw taker", directory));
    partner.hear();
    let socket = UnixDatagram::unbound().expect("it can be made");
    let mut samples: Vec<_> = (0..HAND_OFFS)
        .map(|turn| {
            let start = moment();
            raw.transact(turn);
            socket.send_to(b"released", directory.join("raw.socket")).expect("somebody listens");
            partner.hear_moment() - start
        })
        .collect();
    drop(partner);
    let floor = percentile(&mut samples, 50);
    let (leases, mut partner) = (eager(directory, LONG), Partner::start("taker", directory));
    let mut samples = Vec::new();
    for _ in 0..HAND_OFFS {
        let guard = leases.lock("k").acquire().await.expect("the store works");
        partner.tell("take it");
        queued(&leases, 1).await;
        let start = moment();
        guard.release().await.expect("the store works");
        samples.push(partner.hear_moment() - start);
    }
    let handoff = percentile(&mut samples, 50);
    figures.add("sqlite_raw_write_and_datagram_p50_us", floor, Target::None);
    figures.add("sqlite_handoff_p50_us", handoff, Target::AtMost(2_000.0));
    figures.add("sqlite_handoff_p99_us", percentile(&mut samples, 99), Target::None);
    figures.add("sqlite_handoff_vs_raw_ratio", handoff / floor, Target::AtMost(1.5));
}

/// Waits until so many contexts queue, and lets them settle.
async fn queued(leases: &LeaseManager, many: usize) {
    while leases.status("k").await.expect("the store works").queue.len() < many {
        sleep(Duration::from_millis(2)).await;
    }
    sleep(Duration::from_millis(2)).await;
}

async fn holder(directory: &Path) {
    let leases = eager(directory, LONG);
    let guard = leases.lock("k").acquire().await.expect("the store works");
    say("held");
    told().for_each(drop);
    drop(guard);
}

/// From the end of the holder's process to the grant in this one.
async fn deaths(figures: &mut Figures, directory: &Path) {
    let mut samples = Vec::new();
    for _ in 0..DEATHS {
        let (leases, mut partner) = (eager(directory, LONG), Partner::start("holder", directory));
        partner.hear();
        let waiting = tokio::spawn(async move {
            let guard = leases.lock("k").acquire().await.expect("the store works");
            let arrived = moment();
            guard.release().await.expect("the store works");
            leases.close().await;
            arrived
        });
        sleep(Duration::from_millis(200)).await;
        partner.kill();
        let start = moment();
        samples.push(waiting.await.expect("it does not panic") - start);
    }
    figures.add("sqlite_takeover_after_a_kill_p50_ms", percentile(&mut samples, 50) / 1e3, Target::AtMost(100.0));
    figures.add("sqlite_takeover_after_a_kill_max_ms", percentile(&mut samples, 100) / 1e3, Target::AtMost(100.0));
}

/// How often a context that holds many keys commits, and what its session's row weighs.
async fn idle(figures: &mut Figures, directory: &Path, keys: usize, names: [&'static str; 2]) {
    let heartbeat = Duration::from_millis(1_000);
    let leases = eager(directory, heartbeat * 4);
    let mut guards = Vec::new();
    for key in 0..keys {
        guards.push(leases.lock(&format!("key {key}")).acquire().await.expect("the store works"));
    }
    let other = Connection::open(directory.join("leases.db")).expect("it can be opened");
    let version = || other.query_row("PRAGMA data_version", [], |row| row.get::<_, i64>(0)).expect("it is SQLite");
    let row = || {
        let sql = "SELECT state FROM leasehold_session WHERE id = ?1";
        other.query_row(sql, [leases.session().to_string()], |row| row.get::<_, String>(0)).expect("there is a session")
    };
    let (mut commits, mut last) = (0, version());
    let (mut beats, mut beat) = (0, row());
    let start = now();
    // Each commit is seen as a new version: there are far fewer than looks.
    while start.elapsed() < heartbeat * 8 {
        sleep(Duration::from_millis(5)).await;
        let (seen, now) = (version(), row());
        commits += usize::from(seen != last);
        beats += usize::from(now != beat);
        (last, beat) = (seen, now);
    }
    figures.add(names[0], number(commits) / number(beats), Target::AtMost(1.0));
    figures.add(names[1], number(beat.len()), Target::AtMost(300.0));
    leases.close().await;
}

async fn one_of_many(directory: &Path) {
    let leases = LeaseManager::builder(open(directory), TokioExecutor::new()).build().expect("the defaults fit");
    say("ready");
    let mut wishes = told();
    wishes.next();
    for _ in 0..CROWD_TURNS {
        let guard = leases.lock("crowd").acquire().await.expect("the store works");
        say(moment());
        guard.release().await.expect("the store works");
    }
    leases.close().await;
    wishes.for_each(drop);
}

/// Many processes that queue for one key: what waiting costs, and whether all get their turn alike.
async fn crowd(figures: &mut Figures, directory: &Path) {
    let leases = eager(directory, Duration::from_secs(20));
    let guard = leases.lock("crowd").acquire().await.expect("the store works");
    let mut crowd: Vec<_> = (0..CROWD).map(|_| Partner::start("one of many", directory)).collect();
    for one in &mut crowd {
        one.hear();
        one.tell("queue");
    }
    while leases.status("crowd").await.expect("the store works").queue.len() < CROWD {
        sleep(Duration::from_millis(50)).await;
    }
    sleep(Duration::from_secs(2)).await;
    let cpu = |crowd: &[Partner]| crowd.iter().map(Partner::cpu_ms).sum::<f64>();
    let (before, start) = (cpu(&crowd), now());
    sleep(Duration::from_secs(20)).await;
    let spent = cpu(&crowd) - before;
    figures.add("sqlite_100_waiting_processes_cpu_percent", spent / micros(start.elapsed()) * 1e5, Target::AtMost(1.0));
    let start = moment();
    guard.release().await.expect("the store works");
    let moments: Vec<Vec<f64>> =
        crowd.iter_mut().map(|one| (0..CROWD_TURNS).map(|_| one.hear_moment() - start).collect()).collect();
    let last = moments.iter().flatten().fold(0.0, |last, moment| f64::max(last, *moment));
    let turns = number(CROWD * CROWD_TURNS);
    figures.add("sqlite_100_processes_5_turns_each_us", last / turns, Target::None);
    // By half time, all have had about as many turns.
    let half = last / 2.0;
    let had: Vec<f64> =
        moments.iter().map(|one| number(one.iter().filter(|moment| **moment <= half).count())).collect();
    let (sum, squares) = (had.iter().sum::<f64>(), had.iter().map(|had| had * had).sum::<f64>());
    figures.add("sqlite_100_processes_jain", sum * sum / (squares * number(CROWD)), Target::AtLeast(0.99));
}

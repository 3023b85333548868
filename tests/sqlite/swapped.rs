//! A file that is replaced at the moment when somebody opens it to look.

use std::{
    fs,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::Duration,
};

use leasehold::{AcquireError, LeaseManager, executor::TokioExecutor, machine::StoreErrorKind, store::SqliteStore};
use tokio::time::timeout;

const ROUNDS: u64 = 600;

async fn token(path: &std::path::Path) -> Option<u64> {
    let store = SqliteStore::open_read_only(path, "leasehold").ok()??;
    read(store).await
}

async fn read(store: SqliteStore) -> Option<u64> {
    let leases = LeaseManager::builder(store, TokioExecutor::new()).build().unwrap();
    let status = leases.status("k").await.ok()?;
    leases.close().await;
    Some(status.last_token.as_u64())
}

#[tokio::test]
async fn what_is_looked_at_is_the_file_at_the_path() {
    let directory = std::env::temp_dir().join(format!("leasehold-swapped-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let at = |name: &str| directory.join(name);
    for name in ["a", "b"] {
        let store = SqliteStore::open(at(name)).unwrap();
        let leases = LeaseManager::builder(store, TokioExecutor::new()).build().unwrap();
        leases.lock("k").acquire().await.unwrap().release().await.unwrap();
        leases.close().await;
    }
    let (bytes_a, bytes_b) = (fs::read(at("a")).unwrap(), fs::read(at("b")).unwrap());
    let path = at("leases.db");
    fs::write(&path, &bytes_a).unwrap();
    let (mut stale, mut looked) = (0, 0);
    for _ in 0..400 {
        let ends = AtomicBool::new(false);
        let opened = thread::scope(|scope| {
            scope.spawn(|| {
                while !ends.load(Relaxed) {
                    for bytes in [&bytes_b, &bytes_a] {
                        fs::write(at("new"), bytes).unwrap();
                        fs::rename(at("new"), &path).unwrap();
                    }
                }
                fs::write(at("new"), &bytes_b).unwrap();
                fs::rename(at("new"), &path).unwrap();
            });
            let opened = SqliteStore::open_read_only(&path, "leasehold");
            ends.store(true, Relaxed);
            opened
        });
        let Ok(Some(store)) = opened else { continue };
        looked += 1;
        let (seen, there) = (read(store).await, token(&path).await);
        stale += usize::from(seen.is_some() && seen != there);
    }
    fs::remove_dir_all(&directory).unwrap();
    assert_eq!(stale, 0, "of {looked} looks");
}

/// As long as a connection keeps the deleted log, nobody can make a new one. So a mere `leasehold watch` would keep all others out.
#[tokio::test]
async fn who_only_looks_lets_go_of_a_log_that_somebody_deleted() {
    for end in ["wal", "shm"] {
        let directory = std::env::temp_dir().join(format!("leasehold-log-{end}-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let path = directory.join("leases.db");
        let manager = |store| LeaseManager::builder(store, TokioExecutor::new()).build().unwrap();
        let holder = manager(SqliteStore::open(&path).unwrap());
        let _held = holder.lock("k").acquire().await.unwrap();
        let watch = manager(SqliteStore::open_read_only(&path, "leasehold").unwrap().unwrap());
        assert_eq!(watch.list("").await.unwrap().len(), 1);
        fs::remove_file(directory.join(format!("leases.db-{end}"))).unwrap();
        let closed = async {
            loop {
                match watch.list("").await {
                    Err(AcquireError::Store(error)) if error.kind == StoreErrorKind::Closed => return,
                    _ => tokio::time::sleep(Duration::from_millis(20)).await,
                }
            }
        };
        timeout(Duration::from_secs(60), closed).await.unwrap_or_else(|_| panic!("{end}: it goes on"));
        watch.close().await;
        holder.close().await;
        drop((watch, holder));
        let next = manager(SqliteStore::open(&path).unwrap());
        drop(next.lock("other").acquire().await.unwrap());
        next.close().await;
        fs::remove_dir_all(&directory).unwrap();
    }
}

/// Whoever closes the file keeps it locked for a moment, and takes away its log.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_opens_to_look_while_the_last_writer_leaves_can_look() {
    let directory = std::env::temp_dir().join(format!("leasehold-leaves-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let path = directory.join("leases.db");
    let manager = |store| LeaseManager::builder(store, TokioExecutor::new()).build().unwrap();
    let mut failures = Vec::new();
    for round in 0..ROUNDS {
        let holder = manager(SqliteStore::open(&path).unwrap());
        holder.lock("k").acquire().await.unwrap().release().await.unwrap();
        let leaves = tokio::spawn(async move {
            tokio::time::sleep(Duration::from_micros(round * 37 % 3_000)).await;
            holder.close().await;
        });
        let at = path.clone();
        let opened = tokio::task::spawn_blocking(move || SqliteStore::open_read_only(at, "leasehold")).await.unwrap();
        let watch = manager(opened.unwrap().expect("it has leases"));
        failures.extend(watch.list("").await.err());
        leaves.await.unwrap();
        failures.extend(watch.list("").await.err());
        watch.close().await;
    }
    fs::remove_dir_all(&directory).unwrap();
    assert!(failures.is_empty(), "{} of {ROUNDS}: {:?}", failures.len(), failures[0]);
}

/// A `leasehold watch` may go on for years.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn files_that_were_replaced_do_not_stay_open() {
    let directory = std::env::temp_dir().join(format!("leasehold-replaced-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let (path, new) = (directory.join("leases.db"), directory.join("new"));
    for _ in 0..10 {
        let leases = LeaseManager::builder(SqliteStore::open(&new).unwrap(), TokioExecutor::new()).build().unwrap();
        leases.lock("k").acquire().await.unwrap().release().await.unwrap();
        leases.close().await;
        fs::rename(&new, &path).unwrap();
        assert!(token(&path).await.is_some());
    }
    let links = fs::read_dir("/proc/self/fd").unwrap().flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
    let open: Vec<_> = links.filter(|link| link.starts_with(&directory)).collect();
    fs::remove_dir_all(&directory).unwrap();
    assert!(open.len() < 5, "{open:?}");
}

/// The tables are made in one transaction, and looked for by several questions.
#[test]
fn who_looks_while_another_program_makes_the_tables_misses_none() {
    let directory = std::env::temp_dir().join(format!("leasehold-made-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let path = directory.join("app.db");
    let app = rusqlite::Connection::open(&path).unwrap();
    app.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE notes (id INTEGER); INSERT INTO notes VALUES (1)")
        .unwrap();
    for round in 0..200 {
        let (prefix, is_made) = (format!("p{round}"), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_micros(round % 40 * 50));
                drop(SqliteStore::open_with_prefix(&path, &prefix).unwrap());
                is_made.store(true, Relaxed);
            });
            while !is_made.load(Relaxed) {
                SqliteStore::open_read_only(&path, &prefix).unwrap();
            }
        });
    }
    drop(app);
    fs::remove_dir_all(&directory).unwrap();
}

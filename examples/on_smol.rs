//! An executor of one's own: leases on smol, without tokio. Two workers take turns on an SQLite file.
//!
//! `cargo run --example on_smol --features store-sqlite`

use std::{
    sync::OnceLock,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use boot_time::Instant;
use leasehold::{
    LeaseManager,
    executor::{Executor, MaybeSendFuture},
    machine::{Monotonic, Now, Wall},
    store::SqliteStore,
};
use smol::{Timer, future::zip};

/// Runs tasks on smol's global executor.
#[derive(Debug)]
struct SmolExecutor;

impl Executor for SmolExecutor {
    /// One clock for the whole process, which goes on while the machine is suspended.
    #[expect(clippy::disallowed_methods, reason = "an executor is where clocks are read")]
    fn now(&self) -> Now {
        static ORIGIN: OnceLock<Instant> = OnceLock::new();
        let passed = ORIGIN.get_or_init(Instant::now).elapsed();
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let ms = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        Now { monotonic: Monotonic::from_ms(ms(passed)), wall: Wall::from_ms(ms(wall)) }
    }

    fn spawn(&self, task: MaybeSendFuture<'static, ()>) {
        smol::spawn(task).detach();
    }

    fn sleep(&self, duration: Duration) -> MaybeSendFuture<'static, ()> {
        Box::pin(async move {
            let _ = Timer::after(duration).await;
        })
    }

    fn random(&self) -> u128 {
        let mut bits = [0; 16];
        getrandom::fill(&mut bits).expect("the system gives random bits");
        u128::from_ne_bytes(bits)
    }
}

/// Writes the report three times, never together with another worker.
async fn worker(name: &str, path: &std::path::Path) -> Vec<u64> {
    let store = SqliteStore::open(path).expect("the file can be opened");
    let leases = LeaseManager::builder(store, SmolExecutor).instance(name).build().expect("the defaults fit together");
    let mut tokens = Vec::new();
    for _ in 0..3 {
        let guard = leases.lock("report").acquire().await.expect("nobody holds it for ever");
        println!("{name} writes, with token {}", guard.token());
        tokens.push(guard.token().as_u64());
        guard.release().await.expect("the file is there");
    }
    leases.close().await;
    tokens
}

fn main() {
    let directory = std::env::temp_dir().join(format!("leasehold-smol-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("there is a place for files");
    let path = directory.join("leases.db");
    let (mut tokens, more) = smol::block_on(zip(worker("ada", &path), worker("bob", &path)));
    tokens.extend(more);
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), 6, "no token twice");
    std::fs::remove_dir_all(directory).expect("it is ours");
}

#[test]
fn two_workers_take_turns_without_tokio() {
    main();
}

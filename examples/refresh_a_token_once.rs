//! Twenty tasks need a token that has run out. One of them fetches it; the others use what it brought.
//!
//! `cargo run --example refresh_a_token_once --features tokio`

use std::{
    sync::{
        Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use futures::future::try_join_all;
use leasehold::{AcquireError, LeaseManager, executor::TokioExecutor, store::MemoryStore};

#[derive(Default)]
struct Tokens {
    current: Mutex<Option<String>>,
    fetched: AtomicU32,
}

impl Tokens {
    /// Looks again under the lease: whoever waited for it finds what the one before has fetched.
    async fn fresh(&self, leases: &LeaseManager) -> Result<String, AcquireError> {
        if let Some(token) = self.known() {
            return Ok(token);
        }
        let work = async |_: &_| match self.known() {
            Some(token) => token,
            None => self.fetch().await,
        };
        Ok(leases.lock("token").timeout(Duration::from_secs(30)).run(work).await?.value)
    }

    fn known(&self) -> Option<String> {
        self.current.lock().ok()?.clone()
    }

    async fn fetch(&self) -> String {
        tokio::time::sleep(Duration::from_millis(20)).await;
        let token = format!("token {}", self.fetched.fetch_add(1, Ordering::Relaxed) + 1);
        if let Ok(mut current) = self.current.lock() {
            *current = Some(token.clone());
        }
        token
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let leases = LeaseManager::builder(MemoryStore::new(), TokioExecutor::new()).build()?;
    let tokens = Tokens::default();
    let all = try_join_all((0..20).map(|_| tokens.fresh(&leases))).await?;
    let fetched = tokens.fetched.load(Ordering::Relaxed);
    println!("{} tasks have \"{}\", which was fetched {fetched} times", all.len(), all[0]);
    assert!(fetched == 1 && all.iter().all(|token| *token == all[0]));
    leases.close().await;
    Ok(())
}

#[test]
fn it_is_fetched_once() {
    main().unwrap();
}

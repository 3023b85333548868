//! `leasehold bench`.

use std::{sync::Arc, time::Duration};

use leasehold::{
    AcquireError, LeaseManager,
    executor::TokioExecutor,
    store::{self, Store},
};
use tokio::time::Instant;

use super::codes::{Exit, Failure};
use super::options::Bench;
use super::output::print;
use super::{place, wait};

/// Measures acquire with release, and the hand-off between two contexts.
pub(crate) async fn bench(options: &Bench) -> Result<Exit, Failure> {
    let url = options.place.any_url()?;
    options.place.make_folder(&url)?;
    let one = opened(&url).await?;
    // A second store in memory would be another one.
    let two = if url.starts_with("memory:") { one.clone() } else { opened(&url).await? };
    let one = LeaseManager::builder(one, TokioExecutor::new()).build().map_err(AcquireError::from)?;
    let two = LeaseManager::builder(two, TokioExecutor::new()).build().map_err(AcquireError::from)?;
    let key = format!("leasehold bench {}", std::process::id());
    let alone = alone(&one, &key, options.rounds).await;
    let handed = match alone {
        Ok(_) => hand_offs(&one, &two, &key, options.rounds).await,
        Err(_) => Ok(Vec::new()),
    };
    wait::close(&one).await;
    wait::close(&two).await;
    let mut text = format!("{:<22}{:>9}{:>9}\n", format!("ms, {} rounds", options.rounds), "p50", "p95");
    for (name, spans) in [("acquire and release", alone?), ("hand-off", handed?)] {
        text += &format!("{name:<22}{:>9.2}{:>9.2}\n", percentile(&spans, 50), percentile(&spans, 95));
    }
    print(&text)
}

async fn opened(url: &str) -> Result<Arc<dyn Store>, Failure> {
    let store = store::from_url(url).await.map_err(|error| place::refused(url, error))?;
    Ok(Arc::from(store))
}

async fn alone(leases: &LeaseManager, key: &str, rounds: u32) -> Result<Vec<Duration>, Failure> {
    let mut spans = Vec::new();
    for _ in 0..rounds {
        let start = Instant::now();
        leases.lock(key).acquire().await?.release().await?;
        spans.push(start.elapsed());
    }
    Ok(spans)
}

/// From the release by one to the grant to the other, which waits in the queue.
async fn hand_offs(one: &LeaseManager, two: &LeaseManager, key: &str, rounds: u32) -> Result<Vec<Duration>, Failure> {
    let mut spans = Vec::new();
    let (mut giver, mut taker) = (one, two);
    let mut guard = giver.lock(key).acquire().await?;
    for _ in 0..rounds {
        let release = async {
            while giver.status(key).await?.queue.is_empty() {
                tokio::task::yield_now().await;
            }
            let start = Instant::now();
            guard.release().await?;
            Ok::<_, Failure>(start)
        };
        let grant = async {
            let granted = taker.lock(key).acquire().await?;
            Ok::<_, Failure>((granted, Instant::now()))
        };
        let (start, (granted, end)) = futures::future::try_join(release, grant).await?;
        spans.push(end - start);
        guard = granted;
        (giver, taker) = (taker, giver);
    }
    guard.release().await?;
    Ok(spans)
}

/// In ms.
fn percentile(spans: &[Duration], percent: usize) -> f64 {
    let mut sorted = spans.to_vec();
    sorted.sort_unstable();
    let place = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(place).map_or(0.0, |span| span.as_secs_f64() * 1_000.0)
}

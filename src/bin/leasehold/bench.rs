//! `leasehold bench`.

use std::{pin::pin, sync::Arc, time::Duration};

use futures::future::{Either, select};
use leasehold::{
    AcquireError, LeaseGuard, LeaseManager, ReleaseOutcome,
    executor::TokioExecutor,
    store::{self, Store},
};
use tokio::time::{Instant, sleep};

use super::codes::{Exit, Failure};
use super::json;
use super::options::Bench;
use super::output::print_until_signal;
use super::signals::{self, Call, Signals};
use super::{place, wait};

/// How often to look whether the taker waits. It is not a part of what is measured.
const LOOK: Duration = Duration::from_millis(1);

/// Measures acquire with release, and the hand-off between two contexts.
pub(crate) async fn bench(options: &Bench) -> Result<Exit, Failure> {
    let url = options.place.any_url()?;
    options.place.make_folder(&url)?;
    let mut signals = Signals::listen_to_wait()?;
    let mut measured = Measured { rounds: options.rounds, ..Measured::default() };
    loop {
        match measure(&mut measured, &url, &mut signals).await? {
            None => {
                let figures = if options.json { measured.as_json() } else { measured.table() };
                return print_until_signal(figures, &mut signals).await;
            }
            Some(Call::End(signal)) => return Ok(signal.into()),
            Some(Call::Stop) => signals::stop(),
        }
    }
}

/// Measures until all is done, or until a signal comes. Then the stores are closed: nobody is to wait for a process that is stopped.
async fn measure(measured: &mut Measured, url: &str, signals: &mut Signals) -> Result<Option<Call>, Failure> {
    // A stop while the stores are being opened is heard afterwards: it could come in the midst of a transaction.
    signals.put_off_stops();
    let pair = match select(pin!(Pair::open(url)), pin!(signals.end())).await {
        Either::Left((pair, _)) => pair?,
        Either::Right((signal, _)) => return Ok(Some(Call::End(signal))),
    };
    signals.hear_stops();
    // If a signal comes, what was asked for is dropped: the lease is on its way back, or the request has left the queue.
    let ended = match select(pin!(measured.go_on(&pair)), pin!(signals.call())).await {
        Either::Left((ended, _)) => ended.map(|()| None),
        Either::Right((call, _)) => Ok(Some(call)),
    };
    pair.close().await;
    ended
}

/// Two contexts of one store.
struct Pair {
    one: LeaseManager,
    two: LeaseManager,
    key: String,
}

impl Pair {
    async fn open(url: &str) -> Result<Self, Failure> {
        let one = opened(url).await?;
        // A second store in memory would be another one.
        let two = if url.starts_with("memory:") { one.clone() } else { opened(url).await? };
        let manager = |store| LeaseManager::builder(store, TokioExecutor::new()).build().map_err(AcquireError::from);
        Ok(Self { one: manager(one)?, two: manager(two)?, key: format!("leasehold bench {}", std::process::id()) })
    }

    async fn close(&self) {
        wait::close(&self.one).await;
        wait::close(&self.two).await;
    }
}

async fn opened(url: &str) -> Result<Arc<dyn Store>, Failure> {
    let store = store::from_url(url).await.map_err(|error| place::refused(url, error))?;
    Ok(Arc::from(store))
}

/// What was measured so far. It outlasts the stores, which are closed while this process is stopped.
#[derive(Default)]
struct Measured {
    rounds: u32,
    alone_rounds: u32,
    alone: Vec<Duration>,
    handed_rounds: u32,
    handed: Vec<Duration>,
}

impl Measured {
    /// Measures what is left. A round in which somebody steals the key is left out of the figures, and is not repeated.
    async fn go_on(&mut self, pair: &Pair) -> Result<(), Failure> {
        while self.alone_rounds < self.rounds {
            let start = Instant::now();
            let released = pair.one.lock(&pair.key).acquire().await?.release().await?;
            self.alone.extend(Some(start.elapsed()).filter(|_| released == ReleaseOutcome::Released));
            self.alone_rounds += 1;
        }
        let (mut giver, mut taker) = (&pair.one, &pair.two);
        let mut guard = giver.lock(&pair.key).acquire().await?;
        while self.handed_rounds < self.rounds {
            let span;
            (guard, span) = hand_off(guard, giver, taker, &pair.key).await?;
            self.handed.extend(span);
            self.handed_rounds += 1;
            (giver, taker) = (taker, giver);
        }
        guard.release().await?;
        Ok(())
    }

    fn table(&self) -> String {
        let mut text = format!("{:<22}{:>9}{:>9}\n", format!("ms, {} rounds", self.rounds), "p50", "p95");
        for (name, spans) in [("acquire and release", &self.alone), ("hand-off", &self.handed)] {
            let [p50, p95] = [50, 95].map(|percent| match percentile(spans, percent) {
                Some(ms) => format!("{ms:.2}"),
                None => "-".into(),
            });
            text += &format!("{name:<22}{p50:>9}{p95:>9}\n");
        }
        text
    }

    fn as_json(&self) -> String {
        let figures = |spans| {
            let figure = |percent| percentile(spans, percent).map_or_else(|| "null".into(), |ms| format!("{ms:.3}"));
            json::object(&[("p50_ms", figure(50)), ("p95_ms", figure(95))])
        };
        let fields = [
            ("rounds", self.rounds.to_string()),
            ("acquire_and_release", figures(&self.alone)),
            ("hand_off", figures(&self.handed)),
        ];
        json::object(&fields) + "\n"
    }
}

/// From the release by one to the grant to the other, which waits in the queue. There is no span if the lease was stolen meanwhile.
async fn hand_off(
    guard: LeaseGuard,
    giver: &LeaseManager,
    taker: &LeaseManager,
    key: &str,
) -> Result<(LeaseGuard, Option<Duration>), Failure> {
    let release = async {
        until_awaited(&guard, giver, key).await?;
        let start = Instant::now();
        let released = guard.release().await?;
        Ok::<_, Failure>(Some(start).filter(|_| released == ReleaseOutcome::Released))
    };
    let grant = async {
        let granted = taker.lock(key).acquire().await?;
        Ok::<_, Failure>((granted, Instant::now()))
    };
    let (start, (granted, end)) = futures::future::try_join(release, grant).await?;
    Ok((granted, start.map(|start| end - start)))
}

/// Waits until somebody is in the queue, or the lease is lost: once a thief has released it, the taker acquires it without queueing.
async fn until_awaited(guard: &LeaseGuard, giver: &LeaseManager, key: &str) -> Result<(), Failure> {
    while guard.is_valid() {
        let status = giver.status(key).await?;
        let is_held = status.holders.iter().any(|holder| holder.own);
        if !is_held || !status.queue.is_empty() {
            break;
        }
        sleep(LOOK).await;
    }
    Ok(())
}

/// In ms; `None` if nothing was measured, because somebody stole the key in each round.
fn percentile(spans: &[Duration], percent: usize) -> Option<f64> {
    let mut sorted = spans.to_vec();
    sorted.sort_unstable();
    let place = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(place).map(|span| span.as_secs_f64() * 1_000.0)
}

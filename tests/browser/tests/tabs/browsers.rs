//! The browsers of the scenarios. Starting one costs more than most scenarios do. So the browser of a scenario that passed also plays the
//! next scenario of its engine. Scenarios share nothing else: each has a server of its own, and so an origin of its own, and only the blank
//! tab that the browser began with stays open between them.

use std::{
    mem,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use leasehold_browser_tests::{Browser, Engine};
use libtest_mimic::Failed;

use crate::world::{World, play, seated};

/// Ends a scenario that hangs. Each takes a few seconds.
const LIMIT: Duration = Duration::from_secs(300);

/// Scenarios that play side by side: one alone leaves half of a small machine idle.
const SIDE_BY_SIDE: usize = 2;

/// What a browser keeps of its closed tabs must not add up: after so many scenarios, a fresh one takes over.
const SCENARIOS: usize = 30;

/// A browser that has not closed its tabs by then is not used again.
const PATIENCE: Duration = Duration::from_secs(20);

/// A browser, and how many scenarios it has played.
struct Lent {
    browser: Browser,
    engine: Engine,
    played: usize,
}

static IDLE: Mutex<Vec<Lent>> = Mutex::new(Vec::new());

fn idle() -> MutexGuard<'static, Vec<Lent>> {
    IDLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Plays a scenario beside another one at most.
pub fn run(engine: Engine, scenario: impl AsyncFnOnce(&World) -> anyhow::Result<()>) -> Result<(), Failed> {
    let played = seated(SIDE_BY_SIDE, engine, async || {
        let lent = borrow(engine).await?;
        play(LIMIT, engine, lent.browser.clone(), scenario).await?;
        give_back(lent).await;
        Ok(())
    });
    played.map_err(|error| format!("{error:#}").into())
}

/// A browser of this engine that is idle, else a fresh one. Idle browsers of other engines are ended: their turn is over.
async fn borrow(engine: Engine) -> anyhow::Result<Lent> {
    let (mut of_engine, others) =
        mem::take(&mut *idle()).into_iter().partition::<Vec<_>, _>(|lent| lent.engine == engine);
    drop(others);
    let lent = of_engine.pop();
    idle().append(&mut of_engine);
    match lent {
        Some(lent) => Ok(lent),
        None => Ok(Lent { browser: Browser::start(engine).await?, engine, played: 0 }),
    }
}

/// Takes back the browser of a scenario that passed. A failed scenario leaves its browser in an unknown state, so that one is not used
/// again.
async fn give_back(mut lent: Lent) {
    lent.played += 1;
    if lent.played < SCENARIOS && matches!(tokio::time::timeout(PATIENCE, lent.browser.close_tabs()).await, Ok(Ok(())))
    {
        idle().push(lent);
    }
}

/// Ends the browsers that are idle.
pub fn end() {
    idle().clear();
}

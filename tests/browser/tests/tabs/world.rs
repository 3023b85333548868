//! What every scenario needs: a server, a browser, tabs with the library in them.

use std::{
    io::Write as _,
    sync::{Condvar, LazyLock, Mutex, PoisonError},
    time::Duration,
};

use anyhow::Context as _;
pub use leasehold_browser_tests::now_ms;
use leasehold_browser_tests::{Browser, Engine, Server, Shape, Tab};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

/// For what should happen at once. How fast it is, the benchmark tells; here no busy machine is too slow.
pub const SOON: Duration = Duration::from_secs(60);

/// After that a page that hung has lost its lease, or keeps it.
const LATE: Duration = Duration::from_secs(5);

/// A lease that outlasts every scenario. It beats every two minutes: neither its end nor a beat is ever what helps.
pub const LASTING_MS: u64 = 600_000;

/// With such leases.
pub fn lasting() -> Value {
    json!({ "leaseMs": LASTING_MS })
}

/// With leases whose end can be waited for, and which a busy machine still renews in time.
pub fn brief() -> Value {
    json!({ "leaseMs": 3_000, "heartbeatMs": 500 })
}

/// How long a page hangs that is to lose a brief lease meanwhile. Where the machine was too slow for the first, the next.
const HANGS_MS: [u64; 3] = [6_000, 20_000, 60_000];

pub struct World {
    pub engine: Engine,
    pub server: Server,
    pub browser: Browser,
}

/// Plays a scenario alone, in a browser of its own: it takes longer, and is measured.
#[allow(dead_code, reason = "of the long suite")]
pub fn run_for(limit: Duration, engine: Engine, scenario: impl AsyncFnOnce(&World) -> anyhow::Result<()>) {
    run_alone(limit, engine, Browser::start, scenario);
}

/// The same, with the timers of hidden pages as slow as a person's browser has them.
#[allow(dead_code, reason = "of the long suite")]
pub fn run_with_slow_timers(limit: Duration, engine: Engine, scenario: impl AsyncFnOnce(&World) -> anyhow::Result<()>) {
    run_alone(limit, engine, Browser::start_with_slow_timers, scenario);
}

fn run_alone(
    limit: Duration,
    engine: Engine,
    start: impl AsyncFnOnce(Engine) -> anyhow::Result<Browser>,
    scenario: impl AsyncFnOnce(&World) -> anyhow::Result<()>,
) {
    let played = seated(1, engine, async || play(limit, engine, start(engine).await?, scenario).await);
    played.unwrap_or_else(|error| panic!("{error:#}"));
}

/// One of those that play at the same time, until it is dropped.
struct Seat;

static TAKEN: Mutex<usize> = Mutex::new(0);
static FREED: Condvar = Condvar::new();

impl Seat {
    fn take(of: usize) -> Self {
        let taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
        let mut taken = FREED.wait_while(taken, |taken| *taken >= of).unwrap_or_else(PoisonError::into_inner);
        *taken += 1;
        Self
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        *TAKEN.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        FREED.notify_one();
    }
}

/// A browser talks to the runtime that it was started in, and may play scenarios of several threads.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("threads are to be had")
});

/// Waits until fewer than `of` scenarios play, then plays this one. Skips it, loudly, if the browser is missing.
pub fn seated(of: usize, engine: Engine, play: impl AsyncFnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
    let _seat = Seat::take(of);
    if !engine.is_here() {
        return Ok(());
    }
    let played = RUNTIME.block_on(play());
    if let Err(error) = &played {
        // The test runner prints this only at the end, which the log of a long run may cut off.
        let _ = writeln!(std::io::stderr(), "{}: FAILED: {error:#}", engine.name());
    }
    played
}

/// Plays a scenario in this browser, on a server of its own.
pub async fn play(
    limit: Duration,
    engine: Engine,
    browser: Browser,
    scenario: impl AsyncFnOnce(&World) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let world = World { engine, server: Server::start()?, browser };
    let outcome = tokio::time::timeout(limit, scenario(&world)).await;
    outcome.with_context(|| format!("the scenario hangs; {}", world.browser.last_command()))?
}

impl World {
    /// For scenarios that kill a process: a browser that has had many tabs may run both tabs of a scenario in one process.
    pub async fn with_a_browser_of_its_own(&self) -> anyhow::Result<Self> {
        Ok(Self { engine: self.engine, server: Server::start()?, browser: Browser::start(self.engine).await? })
    }

    /// A tab whose page has opened a manager with these options.
    pub async fn tab(&self, options: Value) -> anyhow::Result<Tab> {
        self.tab_at("localhost", options).await
    }

    /// The same, at another name of this machine.
    pub async fn tab_at(&self, host: &str, options: Value) -> anyhow::Result<Tab> {
        opened(self.load(host, "", Shape::Tab).await?, options).await
    }

    /// The same, visible: its timers are on time.
    pub async fn window(&self, options: Value) -> anyhow::Result<Tab> {
        opened(self.load("localhost", "", Shape::Window).await?, options).await
    }

    /// The address of a page that uses nothing.
    pub fn elsewhere(&self) -> String {
        self.server.url("/tests/blank.html")
    }

    /// A tab whose page has loaded the library, but not opened it.
    pub async fn bare_tab(&self) -> anyhow::Result<Tab> {
        self.load("localhost", "", Shape::Tab).await
    }

    /// A tab that runs an earlier build of the library.
    pub async fn earlier_tab(&self) -> anyhow::Result<Tab> {
        self.load("localhost", "?build=/tests/earlier", Shape::Tab).await
    }

    async fn load(&self, host: &str, query: &str, shape: Shape) -> anyhow::Result<Tab> {
        let page = format!("/tests/tab.html{query}");
        let tab = self.browser.open(&self.server.url_at(host, &page), shape).await?;
        let ready = "if (window.failed) throw Error('pkg/ did not load: `make pkg` builds it'); return window.ready";
        tab.until(ready, Value::Null, SOON).await?;
        Ok(tab)
    }

    /// Tells a measured time past the test runner, which keeps what a passing test prints.
    pub fn tell(&self, what: &str, ms: u64) {
        self.note(&format!("{what}: {ms} ms"));
    }

    /// The same for whatever else was seen.
    pub fn note(&self, what: &str) {
        let _ = writeln!(std::io::stderr(), "{}: {what}", self.engine.name());
    }
}

/// A tab whose page opens a manager now.
pub async fn opened(tab: Tab, options: Value) -> anyhow::Result<Tab> {
    tab.run("await openLeases(arg)", options).await?;
    Ok(tab)
}

/// Takes the lease in a tab, and keeps it. Its token.
pub async fn hold(tab: &Tab, key: &str) -> anyhow::Result<u64> {
    let token = tab.run("window.lease = await leases.acquire(arg); return lease.token", json!(key)).await?;
    token.as_u64().context("a whole token")
}

/// A script that tells whether a lease is valid, whether the store confirms it, and how its release ends. A page that the
/// driver has just come to look at had been hidden: its leases are in doubt, and not valid, until its store has answered. On a busy
/// machine, that may take longer than the time limit of a short lease allows: then the script asks the store again.
pub fn given_back(lease: &str) -> String {
    format!(
        "let [confirmed, answered, rounds] = [true, false, 0];
        const late = (error) => error.code === 'Store' || Promise.reject(error);
        while (confirmed && !({lease}.valid && answered) && rounds++ < 10) {{
            confirmed = await {lease}.verify().then((told) => ((answered = true), told), late);
        }}
        return [{lease}.valid, confirmed && answered, await {lease}.release()]"
    )
}

/// Starts waiting for the lease in a tab, and comes back when the tab stands in the queue.
pub async fn wait_in_queue(tab: &Tab, key: &str) -> anyhow::Result<()> {
    // It is noted for when the page is loaded anew before anybody asks.
    let wait = "delete localStorage.granted;
        window.lease = await leases.acquire(arg, { timeoutMs: 200_000 });
        const grant = { token: lease.token, at: Date.now() };
        localStorage.granted = JSON.stringify(grant);
        return grant";
    tab.start("wait", wait, json!(key)).await?;
    // A busy machine may take longer than the time limit of a short lease.
    let queues = "try {
            return (await leases.status(arg)).queue.some(({ own }) => own);
        } catch (error) {
            if (error.code !== 'Store') throw error;
        }";
    tab.until(queues, json!(key), SOON).await?;
    Ok(())
}

/// Plays a part in which a page hangs until it has lost its lease; the part brings whether it did before it woke up.
pub async fn while_it_hangs(world: &World, part: impl AsyncFn(u64) -> anyhow::Result<bool>) -> anyhow::Result<()> {
    for ms in HANGS_MS {
        if part(ms).await? {
            return Ok(());
        }
        world.note(&format!("a page hung for {ms} ms, which was too short for this machine"));
    }
    anyhow::bail!("nobody takes over from a page that hangs for {} ms", HANGS_MS[2])
}

/// The token and the time of the grant that a tab waits for.
pub async fn granted(tab: &Tab, within: Duration) -> anyhow::Result<(u64, u64)> {
    token_and_time(&tab.outcome("wait", within).await?)
}

/// The token and the time of the grant for which a tab waits while the holder hangs; none if the holder keeps its lease. A page
/// that hangs with a transaction of the store open stops everybody else for as long.
pub async fn taken_over(waiter: &Tab, holder: &Tab, hangs_ms: u64) -> anyhow::Result<Option<(u64, u64)>> {
    let early = granted(waiter, Duration::from_millis(hangs_ms) + LATE).await;
    let too_early = early.as_ref().is_err_and(|error| format!("{error:#}").contains("it takes longer than"));
    if too_early && holder.run("return lease.verify()", Value::Null).await? == true {
        return Ok(None);
    }
    if too_early { granted(waiter, SOON).await.map(Some) } else { early.map(Some) }
}

/// What a page tells of its grant.
pub fn token_and_time(grant: &Value) -> anyhow::Result<(u64, u64)> {
    grant["token"].as_u64().zip(grant["at"].as_u64()).context("a token and a time")
}

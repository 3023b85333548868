//! What every scenario needs: a server, a fresh browser, tabs with the library in them.

use std::{
    io::Write as _,
    sync::{Mutex, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::Context as _;
use leasehold_browser_tests::{Browser, Engine, Server, Shape, Tab};
use serde_json::{Value, json};

/// Ends a scenario that hangs. Each takes a few seconds.
const LIMIT: Duration = Duration::from_secs(90);

/// For what should happen at once.
pub const SOON: Duration = Duration::from_secs(10);

pub struct World {
    pub engine: Engine,
    pub server: Server,
    pub browser: Browser,
}

/// Runs a scenario when no other one runs; skips it, loudly, where the browser is missing.
pub fn run(engine: Engine, scenario: impl AsyncFnOnce(&World) -> anyhow::Result<()>) {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    if !engine.is_here() {
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let outcome = runtime.expect("threads are to be had").block_on(async {
        let world = World { engine, server: Server::start()?, browser: Browser::start(engine).await? };
        tokio::time::timeout(LIMIT, scenario(&world)).await.context("the scenario hangs")?
    });
    if let Err(error) = outcome {
        panic!("{error:#}");
    }
}

impl World {
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
        let _ = writeln!(std::io::stderr(), "{}: {what}: {ms} ms", self.engine.name());
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

/// Starts waiting for the lease in a tab, and comes back when the tab stands in the queue.
pub async fn wait_in_queue(tab: &Tab, key: &str) -> anyhow::Result<()> {
    let wait = "window.lease = await leases.acquire(arg, { timeoutMs: 40_000 }); return { token: lease.token, at: Date.now() }";
    tab.start("wait", wait, json!(key)).await?;
    tab.until("return (await leases.status(arg)).queue.some(({ own }) => own)", json!(key), SOON).await?;
    Ok(())
}

/// The token and the time of the grant that a tab waits for.
pub async fn granted(tab: &Tab, within: Duration) -> anyhow::Result<(u64, u64)> {
    let grant = tab.outcome("wait", within).await?;
    grant["token"].as_u64().zip(grant["at"].as_u64()).context("a token and a time")
}

/// The wall clock, which this program and all tabs read alike.
pub fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is past 1970");
    u64::try_from(since.as_millis()).expect("the clock is before the year 500 million")
}

//! Every kind of context that a page can make takes turns with a plain tab: workers of three kinds, frames, and several
//! managers in one page. What can be ended by itself is ended while it holds, and while it waits.

use anyhow::{Context as _, ensure};
use leasehold_browser_tests::Tab;
use serde_json::{Value, json};

use crate::world::{LASTING_MS, SOON, World, given_back, granted, hold, lasting, now_ms, wait_in_queue};

const WAIT: &str = "my.lease = await my.leases.acquire('notes', { timeoutMs: 200_000 });
    return { token: my.lease.token, at: Date.now() }";

/// A context beside the page of a tab, with a manager in it.
struct Beside<'a> {
    tab: &'a Tab,
}

impl<'a> Beside<'a> {
    async fn new(tab: &'a Tab, kind: &str) -> anyhow::Result<Self> {
        tab.run("window.other = await context(arg)", json!(kind)).await.with_context(|| format!("no {kind}"))?;
        let beside = Self { tab };
        beside.run(&format!("my.leases = await LeaseManager.open('tests', {{ leaseMs: {LASTING_MS} }})")).await?;
        Ok(beside)
    }

    async fn run(&self, body: &str) -> anyhow::Result<Value> {
        self.tab.run("return other.run(arg)", json!(body)).await
    }

    async fn hold(&self) -> anyhow::Result<u64> {
        let token = self.run("my.lease = await my.leases.acquire('notes'); return my.lease.token").await?;
        token.as_u64().context("a whole token")
    }

    async fn wait_in_queue(&self) -> anyhow::Result<()> {
        self.tab.start("wait", "return other.run(arg)", json!(WAIT)).await?;
        let own = "return (await my.leases.status('notes')).queue.some(({ own }) => own)";
        self.tab.until("return other.run(arg)", json!(own), SOON).await?;
        Ok(())
    }

    async fn release(&self) -> anyhow::Result<()> {
        let told = self.run(&given_back("my.lease")).await?;
        ensure!(told == json!([true, true, "released"]), "the lease is not whole: {told}");
        Ok(())
    }

    async fn end(self) -> anyhow::Result<()> {
        self.tab.run("other.end()", Value::Null).await?;
        Ok(())
    }
}

/// The tab gets it from the context, and the context from the tab, each by the other's release.
async fn turns(world: &World, kind: &str, beside: &Beside<'_>, tab: &Tab) -> anyhow::Result<()> {
    let first = beside.hold().await?;
    wait_in_queue(tab, "notes").await?;
    let released = now_ms();
    beside.release().await?;
    let (second, at) = granted(tab, SOON).await?;
    world.tell(&format!("hand-off from a {kind}"), at.saturating_sub(released));

    beside.wait_in_queue().await?;
    let busy = beside.run("return my.leases.tryAcquire('notes')").await?;
    ensure!(busy.is_null(), "a try got a lease that is held");
    let released = now_ms();
    tab.run("await lease.release()", Value::Null).await?;
    let (third, at) = granted(beside.tab, SOON).await?;
    world.tell(&format!("hand-off to a {kind}"), at.saturating_sub(released));
    ensure!(first < second && second < third, "tokens do not grow: {first}, {second}, {third}");
    beside.release().await
}

/// It is ended while it holds, and a tab waits.
async fn replaced(world: &World, kind: &str, beside: Beside<'_>, tab: &Tab) -> anyhow::Result<()> {
    let first = beside.hold().await?;
    wait_in_queue(tab, "notes").await?;
    let ended = now_ms();
    beside.end().await?;
    let (token, at) = granted(tab, SOON).await?;
    let took = at.saturating_sub(ended);
    world.tell(&format!("take-over from an ended {kind}"), took);
    ensure!(token > first, "the token {token} is not larger than {first}");
    ensure!(at >= ended, "granted {} ms before its end", ended - at);
    tab.run("await lease.release()", Value::Null).await?;
    Ok(())
}

/// It is ended while it waits between two tabs, and is passed over.
async fn passed_over(world: &World, kind: &str, beside: Beside<'_>, tabs: [&Tab; 2]) -> anyhow::Result<()> {
    hold(tabs[0], "notes").await?;
    beside.wait_in_queue().await?;
    wait_in_queue(tabs[1], "notes").await?;
    beside.end().await?;
    let released = now_ms();
    tabs[0].run("await lease.release()", Value::Null).await?;
    let (_, at) = granted(tabs[1], SOON).await?;
    let took = at.saturating_sub(released);
    world.tell(&format!("hand-off past an ended {kind}"), took);
    Ok(())
}

/// Turns, and then its end in both ways, by the page that made it.
async fn lives_and_dies(world: &World, kind: &str) -> anyhow::Result<()> {
    let [maker, tab] = [world.tab(lasting()).await?, world.tab(lasting()).await?];
    let beside = Beside::new(&maker, kind).await?;
    turns(world, kind, &beside, &tab).await?;
    replaced(world, kind, beside, &tab).await?;
    passed_over(world, kind, Beside::new(&maker, kind).await?, [&maker, &tab]).await
}

pub async fn a_dedicated_worker_takes_turns_and_is_terminated(world: &World) -> anyhow::Result<()> {
    lives_and_dies(world, "dedicated worker").await
}

pub async fn a_frame_takes_turns_and_is_removed(world: &World) -> anyhow::Result<()> {
    lives_and_dies(world, "frame").await
}

/// As an extension's: without `window` and `document`, where even a look at them fails.
pub async fn an_isolated_worker_takes_turns(world: &World) -> anyhow::Result<()> {
    let [maker, tab] = [world.tab(lasting()).await?, world.tab(lasting()).await?];
    let beside = Beside::new(&maker, "isolated worker").await?;
    let look = "try { return typeof document } catch (error) { return error.message }";
    let seen = beside.run(look).await?;
    ensure!(seen == "document is out of bounds", "it is not isolated: {seen}");
    turns(world, "isolated worker", &beside, &tab).await
}

/// It ends with the last page that is connected to it.
pub async fn a_shared_worker_takes_turns_and_goes_with_its_page(world: &World) -> anyhow::Result<()> {
    let [maker, tab] = [world.tab(lasting()).await?, world.tab(lasting()).await?];
    let beside = Beside::new(&maker, "shared worker").await?;
    turns(world, "shared worker", &beside, &tab).await?;
    let first = beside.hold().await?;
    wait_in_queue(&tab, "notes").await?;
    let ended = now_ms();
    maker.close().await?;
    let (token, at) = granted(&tab, SOON).await?;
    let took = at.saturating_sub(ended);
    world.tell("take-over from a shared worker whose page was closed", took);
    ensure!(token > first && at >= ended, "token {token} after {first}, in {took} ms");
    Ok(())
}

/// The page that made it goes while another one is connected.
pub async fn a_shared_worker_whose_maker_goes_keeps_its_lease(world: &World) -> anyhow::Result<()> {
    let [maker, other, tab] = [world.tab(lasting()).await?, world.tab(lasting()).await?, world.tab(lasting()).await?];
    let first = Beside::new(&maker, "shared worker").await?.hold().await?;
    other.run("window.other = await context('shared worker')", Value::Null).await?;
    let beside = Beside { tab: &other };
    let same = beside.run("return my.lease.token").await?;
    ensure!(same == first, "the second page is connected to another worker: {same}");
    wait_in_queue(&tab, "notes").await?;
    maker.close().await?;
    beside.release().await?;
    let (token, _) = granted(&tab, SOON).await?;
    ensure!(token > first, "the token {token} is not larger than {first}");
    Ok(())
}

/// The browser may stop it whenever nothing is asked of it.
pub async fn a_stopped_service_worker_is_replaced(world: &World) -> anyhow::Result<()> {
    let [maker, tab] = [world.tab(lasting()).await?, world.tab(lasting()).await?];
    let first = Beside::new(&maker, "service worker").await?.hold().await?;
    wait_in_queue(&tab, "notes").await?;
    let ended = now_ms();
    maker.stop_service_workers().await?;
    let (token, at) = granted(&tab, SOON).await?;
    let took = at.saturating_sub(ended);
    world.tell("take-over from a stopped service worker", took);
    ensure!(token > first, "the token {token} is not larger than {first}");
    Ok(())
}

pub async fn a_service_worker_takes_turns(world: &World) -> anyhow::Result<()> {
    let [maker, tab] = [world.tab(lasting()).await?, world.tab(lasting()).await?];
    let beside = Beside::new(&maker, "service worker").await?;
    turns(world, "service worker", &beside, &tab).await
}

/// Three in one page, each a context of its own to the others, and one in another tab.
pub async fn several_managers_of_one_page_take_turns(world: &World) -> anyhow::Result<()> {
    let [page, tab] = [world.tab(lasting()).await?, world.tab(lasting()).await?];
    let queue = "window.all = [leases];
        for (let more = 0; more < 2; more++) all.push(await LeaseManager.open('tests'));
        const first = await all[0].acquire('notes');
        window.order = [];
        window.turns = [1, 2].map(async (one) => {
            const lease = await all[one].acquire('notes', { timeoutMs: 200_000 });
            order.push(one);
            await lease.release();
            return lease.token;
        });
        window.first = first;
        return new Set(all.map(({ holder }) => holder)).size";
    let holders = page.run(queue, Value::Null).await?;
    ensure!(holders == 3, "three managers have {holders} names");
    page.until("return (await leases.status('notes')).queue.length === 2", Value::Null, SOON).await?;
    wait_in_queue(&tab, "notes").await?;
    let ends = "await first.release(); const tokens = await Promise.all(turns);
        return [order.length, tokens.every((token) => token > first.token), Math.max(...tokens)]";
    let told = page.run(ends, Value::Null).await?;
    ensure!(told[0] == 2 && told[1] == true, "the managers of the page had these turns: {told}");
    let (token, _) = granted(&tab, SOON).await?;
    ensure!(Some(token) > told[2].as_u64(), "the tab waited behind them, and got {token}: {told}");
    Ok(())
}

/// A frame without an origin of its own has no storage: a rejection that says so, and the memory store is still there.
pub async fn in_a_sandboxed_frame_open_is_refused(world: &World) -> anyhow::Result<()> {
    let tab = world.bare_tab().await?;
    tab.run("window.other = await context('sandboxed frame')", Value::Null).await?;
    let open = "return other.run(`try { await LeaseManager.open('tests') } catch (error) {
        return [origin, error.code, error.name, isLeaseError(error), error.message] }`)";
    let told = tab.run(open, Value::Null).await?;
    ensure!(told[0] == "null", "its origin is not opaque: {told}");
    let refused = told[1] == "Unsupported" && told[2] == "NotSupportedError" && told[3] == true;
    let sentence = told[4].as_str().unwrap_or_default();
    ensure!(refused && sentence.contains("forbidden here") && sentence.contains("memory"), "it is not refused: {told}");
    let memory = "return other.run(`const leases = await LeaseManager.open('tests', { store: 'memory' });
        return (await leases.acquire('notes')).release()`)";
    let outcome = tab.run(memory, Value::Null).await?;
    ensure!(outcome == "released", "a lease in memory: {outcome}");
    Ok(())
}

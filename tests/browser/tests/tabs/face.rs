//! What the package offers beside plain leases, between tabs.

use anyhow::{Context as _, ensure};
use leasehold_browser_tests::Tab;
use serde_json::{Value, json};

use crate::world::{SOON, World, given_back, hold, lasting, now_ms};

async fn two(world: &World) -> anyhow::Result<[Tab; 2]> {
    Ok([world.tab(lasting()).await?, world.tab(lasting()).await?])
}

/// Starts work under a lease in a tab, and comes back when it has begun. It never ends by itself.
async fn work(tab: &Tab, verb: &str, options: Value) -> anyhow::Result<()> {
    let work = "const work = (lease) => ((window.lease = lease), new Promise(() => {}));
        return attempt(() => leases[arg.verb]('notes', arg.options, work))";
    tab.start("work", work, json!({ "verb": verb, "options": options })).await?;
    tab.until("return window.lease?.valid", Value::Null, SOON).await?;
    Ok(())
}

pub async fn stolen_work_is_told_and_left_behind(world: &World) -> anyhow::Result<()> {
    // Each in its own window: a page that is shown looks at the store by itself.
    let (robbed, thief) = (world.window(lasting()).await?, world.window(lasting()).await?);
    work(&robbed, "run", json!({ "onLost": "abort" })).await?;
    let began = now_ms();
    let token = thief.run("window.lease = await leases.steal('notes'); return lease.token", Value::Null).await?;
    // By a message: its next renewal is minutes away.
    let said = robbed.outcome("work", SOON).await?;
    world.tell("work told of a theft", now_ms() - began);
    ensure!(said["code"] == "LeaseLost" && said["typed"] == true, "the work that was robbed says {said}");
    let told = "return [lease.signal.reason.reason, await lease.lost, lease.valid, lease.token, await lease.release()]";
    let told = robbed.run(told, Value::Null).await?;
    ensure!(
        told[0] == "Stolen" && told[1] == "Stolen" && told[2] == false && told[4] == "lost",
        "the robbed know {told}"
    );
    ensure!(token.as_u64() > told[3].as_u64(), "the token {token} is not larger than {}", told[3]);
    let good = thief.run("return [await lease.verify(), await lease.release()]", Value::Null).await?;
    ensure!(good == json!([true, "released"]), "what was stolen: {good}");
    Ok(())
}

pub async fn of_two_tabs_that_try_one_runs(world: &World) -> anyhow::Result<()> {
    let [busy, other] = two(world).await?;
    let run = "return leases.tryRun('notes', () => new Promise((resolve) => (window.end = resolve)))";
    busy.start("work", run, Value::Null).await?;
    busy.until("return window.end !== undefined", Value::Null, SOON).await?;
    let attempt = "return leases.tryRun('notes', { onLost: 'abort' }, (lease) => lease.token)";
    let refused = other.run(attempt, Value::Null).await?;
    ensure!(refused == json!({ "ran": false }), "while another tab is at it: {refused}");
    busy.run("end('done')", Value::Null).await?;
    let done = busy.outcome("work", SOON).await?;
    ensure!(done == json!({ "ran": true, "value": "done", "lost": null }), "the work says {done}");
    let ran = other.until(
        "const done = await leases.tryRun('notes', (lease) => lease.token); return done.ran && done",
        Value::Null,
        SOON,
    );
    let ran = ran.await?;
    ensure!(ran["value"].is_u64() && ran["lost"].is_null(), "the next one says {ran}");
    Ok(())
}

pub async fn several_keys_are_had_by_one_tab_at_a_time(world: &World) -> anyhow::Result<()> {
    let [first, second] = two(world).await?;
    hold(&first, "b").await?;
    let all = "window.group = await leases.acquireAll([{ key: 'c' }, { key: 'a' }, { key: 'b', mode: 'shared' }]);
        return group.leases.map(({ key, mode, valid }) => [key, mode, valid])";
    second.start("all", all, Value::Null).await?;
    let queued = "return (await leases.status('b')).queue.length === 1 && leases.list().then((keys) => keys.map(({ key }) => key))";
    let held = first.until(queued, Value::Null, SOON).await?;
    ensure!(held == json!(["a", "b"]), "while one waits for b, in use are {held}");
    let tried = "return attempt(() => leases.acquireAll([{ key: 'z' }, { key: 'a' }], { timeoutMs: 0 }))";
    let tried = first.run(tried, Value::Null).await?;
    ensure!(tried["code"] == "Timeout" && tried["name"] == "TimeoutError", "a try says {tried}");
    first.run("await lease.release()", Value::Null).await?;
    let granted = second.outcome("all", SOON).await?;
    let wanted = json!([["c", "exclusive", true], ["a", "exclusive", true], ["b", "shared", true]]);
    ensure!(granted == wanted, "granted was {granted}");
    let beside = "const reader = await leases.tryAcquire('b', { mode: 'shared' });
        return [await leases.tryAcquire('a'), await leases.tryAcquire('c'), await reader?.release()]";
    let beside = first.run(beside, Value::Null).await?;
    ensure!(beside == json!([null, null, "released"]), "beside them one gets {beside}");
    // All of them go with their tab.
    second.close().await?;
    let taken =
        "window.group = await leases.acquireAll([{ key: 'a' }, { key: 'b' }, { key: 'c' }], { timeoutMs: 60_000 })";
    first.run(taken, Value::Null).await?;
    let taken = first.run(&given_back("group"), Value::Null).await?;
    ensure!(taken == json!([true, true, "released"]), "the next one has {taken}");
    Ok(())
}

pub async fn a_closed_leader_is_followed(world: &World) -> anyhow::Result<()> {
    let [leader, heir] = two(world).await?;
    work(&leader, "elect", json!({ "info": "lead" })).await?;
    let term = leader.run("return lease.token", Value::Null).await?.as_u64().context("a token")?;
    let campaign = "leases.elect('notes', (lease) => ((window.lease = lease), new Promise(() => {})))";
    heir.start("campaign", &format!("return {campaign}"), Value::Null).await?;
    let known = "const [leader, { queue }] = await Promise.all([leases.leader('notes'), leases.status('notes')]);
        return queue.length === 1 && leader && [leader.own, leader.info, leader.token <= arg]";
    let known = heir.until(known, json!(term), SOON).await?;
    ensure!(known == json!([false, "lead", true]), "the heir knows {known}");
    let ended = now_ms();
    leader.close().await?;
    heir.until("return window.lease?.valid", Value::Null, SOON).await?;
    world.tell("a closed leader is followed", now_ms() - ended);
    let led =
        heir.run("return [lease.token > arg, (await leases.leader('notes')).own, await lease.verify()]", json!(term));
    let led = led.await?;
    ensure!(led == json!([true, true, true]), "the heir leads: {led}");
    Ok(())
}

pub async fn a_reader_becomes_the_writer_when_the_other_readers_have_gone(world: &World) -> anyhow::Result<()> {
    let [first, second] = two(world).await?;
    let read = "window.lease = await leases.acquire('notes', { mode: 'shared' }); return lease.token";
    let token = first.run(read, Value::Null).await?;
    second.run(read, Value::Null).await?;
    first
        .start("upgrade", "await lease.upgrade(); return [lease.mode, lease.token, lease.changedHands]", Value::Null)
        .await?;
    // Of two upgrades, the later one is refused. So it is requested only once the first one stands in the queue.
    second.until("return (await leases.status('notes')).queue.length === 1", Value::Null, SOON).await?;
    let conflict = "return [(await attempt(() => lease.upgrade())).code, lease.mode, await lease.verify()]";
    let conflict = second.run(conflict, Value::Null).await?;
    ensure!(conflict == json!(["UpgradeConflict", "shared", true]), "after the conflict: {conflict}");
    second.run("await lease.release()", Value::Null).await?;
    let upgraded = first.outcome("upgrade", SOON).await?;
    ensure!(upgraded[0] == "exclusive" && upgraded[2] == false, "the upgrade says {upgraded}");
    ensure!(upgraded[1].as_u64() > token.as_u64(), "the token {} is not larger than {token}", upgraded[1]);
    let busy = second.run("return leases.tryAcquire('notes', { mode: 'shared' })", Value::Null).await?;
    ensure!(busy.is_null(), "shared although it is held exclusively");
    first.run("await lease.downgrade()", Value::Null).await?;
    let again = "const lease = await leases.tryAcquire('notes', { mode: 'shared' });
        return lease && [lease.mode, lease.changedHands, await lease.release()]";
    let again = second.until(again, Value::Null, SOON).await?;
    ensure!(again == json!(["shared", true, "released"]), "after the downgrade: {again}");
    let kept = first.run(
        "return [lease.mode, await lease.extend(6_000_000), lease.remainingMs > 5_000_000, await lease.release()]",
        Value::Null,
    );
    let kept = kept.await?;
    ensure!(kept == json!(["shared", null, true, "released"]), "what is left: {kept}");
    Ok(())
}

pub async fn leases_are_deleted_when_nobody_holds_any(world: &World) -> anyhow::Result<()> {
    let [holder, other] = two(world).await?;
    let token = holder
        .run("window.lease = await leases.acquire('notes', { info: 'busy' }); return lease.token", Value::Null)
        .await?;
    let delete = "return attempt(() => LeaseManager.delete('tests'))";
    let refused = other.run(delete, Value::Null).await?;
    let message = refused["message"].as_str().unwrap_or_default();
    ensure!(
        refused["code"] == "InUse" && message.contains("\"notes\" is held by \"busy\" "),
        "in use, it says {refused}"
    );
    let kept = holder.run("return [await lease.verify(), await lease.release()]", Value::Null).await?;
    ensure!(kept == json!([true, "released"]), "who holds keeps it: {kept}");

    // A lock shows in no list of leases, and counts all the same.
    let hold_lock = "await new Promise((held) => {
            window.kept = leases.locks.request('a lock', () => {
                held();
                return new Promise((end) => (window.end = end));
            });
        })";
    holder.run(hold_lock, Value::Null).await?;
    let refused = other.run(delete, Value::Null).await?;
    let message = refused["message"].as_str().unwrap_or_default();
    ensure!(refused["code"] == "InUse" && message.contains("\"a lock\""), "while a lock is held, it says {refused}");
    ensure!(holder.run("end('well'); return kept", Value::Null).await? == "well", "who holds the lock keeps it");

    // The managers of both tabs make way, and go on.
    let until_deleted = format!("{delete}.then((said) => said.did && said)");
    let deleted = other.until(&until_deleted, Value::Null, SOON).await?;
    ensure!(deleted["did"] == "undefined", "it says {deleted}");
    let gone =
        "return indexedDB.databases?.().then((all) => all.some(({ name }) => name === 'leasehold:tests')) ?? false";
    ensure!(other.run(gone, Value::Null).await? == false, "the database is there");
    let again = holder.run("window.lease = await leases.acquire('notes'); return lease.token", Value::Null).await?;
    ensure!(again.as_u64() > token.as_u64(), "the token {again} is not larger than {token}");
    holder.run("await lease.release(); await leases.close()", Value::Null).await?;

    // A connection that is not ours does not make way.
    holder.run("window.kept = await upgrade(1)", Value::Null).await?;
    let began = now_ms();
    let blocked = other.run(delete, Value::Null).await?;
    let took = now_ms() - began;
    let message = blocked["message"].as_str().unwrap_or_default();
    ensure!(took >= 4_000, "it took {took} ms only");
    ensure!(
        blocked["code"] == "Store" && message.contains("leasehold:tests") && message.contains("close that tab"),
        "blocked, it says {blocked}"
    );
    Ok(())
}

//! Fenced writes to a page's own database, by each library that pages use.

use anyhow::{Context as _, ensure};
use leasehold_browser_tests::Tab;
use serde_json::{Value, json};

use crate::world::{SOON, World, brief, granted, hold, lasting, now_ms, taken_over, wait_in_queue, while_it_hangs};

const LIBRARIES: [&str; 3] = ["raw", "idb", "dexie"];

/// The ways in which a fenced write may be put together, as far as the library has them.
fn ways(library: &str) -> Vec<Value> {
    let mut ways = vec![json!({}), json!({ "waits": true }), json!({ "renew": true })];
    ways.push(if library == "dexie" { json!({ "nests": true }) } else { json!({ "commits": true }) });
    ways
}

async fn desk(world: &World, arg: Value) -> anyhow::Result<Tab> {
    let tab = world.bare_tab().await?;
    open(&tab, arg).await?;
    Ok(tab)
}

pub async fn open(tab: &Tab, arg: Value) -> anyhow::Result<()> {
    tab.run(
        "await loadFence().catch((error) => { throw Error(`${error}: \\`.ci/setup pages\\` installs it`) })",
        Value::Null,
    )
    .await?;
    tab.run("await openNotes(arg)", arg).await?;
    Ok(())
}

/// One object of all fields of two.
fn with(mut all: Value, more: &Value) -> Value {
    if let (Some(all), Some(more)) = (all.as_object_mut(), more.as_object()) {
        all.extend(more.clone());
    }
    all
}

pub async fn note(tab: &Tab) -> anyhow::Result<Value> {
    tab.run("return note()", Value::Null).await
}

/// No rejection and no error that nobody heard.
async fn silent(tab: &Tab) -> anyhow::Result<()> {
    let unheard = tab.run("return unheard", Value::Null).await?;
    ensure!(unheard == json!([]), "the page complains: {unheard}");
    Ok(())
}

pub async fn each_library_writes_under_a_current_lease(world: &World) -> anyhow::Result<()> {
    for library in LIBRARIES {
        let tab = desk(world, json!({ "by": library })).await?;
        hold(&tab, "notes").await?;
        for way in ways(library) {
            let text = format!("{library} {way}");
            let done = tab.run("return fencedWrite(arg)", with(json!({ "text": text }), &way)).await?;
            ensure!(done == json!({ "written": true, "said": "current" }), "{text}: {done}");
            ensure!(note(&tab).await? == text, "{text} was not written");
        }
        silent(&tab).await?;
        tab.run("await lease.release(); await leases.close(); closeNotes()", Value::Null).await?;
    }
    Ok(())
}

/// Paused for longer than its lease, the tab goes on in the very middle of its work, and has heard of nothing.
pub async fn after_a_pause_nothing_is_written_under_the_lease_that_another_tab_took(
    world: &World,
) -> anyhow::Result<()> {
    for library in LIBRARIES {
        while_it_hangs(world, async |ms| paused_for(world, library, ms).await).await?;
    }
    Ok(())
}

async fn paused_for(world: &World, library: &str, ms: u64) -> anyhow::Result<bool> {
    let at = json!({ "by": library, "options": brief() });
    let (slow, fast) = (desk(world, at.clone()).await?, desk(world, at).await?);
    hold(&slow, "notes").await?;
    wait_in_queue(&fast, "notes").await?;
    let late = write_late(&slow, &fast, &ways(library), ms, library).await?;
    if let Some(late) = &late {
        let late = late.as_array().context("a list")?;
        ensure!(late.len() == ways(library).len(), "{late:?}");
        for (late, way) in late.iter().zip(ways(library)) {
            let (said, reason) = (&late["said"], &late["said"][1]);
            ensure!(late["written"] == false, "{library} {way}: {late}");
            ensure!(*said == json!(["LeaseLost", reason, "notes", true, "LeaseError"]), "{library} {way}: {late}");
            ensure!(["Evicted", "Expired"].map(Value::from).contains(reason), "{library} {way}: {late}");
        }
        ensure!(note(&fast).await? == library, "a late note is there");
        silent(&slow).await?;
    }
    slow.close().await?;
    fast.close().await?;
    Ok(late.is_some())
}

/// One tab hangs, and then writes in each of these ways; the other takes over meanwhile, and writes. What the writes of the one
/// came to; none when it woke up before it lost its lease.
pub async fn write_late(slow: &Tab, fast: &Tab, ways: &[Value], ms: u64, text: &str) -> anyhow::Result<Option<Value>> {
    slow.start("write", "return writeAfterPause(arg)", json!({ "text": "late", "ms": ms, "ways": ways })).await?;
    let taken = taken_over(fast, slow, ms).await?;
    let Some((_, at)) = taken else {
        slow.outcome("write", SOON).await?;
        return Ok(None);
    };
    let done = fast.run("return fencedWrite({ text: arg })", json!(text)).await?;
    ensure!(done == json!({ "written": true, "said": "current" }), "{text}: {done}");
    let late = slow.outcome("write", SOON).await?;
    let woke = slow.run("return hungUntil", Value::Null).await?.as_u64().context("a time")?;
    Ok((at < woke).then_some(late))
}

/// Frozen by the browser between its turn's beginning and its write.
pub async fn a_page_frozen_in_the_middle_of_its_work_writes_nothing(world: &World) -> anyhow::Result<()> {
    for library in LIBRARIES {
        let at = json!({ "by": library, "options": lasting() });
        let (frozen, other) = (desk(world, at.clone()).await?, desk(world, at).await?);
        hold(&frozen, "notes").await?;
        wait_in_queue(&other, "notes").await?;
        frozen.freeze(true).await?;
        granted(&other, SOON).await?;
        let done = other.run("return fencedWrite(arg)", json!({ "text": library })).await?;
        ensure!(done == json!({ "written": true, "said": "current" }), "{library}: {done}");
        frozen.freeze(false).await?;
        for way in ways(library) {
            let late = frozen.run("return fencedWrite(arg)", with(json!({ "text": "late" }), &way)).await?;
            let said = json!(["LeaseLost", "Suspended", "notes", true, "LeaseError"]);
            ensure!(late == json!({ "written": false, "said": said }), "{library} {way}: {late}");
        }
        ensure!(note(&other).await? == library, "the note was overwritten");
        silent(&frozen).await?;
        frozen.close().await?;
        other.close().await?;
    }
    Ok(())
}

/// An open transaction of a frozen page would keep all others from the database for a minute.
pub async fn a_page_frozen_inside_a_fenced_write_lets_go_of_it(world: &World) -> anyhow::Result<()> {
    let at = json!({ "by": "raw", "options": lasting() });
    let (frozen, other) = (world.bare_tab().await?, desk(world, at).await?);
    frozen.run("await loadFence()", Value::Null).await?;
    frozen.start("write", "return writeWithoutEnd('late', arg)", lasting()).await?;
    frozen.until("return window.fenceSaid === 'current'", Value::Null, SOON).await?;
    // It stands in line for the database itself.
    let wait = "window.lease = await leases.acquire('notes'); return { token: lease.token, at: Date.now() }";
    other.start("wait", wait, Value::Null).await?;
    let gone = now_ms();
    frozen.freeze(true).await?;
    let (_, at) = granted(&other, SOON / 2).await?;
    world.tell("take-over from a page that was frozen inside a fenced write", at.saturating_sub(gone));
    let done = other.run("return fencedWrite({ text: 'in time' })", Value::Null).await?;
    ensure!(done == json!({ "written": true, "said": "current" }), "{done}");
    frozen.freeze(false).await?;
    let ended = frozen.outcome("write", SOON).await?;
    ensure!(ended == json!({ "ended": "abort", "said": "current" }), "{ended}");
    ensure!(note(&other).await? == "in time", "what the frozen page wrote is there");
    silent(&frozen).await
}

pub async fn a_dexie_upgrade_keeps_the_records(world: &World) -> anyhow::Result<()> {
    let mut token = 0;
    for (version, stores) in (1..).zip([
        json!({ "notes": "", "leasehold": "" }),
        json!({ "notes": "", "leasehold": "", "tags": "++id" }),
        json!({ "notes": "", "leasehold": "", "tags": "++id, name" }),
    ]) {
        let tab = desk(world, json!({ "by": "dexie", "version": version, "stores": stores })).await?;
        let kept = tab.run("return (await leases.status('notes')).lastToken", Value::Null).await?;
        ensure!(kept.as_u64().context("a token")? >= token, "version {version} forgot the token {token}: {kept}");
        let next = hold(&tab, "notes").await?;
        ensure!(next > token, "version {version}: {next} after {token}");
        token = next;
        tab.run("await lease.release(); await leases.close(); closeNotes()", Value::Null).await?;
    }
    // Without it among its stores, Dexie deletes it.
    let tab = world.bare_tab().await?;
    let open = "await loadFence(); return attempt(() => openNotes(arg))";
    let refused =
        tab.run(open, json!({ "by": "dexie", "version": 4, "stores": { "notes": "", "leasehold": null } })).await?;
    ensure!(refused["code"] == "InvalidOptions", "{refused}");
    ensure!(refused["message"].as_str().is_some_and(|text| text.contains("leasehold: \"\"")), "{refused}");
    Ok(())
}

pub async fn without_the_object_store_attach_is_refused(world: &World) -> anyhow::Result<()> {
    let tab = world.bare_tab().await?;
    let bare = "await loadFence();
        const request = indexedDB.open('bare', 1);
        await new Promise((resolve) => (request.onsuccess = resolve));
        return [await attempt(() => LeaseManager.attach(request.result)), await attempt(() => LeaseManager.attach({})),
            await attempt(() => LeaseManager.attach(request.result, { store: 'memory' })),
            await attempt(() => LeaseManager.attach(new Proxy(request.result, {})))]";
    let refused = tab.run(bare, Value::Null).await?;
    for (case, words) in
        [(0, "createStore(db) in onupgradeneeded"), (1, "IDBDatabase"), (2, "store"), (3, "cannot be looked at")]
    {
        let refused = &refused[case];
        ensure!(refused["code"] == "InvalidOptions" && refused["typed"] == true, "{refused}");
        ensure!(refused["message"].as_str().is_some_and(|text| text.contains(words)), "{words}: {refused}");
    }
    Ok(())
}

/// Only the fence's own promise tells why the fence was refused: the transaction ends as after any `abort()`, without an error.
pub async fn a_refused_fence_leaves_the_transaction_without_an_error(world: &World) -> anyhow::Result<()> {
    let refused = |wrote: &str| json!({ "ended": "abort", "error": null, "wrote": wrote, "said": "LeaseLost" });
    // A page that has been told of the theft aborts the transaction during the call, and with it the write that came before.
    let page = robbed(world, "").await?;
    page.run("await lease.lost", Value::Null).await?;
    let end = page.run("return endOfFencedWrite({ writesFirst: true })", Value::Null).await?;
    ensure!(end == refused("AbortError"), "after the loss was told, the write ended so: {end}");
    // A page that was not told learns of the theft in the transaction. By then the write is done, and the abort undoes it.
    for first in [false, true] {
        let page = robbed(world, "deafen()").await?;
        let end = page.run("return endOfFencedWrite({ writesFirst: arg })", json!(first)).await?;
        ensure!(end == refused("done"), "before the loss was told, a write ended so (first: {first}): {end}");
        ensure!(note(&page).await?.is_null(), "the write is in the database");
    }
    Ok(())
}

/// A page whose lease was stolen by a tab. `before` runs in the page before it opens its manager. The page is a window of its own and stays
/// visible, because a page that comes into view asks the store about its leases.
async fn robbed(world: &World, before: &str) -> anyhow::Result<Tab> {
    let at = json!({ "by": "raw", "options": lasting() });
    // A tab that is opened after the window would open in it, and hide the page.
    let thief = desk(world, at.clone()).await?;
    let page = world.window(json!({})).await?;
    page.run(before, Value::Null).await?;
    open(&page, at).await?;
    hold(&page, "notes").await?;
    thief.run("await leases.steal('notes')", Value::Null).await?;
    thief.close().await?;
    Ok(page)
}

/// Somebody clears the object store by hand: the holder believes in its lease until its next heartbeat, but writes nothing.
pub async fn when_the_object_store_is_cleared_the_holder_writes_nothing_and_is_told(
    world: &World,
) -> anyhow::Result<()> {
    let other = desk(world, json!({ "by": "raw", "options": brief() })).await?;
    // A window stays visible, so its lease is not in doubt. Its lease is too long for a heartbeat to find the store cleared.
    let tab = world.window(json!({})).await?;
    open(&tab, json!({ "by": "raw", "options": lasting() })).await?;
    hold(&tab, "notes").await?;
    let token = tab.run("return lease.token", Value::Null).await?;
    let seen = "await clearLeases(); const { valid } = lease; return [valid, await fencedWrite({ text: 'late' })]";
    let seen = tab.run(seen, Value::Null).await?;
    ensure!(seen[0] == true, "right after the clearing the lease is valid: {seen}");
    ensure!(seen[1]["written"] == false && seen[1]["said"][1] == "StoreCleared", "the fenced write: {seen}");
    // Nobody writes, so the heartbeat finds the store cleared. By then another tab may have the lease.
    hold(&other, "others").await?;
    let taken = "await clearLeases(); return (await leases.tryAcquire('others'))?.key ?? null";
    let taken = tab.run(taken, Value::Null).await?;
    ensure!(taken == "others", "a tab that tries right after the clearing gets {taken}");
    let told = other.run("return [await lease.lost, lease.valid]", Value::Null).await?;
    ensure!(told == json!(["StoreCleared", false]), "a holder that wrote nothing is told {told}");
    // The key is free, and its tokens go on growing.
    let next = other.run("return (await leases.acquire('notes', { timeoutMs: 60_000 })).token", Value::Null).await?;
    ensure!(next.as_u64() > token.as_u64(), "after the token {token} comes {next}");
    Ok(())
}

/// Each manager is attached before its predecessor is closed. The replaced `close()`s must not form a chain that grows each time.
pub async fn a_database_goes_from_manager_to_manager_and_still_closes(world: &World) -> anyhow::Result<()> {
    let tab = world.bare_tab().await?;
    let course = "await loadFence();
        const opened = (version) => new Promise((resolve, reject) => {
            const request = indexedDB.open('handed', version);
            request.onupgradeneeded = () => request.oldVersion || createStore(request.result);
            [request.onsuccess, request.onerror] = [() => resolve(request.result), () => reject(request.error)];
        });
        const db = await opened(1);
        const others = db.close;
        let [manager, closes] = [await LeaseManager.attach(db), 0];
        db.close = new Proxy(db.close, { apply: (close, on) => (closes++, close.call(on)) });
        for (let round = 0; round < arg; round++) {
            const next = await LeaseManager.attach(db);
            await manager.close();
            manager = next;
        }
        const lease = await manager.acquire('notes');
        db.close();
        const lost = await lease.lost;
        await manager.close();
        (await opened(2)).close();
        return [lost, closes];";
    let told = tab.run(course, json!(2_000)).await?;
    ensure!(told == json!(["StoreFailed", 1]), "{told}");
    // In this order, two managers that have gone still have links when the last one goes.
    let several = "const request = indexedDB.open('shared');
        request.onupgradeneeded = () => createStore(request.result);
        await new Promise((resolve) => (request.onsuccess = resolve));
        const db = request.result;
        for (let round = 0; round < arg; round++) {
            const managers = await Promise.all([1, 2, 3].map(() => LeaseManager.attach(db)));
            for (const at of [1, 0, 2]) await managers[at].close();
        }
        const left = Object.hasOwn(db, 'close');
        db.close();
        return left;";
    let left = tab.run(several, json!(2_000)).await?;
    ensure!(left == false, "a close() of ours is left");
    Ok(())
}

pub async fn what_cannot_be_fenced_is_refused_and_not_written(world: &World) -> anyhow::Result<()> {
    let tab = desk(world, json!({ "by": "raw" })).await?;
    hold(&tab, "notes").await?;
    tab.run("window.raw = await new Promise((resolve) => { indexedDB.open('tests-notes').onsuccess = ({ target }) => resolve(target.result) })", Value::Null).await?;
    let misuse = "const transaction = raw.transaction(arg.stores, arg.mode);
        const ended = new Promise((resolve) => {
            transaction.oncomplete = () => resolve('complete');
            transaction.onabort = () => resolve('abort');
        });
        const told = attempt(() => lease.fence(transaction, arg.options));
        if (arg.mode === 'readwrite') try { transaction.objectStore('notes').put('unchecked', 'note') } catch {}
        return { ...(await told), ended: await ended };";
    for (arg, words) in [
        (json!({ "stores": ["notes", "leasehold"], "mode": "readonly" }), "readwrite"),
        (json!({ "stores": ["notes"], "mode": "readwrite" }), "leasehold"),
        (json!({ "stores": ["notes", "leasehold"], "mode": "readwrite", "options": { "renews": true } }), "`renew`"),
    ] {
        let told = tab.run(misuse, arg).await?;
        ensure!(told["code"] == "InvalidOptions" && told["ended"] == "abort", "{words}: {told}");
        ensure!(told["message"].as_str().is_some_and(|text| text.contains(words)), "{words}: {told}");
    }
    let other = "const own = await LeaseManager.open('own'); const lease = await own.acquire('notes');
        const transaction = raw.transaction(['notes', 'leasehold'], 'readwrite');
        return [await attempt(() => lease.fence(transaction)), await attempt(() => lease.fence(null)),
            await attempt(() => window.lease.fence(transaction)),
            await attempt(() => window.lease.fence(new Proxy(transaction, {}))),
            await attempt(() => window.lease.fence({ [Symbol.toStringTag]: 'IDBTransaction' }))]";
    let told = tab.run(other, Value::Null).await?;
    let looked_at = "cannot be looked at";
    for (case, words) in
        [(0, "LeaseManager.attach(db)"), (1, "IDBTransaction"), (2, "over"), (3, looked_at), (4, looked_at)]
    {
        let told = &told[case];
        ensure!(told["code"] == "InvalidOptions", "{words}: {told}");
        ensure!(told["message"].as_str().is_some_and(|text| text.contains(words)), "{words}: {told}");
    }
    ensure!(note(&tab).await?.is_null(), "something was written");
    let released = "await lease.release(); return fencedWrite({ text: 'released' })";
    let told = tab.run(released, Value::Null).await?;
    ensure!(told == json!({ "written": false, "said": ["LeaseLost", null, "notes", true, "LeaseError"] }), "{told}");
    silent(&tab).await
}

/// In a window of its own, where timers are on time.
pub async fn a_busy_writer_needs_no_heartbeat(world: &World) -> anyhow::Result<()> {
    let tab = world.window(json!({})).await?;
    open(&tab, json!({ "by": "raw", "options": { "leaseMs": 20_000, "heartbeatMs": 1_000 } })).await?;
    hold(&tab, "notes").await?;
    for renew in [true, false] {
        let busy = tab.run("return writeBusily(arg)", json!({ "ms": 3_000, "least": 11, "renew": renew })).await?;
        ensure!(busy["valid"] == true, "{busy}");
        let number = |name: &str| busy[name].as_u64().context("a number");
        let (own, pauses, took) = (number("own")?, number("pauses")?, number("took")?);
        // Where the machine let it write nothing for a while, a beat may come in between.
        let right = if renew { own <= pauses } else { (1..=took / 300).contains(&own) };
        ensure!(right, "renewing: {renew}: {own} transactions of the library's own, {pauses} pauses");
    }
    silent(&tab).await
}

/// A page that depends on two copies of the package, each with leases of its own: a transaction that both have fenced commits only if both
/// leases are current, although it is told to commit at once.
pub async fn two_copies_of_the_package_fence_one_transaction(world: &World) -> anyhow::Result<()> {
    let turns = [json!([0, 1]), json!([1, 0]), json!([0, 1, 0])];
    let page = world.window(json!({})).await?;
    page.run("await loadCopies()", Value::Null).await?;
    page.run("await holdByTwoCopies(arg)", json!({ "keys": ["one", "other"], "options": lasting() })).await?;
    for (turns, again, early) in
        turns.iter().flat_map(|turns| [(turns, false, false), (turns, true, false), (turns, false, true)])
    {
        let text = format!("{turns}, again: {again}, early: {early}");
        let way = json!({ "turns": turns, "again": again, "early": early, "text": text });
        let told = page.run("return [await writeByTwoCopies(arg), await noteOfCopies()]", way).await?;
        let fences = turns.as_array().map_or(0, Vec::len) * if again { 2 } else { 1 };
        let current = json!({ "ended": "complete", "said": vec!["current"; fences] });
        ensure!(told == json!([current, text]), "with both leases current, {text}: {told}");
    }
    let thief = world.bare_tab().await?;
    thief.run("await loadCopies()", Value::Null).await?;
    let ways =
        turns.iter().flat_map(|turns| [(turns, 0, false), (turns, 1, false), (turns, 0, true), (turns, 1, true)]);
    for (number, (turns, robbed, early)) in ways.enumerate() {
        let keys = [format!("{number} first"), format!("{number} second")];
        let page = world.window(json!({})).await?;
        page.run("deafen(); await loadCopies()", Value::Null).await?;
        page.run("await holdByTwoCopies(arg)", json!({ "keys": keys, "options": lasting() })).await?;
        thief.run("await stealFromCopy(arg)", json!(keys[robbed])).await?;
        let way = json!({ "turns": turns, "text": "late", "early": early });
        let told = page.run("return [await writeByTwoCopies(arg), await noteOfCopies()]", way).await?;
        ensure!(told[0]["ended"] == "abort" && told[1] != "late", "copy {robbed} was robbed, {turns}: {told}");
        let said = |copy: usize| turns.as_array().and_then(|all| all.iter().position(|turn| *turn == json!(copy)));
        ensure!(
            said(robbed).is_some_and(|at| told[0]["said"][at] == "LeaseLost"),
            "the robbed copy {robbed}, {turns}: {told}"
        );
        page.close().await?;
    }
    Ok(())
}

//! Many frames of one page that wait for the same lease, each with a manager of its own, and have nothing else to do.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use crate::world::{LASTING_MS, World, hold, lasting};

const FRAMES: usize = 30;
const HEARTBEAT_MS: u32 = 1_000;
const HEARTBEATS: usize = 5;
/// The row of a session, whatever its context holds and waits for.
const MOST_BYTES: u64 = 200;
const LONG: Duration = Duration::from_secs(240);

/// In a frame: for each transaction that may write and is complete, `my.writes` lists the sizes of the rows that it has put into the store,
/// in bytes. Deleted rows have no size; they are listed by the name of the call.
const SPY: &str = "
    my.writes = [];
    const sizes = new WeakMap();
    const { transaction } = IDBDatabase.prototype;
    IDBDatabase.prototype.transaction = function (...args) {
        const begun = transaction.apply(this, args);
        if (begun.mode === 'readonly') return begun;
        sizes.set(begun, []);
        begun.addEventListener('complete', () => my.writes.push(sizes.get(begun)));
        return begun;
    };
    const text = (value) => (typeof value === 'string' ? value : JSON.stringify(value));
    const size = (value) => value.byteLength ?? new TextEncoder().encode(text(value)).length;
    for (const name of ['put', 'add', 'delete', 'clear']) {
        const native = IDBObjectStore.prototype[name];
        IDBObjectStore.prototype[name] = function (...args) {
            sizes.get(this.transaction).push(name === 'put' || name === 'add' ? size(args[0]) : name);
            return native.apply(this, args);
        };
    }";

const QUEUE: &str = "
    window.queue = [];
    for (let frame = 0; frame < arg.frames; frame++) {
        const other = await context('frame');
        await other.run(`${arg.spy}; my.leases = await LeaseManager.open('tests', ${JSON.stringify(arg.options)});
            my.leases.acquire('notes').catch(() => {})`);
        queue.push(other);
    }
    const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
    while ((await leases.status('notes')).queue.length < arg.frames) await pause(50);
    for (const { run } of queue) await run('my.writes = []; my.since = performance.now()');
    for (;;) {
        await pause(arg.options.heartbeatMs);
        const look = 'return { ms: performance.now() - my.since, writes: my.writes }';
        const seen = await Promise.all(queue.map(({ run }) => run(look)));
        if (seen.every(({ writes }) => writes.length >= arg.heartbeats)) return seen;
    }";

pub async fn thirty_frames_in_a_queue_write_one_small_row_each_heartbeat(world: &World) -> anyhow::Result<()> {
    let tab = world.window(lasting()).await?;
    hold(&tab, "notes").await?;
    let options = json!({ "leaseMs": LASTING_MS, "heartbeatMs": HEARTBEAT_MS });
    let arg = json!({ "spy": SPY, "frames": FRAMES, "options": options, "heartbeats": HEARTBEATS });
    tab.start("queue", QUEUE, arg).await?;
    let seen = tab.outcome("queue", LONG).await?;
    let frames = seen.as_array().context("what each frame wrote")?;
    ensure!(frames.len() == FRAMES, "{} frames", frames.len());
    let mut most = 0;
    for frame in frames {
        let writes = frame["writes"].as_array().context("a list of transactions")?;
        let heartbeats = frame["ms"].as_f64().context("a time")? / f64::from(HEARTBEAT_MS);
        // One falls on the beginning. On a busy machine, another one began before that and is complete only after it.
        ensure!(writes.len() as f64 <= heartbeats + 2.0, "{} writes in {heartbeats} heartbeats", writes.len());
        for write in writes {
            most = most.max(bytes(write).with_context(|| format!("more than one row at a heartbeat: {write}"))?);
        }
    }
    ensure!(most <= MOST_BYTES, "a heartbeat writes {most} bytes");
    world.note(&format!("{FRAMES} frames in a queue write up to {most} bytes each at a heartbeat"));
    Ok(())
}

/// The size of the only row of a transaction.
fn bytes(write: &Value) -> Option<u64> {
    let [row] = &write.as_array()?[..] else { return None };
    row.as_u64()
}

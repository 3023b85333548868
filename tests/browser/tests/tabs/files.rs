//! A worker keeps a file of the origin private file system open under a lease, by the code of a guide.

use anyhow::ensure;
use leasehold_browser_tests::Tab;
use serde_json::{Value, json};

use crate::{
    examples::of_guides,
    world::{SOON, World, lasting},
};

/// The code of `docs/what-happens-when.md`, bundled.
const WITH_FILE: &str = "/guides/what-happens-when/with-file.js";

/// A worker of this tab, with a manager and the guide's function in it.
async fn worker_of(tab: &Tab) -> anyhow::Result<()> {
    let open = format!(
        "my.leases = await LeaseManager.open('tests', {});
        ({{ withFile: my.withFile }} = await import('{WITH_FILE}'))",
        lasting()
    );
    tab.run("window.other = await context('dedicated worker'); await other.run(arg)", json!(open)).await?;
    Ok(())
}

/// Appends a letter to the file as soon as it is open, and keeps it open. Brings what was in it by then.
async fn append(tab: &Tab, letter: char) -> anyhow::Result<()> {
    let append = format!(
        "return new Promise((tell, fail) => {{
            my.work = my.withFile(my.leases, 'log', async (file, lease) => {{
                my.file = file;
                const [at, bytes] = [file.getSize(), new TextEncoder().encode('{letter}')];
                const before = new Uint8Array(at);
                file.read(before, {{ at: 0 }});
                file.write(bytes, {{ at }});
                file.flush();
                tell(new TextDecoder().decode(before));
                await new Promise((done) => (my.done = done));
            }});
            my.work.catch(fail);
        }})"
    );
    tab.start("append", "return other.run(arg)", json!(append)).await
}

async fn waits(tab: &Tab) -> anyhow::Result<()> {
    let queues = "return (await my.leases.status('log')).queue.some(({ own }) => own)";
    tab.until("return other.run(arg)", json!(queues), SOON).await?;
    Ok(())
}

/// After its predecessor was terminated, was done, or was robbed and went on.
pub async fn a_worker_opens_the_file_that_its_predecessor_had_open(world: &World) -> anyhow::Result<()> {
    if of_guides()?.is_empty() {
        return Ok(());
    }
    let (first, second) = (world.tab(lasting()).await?, world.tab(lasting()).await?);
    first.run("await (await navigator.storage.getDirectory()).removeEntry('log').catch(() => {})", Value::Null).await?;
    worker_of(&first).await?;
    append(&first, 'a').await?;
    ensure!(first.outcome("append", SOON).await? == "", "the file is new");

    worker_of(&second).await?;
    append(&second, 'b').await?;
    waits(&second).await?;
    first.run("other.end()", Value::Null).await?;
    ensure!(second.outcome("append", SOON).await? == "a", "after the end of the worker");

    worker_of(&first).await?;
    append(&first, 'c').await?;
    waits(&first).await?;
    second.run("return other.run('my.done(); await my.work')", Value::Null).await?;
    ensure!(first.outcome("append", SOON).await? == "ab", "after the work was done");

    second.run("window.lease = await leases.steal('log')", Value::Null).await?;
    let writes = "return Promise.resolve().then(() => my.file.write(new Uint8Array(1)))";
    let refused = "return other.run(arg).then(() => null, ({ name }) => name)";
    first
        .until(&format!("return (await (async () => {{ {refused} }})()) === 'InvalidStateError'"), json!(writes), SOON)
        .await?;
    append(&second, 'd').await?;
    waits(&second).await?;
    second.run("await lease.release()", Value::Null).await?;
    ensure!(second.outcome("append", SOON).await? == "abc", "after a theft, beside a worker that goes on");
    Ok(())
}

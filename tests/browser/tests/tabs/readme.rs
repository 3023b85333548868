//! The README's JavaScript example, as a reader would paste it.

use std::{fs, path::Path};

use anyhow::{Context as _, ensure};
use serde_json::json;

use crate::world::World;

/// The JavaScript examples of the README, in their order.
fn example(number: usize) -> anyhow::Result<String> {
    let readme = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md"))?;
    let example = readme.split("```js\n").nth(number).and_then(|rest| rest.split("```").next());
    Ok(example.context("the README has such a JavaScript example")?.to_owned())
}

pub async fn the_readme_example_runs(world: &World) -> anyhow::Result<()> {
    let tab = world.bare_tab().await?;
    let run = "const lines = [];
        console.log = (line) => lines.push(line);
        const code = arg.replace('\"leasehold\"', JSON.stringify(new URL('/pkg/index.mjs', location).href));
        await import(URL.createObjectURL(new Blob([code], { type: 'text/javascript' })));
        return lines";
    let lines = tab.run(run, json!(example(1)?)).await?;
    let said = lines[0].as_str().unwrap_or_default();
    ensure!(said.starts_with("it is my turn, token 1"), "the example says {lines}");
    Ok(())
}

pub async fn the_readme_fence_runs(world: &World) -> anyhow::Result<()> {
    let tab = world.bare_tab().await?;
    let run = "const opening = indexedDB.open('readme', 1);
        opening.onupgradeneeded = () => {
            createStore(opening.result);
            opening.result.createObjectStore('notes');
        };
        await new Promise((resolve) => (opening.onsuccess = resolve));
        Object.assign(globalThis, { db: opening.result, text: 'read me' });
        await import(URL.createObjectURL(new Blob([arg], { type: 'text/javascript' })));
        const read = db.transaction('notes').objectStore('notes').get('today');
        await new Promise((resolve) => (read.onsuccess = resolve));
        return read.result";
    let written = tab.run(run, json!(example(2)?)).await?;
    ensure!(written == "read me", "what was written: {written}");
    Ok(())
}

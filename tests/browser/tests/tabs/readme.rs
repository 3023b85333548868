//! The README's JavaScript example, as a reader would paste it.

use std::{fs, path::Path};

use anyhow::{Context as _, ensure};
use serde_json::json;

use crate::world::World;

pub async fn the_readme_example_runs(world: &World) -> anyhow::Result<()> {
    let readme = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md"))?;
    let example = readme.split("```js\n").nth(1).and_then(|rest| rest.split("```").next());
    let example = example.context("the README has a JavaScript example")?;
    let tab = world.bare_tab().await?;
    let run = "const lines = [];
        console.log = (line) => lines.push(line);
        const code = arg.replace('\"leasehold\"', JSON.stringify(new URL('/pkg/index.mjs', location).href));
        await import(URL.createObjectURL(new Blob([code], { type: 'text/javascript' })));
        return lines";
    let lines = tab.run(run, json!(example)).await?;
    let said = lines[0].as_str().unwrap_or_default();
    ensure!(said.starts_with("it is my turn, token 1"), "the example says {lines}");
    Ok(())
}

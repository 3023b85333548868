//! The figures for people, and for programs.

use std::{fs, path::PathBuf};

use leasehold_bench_machine::rounded;
use leasehold_browser_tests::Engine;
use serde_json::{Map, Value, json};

use crate::{figures::Figures, goals};

const LEGEND: &str = "
browser: all of one run; the last word of a name is its unit
  Hand-off: from the start of release() in one tab to the grant in the other; the difference of their clocks is
  taken from the quickest of 30 round trips in the same round. Take-over: from the dead holder's last sign of life
  (one every 1 to 4 ms) to the grant, both as the waiter saw them. Hit: asking again in the same tab, 200 to a sample,
  after 200 others. Crowd: ten tabs that want one lock again and again; fairness when the first of them has had all of its
  turns. Large crowd: fifty tabs, with a fifth of the turns each. CPU: the work of all the browser's processes for one turn.
  First: from the start of the navigation of a fresh tab, whose files are in the browser's cache, to the grant; medians.
  WebKitGTK keeps no files when it is driven: there they come from the server. Old: of the build that LEASEHOLD_OLD_PKG names;
  new by old is the ratio of the new build's figure to it.
";

/// One engine's.
pub(crate) struct Run {
    pub(crate) engine: Engine,
    /// None if the browser did not start.
    pub(crate) version: Option<String>,
    pub(crate) figures: Figures,
    /// The part of the processors' time that other programs took during each part of the run, from 0 to 1.
    pub(crate) others: Vec<(&'static str, f64)>,
}

impl Run {
    pub(crate) fn new(engine: Engine) -> Self {
        Self { engine, version: None, figures: Figures::default(), others: vec![] }
    }

    /// With the version, for people.
    pub(crate) fn browser(&self) -> String {
        [self.engine.name(), self.version.as_deref().unwrap_or("did not start")].join(" ")
    }
}

pub(crate) fn print(all: &[Run]) {
    println!("{LEGEND}");
    println!("{}\n", all.iter().map(Run::browser).collect::<Vec<_>>().join(", "));
    print!("{:52}", "");
    all.iter().for_each(|run| print!("{:>11}", run.engine.name()));
    println!();
    for name in names(all) {
        print!("{name:52}");
        for run in all {
            run.figures.find(name).map_or_else(|| print!("{:>11}", "–"), |value| print!("{value:11.3}"));
        }
        println!();
    }
    all.iter().for_each(goals::print);
}

/// In the order of the first engine, then what only others have.
fn names(all: &[Run]) -> Vec<&str> {
    let mut names = vec![];
    for (name, _) in all.iter().flat_map(|run| run.figures.iter()) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// Writes the figures, and beside them under `run` what they were measured on.
pub(crate) fn save(all: &[Run], machine: Value) -> anyhow::Result<()> {
    let mut object = Map::new();
    let mut browsers = Map::new();
    for Run { engine, version, figures, others } in all {
        for (name, value) in figures.iter() {
            // Finer than any of these clocks.
            object.insert(format!("{}_{name}", engine.name()), json!(rounded(value)));
        }
        let others: Map<_, _> =
            others.iter().map(|(part, others)| (part.to_string(), json!(rounded(*others)))).collect();
        browsers.insert(engine.name().into(), json!({ "version": version, "processors_taken_by_others": others }));
    }
    object.insert("run".into(), json!({ "machine": machine, "browsers": browsers }));
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/bench");
    fs::create_dir_all(&folder)?;
    fs::write(folder.join("browser.json"), format!("{:#}\n", Value::Object(object)))?;
    println!("\nwritten to target/bench/browser.json");
    Ok(())
}

//! Many tabs that want the same lease: what one turn takes of all of them.

use std::time::Duration;

use anyhow::Context as _;
use serde_json::{Value, json};

use super::measure::{Plan, open_page};
use crate::page::{Pages, SOON};

const LONG: Duration = Duration::from_secs(90);

pub(crate) async fn measure(pages: &Pages, mode: &str, plan: &Plan) -> anyhow::Result<Value> {
    let mut tabs = vec![];
    for _ in 0..plan.crowd_tabs {
        tabs.push(open_page(pages, mode).await?);
    }
    for tab in &tabs {
        tab.start("crowd", "return profile.crowd(arg)", json!({ "turns": plan.crowd_turns })).await?;
    }
    for tab in &tabs {
        tab.until("return window.standsReady", Value::Null, SOON).await?;
    }
    let first = tabs.first().context("a crowd is not empty")?;
    let start = format!("new BroadcastChannel('profile-starts-{mode}').postMessage(null)");
    // The channel of the page itself does not hear what it posts: this one is another.
    first.run(&start, Value::Null).await?;
    let mut reports = vec![];
    for tab in &tabs {
        reports.push(tab.outcome("crowd", LONG).await?);
    }
    let sum = first.run("return profile.sumOf(arg)", json!(reports)).await?;
    for tab in tabs {
        tab.close().await?;
    }
    Ok(sum)
}

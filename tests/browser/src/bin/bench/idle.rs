//! What managers do that have nothing to do.

use serde_json::{Value, json};

use crate::{
    figures::{Figures, number},
    measure::Plan,
    page::{Pages, ask},
};

const PAGE: &str = "/benches/browser/idle.html";

pub(crate) async fn measure(pages: &Pages, plan: &Plan, figures: &mut Figures) -> anyhow::Result<()> {
    let (holder, idler) = (pages.open_at(PAGE).await?, pages.open_at(PAGE).await?);
    idler.start("unused", "return bench.unused()", Value::Null).await?;
    let held = ask(&holder, "return bench.held(arg)", json!({ "keys": 100, "beats": plan.idle_beats })).await?;
    let thousand =
        ask(&holder, "return bench.longestTask(arg)", json!({ "keys": 1_000, "beats": plan.idle_beats })).await?;
    let unused = ask(&idler, "return window.jobs.unused", Value::Null).await?;
    figures.add("hundred_keys_transactions_per_heartbeat", number(&held["perHeartbeat"])?);
    figures.add("hundred_keys_lost", number(&held["lost"])?);
    // The longest over all heartbeats, and the median over them.
    figures.add("thousand_keys_longest_task_ms", number(&thousand["longest"])?);
    figures.add("thousand_keys_longest_task_p50_ms", number(&thousand["median"])?);
    for what in ["transactions", "timers", "channels"] {
        figures.add(format!("unused_{what}"), number(&unused[what])?);
    }
    Ok(())
}

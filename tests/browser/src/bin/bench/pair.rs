//! Hand-offs between two tabs, and the hop and the transaction of which they consist, in the same minute.

use leasehold_browser_tests::Tab;
use serde_json::{Value, json};

use crate::{
    contestants::contestants,
    figures::{Figures, Unit, numbers},
    measure::Plan,
    page::{Pages, ask, tell_failures},
};

pub(crate) async fn measure(pages: &Pages, tab: &Tab, plan: &Plan, figures: &mut Figures) -> anyhow::Result<()> {
    let other = pages.open().await?;
    other.run("bench.serve()", Value::Null).await?;
    let measured = ask(tab, "return bench.handOffs(arg)", json!(plan.hand_off_rounds)).await;
    other.close().await?;
    let measured = measured?;
    tell_failures("hand-off", &measured["failures"]);
    let samples = |name: &str| numbers(&measured["samples"][name]);
    figures.percentiles("hop", Unit::Ms, &samples("hop")?, &[50, 99]);
    figures.percentiles("raw_transaction_among_handoffs", Unit::Ms, &samples("transaction")?, &[50, 99]);
    for contestant in contestants() {
        figures.percentiles(&contestant.figure("handoff"), Unit::Ms, &samples(contestant.name)?, &[50, 95]);
    }
    Ok(())
}

//! The first lease of a fresh tab, beside a page with nothing and the first lock by others. The files are in the browser's
//! cache; the page itself is fetched, as a person's is.

use std::collections::BTreeMap;

use leasehold_browser_tests::Shape;
use serde_json::Value;

use crate::{
    figures::{Figures, number, percentile},
    measure::Plan,
    page::{Pages, SOON},
};

/// In `benches/browser/first/`. Each leaves the time since the start of its navigation in `first`.
const PAGES: [&str; 8] = [
    "page",
    "lease",
    "lease_traced",
    "lease_preloaded",
    "lease_inline",
    "transaction",
    "weblocks_lock",
    "idb_mutex_lock",
];
/// How many rounds fill the caches, and are not counted.
const WARM_UPS: u32 = 3;

pub(crate) async fn measure(pages: &Pages, plan: &Plan, figures: &mut Figures) -> anyhow::Result<()> {
    let mut samples: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    let mut failed = vec![];
    for round in 0..WARM_UPS + plan.fresh_tabs {
        for page in PAGES {
            if failed.contains(&page) {
                continue;
            }
            match once(pages, page).await {
                Ok(times) if round >= WARM_UPS => add(page, &times, &mut samples)?,
                Ok(_) => {}
                Err(error) => {
                    eprintln!("  first lease: the page {page} failed: {error:#}");
                    failed.push(page);
                }
            }
        }
    }
    for (name, samples) in &samples {
        if let Some(median) = percentile(samples, 50) {
            figures.add(format!("{name}_ms"), median);
        }
    }
    // The quickest tenth as well: on a busy machine it says more than the median.
    for name in ["first_page", "first_lease"] {
        if let Some(quick) = samples.get(name).and_then(|samples| percentile(samples, 10)) {
            figures.add(format!("{name}_p10_ms"), quick);
        }
    }
    if let Some((lease, page)) = figures.find("first_lease_ms").zip(figures.find("first_page_ms")) {
        figures.add("first_lease_beyond_page_ms", lease - page);
    }
    Ok(())
}

async fn once(pages: &Pages, page: &str) -> anyhow::Result<Value> {
    let url = pages.server.url(&format!("/kept/benches/browser/first/{page}.html"));
    let tab = pages.browser.open(&url, Shape::Window).await?;
    let times = tab.until("return window.first", Value::Null, SOON).await;
    tab.close().await?;
    times
}

fn add(page: &str, times: &Value, samples: &mut BTreeMap<String, Vec<f64>>) -> anyhow::Result<()> {
    for (what, ms) in times.as_object().into_iter().flatten() {
        samples.entry(figure(page, what)).or_default().push(number(ms)?);
    }
    Ok(())
}

/// The time of the grant is named after the page alone; the name of an earlier time says what happened then.
fn figure(page: &str, what: &str) -> String {
    if what == "granted" { format!("first_{page}") } else { format!("first_{page}_{what}") }
}

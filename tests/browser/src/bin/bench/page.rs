//! The benchmark's pages in windows of their own: a browser slows down what it hides.

use std::time::Duration;

use leasehold_browser_tests::{Browser, Server, Shape, Tab};
use serde_json::Value;

/// For what a page does at once.
pub(crate) const SOON: Duration = Duration::from_secs(20);
/// For a whole measurement.
const LONG: Duration = Duration::from_secs(140);

/// Where the pages come from, and where they are shown.
pub(crate) struct Pages {
    pub(crate) browser: Browser,
    pub(crate) server: Server,
}

impl Pages {
    pub(crate) async fn open(&self) -> anyhow::Result<Tab> {
        // The page is told whether there is an old build.
        self.open_at(if Server::old_package().is_some() { "/benches/browser/?old" } else { "/benches/browser/" }).await
    }

    pub(crate) async fn open_at(&self, path: &str) -> anyhow::Result<Tab> {
        let tab = self.browser.open(&self.server.url(path), Shape::Window).await?;
        loaded(&tab).await?;
        Ok(tab)
    }
}

/// When the page has loaded its scripts, for the first time or again.
pub(crate) async fn loaded(tab: &Tab) -> anyhow::Result<()> {
    let ready = "if (window.failed) throw Error('pkg/ did not load: `make pkg` builds it'); return window.ready";
    tab.until(ready, Value::Null, SOON).await?;
    Ok(())
}

/// What takes longer than a WebDriver command may.
pub(crate) async fn ask(tab: &Tab, body: &str, arg: Value) -> anyhow::Result<Value> {
    tab.start("bench", body, arg).await?;
    tab.outcome("bench", LONG).await
}

/// Tells why contestants have no figures, or fewer samples.
pub(crate) fn tell_failures(what: &str, failures: &Value) {
    for (name, reason) in failures.as_object().into_iter().flatten() {
        eprintln!("  {what}: {name} failed: {}", reason.as_str().unwrap_or_default());
    }
}

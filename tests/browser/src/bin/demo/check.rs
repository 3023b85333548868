//! Two headless tabs go through the page as a person would: by its buttons, and by what it shows.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use leasehold_browser_tests::{Browser, Engine, Server, Shape, Tab};
use serde_json::{Value, json};

/// For what should happen at once.
const SOON: Duration = Duration::from_secs(10);
/// For a thousand turns in each of two tabs, on a slow machine.
const LONG: Duration = Duration::from_secs(50);

/// Tells what happened, and when since the start.
struct Story(Instant);

impl Story {
    fn tell(&self, sentence: &str) {
        println!("[{:6.2} s] {sentence}", self.0.elapsed().as_secs_f64());
    }
}

pub(crate) fn run() -> anyhow::Result<()> {
    let engine = [Engine::Chromium, Engine::Firefox].into_iter().find(|engine| engine.is_here());
    let engine = engine.context("there is neither Chromium nor Firefox with its WebDriver")?;
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?.block_on(check(engine))
}

async fn check(engine: Engine) -> anyhow::Result<()> {
    let story = Story(Instant::now());
    let server = Server::start()?;
    let browser = Browser::start(engine).await?;
    let [first, second] =
        [Page::open(&browser, &server, "Amber fox").await?, Page::open(&browser, &server, "Jade owl").await?];
    story.tell(&format!("Two tabs are open in {}: {} and {}.", engine.name(), first.name, second.name));
    contend(&story, &first, &second).await?;
    hand_over(&story, &first, &second).await?;
    count(&story, &first, &second).await?;
    take_over(&story, engine, first, &second).await?;
    story.tell("All as it should be.");
    Ok(())
}

async fn contend(story: &Story, first: &Page, second: &Page) -> anyhow::Result<()> {
    first.click("take").await?;
    first.shows("#holder", "This tab holds it").await?;
    second.shows("#holder", &format!("{} holds it", first.name)).await?;
    story.tell(&format!(
        "{} took the lease, with token {}; {} sees it.",
        first.name,
        first.text("#token").await?,
        second.name
    ));
    second.click("try").await?;
    second.shows("#log li", "Tried: another tab holds it.").await?;
    story.tell(&format!("{} tried, and was told at once that another tab holds it.", second.name));
    second.click("take").await?;
    first.shows("#queue", &second.name).await?;
    story.tell(&format!("{} waits; {} sees it in the queue.", second.name, first.name));
    first.picture(story, "holds-while-another-waits.png").await?;
    second.picture(story, "waits.png").await
}

async fn hand_over(story: &Story, first: &Page, second: &Page) -> anyhow::Result<()> {
    second.await_lease().await?;
    let clicked = first.click("release").await?;
    let took = second.lease_came(SOON).await? - clicked;
    story.tell(&format!("{} released; {} had the lease after {took} ms.", first.name, second.name));
    second.click("release").await?;
    second.shows("#holder", "Nobody holds it").await
}

async fn count(story: &Story, first: &Page, second: &Page) -> anyhow::Result<()> {
    let (expected, lost) = count_in_all_tabs(first, second).await?;
    story.tell(&format!("Under the lease both counted {expected} steps, and lost {lost}."));
    ensure!(expected == 2000 && lost == 0, "2000 steps under the lease should lose none");
    first.picture(story, "counted.png").await?;

    first.click("locked").await?;
    let (expected, lost) = count_in_all_tabs(first, second).await?;
    story.tell(&format!("Without it {} more, and lost {lost}.", expected - 2000));
    ensure!(lost > 0, "the same without the lease should lose some, or the page shows nothing");
    first.click("reset").await?;
    Ok(())
}

/// The steps that were made in all, and how many of them are lost.
async fn count_in_all_tabs(first: &Page, second: &Page) -> anyhow::Result<(u64, u64)> {
    first.click("count").await?;
    for page in [first, second] {
        // The last line of each tab's log, once its work is done.
        page.wait("return document.querySelector('#log li').textContent.includes('Done.')", Value::Null, LONG).await?;
    }
    let counted = "const counter = await (await import('/counter.mjs')).Counter.open(); return counter.read()";
    let numbers = first.tab.run(counted, Value::Null).await?;
    let (actual, expected) = numbers["actual"].as_u64().zip(numbers["expected"].as_u64()).context("two numbers")?;
    let shown = (expected - actual).to_string();
    first
        .wait("return document.querySelector('#lost').textContent.replaceAll(',', '') === arg", json!(shown), SOON)
        .await?;
    Ok((expected, expected - actual))
}

async fn take_over(story: &Story, engine: Engine, first: Page, second: &Page) -> anyhow::Result<()> {
    first.click("take").await?;
    first.shows("#holder", "This tab holds it").await?;
    second.click("take").await?;
    first.shows("#queue", &second.name).await?;
    second.await_lease().await?;
    let before = second.now().await?;
    let (name, what) = match engine {
        Engine::Chromium => (first.name.clone(), "was crashed"),
        Engine::Firefox | Engine::WebKit => (first.name.clone(), "was closed"),
    };
    match engine {
        Engine::Chromium => first.tab.crash().await?,
        Engine::Firefox | Engine::WebKit => first.tab.close().await?,
    }
    let took = second.lease_came(SOON).await? - before;
    story.tell(&format!("{name} {what} while it held; {} had the lease {took} ms after the command.", second.name));
    ensure!(took < 5_000, "a take-over from a dead tab should not wait for the lease to run out");
    second.shows("#holder", "This tab holds it").await?;
    second.picture(story, "took-over.png").await
}

/// A tab with the demo in it.
struct Page {
    tab: Tab,
    name: String,
}

impl Page {
    async fn open(browser: &Browser, server: &Server, name: &str) -> anyhow::Result<Self> {
        // Windows: the page looks at the lease only while it is visible.
        let tab = browser.open(&server.url("/"), Shape::Window).await?;
        // Names are drawn by lot, and could be the same.
        tab.run("sessionStorage.setItem('tab-name', arg)", json!(name)).await?;
        tab.reload().await?;
        let page = Self { tab, name: name.into() };
        page.wait("return !document.querySelector('#take').disabled", Value::Null, SOON).await?;
        page.shows("#tab-name", name).await?;
        Ok(page)
    }

    /// Clicks a button that can be clicked. The moment, in ms since 1970.
    async fn click(&self, id: &str) -> anyhow::Result<u64> {
        let click = "const button = document.getElementById(arg);
            if (button.disabled) return null;
            const at = Date.now();
            button.click();
            return at;";
        self.wait(click, json!(id), SOON).await?.as_u64().context("a time")
    }

    async fn text(&self, selector: &str) -> anyhow::Result<String> {
        let text = self.tab.run("return document.querySelector(arg)?.textContent ?? ''", json!(selector)).await?;
        Ok(text.as_str().context("a text")?.to_owned())
    }

    async fn shows(&self, selector: &str, words: &str) -> anyhow::Result<()> {
        let look = "return document.querySelector(arg.selector)?.textContent.includes(arg.words)";
        let shown = self.wait(look, json!({ "selector": selector, "words": words }), SOON).await;
        match shown {
            Ok(_) => Ok(()),
            Err(error) => {
                Err(error.context(format!("{selector} shows {:?}, not {words:?}", self.text(selector).await?)))
            }
        }
    }

    /// Waits until a script returns something true; an error that the page shows ends it.
    async fn wait(&self, body: &str, arg: Value, within: Duration) -> anyhow::Result<Value> {
        let body = format!(
            "const error = document.getElementById('error'); if (!error.hidden) throw error.textContent; {body}"
        );
        self.tab.until(&body, arg, within).await.with_context(|| format!("in {}", self.name))
    }

    /// Starts to watch for the moment when the page shows that it holds.
    async fn await_lease(&self) -> anyhow::Result<()> {
        let watch = "const holder = document.getElementById('holder');
            return new Promise((resolve) => {
                new MutationObserver(() => {
                    if (holder.dataset.state === 'mine') resolve(Date.now());
                }).observe(holder, { attributes: true });
            });";
        self.tab.start("lease", watch, Value::Null).await
    }

    async fn lease_came(&self, within: Duration) -> anyhow::Result<u64> {
        self.tab.outcome("lease", within).await?.as_u64().context("a time")
    }

    async fn now(&self) -> anyhow::Result<u64> {
        self.tab.run("return Date.now()", Value::Null).await?.as_u64().context("a time")
    }

    async fn picture(&self, story: &Story, name: &str) -> anyhow::Result<()> {
        let target = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/demo");
        self.tab.screenshot(&target.join(name)).await?;
        story.tell(&format!("(A picture of {}: {})", self.name, Path::new("target/demo").join(name).display()));
        Ok(())
    }
}

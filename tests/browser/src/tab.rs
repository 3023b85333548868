//! One tab. What takes long runs in the page itself, as a *job*: the tab needs not be the current one meanwhile.

use std::{fs, path::Path, sync::Arc, time::Duration};

use anyhow::{Context as _, bail};
use serde_json::{Value, json};
use thirtyfour::WindowHandle;

use crate::{Deadline, browser::Session, now_ms, process::Process};

/// How long a page may take to be shown on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A tab of a [`Browser`](crate::Browser). Dropping it leaves it open.
#[derive(Debug)]
pub struct Tab {
    session: Arc<Session>,
    handle: WindowHandle,
}

impl Tab {
    pub(crate) fn new(session: Arc<Session>, handle: WindowHandle) -> Self {
        Self { session, handle }
    }

    /// Loads another page in it.
    ///
    /// # Errors
    /// When the page does not load.
    pub async fn goto(&self, url: &str) -> anyhow::Result<()> {
        Ok(self.session.at(&self.handle, &format!("go to {url}")).await?.0.goto(url).await?)
    }

    /// Runs the body of an async function of one argument, `arg`, and brings back what it returns.
    ///
    /// # Errors
    /// When the script throws or rejects: the page's error as a text.
    pub async fn run(&self, body: &str, arg: Value) -> anyhow::Result<Value> {
        let script = format!(
            "const [arg, done] = arguments;
            (async () => {{ {body} }})().then(
                (value) => done({{ value: value ?? null }}),
                (error) => done({{ error: `${{error?.name}} (${{error?.code}}): ${{error?.message ?? error}}` }}),
            );"
        );
        let (driver, _current) = self.session.at(&self.handle, &format!("run {body}")).await?;
        let mut answer = driver.execute_async(script, vec![arg]).await?.json().clone();
        match answer.get("error") {
            Some(error) => bail!("the page says {error} to: {body}"),
            None => Ok(answer["value"].take()),
        }
    }

    /// Starts work that goes on in the page; [`outcome`](Self::outcome) fetches what it returned, by its name.
    ///
    /// # Errors
    /// When the script cannot be started.
    pub async fn start(&self, job: &str, body: &str, arg: Value) -> anyhow::Result<()> {
        let script = format!(
            "const {{ job, arg }} = arguments[0];
            const work = (async () => {{ {body} }})();
            // It is heard when its outcome is fetched.
            work.catch(() => {{}});
            (window.jobs ??= {{}})[job] = work;"
        );
        let (driver, _current) = self.session.at(&self.handle, &format!("start {body}")).await?;
        driver.execute(script, vec![json!({ "job": job, "arg": arg })]).await?;
        Ok(())
    }

    /// What a job returned, when it has within that time. It is awaited in the page: looking again and again would slow
    /// down what is measured.
    ///
    /// # Errors
    /// When the job threw, or took longer.
    pub async fn outcome(&self, job: &str, within: Duration) -> anyhow::Result<Value> {
        let wait = "const late = new Promise((_, reject) => {
                setTimeout(() => reject(Error(`it takes longer than ${arg.within} ms`)), arg.within);
            });
            return Promise.race([jobs[arg.job], late]);";
        let arg = json!({ "job": job, "within": u64::try_from(within.as_millis())? });
        self.run(wait, arg).await.with_context(|| format!("the job {job:?}"))
    }

    /// Runs a script again and again until it returns something true, and brings that back.
    ///
    /// # Errors
    /// When it throws, or nothing is true within that time.
    pub async fn until(&self, body: &str, arg: Value, within: Duration) -> anyhow::Result<Value> {
        let deadline = Deadline::after(within);
        loop {
            let value = self.run(body, arg.clone()).await?;
            if !matches!(value, Value::Null | Value::Bool(false)) {
                return Ok(value);
            }
            if !deadline.glance().await {
                bail!("not true within {within:?}, for {arg}: {body}");
            }
        }
    }

    /// Closes it as a person does, who is not asked whether.
    ///
    /// # Errors
    /// When the browser refuses.
    pub async fn close(self) -> anyhow::Result<()> {
        let (driver, mut current) = self.session.at(&self.handle, "close it").await?;
        *current = None;
        Ok(driver.close_window().await?)
    }

    /// Loads its page again.
    ///
    /// # Errors
    /// When the page does not load.
    pub async fn reload(&self) -> anyhow::Result<()> {
        Ok(self.session.at(&self.handle, "reload it").await?.0.refresh().await?)
    }

    /// Ends its process as a bug in the browser would. Chromium only.
    ///
    /// # Errors
    /// When the tab is still alive after it.
    pub async fn crash(self) -> anyhow::Result<()> {
        let (driver, mut current) = self.session.at(&self.handle, "crash it").await?;
        *current = None;
        match driver.cdp().send_raw("Page.crash", json!({})).await {
            Ok(answer) => bail!("the tab answered to its crash: {answer}"),
            Err(error) if error.to_string().contains("crashed") => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Ends its process as the operating system would, without a word. Brings when it did, in ms since 1970.
    ///
    /// # Errors
    /// When its process cannot be told from the others.
    pub async fn kill(self) -> anyhow::Result<u64> {
        let process = self.process().await?;
        *self.session.current().await = None;
        let killed = now_ms();
        process.kill()?;
        Ok(killed)
    }

    /// The process that its page runs in: the one that works while the page does.
    ///
    /// # Errors
    /// When no process of the browser works. Linux only.
    pub async fn process(&self) -> anyhow::Result<Process> {
        let (mut last, mut times) = (None, 0);
        let mut ms = 300;
        for _ in 0..60 {
            let process = self.busiest(ms).await?;
            // Others may work as well, as those of pages that were just opened, but not again and again.
            times = if process.is_some() && process == last { times + 1 } else { 1 };
            match process {
                Some(process) if times == 3 => return Ok(process),
                Some(_) => {}
                // On a busy machine it comes to work little in that time.
                None => ms = (ms * 2).min(5_000),
            }
            last = process;
        }
        bail!("no process works whenever the page does")
    }

    async fn busiest(&self, ms: u64) -> anyhow::Result<Option<Process>> {
        let before = self.session.processes()?;
        self.run("const end = performance.now() + arg; while (performance.now() < end);", json!(ms)).await?;
        Ok(Process::busiest_since(&before, &self.session.processes()?))
    }

    /// Goes back to the page before, as a person does. The browser may answer while it still shows the page that is being left, so this
    /// waits until it shows another one.
    ///
    /// # Errors
    /// When the browser refuses, or goes on to show the page that was to be left.
    pub async fn back(&self) -> anyhow::Result<()> {
        let left = self.run("return location.href", Value::Null).await?;
        self.session.at(&self.handle, "go back").await?.0.back().await?;
        self.until("return location.href !== arg", left, PATIENCE).await.context("the way back")?;
        Ok(())
    }

    /// Looks at it: whatever was visible in its window is hidden then.
    ///
    /// # Errors
    /// When the browser refuses.
    pub async fn look(&self) -> anyhow::Result<()> {
        self.session.at(&self.handle, "look at it").await.map(drop)?;
        Ok(())
    }

    /// Looks at the empty tab that the browser began with.
    ///
    /// # Errors
    /// When the browser refuses.
    pub async fn look_away(&self) -> anyhow::Result<()> {
        self.session.at(self.session.home(), "look away").await.map(drop)?;
        Ok(())
    }

    /// Freezes its page, or lets it go on, as the browser does with pages that nobody looks at. Chromium only.
    ///
    /// # Errors
    /// When the browser refuses.
    pub async fn freeze(&self, frozen: bool) -> anyhow::Result<()> {
        // What is seen is never frozen.
        let home = self.session.home().to_string();
        self.devtools("Target.activateTarget", json!({ "targetId": home })).await?;
        let state = if frozen { "frozen" } else { "active" };
        self.devtools("Page.setWebLifecycleState", json!({ "state": state })).await?;
        Ok(())
    }

    /// Stops all service workers of its origin, as the browser does with idle ones. Chromium only.
    ///
    /// # Errors
    /// When the browser refuses.
    pub async fn stop_service_workers(&self) -> anyhow::Result<()> {
        let (driver, _current) = self.session.at(&self.handle, "stop its service workers").await?;
        for command in ["ServiceWorker.enable", "ServiceWorker.stopAllWorkers"] {
            driver.cdp().send_raw(command, json!({})).await?;
        }
        Ok(())
    }

    /// Presses keys, as a person does at the keyboard: characters, or the
    /// [code points of keys](https://w3c.github.io/webdriver/#keyboard-actions) that have none.
    ///
    /// # Errors
    /// When the browser refuses.
    pub async fn press(&self, keys: &str) -> anyhow::Result<()> {
        let (driver, _current) = self.session.at(&self.handle, "press keys").await?;
        Ok(driver.action_chain().send_keys(keys).perform().await?)
    }

    /// A command of the [developer tools](https://chromedevtools.github.io/devtools-protocol/) for it. Chromium only.
    ///
    /// # Errors
    /// When the browser refuses.
    pub async fn devtools(&self, command: &str, arguments: Value) -> anyhow::Result<Value> {
        let (driver, _current) = self.session.at(&self.handle, command).await?;
        Ok(driver.cdp().send_raw(command, arguments).await?)
    }

    /// Saves what it shows as a PNG.
    ///
    /// # Errors
    /// When the picture cannot be taken or written.
    pub async fn screenshot(&self, file: &Path) -> anyhow::Result<()> {
        let png = self.session.at(&self.handle, "take a picture").await?.0.screenshot_as_png().await?;
        fs::create_dir_all(file.parent().context("a file in a folder")?)?;
        fs::write(file, png).with_context(|| format!("cannot write {}", file.display()))
    }
}

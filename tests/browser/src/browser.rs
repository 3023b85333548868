//! One browser with a fresh profile: all of its tabs share an origin's storage, as a person's do.

use std::{
    fmt,
    sync::{Arc, PoisonError},
    time::{Duration, Instant},
};

use anyhow::Context as _;
use serde_json::Value;
use tempfile::TempDir;
use thirtyfour::{Capabilities, TimeoutConfiguration, WebDriver, WindowHandle, error::WebDriverResult};
use tokio::sync::{Mutex, MutexGuard};

use crate::{
    Engine, Tab,
    driver::Driver,
    engine::Setting,
    process::{self, Times},
};

/// Longer than any script of ours, each of which has a deadline of its own.
const SCRIPT_LIMIT: Duration = Duration::from_secs(300);
/// Longer than any command of ours, the longest of which is a script.
const COMMAND_LIMIT: Duration = Duration::from_secs(330);
/// Longer than any driver waits for its browser.
const START_LIMIT: Duration = Duration::from_secs(150);
/// On a machine that is very busy it may fail: it is tried this often.
const STARTS: usize = 3;

/// How a new tab is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// In the window of the others, of which only one is visible.
    Tab,
    /// In its own window, and visible: nothing that a browser does to hidden pages happens to it.
    Window,
}

/// A running browser, ended when it and its tabs are dropped.
#[derive(Clone, Debug)]
pub struct Browser {
    session: Arc<Session>,
}

/// WebDriver has one current window: whoever sends a command switches to its own first, one at a time.
pub(crate) struct Session {
    // Dropped in this order: the session ends the browser, the driver is killed, the profile is removed.
    web_driver: WebDriver,
    /// The blank window that it began with: whatever happens to the others, this one stays.
    home: WindowHandle,
    current: Mutex<Option<WindowHandle>>,
    /// What the driver was asked last, and when: if it never answers, the test's failure says so.
    last: std::sync::Mutex<(String, Instant)>,
    driver: Driver,
    _profiles: TempDir,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").finish_non_exhaustive()
    }
}

impl Browser {
    /// Starts it, with a profile that no one has used.
    ///
    /// # Errors
    /// When it or its driver does not start.
    pub async fn start(engine: Engine) -> anyhow::Result<Self> {
        Self::launch(engine, Setting::Usual).await
    }

    /// The same, with the timers of hidden pages as slow as a person's browser has them. WebDriver switches that off
    /// in Chromium.
    ///
    /// # Errors
    /// When it or its driver does not start.
    pub async fn start_with_slow_timers(engine: Engine) -> anyhow::Result<Self> {
        Self::launch(engine, Setting::SlowTimers).await
    }

    /// The same, but its user blocks all cookies, so no page may use IndexedDB.
    ///
    /// # Errors
    /// When it or its driver does not start.
    pub async fn start_without_storage(engine: Engine) -> anyhow::Result<Self> {
        Self::launch(engine, Setting::NoStorage).await
    }

    /// The same, but a site may keep 10 MB at most. Only Firefox can be told so before it starts.
    ///
    /// # Errors
    /// When it or its driver does not start.
    pub async fn start_with_little_room(engine: Engine) -> anyhow::Result<Self> {
        Self::launch(engine, Setting::LittleRoom).await
    }

    async fn launch(engine: Engine, setting: Setting) -> anyhow::Result<Self> {
        for _ in 1..STARTS {
            match Self::launch_once(engine, setting).await {
                Ok(browser) => return Ok(browser),
                Err(error) => eprintln!("{} is started once more: {error:#}", engine.name()),
            }
        }
        Self::launch_once(engine, setting).await
    }

    async fn launch_once(engine: Engine, setting: Setting) -> anyhow::Result<Self> {
        let profiles = tempfile::Builder::new().prefix("leasehold-").tempdir()?;
        let driver = Driver::start(engine, profiles.path())?;
        let Value::Object(capabilities) = engine.capabilities(profiles.path(), setting) else {
            unreachable!("an object literal")
        };
        let connecting =
            WebDriver::builder(driver.url(), Capabilities::from(capabilities)).request_timeout(COMMAND_LIMIT).connect();
        let web_driver = tokio::time::timeout(START_LIMIT, connecting)
            .await
            .with_context(|| format!("{} takes longer than {START_LIMIT:?} to start", engine.name()))?
            .with_context(|| format!("{} did not start", engine.name()))?;
        web_driver.update_timeouts(TimeoutConfiguration::new(Some(SCRIPT_LIMIT), None, None)).await?;
        let home = web_driver.window().await?;
        let last = std::sync::Mutex::new(("start".into(), Instant::now()));
        let session = Session { web_driver, home, current: Mutex::new(None), last, driver, _profiles: profiles };
        Ok(Self { session: Arc::new(session) })
    }

    /// What it says of its version.
    #[must_use]
    pub fn version(&self) -> String {
        let told = self.session.web_driver.capabilities().get("browserVersion").and_then(Value::as_str);
        told.unwrap_or("of an unknown version").into()
    }

    /// What the driver was asked last, and how long ago.
    #[must_use]
    pub fn last_command(&self) -> String {
        let (what, since) = &*self.session.last();
        format!("the last command to its driver began {:.1} s ago: {what}", since.elapsed().as_secs_f64())
    }

    /// How long its processes have worked so far, in ms, in steps of 10 ms.
    ///
    /// # Errors
    /// On systems that do not tell.
    pub fn work_ms(&self) -> anyhow::Result<f64> {
        process::work_below(self.session.driver.id())
    }

    /// Opens a tab at an address.
    ///
    /// # Errors
    /// When the page does not load.
    pub async fn open(&self, url: &str, shape: Shape) -> anyhow::Result<Tab> {
        let handle = {
            // The one that was current may be gone, and nothing can be opened from there.
            let (driver, _current) = self.session.at(&self.session.home, "open a tab").await?;
            match shape {
                Shape::Tab => driver.new_tab().await?,
                Shape::Window => driver.new_window().await?,
            }
        };
        let tab = Tab::new(Arc::clone(&self.session), handle);
        tab.goto(url).await.with_context(|| format!("cannot open {url}"))?;
        Ok(tab)
    }
}

impl Browser {
    /// Closes all tabs but the blank one that it began with.
    ///
    /// # Errors
    /// When it refuses.
    pub async fn close_tabs(&self) -> anyhow::Result<()> {
        let session = &self.session;
        for handle in session.web_driver.windows().await? {
            if handle != session.home {
                let (driver, mut current) = session.at(&handle, "close it").await?;
                *current = None;
                driver.close_window().await?;
            }
        }
        session.at(&session.home, "rest").await.map(drop)?;
        Ok(())
    }
}

impl Session {
    pub(crate) fn home(&self) -> &WindowHandle {
        &self.home
    }

    /// What each process of the browser has worked so far.
    pub(crate) fn processes(&self) -> anyhow::Result<Times> {
        process::times_below(self.driver.id())
    }

    /// Which window is the current one; none when that is not known.
    pub(crate) async fn current(&self) -> MutexGuard<'_, Option<WindowHandle>> {
        self.current.lock().await
    }

    fn last(&self) -> std::sync::MutexGuard<'_, (String, Instant)> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The driver, with `handle` as its current window for as long as the guard lives. `what` says what for.
    pub(crate) async fn at(
        &self,
        handle: &WindowHandle,
        what: &str,
    ) -> WebDriverResult<(&WebDriver, MutexGuard<'_, Option<WindowHandle>>)> {
        let mut current = self.current.lock().await;
        if current.as_ref() != Some(handle) {
            *current = None;
            *self.last() = (format!("switch to tab {handle}, to {what}"), Instant::now());
            self.web_driver.switch_to_window(handle.clone()).await?;
            *current = Some(handle.clone());
        }
        *self.last() = (format!("in tab {handle}, {what}"), Instant::now());
        Ok((&self.web_driver, current))
    }
}

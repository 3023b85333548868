//! The browsers that we drive, and the flags that each wants.

use std::{
    env,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use crate::{Server, skipped::skip, webkit};

/// A browser engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// Chromium by chromedriver.
    Chromium,
    /// Firefox by geckodriver.
    Firefox,
    /// WebKitGTK's MiniBrowser by WebKitWebDriver, on a virtual display.
    WebKit,
}

impl Engine {
    /// As prefix of a benchmark's key, and for people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Chromium => "chromium",
            Self::Firefox => "firefox",
            Self::WebKit => "webkit",
        }
    }

    /// Whether it and its driver are installed. Where they are not, this says so.
    ///
    /// # Panics
    /// In CI, where nothing may be skipped.
    #[must_use]
    pub fn is_here(self) -> bool {
        let here = self.driver().is_some() && self.has_browser();
        if !here {
            let missing = match self {
                Self::Chromium | Self::Firefox => format!("{} and its WebDriver are not both on PATH", self.name()),
                Self::WebKit => {
                    "webkit needs WebKitGTK's MiniBrowser, WebKitWebDriver, Xvfb and dbus-run-session".into()
                }
            };
            skip(&missing);
        }
        here
    }

    /// The driver's program: the environment's `CHROMEDRIVER`, `GECKODRIVER` or `WEBKITDRIVER`, else the one on `PATH`.
    pub(crate) fn driver(self) -> Option<PathBuf> {
        let (variable, program) = match self {
            Self::Chromium => ("CHROMEDRIVER", "chromedriver"),
            Self::Firefox => ("GECKODRIVER", "geckodriver"),
            Self::WebKit => ("WEBKITDRIVER", "WebKitWebDriver"),
        };
        env::var_os(variable)
            .map_or_else(|| on_path(program), |named| Some(PathBuf::from(named)).filter(|file| file.is_file()))
    }

    /// A name of this machine whose pages over plain http are insecure contexts in this browser.
    #[must_use]
    pub fn insecure_host(self) -> &'static str {
        match self {
            Self::Chromium | Self::Firefox => Server::INSECURE_HOST,
            // It takes no names from us. The system knows this one with its dot as loopback's, and the browser does not.
            Self::WebKit => "localhost.",
        }
    }

    fn has_browser(self) -> bool {
        let (programs, bundle): (&[&str], _) = match self {
            Self::Chromium => (&["chromium", "google-chrome", "chrome"], "/Applications/Google Chrome.app"),
            Self::Firefox => (&["firefox", "firefox-esr"], "/Applications/Firefox.app"),
            Self::WebKit => {
                let tools = ["Xvfb", "dbus-run-session"].map(on_path);
                return tools.iter().all(Option::is_some) && webkit::mini_browser().is_some();
            }
        };
        programs.iter().any(|program| on_path(program).is_some()) || Path::new(bundle).exists()
    }

    /// What the driver is told on its command line.
    pub(crate) fn driver_flags(self, profiles: &Path) -> Vec<String> {
        match self {
            Self::Chromium => vec!["--port=0".into()],
            Self::Firefox => vec!["--port=0".into(), format!("--profile-root={}", profiles.display())],
            // It is started within other programs.
            Self::WebKit => Vec::new(),
        }
    }

    /// The capabilities of a session whose profile lies in `profiles`.
    pub(crate) fn capabilities(self, profiles: &Path, setting: Setting) -> Value {
        match self {
            Self::Chromium => {
                let unwanted = if setting == Setting::SlowTimers { &FLAGS_FOR_FAST_TIMERS[..] } else { &[] };
                let mut options = json!({ "args": chromium_flags(profiles), "excludeSwitches": unwanted });
                if setting == Setting::NoStorage {
                    options["prefs"] = json!({ "profile.default_content_setting_values.cookies": 2 });
                }
                json!({ "goog:chromeOptions": options })
            }
            Self::Firefox => json!({ "moz:firefoxOptions": {
                "args": ["-headless"],
                "prefs": firefox_preferences(setting),
                // Else the whole browser ends with a page whose process was killed.
                "env": { "MOZ_CRASHREPORTER_SHUTDOWN": "" },
            } }),
            Self::WebKit => {
                json!({ "webkitgtk:browserOptions": { "binary": webkit::mini_browser(), "args": ["--automation"] } })
            }
        }
    }
}

/// How a browser is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Setting {
    /// The timers of hidden pages are on time.
    Usual,
    /// They are slow.
    SlowTimers,
    /// The user blocks all cookies, so no page may use IndexedDB.
    NoStorage,
    /// A site may keep 10 MB, where the browser can be told so: in Firefox.
    LittleRoom,
}

/// What chromedriver adds unasked.
const FLAGS_FOR_FAST_TIMERS: [&str; 3] =
    ["disable-background-timer-throttling", "disable-backgrounding-occluded-windows", "disable-renderer-backgrounding"];

fn chromium_flags(profiles: &Path) -> Vec<String> {
    let mut flags: Vec<String> = [
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--window-size=1000,1150",
    ]
    .map(String::from)
    .into();
    flags.push(format!("--user-data-dir={}", profiles.display()));
    flags.push(format!("--host-resolver-rules=MAP {} 127.0.0.1", Server::INSECURE_HOST));
    flags
}

fn firefox_preferences(setting: Setting) -> Value {
    let mut preferences = json!({
        "app.update.disabledForTesting": true,
        "datareporting.policy.dataSubmissionEnabled": false,
        "network.captive-portal-service.enabled": false,
        "network.connectivity-service.enabled": false,
        "network.dns.localDomains": Server::INSECURE_HOST,
        // Else it would try https first for a name that is not loopback's.
        "dom.security.https_first": false,
        "dom.disable_open_during_load": false,
    });
    if setting == Setting::NoStorage {
        preferences["network.cookie.cookieBehavior"] = 2.into();
    }
    if setting == Setting::LittleRoom {
        // For all sites, in kB.
        preferences["dom.quotaManager.temporaryStorage.fixedLimit"] = 30_720.into();
    }
    preferences
}

fn on_path(program: &str) -> Option<PathBuf> {
    env::split_paths(&env::var_os("PATH")?).map(|folder| folder.join(program)).find(|file| file.is_file())
}

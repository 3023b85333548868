//! A WebDriver server as a child process, which is gone with its browser when it is dropped.

use std::{
    io::{BufRead as _, BufReader},
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use anyhow::Context as _;

use crate::{
    Engine,
    port::free_port,
    webkit::{self, Display},
};

/// How long a driver, or what it needs, may take to come up.
pub(crate) const START_LIMIT: Duration = Duration::from_secs(60);

/// A running driver.
#[derive(Debug)]
pub(crate) struct Driver {
    process: Child,
    port: u16,
    /// Ended after the driver and its browser.
    _display: Option<Display>,
}

impl Driver {
    pub(crate) fn start(engine: Engine, profiles: &Path) -> anyhow::Result<Self> {
        let program = engine.driver().context("the driver is not on PATH")?;
        if engine == Engine::WebKit {
            return Self::start_webkit(&program, profiles);
        }
        let mut command = Command::new(&program);
        command
            .args(engine.driver_flags(profiles))
            .stdout(Stdio::piped())
            .env_remove("DISPLAY")
            // Where Chromium leaves the remains of the tabs that we crash; else that is in the user's home.
            .env("BREAKPAD_DUMP_LOCATION", profiles);
        let mut driver = Self { process: spawn(&mut command)?, port: 0, _display: None };
        driver.port = driver.told_port()?;
        Ok(driver)
    }

    fn start_webkit(program: &Path, profiles: &Path) -> anyhow::Result<Self> {
        let (display, port) = (Display::start()?, free_port());
        let mut command = webkit::command(program, port, &display, profiles)?;
        let process = spawn(command.stdout(Stdio::null()))?;
        let mut driver = Self { process, port, _display: Some(display) };
        webkit::until_it_listens(port, &mut driver.process)?;
        Ok(driver)
    }

    /// Of its process, which is the parent of the browser's.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// These drivers take a free port and say which: "… on port 40123." or "… on 127.0.0.1:40123".
    fn told_port(&mut self) -> anyhow::Result<u16> {
        told(&mut self.process, port_in).context("the driver does not tell its port")
    }
}

/// What a program tells in a line of its output.
pub(crate) fn told<T: Send + 'static>(program: &mut Child, find: fn(&str) -> Option<T>) -> anyhow::Result<T> {
    let stdout = program.stdout.take().context("stdout is piped")?;
    let (tell, found) = mpsc::channel();
    thread::spawn(move || {
        // It is read to its end, or the program would stop at a full pipe.
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            if let Some(what) = find(&line) {
                let _ = tell.send(what);
            }
        }
    });
    found.recv_timeout(START_LIMIT).context("it ended, or takes too long")
}

/// In a group of its own, so that whatever it starts can be ended with it.
fn spawn(command: &mut Command) -> anyhow::Result<Child> {
    command
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .with_context(|| format!("cannot start {}", command.get_program().display()))
}

fn port_in(line: &str) -> Option<u16> {
    if !line.contains("started successfully") && !line.contains("Listening on") {
        return None;
    }
    line.trim_end_matches('.').rsplit([' ', ':']).next()?.parse().ok()
}

impl Drop for Driver {
    fn drop(&mut self) {
        // The session has been ended by now; this is for what a crash has left behind.
        let group = format!("-{}", self.process.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).stderr(Stdio::null()).status();
        let _ = self.process.wait();
    }
}

//! What WebKitGTK needs around it: a display of its own, and a home that is not the user's.

use std::{
    fs,
    net::{Ipv4Addr, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};

use crate::driver::{START_LIMIT, told};

/// The browser that comes with the library's driver; Debian keeps it off `PATH`.
pub(crate) fn mini_browser() -> Option<PathBuf> {
    // /usr/lib/<machine> on Debian, /usr/libexec or /usr/lib64 elsewhere.
    let libraries = ["/usr/lib", "/usr/lib64", "/usr/libexec"].map(PathBuf::from);
    let of_machines = fs::read_dir("/usr/lib").into_iter().flatten().flatten().map(|entry| entry.path());
    let folders = libraries.into_iter().chain(of_machines);
    folders.map(|folder| folder.join("webkit2gtk-4.1/MiniBrowser")).find(|file| file.is_file())
}

/// A virtual screen, gone when it is dropped.
#[derive(Debug)]
pub(crate) struct Display {
    server: Child,
    name: String,
}

impl Display {
    /// On any free number: the server looks for one, and tells it.
    pub(crate) fn start() -> anyhow::Result<Self> {
        let server = Command::new("Xvfb")
            .args(["-displayfd", "1", "-screen", "0", "1280x1200x24", "-nolisten", "tcp"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start Xvfb")?;
        let mut display = Self { server, name: String::new() };
        let number = |line: &str| line.trim().parse::<u32>().ok();
        display.name = format!(":{}", told(&mut display.server, number).context("Xvfb does not tell its display")?);
        Ok(display)
    }
}

impl Drop for Display {
    fn drop(&mut self) {
        // Gently: it removes its socket and its lock file then.
        let _ = Command::new("kill").arg(self.server.id().to_string()).stderr(Stdio::null()).status();
        let _ = self.server.wait();
    }
}

/// The driver within a message bus of its own, where nothing of the user's session is found.
pub(crate) fn command(driver: &Path, port: u16, display: &Display, profiles: &Path) -> anyhow::Result<Command> {
    let rules = profiles.join("bus.conf");
    fs::write(&rules, bus_rules(profiles))?;
    let mut command = Command::new("dbus-run-session");
    command.arg("--config-file").arg(rules).arg("--").arg(driver).arg(format!("--port={port}"));
    for (variable, folder) in [
        ("HOME", "home"),
        ("XDG_CACHE_HOME", "cache"),
        ("XDG_CONFIG_HOME", "config"),
        ("XDG_DATA_HOME", "data"),
        ("XDG_STATE_HOME", "state"),
        ("XDG_RUNTIME_DIR", "run"),
        ("TMPDIR", "tmp"),
    ] {
        let place = profiles.join(folder);
        fs::create_dir_all(&place)?;
        command.env(variable, place);
    }
    command.env("DISPLAY", &display.name).env_remove("WAYLAND_DISPLAY").env("GDK_BACKEND", "x11");
    // No services of a desktop, and no graphics card.
    command.env("GSETTINGS_BACKEND", "memory").env("GIO_USE_VFS", "local").env("NO_AT_BRIDGE", "1");
    command.env("LIBGL_ALWAYS_SOFTWARE", "1");
    Ok(command)
}

/// A bus that starts no services: one of a desktop mounts a file system in the folder that we are to remove.
fn bus_rules(profiles: &Path) -> String {
    format!(
        r#"<busconfig>
            <type>session</type>
            <listen>unix:dir={}</listen>
            <policy context="default">
                <allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/><allow own="*"/>
            </policy>
        </busconfig>"#,
        profiles.display()
    )
}

/// Waits until the driver listens.
pub(crate) fn until_it_listens(port: u16, driver: &mut Child) -> anyhow::Result<()> {
    let began = Instant::now();
    while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
        if let Some(status) = driver.try_wait()? {
            bail!("the driver ended before it listened: {status}");
        }
        ensure!(began.elapsed() < START_LIMIT, "the driver does not listen on port {port}");
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

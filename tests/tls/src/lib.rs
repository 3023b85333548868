//! Servers that accept only encrypted connections, with certificates signed here.

use std::{
    env, fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use anyhow::{Context as _, ensure};
use tempfile::TempDir;

/// Ends the server by a signal when the pipe to this process breaks, however that comes about.
const KEEPER: &str =
    "signal=$1; shift; \"$@\" >log 2>&1 </dev/null & server=$!; cat >/dev/null; kill -$signal $server; wait";

/// A server with its own folder. It stops when the process that started it ends.
#[derive(Debug)]
pub struct Server {
    keeper: Child,
    folder: TempDir,
    /// The port that is encrypted.
    pub port: u16,
}

impl Server {
    /// Starts Redis. `None` if it or openssl is missing.
    ///
    /// # Errors
    /// When no certificate can be signed, or a program cannot be started.
    ///
    /// # Panics
    /// In CI, where nothing may be missing.
    pub fn redis() -> anyhow::Result<Option<Self>> {
        if !is_there("redis-server", ".ci/setup redis") || !is_there("openssl", "your package manager") {
            return Ok(None);
        }
        let (folder, port) = (folder()?, free_port()?);
        let mut keeper = keeper(folder.path(), "KILL");
        keeper.args(["redis-server", "--save", "", "--port", "0", "--bind", "127.0.0.1", "--tls-auth-clients", "no"]);
        keeper.args(["--tls-port", &port.to_string(), "--tls-cert-file", "server.pem", "--tls-key-file", "server.key"]);
        keeper.args(["--tls-ca-cert-file", "ca.pem"]);
        Ok(Some(Self { keeper: keeper.spawn()?, folder, port }))
    }

    /// Starts PostgreSQL. `None` if it or openssl is missing.
    ///
    /// # Errors
    /// When no certificate can be signed, or a program cannot be started.
    ///
    /// # Panics
    /// In CI, where nothing may be missing.
    pub fn postgres() -> anyhow::Result<Option<Self>> {
        let programs = postgres_programs();
        let missing = "PostgreSQL is missing; install it with .ci/setup postgres";
        assert!(programs.is_some() || env::var_os("CI").is_none(), "{missing}");
        let Some(programs) = programs else {
            println!("SKIPPED: {missing}");
            return Ok(None);
        };
        if !is_there("openssl", "your package manager") {
            return Ok(None);
        }
        let (folder, port) = (folder()?, free_port()?);
        let place = folder.path();
        if is_root() {
            run(Command::new("chown").args(["-R", "postgres:postgres"]).arg(place))?;
        }
        let mut init = as_server(programs.join("initdb"));
        run(init.args(["-A", "trust", "-U", "postgres", "--no-sync", "-D", "data"]).current_dir(place))?;
        fs::write(place.join("data/pg_hba.conf"), "hostssl all all all trust\n")?;
        let mut keeper = keeper(place, "QUIT");
        keeper.arg(programs.join("postgres")).args(["-D", "data", "-h", "127.0.0.1", "-k", "", "-p"]);
        keeper.args([&port.to_string(), "-c", "fsync=off", "-c", "ssl=on"]);
        for (setting, file) in [("ssl_cert_file", "server.pem"), ("ssl_key_file", "server.key")] {
            keeper.arg("-c").arg(format!("{setting}={}", place.join(file).display()));
        }
        Ok(Some(Self { keeper: keeper.spawn()?, folder, port }))
    }

    /// The certificate of the authority that signed the server's.
    #[must_use]
    pub fn authority(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// The certificate of another authority.
    #[must_use]
    pub fn stranger(&self) -> PathBuf {
        self.folder.path().join("stranger.pem")
    }

    /// What it wrote to its log.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        drop(self.keeper.wait());
    }
}

/// A folder with the server's certificates.
fn folder() -> anyhow::Result<TempDir> {
    let folder = tempfile::Builder::new().prefix("leasehold-tls-").tempdir()?;
    for authority in ["ca", "stranger"] {
        sign(folder.path(), authority, &[])?;
    }
    let names = "subjectAltName=IP:127.0.0.1,DNS:localhost";
    let leaf = "basicConstraints=critical,CA:FALSE";
    sign(folder.path(), "server", &["-CA", "ca.pem", "-CAkey", "ca.key", "-addext", leaf, "-addext", names])?;
    Ok(folder)
}

fn sign(folder: &Path, name: &str, options: &[&str]) -> anyhow::Result<()> {
    let mut command = Command::new("openssl");
    command.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]);
    command.args(["-subj", &format!("/CN={name}"), "-keyout", &format!("{name}.key"), "-out", &format!("{name}.pem")]);
    run(command.args(options).current_dir(folder))
}

fn run(command: &mut Command) -> anyhow::Result<()> {
    let done = command.output().with_context(|| format!("cannot start {command:?}"))?;
    ensure!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
    Ok(())
}

fn keeper(folder: &Path, signal: &str) -> Command {
    let mut keeper = if folder.join("data").exists() { as_server("sh") } else { Command::new("sh") };
    keeper.args(["-c", KEEPER, "keeper", signal]).current_dir(folder).stdin(Stdio::piped());
    keeper
}

/// A command run as the user postgres if we are root: PostgreSQL refuses to run as root.
fn as_server(program: impl AsRef<std::ffi::OsStr>) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]).arg(program);
    command
}

fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|told| told.stdout.trim_ascii() == b"0")
}

fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// Looks where Debian installs them, then on PATH.
fn postgres_programs() -> Option<PathBuf> {
    let mut places: Vec<_> = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten().collect();
    places.sort_by_key(fs::DirEntry::path);
    let debian = places.into_iter().rev().map(|version| version.path().join("bin"));
    let on_path: Vec<_> = env::var_os("PATH").iter().flat_map(env::split_paths).collect();
    debian.chain(on_path).find(|place| place.join("initdb").exists() && place.join("postgres").exists())
}

/// Says what is missing. In CI that is a failure.
fn is_there(program: &str, remedy: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok();
    let missing = format!("{program} is missing; install it with {remedy}");
    assert!(found || env::var_os("CI").is_none(), "{missing}");
    if !found {
        println!("SKIPPED: {missing}");
    }
    found
}

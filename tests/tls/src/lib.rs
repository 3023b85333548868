//! Servers that accept only encrypted connections, with certificates signed here.

#[path = "../../processes/certificates.rs"]
mod certificates;
#[path = "../../processes/port.rs"]
mod port;
#[path = "../../postgres/programs.rs"]
mod programs;
#[path = "../../processes/skipped.rs"]
mod skipped;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use anyhow::ensure;
use tempfile::TempDir;

use certificates::{can_be_signed, leaf, sign};
use port::free_port;
use programs::{as_server, is_root};
use skipped::skip;

/// Ends the server by a signal when the pipe to this process breaks, however that comes about.
const KEEPER: &str =
    "signal=$1; shift; \"$@\" >log 2>&1 </dev/null & server=$!; cat >/dev/null; kill -$signal $server; wait";

/// The line of a Redis server's file that names whom it trusts.
const TRUSTS: &str = "tls-ca-cert-file ca.pem\n";

/// Those of a server.
const NAMES: &str = "subjectAltName=IP:127.0.0.1,DNS:localhost";

/// Whether Redis asks for a certificate of its clients, which it does by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clients {
    /// They need none.
    Unknown,
    /// They need one.
    Certified,
}

/// A server with its own folder. It stops when the process that started it ends.
#[derive(Debug)]
pub struct Server {
    command: Command,
    keeper: Child,
    folder: TempDir,
    /// The port that is encrypted.
    pub port: u16,
}

impl Server {
    /// Starts Redis, or Valkey, with the certificate of this name: `server`, or `own` or `authority`, which sign themselves. `None` if
    /// both are missing, or openssl.
    ///
    /// # Errors
    /// When a program cannot be started.
    ///
    /// # Panics
    /// In CI, where nothing may be missing.
    pub fn redis(clients: Clients, certificate: &str) -> anyhow::Result<Option<Self>> {
        let auth = if clients == Clients::Certified { "yes" } else { "no" };
        Self::like_redis(certificate, TRUSTS, &["--save", "", "--tls-auth-clients", auth])
    }

    /// Starts a node of a cluster, which has no slots yet.
    ///
    /// # Errors
    /// When a program cannot be started.
    ///
    /// # Panics
    /// In CI, where nothing may be missing.
    pub fn node() -> anyhow::Result<Option<Self>> {
        let cluster = ["--cluster-enabled", "yes", "--tls-cluster", "yes"];
        Self::like_redis("server", TRUSTS, &[["--save", "", "--tls-auth-clients", "no"], cluster].concat())
    }

    /// Starts a Sentinel that knows this server as `mymaster`.
    ///
    /// # Errors
    /// When a program cannot be started.
    ///
    /// # Panics
    /// In CI, where nothing may be missing.
    pub fn sentinel(master: &Self) -> anyhow::Result<Option<Self>> {
        let (master, authority) = (master.port, master.file("ca.pem"));
        let file = format!(
            "sentinel monitor mymaster 127.0.0.1 {master} 1\ntls-ca-cert-file {}\ntls-replication yes\n",
            authority.display()
        );
        Self::like_redis("server", &file, &["--sentinel", "--tls-auth-clients", "no"])
    }

    fn like_redis(certificate: &str, file: &str, options: &[&str]) -> anyhow::Result<Option<Self>> {
        let is_there = |name: &&str| Command::new(name).arg("--version").output().is_ok();
        let Some(program) = ["redis-server", "valkey-server"].into_iter().find(is_there) else {
            return missing("Redis", "redis");
        };
        if !can_be_signed() {
            return Ok(None);
        }
        let (folder, port) = (folder()?, free_port());
        fs::write(folder.path().join("server.conf"), file)?;
        let mut keeper = keeper(Command::new("sh"), folder.path(), "KILL");
        keeper.args([program, "server.conf", "--port", "0", "--bind", "127.0.0.1", "--tls-port", &port.to_string()]);
        keeper.args(["--tls-cert-file", &format!("{certificate}.pem")]);
        keeper.args(["--tls-key-file", &format!("{certificate}.key")]).args(options);
        Self::kept(keeper, folder, port)
    }

    /// Starts PostgreSQL. The user `certified` must show the certificate of the client. `None` if it is missing, or openssl.
    ///
    /// # Errors
    /// When a program cannot be started.
    ///
    /// # Panics
    /// In CI, where nothing may be missing.
    pub fn postgres() -> anyhow::Result<Option<Self>> {
        let Some(programs) = programs::programs() else { return missing("PostgreSQL", "postgres") };
        if !can_be_signed() {
            return Ok(None);
        }
        let (folder, port) = (folder()?, free_port());
        let place = folder.path();
        if is_root() {
            run(Command::new("chown").args(["-R", "postgres:postgres"]).arg(place))?;
        }
        let mut init = as_server(programs.join("initdb"));
        run(init.args(["-A", "trust", "-U", "postgres", "--no-sync", "-D", "data"]).current_dir(place))?;
        // The name in the client's certificate is another one than that of the user.
        let rules = "hostssl all certified all trust clientcert=verify-ca\nhostssl all all all trust\n";
        fs::write(place.join("data/pg_hba.conf"), rules)?;
        let mut keeper = keeper(as_server("sh"), place, "QUIT");
        keeper.arg(programs.join("postgres")).args(["-D", "data", "-h", "127.0.0.1", "-k", "", "-p"]);
        keeper.args([&port.to_string(), "-c", "fsync=off", "-c", "ssl=on"]);
        for (setting, file) in
            [("ssl_cert_file", "server.pem"), ("ssl_key_file", "server.key"), ("ssl_ca_file", "ca.pem")]
        {
            keeper.arg("-c").arg(format!("{setting}={}", place.join(file).display()));
        }
        Self::kept(keeper, folder, port)
    }

    fn kept(mut command: Command, folder: TempDir, port: u16) -> anyhow::Result<Option<Self>> {
        Ok(Some(Self { keeper: command.spawn()?, command, folder, port }))
    }

    /// Starts it again, with a certificate that `stranger` signed.
    ///
    /// # Errors
    /// When a program cannot be started.
    pub fn restart_under_stranger(&mut self) -> anyhow::Result<()> {
        self.stop();
        sign(self.folder.path(), "server", &leaf("stranger.pem", "stranger.key", NAMES));
        self.keeper = self.command.spawn()?;
        Ok(())
    }

    fn stop(&mut self) {
        drop(self.keeper.stdin.take());
        drop(self.keeper.wait());
    }

    /// A file of its folder. The authorities are `ca`, which signed the server's certificate and the client's, and `stranger`.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// What it wrote to its log.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.file("log")).unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A folder with the certificates.
fn folder() -> anyhow::Result<TempDir> {
    let folder = tempfile::Builder::new().prefix("leasehold-tls-").tempdir()?;
    for authority in ["ca", "stranger"] {
        sign(folder.path(), authority, &[]);
    }
    let own = ["-addext", "subjectAltName=DNS:localhost", "-addext"];
    for (name, is_authority) in [("own", "FALSE"), ("authority", "TRUE")] {
        let constraint = format!("basicConstraints=critical,CA:{is_authority}");
        sign(folder.path(), name, &[own.as_slice(), &[&constraint]].concat());
    }
    for (name, names) in [("server", NAMES), ("client", "subjectAltName=DNS:client.test")] {
        sign(folder.path(), name, &leaf("ca.pem", "ca.key", names));
    }
    Ok(folder)
}

fn run(command: &mut Command) -> anyhow::Result<()> {
    let done = command.output()?;
    ensure!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
    Ok(())
}

fn keeper(mut shell: Command, folder: &Path, signal: &str) -> Command {
    shell.args(["-c", KEEPER, "keeper", signal]).current_dir(folder).stdin(Stdio::piped());
    shell
}

/// Says that a test did not run.
fn missing(what: &str, part: &str) -> anyhow::Result<Option<Server>> {
    skip(&format!("{what} is missing; .ci/setup {part} installs it"));
    Ok(None)
}

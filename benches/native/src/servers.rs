//! Servers that the benchmark starts on loopback: the data of each is in a folder of its own, gone with whoever started it.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio, id},
    time::Duration,
};

use leasehold::store;
use tokio::time::sleep;

use crate::{
    figures::now,
    trial::{Engine, Place},
};

/// Longer than a server takes to start, however busy the machine is.
const STARTING: Duration = Duration::from_secs(60);

/// Ends the server when its input ends, as it does with the process that started it. Its arguments are the folder, the signal that
/// ends the server, and the command.
const KEEPER: &str = r#"
    trap '' HUP INT TERM
    folder=$1; signal=$2; shift 2
    "$@" </dev/null >"$folder/log" 2>&1 & server=$!
    cat >/dev/null
    kill -"$signal" "$server"; wait; rm -rf "$folder"
"#;

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        drop(self.0.wait());
    }
}

pub(crate) fn is_installed(program: impl AsRef<std::ffi::OsStr>) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|told| told.status.success())
}

/// An empty folder. Its disk is the one of all temporary files: a server that may not be run by root can read it.
pub(crate) fn folder<E: Engine>() -> PathBuf {
    let path = env::temp_dir().join(format!("leasehold-bench-{}-{}", E::NAME, id()));
    fs::create_dir(&path).expect("the folder is new");
    path
}

/// Runs a server until the place is dropped, and waits until a store can be opened there.
pub(crate) async fn run(folder: &Path, signal: &str, command: &[&str], url: String) -> Place {
    let mut keeper = Command::new("sh");
    keeper.args(["-c", KEEPER, "keeper"]).arg(folder).arg(signal).args(command).current_dir(folder);
    let server = Server(keeper.stdin(Stdio::piped()).spawn().expect("there is a shell"));
    let start = now();
    while let Err(error) = store::from_url(&url).await {
        let log = fs::read_to_string(folder.join("log")).unwrap_or_default();
        assert!(start.elapsed() < STARTING, "the server does not start: {error}\n{log}");
        sleep(Duration::from_millis(20)).await;
    }
    Place { url, keeper: Box::new(server) }
}

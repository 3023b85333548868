//! The programs of a PostgreSQL server, and the user that may run them.

use std::{env, ffi::OsStr, fs, path::PathBuf, process::Command};

/// Where Debian, Fedora and Homebrew keep the server's programs, which are not on PATH everywhere.
pub(crate) fn programs() -> Option<PathBuf> {
    let mut places: Vec<_> = env::var_os("PATH").iter().flat_map(env::split_paths).collect();
    let versions =
        |folder: &str| fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path().join("bin"));
    let mut debian: Vec<_> = versions("/usr/lib/postgresql").chain(versions("/opt/homebrew/opt")).collect();
    debian.sort();
    places.extend(debian.into_iter().rev());
    places.into_iter().find(|place| place.join("initdb").exists() && place.join("postgres").exists())
}

/// A command as the user that may run a server, which root may not.
pub(crate) fn as_server(program: impl AsRef<OsStr>) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]).arg(program);
    command
}

pub(crate) fn is_root() -> bool {
    let output = Command::new("id").arg("-u").output().expect("every Unix has it");
    output.stdout.trim_ascii() == b"0"
}

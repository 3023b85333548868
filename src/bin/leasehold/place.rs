//! Which store, and the manager over it.

use std::{
    env, fs,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    time::Duration,
};

use leasehold::{LeaseManager, executor::TokioExecutor, store};

use super::codes::{Failure, STORE};
use super::options::Place;

const VARIABLE: &str = "LEASEHOLD_STORE";

impl Place {
    /// The URL of a store that other processes see.
    pub(crate) fn url(&self) -> Result<String, Failure> {
        let url = self.any_url()?;
        if url.starts_with("memory:") {
            return Err(Failure::usage(
                "nobody else could see a lease in memory:; name a store that processes share, such as sqlite:leases.db",
            ));
        }
        Ok(url)
    }

    pub(crate) fn any_url(&self) -> Result<String, Failure> {
        if let Some(url) = &self.store {
            return Ok(url.clone());
        }
        match env::var(VARIABLE) {
            Ok(url) if !url.is_empty() => Ok(url),
            Err(env::VarError::NotUnicode(_)) => {
                Err(Failure::usage(format!("the variable {VARIABLE} is not UTF-8; name a store by --store")))
            }
            _ => own_file(),
        }
    }
}

/// The file in the user's state folder, which is made for this user alone.
fn own_file() -> Result<String, Failure> {
    let folder = state_folder().ok_or_else(|| {
        Failure::new(STORE, "neither XDG_STATE_HOME nor HOME is set to an absolute path; name a store by --store")
    })?;
    let folder = folder.join("leasehold");
    let refused = |why| {
        Failure::new(STORE, format!("{}: the folder cannot be made: {why}; name a store by --store", folder.display()))
    };
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(refused)?;
    match folder.join("leases.db").to_str() {
        Some(path) => Ok(format!("sqlite:{path}")),
        None => {
            Err(Failure::new(STORE, format!("{}: the path is not UTF-8; name a store by --store", folder.display())))
        }
    }
}

fn state_folder() -> Option<PathBuf> {
    let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(Path::new(".local/state"))))
}

/// Connects to a store; only who holds leases cares how long they last.
pub(crate) async fn open(url: &str, lease: Option<Duration>) -> Result<LeaseManager, Failure> {
    let store = store::from_url(url).await.map_err(|error| Failure::new(STORE, error.message))?;
    let builder = LeaseManager::builder(store, TokioExecutor::new());
    let builder = match lease {
        Some(lease) => builder.lease(lease),
        None => builder,
    };
    builder.build().map_err(|error| Failure::usage(error.to_string()))
}

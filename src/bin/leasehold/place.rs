//! The choice of the store, and the manager over it.

use std::{
    cell::Cell,
    env, fs,
    os::unix::fs::DirBuilderExt,
    path::{self, Path, PathBuf},
    pin::pin,
    time::Duration,
};

use futures::future::{Either, select};
use leasehold::{
    InvalidOptions, LeaseManager,
    executor::TokioExecutor,
    machine::{StoreError, StoreErrorKind},
    store::{self, MemoryStore, SqliteStore, Store},
};
use tokio::{
    task::spawn_blocking,
    time::{Instant, sleep, timeout},
};

use super::codes::{Failure, STORE};
use super::life::Eyes;
use super::options::{Place, Waiting};
use super::output::tell;
use super::signals::{self, Call, Signals};
use super::wait::STOP;
use super::witness::{LastError, Witness};

const VARIABLE: &str = "LEASEHOLD_STORE";
const FILE: &str = "sqlite:";
/// What the names of the tables begin with, unless the URL says otherwise.
const PREFIX: &str = "leasehold";
/// A store that works opens in less than this. A shorter `-w` does not shorten the opening, which still counts towards it.
const LEAST_OPENING: Duration = Duration::from_secs(1);
/// The pause between two attempts to open a store.
const PAUSE: Duration = Duration::from_millis(200);

/// A store that was opened.
pub(crate) struct Opened {
    pub(crate) leases: LeaseManager,
    pub(crate) eyes: Eyes,
    pub(crate) last_error: LastError,
    /// How long it took since the request began.
    pub(crate) took: Duration,
    /// Whether it did not answer at the end of a wait.
    pub(crate) is_silent: Cell<bool>,
}

impl Place {
    /// The URL of a store that other processes see. A relative path in it is made absolute: the command gets this URL, and may
    /// change to another folder.
    pub(crate) fn url(&self) -> Result<String, Failure> {
        let url = self.any_url()?;
        if url.starts_with("memory:") {
            return Err(Failure::usage(
                "nobody else could see a lease in memory:; name a store that processes share, such as sqlite:leases.db",
            ));
        }
        Ok(absolute(&url).unwrap_or(url))
    }

    /// The URL as it was named. No folder is made.
    pub(crate) fn any_url(&self) -> Result<String, Failure> {
        if let Some(url) = &self.store {
            return Ok(url.clone());
        }
        match env::var(VARIABLE) {
            // A script may have filled it from a variable that is not set here. The user's own file would not exclude other machines.
            Ok(url) if url.is_empty() => Err(Failure::usage(format!(
                "the variable {VARIABLE} is empty; set it to the URL of a store, or unset it to use this user's own file"
            ))),
            Ok(url) => Ok(url),
            Err(env::VarError::NotUnicode(_)) => {
                Err(Failure::usage(format!("the variable {VARIABLE} is not UTF-8; name a store by --store")))
            }
            _ => own_file(),
        }
    }

    fn is_own(&self) -> bool {
        self.store.is_none() && env::var_os(VARIABLE).is_none()
    }

    /// Makes the folder of the user's own file, for this user alone.
    pub(crate) fn make_folder(&self, url: &str) -> Result<(), Failure> {
        let Some(folder) = file_of(url).and_then(|(file, _)| file.parent()).filter(|_| self.is_own()) else {
            return Ok(());
        };
        if let Some(home) = state_home().is_none().then(home).flatten().filter(|home| !home.is_dir()) {
            // Of a user who has none, HOME names a folder that nobody is to make, such as /nonexistent.
            let home = home.display();
            return Err(Failure::new(
                STORE,
                format!(
                    "{home}: HOME names no folder that this user can reach; name a store by --store, or set XDG_STATE_HOME"
                ),
            ));
        }
        let refused = |why| {
            let folder = folder.display();
            Failure::new(STORE, format!("{folder}: the folder cannot be made: {why}; name a store by --store"))
        };
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(refused)
    }

    /// Opens a store to look at it. A file is neither created nor changed: it may be another program's database.
    pub(crate) async fn look(&self, url: &str) -> Result<Sight, Failure> {
        store::check_url(url).map_err(|error| mistake(url, &error))?;
        let Some((file, rest)) = file_of(url) else { return open(url, None).await.map(Sight::Store) };
        let prefix = prefix_in(rest);
        let shown = file.display();
        let can_be_made = self.is_own() || file.parent().is_some_and(Path::is_dir);
        if can_be_made && matches!(file.try_exists(), Ok(false)) {
            return Ok(Sight::Nothing(format!("{shown}: there is no such file yet, so no key is held in it")));
        }
        let (path, name) = (file.to_owned(), prefix.to_owned());
        let opening = spawn_blocking(move || SqliteStore::open_read_only(path, &name)).await;
        let opened = opening.map_err(|why| Failure::new(STORE, format!("{shown}: the file was not opened: {why}")))?;
        match opened.map_err(|error| refused(url, error))? {
            Some(store) => over(store, None, Instant::now()).map(Sight::Store),
            None => Ok(Sight::Nothing(format!(
                "{shown}: nobody has used the tables {prefix}_* of leasehold in this database yet, so no key is held in it"
            ))),
        }
    }
}

/// What a command sees that only looks.
pub(crate) enum Sight {
    Store(Opened),
    /// Nobody can hold a key there, as the sentence says.
    Nothing(String),
}

/// The prefix in the parameters of a URL that was checked: it names one at most.
fn prefix_in(parameters: &str) -> &str {
    let mut parameters = parameters.strip_prefix('?').unwrap_or(parameters).split('&');
    parameters.find_map(|parameter| parameter.strip_prefix("prefix=")).unwrap_or(PREFIX)
}

/// The path in a URL of SQLite, and what follows it. `None` for the URL of another store, or one that [`store::check_url`] refuses.
fn file_of(url: &str) -> Option<(&Path, &str)> {
    let place = url.strip_prefix(FILE)?;
    let (path, rest) = place.split_at(place.find('?').unwrap_or(place.len()));
    let path = path.strip_prefix("//").unwrap_or(path);
    let names_a_file = !path.is_empty() && path != ":memory:" && !path.split('/').next()?.contains('@');
    names_a_file.then_some((Path::new(path), rest))
}

/// `None` if its path is absolute already, or cannot be written as a URL once it is; or if the store refuses the URL, which must then stay
/// as the user wrote it: with an absolute path, it might be accepted.
fn absolute(url: &str) -> Option<String> {
    store::check_url(url).ok()?;
    let (file, rest) = file_of(url).filter(|(file, _)| file.is_relative())?;
    let file = path::absolute(file).ok()?;
    let file = file.to_str().filter(|file| !file.contains('?'))?;
    Some(format!("{FILE}{file}{rest}"))
}

/// The file in the user's state folder.
fn own_file() -> Result<String, Failure> {
    let folder = state_folder().ok_or_else(|| {
        Failure::new(STORE, "neither XDG_STATE_HOME nor HOME is set to an absolute path; name a store by --store")
    })?;
    let refused = |why| Failure::new(STORE, format!("{}: the path {why}; name a store by --store", folder.display()));
    match folder.join("leasehold/leases.db").to_str() {
        // A URL cannot name such a file.
        Some(path) if path.contains('?') => Err(refused("of your state folder has a question mark")),
        Some(path) => Ok(format!("{FILE}{path}")),
        None => Err(refused("is not UTF-8")),
    }
}

fn state_folder() -> Option<PathBuf> {
    state_home().or_else(|| Some(home()?.join(".local/state")))
}

fn state_home() -> Option<PathBuf> {
    absolute_in("XDG_STATE_HOME")
}

fn home() -> Option<PathBuf> {
    absolute_in("HOME")
}

/// The path in a variable. The specification of XDG_STATE_HOME ignores relative ones.
fn absolute_in(variable: &str) -> Option<PathBuf> {
    env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute())
}

/// Connects to a store. Only a holder of leases needs to choose how long they last.
pub(crate) async fn open(url: &str, lease: Option<Duration>) -> Result<Opened, Failure> {
    let start = Instant::now();
    let store = store::from_url(url).await.map_err(|error| refused(url, error))?;
    over(store, lease, start)
}

/// Finds what is wrong with a request before its store is opened: a store in memory refuses the same requests.
pub(crate) async fn check(lease: Option<Duration>, key: &str, info: &str) -> Result<(), Failure> {
    let opened = over(MemoryStore::new(), lease, Instant::now())?;
    opened.leases.lock(key).info(info).try_acquire().await?;
    Ok(())
}

/// A manager over a store whose opening began then.
fn over(store: impl Store, lease: Option<Duration>, start: Instant) -> Result<Opened, Failure> {
    let eyes = Eyes::over(&store.reach());
    let last_error = LastError::default();
    let store = Witness { store, last: last_error.clone() };
    let builder = LeaseManager::builder(store, TokioExecutor::new());
    let builder = match lease {
        Some(lease) => builder.lease(lease),
        None => builder,
    };
    let leases = builder.build().map_err(|error| Failure::usage(in_seconds(&error)))?;
    Ok(Opened { leases, eyes, last_error, took: start.elapsed(), is_silent: Cell::new(false) })
}

/// The library counts in ms, and the options in seconds.
fn in_seconds(error: &InvalidOptions) -> String {
    match error {
        InvalidOptions::Lease { lease_ms } => {
            let lease = Duration::from_millis(*lease_ms).as_secs_f64();
            format!("a lease of {lease} s is out of range; choose 1 to 86400 s")
        }
        other => other.to_string(),
    }
}

/// For how long to keep trying to open a store.
#[derive(Clone, Copy)]
pub(crate) enum Patience {
    /// Once. A server may take seconds to answer.
    Once,
    /// Again and again, for this long.
    For(Duration),
    /// Without end: the store has been open before.
    Forever,
}

impl From<Option<Duration>> for Patience {
    fn from(wait: Option<Duration>) -> Self {
        wait.map_or(Self::Once, Self::For)
    }
}

impl Patience {
    /// For a store that has been open, if nobody limits the wait.
    pub(crate) fn after_success(self, waiting: &Waiting) -> Self {
        if matches!(self, Self::Once) && !waiting.nonblock { Self::Forever } else { self }
    }
}

/// As [`open`], for a command that began to ask then, and will hold leases. It fails if a signal ends it, or if its patience ends before
/// the store has opened.
pub(crate) async fn open_in_time(
    url: &str,
    lease: Duration,
    begun: Instant,
    patience: Patience,
    signals: &mut Signals,
) -> Result<Opened, Failure> {
    let last = Cell::new(None);
    let limit = match patience {
        Patience::For(limit) => limit.saturating_sub(begun.elapsed()).max(LEAST_OPENING),
        Patience::Once | Patience::Forever => Duration::MAX,
    };
    let mut opening = pin!(timeout(limit, open_often(url, lease, patience, &last)));
    let opened = loop {
        let call = match select(opening.as_mut(), pin!(signals.call())).await {
            Either::Left((opened, _)) => break opened,
            Either::Right((call, _)) => call,
        };
        if let Call::End(signal) = call {
            return Err(Failure::signalled(signal));
        }
        // It may be in the midst of a transaction.
        let opened = match select(pin!(timeout(STOP, opening.as_mut())), pin!(signals.called_off())).await {
            Either::Left((opened, _)) => Ok(opened.ok()),
            Either::Right((ended, _)) => Err(ended),
        };
        match opened {
            Ok(Some(opened)) => {
                signals.put_off_stop();
                break opened;
            }
            Ok(None) => signals::stop(),
            Err(Some(signal)) => return Err(Failure::signalled(signal)),
            Err(None) => {}
        }
    };
    let Ok(opened) = opened else { return Err(not_in_time(patience, last.take())) };
    opened.map(|opened| Opened { took: begun.elapsed(), ..opened })
}

fn not_in_time(patience: Patience, last: Option<Failure>) -> Failure {
    let why = last.map_or(String::new(), |failure| format!(" ({})", failure.sentence));
    let limit = match patience {
        Patience::For(limit) => format!(" within {} s", limit.max(LEAST_OPENING).as_secs_f64()),
        Patience::Once | Patience::Forever => String::new(),
    };
    Failure::new(STORE, format!("the store did not open{limit}; check that it is running, or raise -w{why}"))
}

async fn open_often(
    url: &str,
    lease: Duration,
    patience: Patience,
    last: &Cell<Option<Failure>>,
) -> Result<Opened, Failure> {
    let mut is_told = !matches!(patience, Patience::Forever);
    loop {
        match open(url, Some(lease)).await {
            Err(failure) if failure.may_pass && !matches!(patience, Patience::Once) => {
                if !std::mem::replace(&mut is_told, true) {
                    tell(&format!("{}; trying again", failure.sentence));
                }
                last.set(Some(failure));
            }
            opened => return opened,
        }
        sleep(PAUSE).await;
    }
}

/// Why a store was not opened. An invalid URL is a mistake in the command line, not a failure of the store.
pub(crate) fn refused(url: &str, error: StoreError) -> Failure {
    if store::check_url(url).is_err() {
        return mistake(url, &error);
    }
    // A full store stays full until somebody makes room, so the command says so and ends, instead of trying again.
    let may_pass = error.retry && error.kind != StoreErrorKind::Quota;
    let remedy =
        if has_tilde(url) { "; a shell replaces ~ only where a word begins, so write $HOME instead" } else { "" };
    Failure { may_pass, ..Failure::new(STORE, error.message + remedy) }
}

/// Whether the path of a file has a folder named `~`, as in `--store sqlite:~/leases.db`.
fn has_tilde(url: &str) -> bool {
    file_of(url).is_some_and(|(file, _)| file.iter().any(|folder| folder == "~"))
}

/// What is wrong with a URL, and the remedy. The library also offers `memory:`, which this program refuses.
fn mistake(url: &str, error: &StoreError) -> Failure {
    // What is no plain path may hold a password.
    let is_path = url.chars().all(|letter| letter.is_alphanumeric() || "./_-".contains(letter));
    let message = error.message.replace("memory:, ", "");
    Failure::usage(if is_path && !url.is_empty() {
        format!("{message}; for an SQLite file write {FILE}{url}")
    } else {
        message
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Otherwise an `elect` that opens a full store again would try for ever.
    #[test]
    fn only_an_outage_is_waited_for() {
        let full = StoreError { kind: StoreErrorKind::Quota, ..StoreError::transient("no room") };
        let useless = StoreError::permanent(StoreErrorKind::Unsupported, "a read replica");
        for (error, may_pass) in [
            (StoreError::transient("refused"), true),
            (StoreError::busy("locked"), true),
            (full, false),
            (useless, false),
        ] {
            let failure = refused("sqlite:leases.db", error);
            assert_eq!((failure.may_pass, failure.exit.code()), (may_pass, STORE), "{failure:?}");
        }
    }
}

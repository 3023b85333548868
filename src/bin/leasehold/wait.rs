//! The wait for a lease, and its end.

use std::{convert::Infallible, env, ffi::OsString, future::pending, pin::pin, time::Duration};

use futures::future::{Either, select};
use leasehold::{
    AcquireError, HolderStatus, LeaseGuard, LeaseManager, LeaseRequest, LeaseStatus, Mode, ReleaseOutcome,
    machine::SessionId,
};
use nix::sys::signal::Signal;
use tokio::time::{Instant, sleep, timeout};

use super::codes::{Exit, Failure};
use super::life::{Eyes, Heartbeats};
use super::options::Waiting;
use super::output::tell;
use super::place::Opened;
use super::signals::{self, Call, Signals};
use super::table::printable;

/// A shorter wait is not worth a word.
const NOTICE: Duration = Duration::from_secs(1);
/// A store that does not answer prolongs the wait that the user chose by about these two together. Within the first it may tell
/// who is in the way, and within the second we leave the queue.
const LAST_LOOK: Duration = Duration::from_millis(750);
const LEAVE: Duration = Duration::from_millis(250);
/// A process that is stopped in the midst of a transaction keeps all others from the store until it goes on. So before this process is
/// stopped, it waits this long for the store to open or to close.
pub(crate) const STOP: Duration = Duration::from_secs(5);
/// Whoever asked us to end is not kept waiting for a store that does not answer. The system frees what we leave.
const PATIENCE: Duration = Duration::from_secs(1);
/// The same for the release.
const RELEASE: Duration = Duration::from_secs(5);
/// Between two requests to a store that fails.
const PAUSE: Duration = Duration::from_millis(200);
/// How often to look whether a holder who may be dead is alive.
const LOOK: Duration = Duration::from_millis(100);
/// A cause that has a number in its message may be a new one each time.
const MOST_CAUSES: usize = 8;
/// How many digits of a session's id distinguish it from others.
const SHORT: usize = 8;
/// Longer texts say nothing more.
const LONGEST_INFO: usize = 160;

/// How a wait ended.
pub(crate) enum Waited {
    Granted(LeaseGuard),
    /// The key is taken.
    Taken,
    /// A signal came.
    Called(Call),
}

impl Waiting {
    /// Waits for as long as was chosen. If then everybody in the way is dead, or silent for longer than its lease, it waits on until
    /// their death is proved, or until one of them shows that it is alive. Otherwise processes that wait for less than a lease would never
    /// get a key whose holder crashed.
    pub(crate) async fn ask(
        &self,
        opened: &Opened,
        key: &str,
        mode: Mode,
        request: impl Fn() -> LeaseRequest,
    ) -> Result<Option<LeaseGuard>, AcquireError> {
        let first = match self.wait {
            _ if self.nonblock => request().try_acquire().await?,
            Some(limit) => in_time_or_tried(opened, &request, limit.saturating_sub(opened.took)).await?,
            None => Some(self.without_end(key, &request).await?),
        };
        if first.is_some() {
            return Ok(first);
        }
        let Some(status) = self.look(opened, key).await else { return Ok(None) };
        let mut heartbeats = Heartbeats::default();
        let Some(limit) = opened.eyes.patience(&status?, mode, &mut heartbeats) else { return Ok(None) };
        match select(pin!(in_time(request(), limit)), pin!(sign_of_life(opened, key, mode, heartbeats))).await {
            Either::Left((asked, _)) => asked,
            Either::Right(((), _)) => Ok(None),
        }
    }

    /// Who is in the way. If the store has just answered a try, it is not silent. Then the look has only its own time limit, because on a
    /// busy machine it may take longer than [`LAST_LOOK`].
    async fn look(&self, opened: &Opened, key: &str) -> Option<Result<LeaseStatus, AcquireError>> {
        let look = opened.leases.status(key);
        let has_tried = self.nonblock || self.wait.is_some_and(|limit| limit.is_zero());
        if has_tried { Some(look.await) } else { opened.at_last(look).await }
    }

    /// Waits without end. A request without a limit fails after an outage of a lease, or when the store refuses it three times. It is then
    /// made anew, so that people learn what keeps it waiting: each cause is told once.
    async fn without_end(&self, key: &str, request: impl Fn() -> LeaseRequest) -> Result<LeaseGuard, AcquireError> {
        let mut told = Vec::new();
        loop {
            let error = match request().acquire().await {
                Err(AcquireError::Store(error)) if error.retry => error,
                asked => return asked,
            };
            if !self.quiet && told.len() < MOST_CAUSES && !told.contains(&error.message) {
                tell(&format!("still waiting for {key:?}: {}", error.message));
                told.push(error.message);
            }
            sleep(PAUSE).await;
        }
    }

    /// How to end if the key is not granted.
    pub(crate) fn refused(&self) -> Exit {
        Exit::Code(self.conflict_exit_code)
    }
}

/// Ends when somebody in the way, who may have been dead, shows that it is alive: its heart beats, or its beacon stands again.
async fn sign_of_life(opened: &Opened, key: &str, mode: Mode, mut heartbeats: Heartbeats) {
    loop {
        sleep(LOOK).await;
        let status = opened.leases.status(key).await;
        if status.is_ok_and(|status| opened.eyes.patience(&status, mode, &mut heartbeats).is_none()) {
            return;
        }
    }
}

/// As [`in_time`]. If the time limit is shorter than the store takes to answer, nobody knows who was in the way: then one try shows
/// whether the key is free.
async fn in_time_or_tried(
    opened: &Opened,
    request: impl Fn() -> LeaseRequest,
    limit: Duration,
) -> Result<Option<LeaseGuard>, AcquireError> {
    match in_time(request(), limit).await {
        Err(late @ AcquireError::Timeout { .. }) if limit < NOTICE => {
            opened.at_last(request().try_acquire()).await.unwrap_or(Err(late))
        }
        asked => asked,
    }
}

/// `None` if others held the key all the time.
async fn in_time(request: LeaseRequest, limit: Duration) -> Result<Option<LeaseGuard>, AcquireError> {
    match request.timeout(limit).acquire().await {
        Err(AcquireError::Timeout { held_elsewhere: true, .. }) => Ok(None),
        granted => granted.map(Some),
    }
}

/// Waits until the lease is granted or refused, or a signal comes.
pub(crate) async fn wait(
    opened: &Opened,
    asked: impl Future<Output = Result<Option<LeaseGuard>, AcquireError>>,
    signals: &mut Signals,
    notice: Option<&str>,
) -> Result<Waited, Failure> {
    let notice = pin!(async {
        match notice {
            Some(key) => note(opened, key).await,
            None => pending().await,
        }
    });
    let answer = match select(pin!(asked), select(pin!(signals.call()), notice)).await {
        Either::Left((answer, _)) => answer,
        // By now the request is dropped: it has left the queue.
        Either::Right((Either::Left((call, _)), _)) => return Ok(Waited::Called(call)),
        Either::Right((Either::Right((never, _)), _)) => match never {},
    };
    match answer {
        Ok(Some(guard)) => Ok(Waited::Granted(guard)),
        Ok(None) => Ok(Waited::Taken),
        Err(error) => Err(error.into()),
    }
}

/// Says once who is in the way.
async fn note(opened: &Opened, key: &str) -> Infallible {
    sleep(NOTICE).await;
    let mut status = opened.leases.status(key).await;
    if status.is_err() {
        // If the store has just gone, the wait itself says so.
        sleep(PAUSE).await;
        status = opened.leases.status(key).await;
    }
    tell(&match status {
        Ok(status) => in_the_way(key, &status, &opened.eyes),
        Err(error) => format!("waiting for {key:?}: {error}"),
    });
    pending().await
}

fn in_the_way(key: &str, status: &LeaseStatus, eyes: &Eyes) -> String {
    let name = |holder: &HolderStatus| {
        format!("{}{}", named(holder.holder, &holder.instance, &holder.info), eyes.holder(holder).remark())
    };
    // A lease of our own that was lost is ended before the next one, and is in nobody's way.
    let holders: Vec<_> = status.holders.iter().filter(|holder| !holder.own).collect();
    let holder = match &holders[..] {
        [] => "nobody yet".to_owned(),
        [holder] => name(holder),
        [first, others @ ..] => format!("{} and {} more", name(first), others.len()),
    };
    let ahead = match status.position() {
        None | Some(0) => String::new(),
        Some(1) => "; 1 waits before us".to_owned(),
        Some(ahead) => format!("; {ahead} wait before us"),
    };
    let around =
        if is_around_us(key, &holders) { "; we run under that lease, so it may not end before we do" } else { "" };
    format!("waiting for {key:?}, which is held by {holder}{ahead}{around}")
}

/// Whether this process was started by a command that runs under one of the leases that it waits for. Then it may wait for its own parent.
fn is_around_us(key: &str, holders: &[&HolderStatus]) -> bool {
    let is = |name, value: &str| env::var(name).is_ok_and(|ours| ours == value);
    is("LEASEHOLD_KEY", key) && holders.iter().any(|holder| is("LEASEHOLD_TOKEN", &holder.token.as_u64().to_string()))
}

/// Who this is: by its `info`, by its stable name, or by both. A program that uses the library may give neither: then its session has to
/// do.
pub(crate) fn named(session: SessionId, instance: &str, info: &str) -> String {
    match (instance.is_empty(), info.is_empty()) {
        (true, true) => {
            let session = session.to_string();
            format!("session {}…", session.get(..SHORT).unwrap_or(&session))
        }
        (true, false) => printable(info),
        (false, true) => printable(instance),
        (false, false) => format!("{}: {}", printable(instance), printable(info)),
    }
}

/// What others see of us: host, process and command line, unless it was chosen.
pub(crate) fn info(chosen: Option<&str>, command: &[OsString]) -> String {
    if let Some(chosen) = chosen {
        return chosen.to_owned();
    }
    let host = nix::unistd::gethostname().map(|host| host.to_string_lossy().into_owned());
    let words: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
    let mut info = format!("{} pid {}", host.unwrap_or_default(), std::process::id());
    if !words.is_empty() {
        info += &format!(": {}", words.join(" "));
    }
    if let Some((end, _)) = info.char_indices().nth(LONGEST_INFO) {
        info.truncate(end);
        info.push('…');
    }
    info
}

/// What a release has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Released {
    /// The lease was held to the end.
    Held,
    /// It had been lost before.
    Lost,
    /// The store did not say.
    Unknown,
}

/// Releases, and tells what goes wrong.
pub(crate) async fn release(guard: &LeaseGuard, signals: &mut Signals) -> Released {
    let valid_until = Instant::now() + guard.remaining();
    let mut released = pin!(timeout(RELEASE, guard.release()));
    let answer = match select(released.as_mut(), pin!(signals.end())).await {
        Either::Left((answer, _)) => Ok(answer),
        // Most stores are about to answer.
        Either::Right((signal, _)) => timeout(PATIENCE, released).await.map_err(|_| signal),
    };
    let sentence = match answer {
        Ok(Ok(Ok(ReleaseOutcome::Released))) => return Released::Held,
        Ok(Ok(Ok(ReleaseOutcome::Lost))) => {
            tell(&format!("the lease of {:?} had been lost before the command ended", guard.key()));
            return Released::Lost;
        }
        Ok(Ok(Err(why))) => why.to_string(),
        Ok(Err(_)) => format!("the store did not answer within {} s", RELEASE.as_secs()),
        Err(signal) => format!("{signal} came before the store answered"),
    };
    // It may have run out while the store was silent.
    let others = if Instant::now() < valid_until {
        "it is free once others see that this process has ended"
    } else {
        "it may have run out, so another process may have been granted the key meanwhile"
    };
    tell(&format!("the lease of {:?} could not be released: {sentence}; {others}", guard.key()));
    Released::Unknown
}

/// The store has gone while it was open: another one is opened next. The pause is for one that goes again and again.
pub(crate) async fn open_another(failure: &Failure, quiet: bool) {
    if !quiet {
        tell(&format!("{}; opening it again and waiting there", failure.cause()));
    }
    sleep(PAUSE).await;
}

/// Leaves the store.
pub(crate) async fn close(leases: &LeaseManager) {
    close_within(PATIENCE, leases).await;
}

async fn close_within(limit: Duration, leases: &LeaseManager) {
    let _ = timeout(limit, leases.close()).await;
}

impl Opened {
    /// What the store answers to one more request after the time that the user chose; `None` if it does not answer.
    async fn at_last<T>(&self, request: impl Future<Output = T>) -> Option<T> {
        let answer = timeout(LAST_LOOK, request).await.ok();
        self.is_silent.set(answer.is_none());
        answer
    }

    /// Leaves the queue and the store. If the store is silent, the place in its queue ends with this process: over SQLite at once, over a
    /// server after a lease of silence.
    pub(crate) async fn leave(&self) {
        close_within(if self.is_silent.get() { LEAVE } else { PATIENCE }, &self.leases).await;
    }

    /// As [`leave`](Self::leave), and then stops this process. It returns when the process is continued. It returns without a stop if a
    /// signal that ends the process came, or if CONT came meanwhile.
    pub(crate) async fn leave_and_stop(self, signals: &mut Signals) -> Option<Signal> {
        let called_off = self.leave_unless_called_off(signals).await;
        drop(self);
        match called_off {
            Ok(()) => {
                signals::stop();
                None
            }
            Err(ended) => ended,
        }
    }

    async fn leave_unless_called_off(&self, signals: &mut Signals) -> Result<(), Option<Signal>> {
        let mut leaving = pin!(close_within(STOP, &self.leases));
        match select(leaving.as_mut(), pin!(signals.called_off())).await {
            Either::Left(_) => Ok(()),
            Either::Right((ended, _)) => {
                let _ = timeout(PATIENCE, leaving).await;
                Err(ended)
            }
        }
    }
}

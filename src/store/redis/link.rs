//! One connection to the server that keeps the rows, opened when it is needed and again after it broke.

use core::{fmt, time::Duration};
use std::{
    string::String,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
};

use futures::{
    FutureExt,
    future::{BoxFuture, Shared},
    lock::{Mutex, OwnedMutexGuard},
};
use redis::{Cmd, RedisError, RedisResult, Value, aio::PubSub};
use tokio::time::{Instant, timeout};

use super::{
    cluster::Redirect,
    failure::{self, Stage},
    node::{Node, address_of},
    route::Route,
    servers::RedisServers,
    setup, tls,
};
use crate::executor::Mutex as Lock;
use crate::{
    machine::{StoreError, StoreErrorKind},
    store::tls::Certificates,
};

/// The connection to one server, which several tasks share. A command that a server may have run is never sent again.
pub(super) struct Link {
    route: Route,
    /// They may be replaced, so they are read for each connection.
    files: Certificates,
    /// What errors call the server. It has no password.
    address: Lock<Arc<str>>,
    connection: Slot,
    /// The connection to the cluster's node that the slot is being migrated to.
    importing: Slot,
    /// How many connections were opened so far.
    opened: AtomicU64,
    /// The longest time limit of any transaction so far, in ms.
    longest_ms: AtomicU64,
    closed: AtomicBool,
    /// How many Sentinels this link is subscribed to.
    subscriptions: AtomicUsize,
}

struct Kept {
    node: Node,
    /// When it began to be opened.
    opened_at: Instant,
    /// When the server answered last; `None` if the connection must be checked before it is used again.
    answered_at: Option<Instant>,
    check: Option<Check>,
}

/// A question whether a connection still stands. Its answer counts for the next caller, too, if the first one does not wait for it.
struct Check {
    since: Instant,
    answers: Shared<BoxFuture<'static, bool>>,
}

/// The place of one connection. Whoever opens the connection, or asks whether it still stands, locks the place meanwhile.
#[derive(Default)]
struct Slot(Lock<Arc<Place>>);

#[derive(Default)]
struct Place {
    kept: Arc<Mutex<Option<Kept>>>,
    /// When it was locked last.
    locked_at: Lock<Option<Instant>>,
    /// A connection that was opened before this time is forgotten. Somebody had locked the place when that was found out.
    forgotten: Lock<Option<Instant>>,
}

impl Place {
    /// How long its task may still keep it locked.
    fn left(&self) -> Duration {
        let locked_for = self.locked_at.lock().map(|at| at.elapsed()).unwrap_or_default();
        STANDS_STILL.saturating_sub(locked_for)
    }
}

impl Slot {
    fn current(&self) -> Arc<Place> {
        Arc::clone(&self.0.lock())
    }

    /// A task of a runtime that nobody drives any more may have locked the place. So an empty place replaces one that the same task has
    /// locked for [`STANDS_STILL`].
    async fn lock(&self) -> OwnedMutexGuard<Option<Kept>> {
        loop {
            let current = self.current();
            if let Ok(kept) = timeout(current.left(), Arc::clone(&current.kept).lock_owned()).await {
                *current.locked_at.lock() = Some(Instant::now());
                return kept;
            }
            let mut latest = self.0.lock();
            // Another task may have locked it meanwhile.
            if Arc::ptr_eq(&latest, &current) && current.left().is_zero() {
                *latest = Arc::default();
            }
        }
    }

    fn note_locked(&self) {
        *self.current().locked_at.lock() = Some(Instant::now());
    }

    /// Forgets the connection. A task that is opening one at this moment drops it after its command. This waits for nobody, because it may
    /// be called where no timers run.
    fn clear(&self) {
        *self.0.lock() = Arc::default();
    }

    /// Forgets the connection, unless it was opened after this time.
    fn forget(&self, until: Instant) {
        let current = self.current();
        let mut forgotten = current.forgotten.lock();
        *forgotten = Some(until).max(*forgotten);
        drop(forgotten);
        // Whoever holds the lock looks for itself before it uses the connection.
        if let Some(mut kept) = current.kept.try_lock() {
            kept.take_if(|kept| kept.opened_at <= until);
        }
    }

    fn was_forgotten_since(&self, began: Instant) -> bool {
        self.current().forgotten.lock().is_some_and(|until| until >= began)
    }

    /// Whether the connection was not forgotten while somebody had locked the place.
    fn still_keeps(&self, kept: &mut Option<Kept>) -> bool {
        if let Some(until) = *self.current().forgotten.lock() {
            kept.take_if(|kept| kept.opened_at <= until);
        }
        kept.is_some()
    }

    /// Notes when the server answered last; `None` has the connection checked before it is used again.
    fn note_answer(&self, at: Option<Instant>) {
        // A task that checks the connection at this moment learns by itself whether it stands.
        if let Some(kept) = self.current().kept.try_lock().as_deref_mut().and_then(Option::as_mut) {
            kept.answered_at = at;
        }
    }
}

impl Kept {
    fn is_idle(&self) -> bool {
        self.answered_at.is_none_or(|at| at.elapsed() > IDLE)
    }

    /// Whether the connection still stands. The server has this long to say so.
    async fn stands(&mut self, patience: Duration) -> bool {
        if !self.is_idle() {
            return true;
        }
        // An answer of long ago says nothing of now.
        self.check.take_if(|check| check.since.elapsed() > LONGEST_PATIENCE + IDLE);
        let check = self.check.get_or_insert_with(|| Check::of(&self.node));
        let left = patience.saturating_sub(check.since.elapsed());
        let stands = timeout(left, check.answers.clone()).await.unwrap_or(false);
        self.check = None;
        self.answered_at = stands.then(Instant::now);
        stands
    }
}

impl Check {
    fn of(node: &Node) -> Self {
        let mut connection = node.connection.clone();
        let answers = async move { connection.send_packed_command(&redis::cmd("PING")).await.is_ok() };
        Self { since: Instant::now(), answers: answers.boxed().shared() }
    }
}

/// A connection on which nothing came back for this long is checked before use. Servers and proxies close idle connections, and after a
/// write to a closed one it would be unknown whether it arrived.
const IDLE: Duration = Duration::from_secs(2);
/// The check may take half of the longest time limit of any caller, but at least this long, and at most [`LONGEST_PATIENCE`]. To open
/// another connection to a distant server would take longer than to wait.
const PATIENCE: Duration = Duration::from_secs(1);
/// Shorter than [`STANDS_STILL`], so that a task that checks is not mistaken for one that has stalled.
const LONGEST_PATIENCE: Duration = Duration::from_millis(1_900);
/// A task that has kept others from the connection for this long has probably stalled. If it is only slow, there are two connections for a
/// moment.
const STANDS_STILL: Duration = Duration::from_secs(2);
/// How often the nodes of a cluster may redirect a command.
const HOPS: usize = 5;

impl Link {
    /// # Errors
    /// [`StoreError`] if the servers cannot be used together, or an address is invalid.
    pub(super) fn new(servers: &RedisServers, prefix: &str) -> Result<Self, StoreError> {
        let route = Route::new(&servers.servers, prefix)?;
        Ok(Self {
            address: Lock::new(route.address().into()),
            route,
            files: servers.files.clone(),
            connection: Slot::default(),
            importing: Slot::default(),
            opened: AtomicU64::new(0),
            longest_ms: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            subscriptions: AtomicUsize::new(0),
        })
    }

    /// The server that was connected to last.
    pub(super) fn address(&self) -> Arc<str> {
        Arc::clone(&self.address.lock())
    }

    pub(super) fn database(&self) -> i64 {
        self.route.database()
    }

    /// Whether another server can take the place of this one.
    pub(super) fn has_successors(&self) -> bool {
        self.route.has_successors()
    }

    pub(super) fn is_cluster(&self) -> bool {
        self.route.is_cluster()
    }

    /// Sends one command, and gives back what the server answered; its refusal is an error.
    ///
    /// # Errors
    /// [`StoreError`], which says by `stage` whether something may have been written.
    pub(super) async fn send(&self, command: &Cmd, stage: Stage<'_>) -> Result<Value, StoreError> {
        match self.ask(command, stage).await? {
            Ok(value) => Ok(value),
            Err(refusal) => Err(self.refused(&refusal, stage)),
        }
    }

    /// Sends one command, and follows the redirects of a cluster's nodes. The inner error is a refusal, which is an answer too.
    ///
    /// # Errors
    /// [`StoreError`] if there was no answer.
    pub(super) async fn ask(&self, command: &Cmd, stage: Stage<'_>) -> Result<Result<Value, RedisError>, StoreError> {
        let mut node = self.node(&self.connection, None).await?;
        let mut answer = self.exchange(&mut node, command, false, stage).await?;
        for _ in 0..HOPS {
            let Err(refusal) = &answer else { break };
            let (kept, address, is_asking) = match self.route.redirect(refusal, &node.address) {
                Some(Redirect::Moved(address)) => {
                    // The migration is over.
                    self.importing.forget(Instant::now());
                    (&self.connection, address, false)
                }
                Some(Redirect::Ask(address)) => (&self.importing, address, true),
                None => break,
            };
            node = self.node(kept, Some(&address)).await?;
            answer = self.exchange(&mut node, command, is_asking, stage).await?;
        }
        Ok(answer)
    }

    async fn exchange(
        &self,
        node: &mut Node,
        command: &Cmd,
        is_asking: bool,
        stage: Stage<'_>,
    ) -> Result<Result<Value, RedisError>, StoreError> {
        stage.begins();
        let began = Instant::now();
        let answer = if is_asking {
            ask_importing(node, command).await
        } else {
            node.connection.send_packed_command(command).await
        };
        stage.answered(answer.is_ok());
        if answer.is_ok() {
            let place = if is_asking { &self.importing } else { &self.connection };
            place.note_answer(Some(Instant::now()));
        }
        match answer {
            Ok(Value::ServerError(refusal)) => Ok(Err(refusal.into())),
            Ok(value) => Ok(Ok(value)),
            Err(error) => {
                self.forget(began);
                Err(failure::of_silence(&node.address, &error, stage))
            }
        }
    }

    /// The error for a refusal. A server that is now a replica, or a node that lost its cluster, may have a successor. The next command
    /// opens a new connection, and so finds it.
    pub(super) fn refused(&self, refusal: &RedisError, stage: Stage<'_>) -> StoreError {
        let is_cut_off = refusal.code() == Some("CLUSTERDOWN");
        if is_cut_off {
            self.route.ask_another();
        }
        if is_cut_off || failure::is_of_a_replica(refusal) {
            self.forget(Instant::now());
        }
        if self.route.is_cluster() && matches!(refusal.code(), Some("MOVED" | "ASK")) {
            return failure::of_redirects(&self.address(), refusal, stage);
        }
        failure::of_refusal(&self.address(), refusal, stage)
    }

    /// The server of the connection that is kept here, or the one at `wanted` if a node of the cluster has named it.
    async fn node(&self, place: &Slot, wanted: Option<&str>) -> Result<Node, StoreError> {
        let mut kept = place.lock().await;
        self.check()?;
        let was_idle = kept.as_ref().is_some_and(Kept::is_idle);
        if let Some(node) = standing(&mut kept, self.patience()).await
            && wanted.is_none_or(|address| *node.address == *address)
            && !(was_idle && self.was_replaced(place, &node).await)
            && place.still_keeps(&mut kept)
        {
            return Ok(node);
        }
        *kept = None;
        // A check may have taken long. The time to connect counts by itself, and so does the time to check the settings.
        place.note_locked();
        let (mut node, began) = loop {
            let began = Instant::now();
            let node = match wanted {
                Some(address) => self.route.open_at(address, &self.files).await?,
                None => self.route.open(&self.files).await?,
            };
            // Another server may have been announced meanwhile.
            if !place.was_forgotten_since(began) {
                break (node, began);
            }
        };
        place.note_locked();
        self.check_settings(&mut node).await?;
        self.opened.fetch_add(1, Ordering::SeqCst);
        *self.address.lock() = Arc::clone(&node.address);
        *kept = Some(Kept { node: node.clone(), opened_at: began, answered_at: Some(Instant::now()), check: None });
        Ok(node)
    }

    /// Whether another server has replaced this one, although this one still answers. No Sentinel is asked while the link is subscribed to
    /// one.
    async fn was_replaced(&self, place: &Slot, node: &Node) -> bool {
        place.note_locked();
        self.subscriptions.load(Ordering::Relaxed) == 0 && self.route.names_another(&node.address, &self.files).await
    }

    /// Completes when a Sentinel has announced another server, and the connection was forgotten.
    pub(super) async fn until_replaced(&self) {
        self.route.until_replaced(&self.files, &self.subscriptions, &self.address).await;
        self.forget(Instant::now());
    }

    /// Each new connection may lead to another server, or to one whose settings have changed.
    async fn check_settings(&self, node: &mut Node) -> Result<(), StoreError> {
        let is_first = self.opened() == 0;
        match setup::check_settings(node).await {
            Ok(has_told) => {
                if is_first && !has_told {
                    setup::warn_of_silence(&node.address);
                }
                Ok(())
            }
            Err(error) if is_first || error.retry => Err(error),
            // Leases are held, and somebody may change the setting before they expire.
            Err(error) => Err(StoreError::transient(error.message)),
        }
    }

    /// How many connections were opened so far. A new one may lead to a server that has lost writes.
    pub(super) fn opened(&self) -> u64 {
        self.opened.load(Ordering::SeqCst)
    }

    /// A separate connection for messages, and the address of its server. `again` says that an earlier one broke, so that another server
    /// may have taken over.
    pub(super) async fn listen(&self, again: bool) -> Option<(PubSub, String)> {
        self.check().ok()?;
        // A context misses what is sent before it subscribes, so it loses no time by asking where the server is.
        let known = self.connection.lock().await.as_ref().map(|kept| kept.node.client.clone());
        let client = match known.filter(|_| !again) {
            Some(client) => client,
            None => self.route.client(&self.files).await?,
        };
        let client = tls::renewed(client, &self.files).ok()?;
        Some((client.get_async_pubsub().await.ok()?, address_of(&client)))
    }

    /// Lets the next command open a connection anew: the one that was open at this time is broken, or nothing comes back on it.
    pub(super) fn forget(&self, until: Instant) {
        self.connection.forget(until);
        self.importing.forget(until);
    }

    /// Notes the time limit of a transaction.
    pub(super) fn note_limit(&self, limit: Duration) {
        self.longest_ms.fetch_max(u64::try_from(limit.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    fn longest_limit(&self) -> Duration {
        Duration::from_millis(self.longest_ms.load(Ordering::Relaxed))
    }

    fn patience(&self) -> Duration {
        (self.longest_limit() / 2).clamp(PATIENCE, LONGEST_PATIENCE)
    }

    fn doubt(&self) {
        self.connection.note_answer(None);
        self.importing.note_answer(None);
    }

    pub(super) fn close(&self) {
        // A task that locks a place after this finds the store closed.
        self.closed.store(true, Ordering::SeqCst);
        self.connection.clear();
        self.importing.clear();
    }

    pub(super) fn check(&self) -> Result<(), StoreError> {
        if self.closed.load(Ordering::SeqCst) {
            return Err(StoreError::permanent(
                StoreErrorKind::Closed,
                "this RedisStore was closed; connect another one",
            ));
        }
        Ok(())
    }

    /// Runs `work` for at most `limit`. What takes longer has an unknown outcome if a write was under way.
    ///
    /// # Errors
    /// That of `work`, or of the time limit.
    pub(super) async fn within<T>(
        &self,
        limit: Duration,
        writing: &AtomicBool,
        work: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let began = Instant::now();
        match timeout(limit, work).await {
            Ok(done) => done,
            Err(_) => {
                // A caller with a short limit does not take the connection from one that waits for longer.
                if limit < self.longest_limit() {
                    self.doubt();
                } else {
                    self.forget(began);
                }
                if let (0, Some(server)) = (self.opened(), self.route.only_server()) {
                    return Err(failure::of_opening(server, limit));
                }
                Err(failure::of_time(&self.address(), limit, writing.load(Ordering::Relaxed)))
            }
        }
    }
}

/// While a slot is being migrated to a node, the node serves only commands that directly follow `ASKING`. Both are sent as one, because
/// other tasks share the connection.
async fn ask_importing(node: &mut Node, command: &Cmd) -> RedisResult<Value> {
    let mut both = redis::pipe();
    both.cmd("ASKING").add_command(command.clone());
    let answers = node.connection.send_packed_commands(&both, 1, 1).await?;
    answers.into_iter().next().ok_or_else(|| (redis::ErrorKind::Client, "no answer came after ASKING").into())
}

/// The server of the kept connection, if the connection still stands.
async fn standing(kept: &mut Option<Kept>, patience: Duration) -> Option<Node> {
    let connection = kept.as_mut()?;
    if !connection.stands(patience).await {
        *kept = None;
        return None;
    }
    Some(connection.node.clone())
}

impl fmt::Debug for Link {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Link({})", self.address())
    }
}

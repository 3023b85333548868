//! The world: contexts, one store, and everything that is on its way.

use leasehold::machine::{Batch, Message, Mode, Parcel, Reply, SessionId, Ticket};

use crate::{
    budget::Budget, configuration::Configuration, context::Context, hashed::Hashed, ledger::Ledger, port,
    rules::Broken, statements::Reading,
};

/// When the model begins, in ms on every monotonic clock.
const START_MS: u64 = 1_000;

/// A state of the world.
#[derive(Clone, Debug, PartialEq, Hash)]
pub struct State {
    /// True time, in ms.
    pub now_ms: u64,
    /// The contexts.
    pub contexts: Vec<Hashed<Context>>,
    /// The store, and what is known of its past.
    pub ledger: Hashed<Ledger>,
    /// Transactions on their way, in the order of their senders and numbers.
    pub transactions: Vec<Hashed<Transaction>>,
    /// Signals on their way. Their order says nothing: any may arrive first, or never.
    pub signals: Vec<Signal>,
    /// Fenced writes on their way.
    pub writes: Vec<Write>,
    /// Leases that were left, for somebody to take over.
    pub parcels: Vec<Parcel>,
    /// What may still happen.
    pub budget: Budget,
    /// The rules that were broken.
    pub broken: Broken,
}

/// A transaction on its way.
#[derive(Clone, Debug, PartialEq, Hash)]
pub struct Transaction {
    /// Who sent it.
    pub who: usize,
    /// Its number there.
    pub id: u64,
    /// What it carries.
    pub batch: Batch,
    /// When it was sent by its sender's clocks, if it is sure of its session.
    pub sure_since: (u64, i64),
    /// What it was answered, once it was applied.
    pub reply: Option<Reply>,
    /// Whether somebody hears the answer.
    pub heard: bool,
    /// What it has read, if the store's transactions are several statements, and this one has begun and not committed.
    pub reading: Option<Reading>,
    /// It does nothing but delete the row of this session, blindly.
    pub abandons: Option<SessionId>,
}

/// A signal on its way.
#[derive(Clone, Debug, PartialEq, Hash)]
pub struct Signal {
    /// To whom.
    pub to: usize,
    /// What it says.
    pub message: Message,
}

/// A fenced write on its way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Write {
    /// Who writes.
    pub who: usize,
    /// For which of its turns.
    pub turn: u64,
    /// Under which grant of the history.
    pub grant: usize,
    /// As its context knows it.
    pub ticket: Ticket,
    /// The grant for which a broken store's fence has let it through already.
    pub let_through: Option<usize>,
    /// How the guard held the grant then.
    pub mode: Mode,
    /// Whether a later guard of the same context has held that grant, and either of the two alone.
    pub overtaken: bool,
}

impl State {
    /// Where everything begins.
    pub fn new(configuration: &Configuration) -> Self {
        let context =
            |(who, users): (usize, &crate::Users)| Hashed::new(Context::new(configuration.machine(who), users.clone()));
        Self {
            now_ms: START_MS,
            contexts: configuration.users.iter().enumerate().map(context).collect(),
            ledger: Hashed::new(Ledger::default()),
            transactions: Vec::new(),
            signals: Vec::new(),
            writes: Vec::new(),
            parcels: Vec::new(),
            budget: configuration.budget,
            broken: Broken::default(),
        }
    }

    /// Both clocks of a context.
    pub fn clocks(&self, who: usize) -> (u64, i64) {
        let context = &self.contexts[who];
        let elapsed = i64::try_from(self.now_ms).unwrap_or(i64::MAX);
        (context.own_ms(self.now_ms), elapsed + context.wall_ahead_ms)
    }

    /// Whether a guard is valid by its context's own clocks.
    pub fn believes(&self, who: usize, turn: u64) -> bool {
        let (own_ms, wall_ms) = self.clocks(who);
        let context = &self.contexts[who];
        let now = port::now(own_ms, wall_ms);
        context.ticket(turn).is_some_and(|ticket| port::remaining_ms(&context.machine, ticket, now) > 0)
    }

    /// Whether the beacon of a session stands.
    pub fn stands(&self, session: SessionId) -> bool {
        self.contexts[port::number_of(session)].standing == Some(session)
    }

    /// A context sees that the beacon of a session that it watches is gone, unless that is not true.
    pub fn sees_gone(&mut self, who: usize, watch: u64) {
        let watched = self.contexts[who].watches.iter().find(|(id, _)| *id == watch).map(|(_, session)| *session);
        if let Some(session) = watched.filter(|session| !self.stands(*session)) {
            self.ledger.change().evidence.sees_gone(who, session);
        }
    }

    /// The next moment that some context wants to be woken at.
    pub fn next_timer(&self) -> Option<u64> {
        self.contexts.iter().filter_map(|context| context.wakes_at()).filter(|at| *at > self.now_ms).min()
    }

    /// Whether time cannot pass without keeping somebody waiting.
    pub fn is_busy(&self) -> bool {
        let due =
            |context: &Hashed<Context>| context.is_due(self.now_ms) || (context.runs() && context.rising.is_some());
        let awaited = |sent: &Hashed<Transaction>| sent.heard && self.contexts[sent.who].runs();
        self.contexts.iter().any(due) || self.transactions.iter().any(awaited)
    }

    /// Whether something that a context sends is on its way, waits for its beacon, or was lost.
    pub fn is_under_way(&self, who: usize) -> bool {
        let context = &self.contexts[who];
        context.rising.is_some() || context.waits_in_vain || self.transactions.iter().any(|sent| sent.who == who)
    }

    /// Puts a transaction where it belongs.
    pub fn send(&mut self, transaction: Transaction) {
        let name = (transaction.who, transaction.id);
        let at = self.transactions.partition_point(|sent| (sent.who, sent.id) < name);
        self.transactions.insert(at, Hashed::new(transaction));
    }

    /// Puts the blind deletion of a session behind all that its context sent.
    pub fn abandon(&mut self, who: usize, session: SessionId) {
        let at = self.transactions.partition_point(|sent| sent.who <= who);
        let last = self.transactions[..at].last().filter(|sent| sent.who == who);
        let id = last.map_or(0, |sent| sent.id);
        let batch = Batch::new(session, Vec::new());
        let abandons = Some(session);
        let transaction =
            Transaction { who, id, batch, sure_since: (0, 0), reply: None, heard: false, reading: None, abandons };
        self.transactions.insert(at, Hashed::new(transaction));
    }

    /// Puts a signal where it belongs; one that is on its way already is not sent twice.
    pub fn signal(&mut self, to: usize, message: Message) {
        let signal = Signal { to, message };
        let name = crate::hashed::fingerprint(&signal);
        if let Err(at) = self.signals.binary_search_by_key(&name, crate::hashed::fingerprint) {
            self.signals.insert(at, signal);
        }
    }
}

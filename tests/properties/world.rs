//! A store of a few keys, the contexts that use it, and all that ever happened there.

use std::collections::BTreeMap;

use leasehold::machine::{
    Acquire, Action, Answer, Batch, Beat, Ending, Grant, Key, Mode, Monotonic, Operation, Record, Reply, RequestId,
    SessionId, SessionStep, StoreNow, Token, Wall, Way,
};

use crate::ghost::Ghost;
use crate::history::{Change, KEYS, Life, Passing, Pick, Step, Verb, WayWish, Wish};
use crate::shop::{Kind, Shop, View};
use crate::{extras, partial, rules};

/// A grant as somebody may name it.
#[derive(Clone, Copy, Debug)]
struct Name {
    holder: SessionId,
    token: Token,
    request: RequestId,
}

/// One context: the id that it uses, and how far its numbers got.
#[derive(Clone, Copy, Debug)]
struct Context {
    session: SessionId,
    is_open: bool,
}

pub(crate) struct World {
    pub(crate) shop: Shop,
    pub(crate) kind: Kind,
    pub(crate) view: View,
    pub(crate) keys: Vec<Key>,
    pub(crate) ghost: Ghost,
    /// A newer version of the same format wrote here.
    pub(crate) extras: bool,
    trusted: bool,
    pub(crate) monotonic_ms: u64,
    pub(crate) wall_ms: u64,
    contexts: BTreeMap<u8, Context>,
    names: Vec<(Key, Name)>,
    asks: Vec<(Key, SessionId, Acquire)>,
    /// Those of several keys are asked for together only.
    parts: Vec<(Key, SessionId, Acquire)>,
    /// Detached leases: as whoever finds one resumes it.
    parcels: Vec<(Key, Way)>,
    past: Vec<(SessionId, Operation)>,
    counter: u64,
}

impl World {
    pub(crate) fn new(kind: Kind, trusted: bool) -> Self {
        Self {
            shop: Shop::new(kind),
            kind,
            view: View::default(),
            keys: KEYS.iter().map(|name| Key::new(name).unwrap()).collect(),
            ghost: Ghost::default(),
            extras: false,
            trusted,
            monotonic_ms: 5_000,
            wall_ms: 1_790_000_000_000,
            contexts: BTreeMap::new(),
            names: Vec::new(),
            asks: Vec::new(),
            parts: Vec::new(),
            parcels: Vec::new(),
            past: Vec::new(),
            counter: 0,
        }
    }

    /// Somebody put this text under a key.
    pub(crate) fn plant(&mut self, key: &Key, text: &str) {
        let mut texts = self.shop.texts.clone();
        texts.insert(leasehold::machine::Row::Record(key.clone()), text.to_owned());
        self.shop.rewrite(texts);
        self.view = self.shop.view();
    }

    pub(crate) fn now(&self) -> StoreNow {
        let trusted = self.trusted.then_some(Monotonic::from_ms(self.monotonic_ms));
        StoreNow { wall: Wall::from_ms(self.wall_ms), trusted }
    }

    /// Lets one step happen, and holds it against the rules.
    pub(crate) fn step(&mut self, step: &Step) {
        self.pass(step.pass);
        if step.newer {
            self.extras = true;
            let texts = self.shop.texts.clone();
            let newer = extras::added_everywhere(&texts, || self.count());
            self.shop.rewrite(newer);
            self.view = self.shop.view();
        }
        if let Verb::Abandon = step.verb {
            return self.abandon(step.who);
        }
        if let Some(batch) = self.batch(step) {
            self.run(&batch);
        }
    }

    /// Several steps of one context as one transaction, held against the contract of stores alone.
    pub(crate) fn rehearse(&mut self, steps: &[Step]) {
        let mut whole: Option<Batch> = None;
        for step in steps {
            let Some(batch) = self.batch(&Step { who: steps[0].who, ..step.clone() }) else { continue };
            match &mut whole {
                None => whole = Some(batch),
                Some(whole) => {
                    whole.ends.extend(batch.ends);
                    whole.operations.extend(batch.operations);
                    whole.forgets.extend(batch.forgets);
                }
            }
        }
        if let Some(batch) = whole {
            partial::holds(&self.shop.texts, &batch, self.now());
        }
    }

    pub(crate) fn run(&mut self, batch: &Batch) -> Reply {
        let (before, now) = (self.shop.texts.clone(), self.now());
        partial::holds(&before, batch, now);
        let reply = self.shop.transact(batch, now);
        let old = std::mem::replace(&mut self.view, self.shop.view());
        if self.extras {
            extras::survive_in_rows(&before, &self.shop.texts);
        }
        rules::hold(self, batch, &reply, &old, &before);
        self.remember(&old);
        reply
    }

    fn abandon(&mut self, who: u8) {
        let context = self.context(who);
        self.contexts.remove(&who);
        let old = self.view.clone();
        self.shop.abandon(context.session);
        self.view = self.shop.view();
        assert_eq!(old.records, self.view.records, "who goes blindly touches no key");
        self.ghost.rows.end(context.session);
        self.ghost.rows.stand_in(&self.view);
    }

    fn pass(&mut self, pass: Passing) {
        match pass {
            Passing::Both(ms) => {
                self.monotonic_ms += u64::from(ms);
                self.wall_ms = self.wall_ms.saturating_add(ms.into());
            }
            Passing::Wall(ms) => self.wall_ms = self.wall_ms.saturating_add_signed(ms),
        }
    }

    fn count(&mut self) -> u64 {
        self.counter += 1;
        self.counter
    }

    /// An id that was never used. A later one is not always a larger one.
    fn fresh_id(&mut self) -> SessionId {
        SessionId(u128::from(self.count()).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835))
    }

    fn context(&mut self, who: u8) -> Context {
        if let Some(context) = self.contexts.get(&who) {
            return *context;
        }
        let context = Context { session: self.fresh_id(), is_open: false };
        self.contexts.insert(who, context);
        context
    }

    fn beat(&mut self, life: Life, floor: u64) -> Beat {
        Beat { beat: self.count(), beacon: life.beacon, lease_ms: life.lease_ms.into(), floor }
    }

    fn open(&mut self, who: u8, life: Life) -> Batch {
        let earlier = self.context(who);
        self.contexts.remove(&who);
        let session = self.context(who).session;
        self.contexts.insert(who, Context { session, is_open: true });
        let beat = self.beat(life, 0);
        let instance = if beat.beat.is_multiple_of(3) { "twin".into() } else { String::new() };
        let mut batch = Batch::new(session, Vec::new());
        batch.step = SessionStep::Open { beat, instance };
        if earlier.is_open {
            batch.ends.push(Ending { session: earlier.session, beat: None });
        }
        batch
    }

    /// What a step means here and now.
    pub(crate) fn batch(&mut self, step: &Step) -> Option<Batch> {
        let key = self.keys[usize::from(step.key)].clone();
        let me = self.context(step.who);
        let mut batch = Batch::new(me.session, Vec::new());
        match &step.verb {
            Verb::Open(life) => return Some(self.open(step.who, *life)),
            Verb::Beat { late, life, raises } => {
                let floor = if *raises { self.counter } else { 0 };
                let mut beat = self.beat(*life, floor);
                beat.beat = if *late { beat.beat / 2 } else { beat.beat };
                batch.step = SessionStep::Beat(beat);
            }
            Verb::Close => {
                self.contexts.remove(&step.who);
                batch.step = SessionStep::Close;
            }
            Verb::EndRow { pick, stale } => {
                let rows: Vec<_> = self.view.sessions.iter().collect();
                let (session, row) = picked(&rows, *pick)?;
                let beat = Some(row.beat.wrapping_sub((*stale).into()));
                batch.ends.push(Ending { session: **session, beat });
            }
            Verb::Forget => batch.forgets.push(key),
            Verb::Abandon => return None,
            verb => {
                let asks = matches!(verb, Verb::Ask(_) | Verb::AskAll(_));
                if asks && step.opens && !me.is_open {
                    batch = self.open(step.who, Life { beacon: true, lease_ms: 300 });
                }
                let (session, operation) = self.operation(batch.session, &key, verb)?;
                if session != batch.session {
                    batch = Batch::new(session, Vec::new());
                }
                self.past.push((session, operation.clone()));
                batch.operations.push(operation);
            }
        }
        Some(batch)
    }

    fn operation(&mut self, me: SessionId, key: &Key, verb: &Verb) -> Option<(SessionId, Operation)> {
        let by = |session, action| Some((session, Operation { key: key.clone(), action }));
        match verb {
            Verb::Ask(wish) => {
                let ask = self.ask(key, me, wish);
                self.asks.push((key.clone(), me, ask.clone()));
                by(me, Action::Acquire(ask))
            }
            Verb::AskAgain { pick, change } => self.ask_again(*pick, *change),
            Verb::AskAll(wishes) => self.ask_all(me, wishes),
            Verb::Late { pick } => picked(&self.past, *pick).cloned(),
            Verb::Verify { pick, refill } => {
                let Name { holder, token, request } = self.name(key, me, *pick);
                by(holder, Action::Verify { token, request, refill: *refill })
            }
            Verb::Downgrade(pick) => {
                let Name { holder, token, request } = self.name(key, me, *pick);
                by(holder, Action::Downgrade { token, request })
            }
            Verb::Detach { pick, lease_ms } => {
                let Name { holder, token, request } = self.name(key, me, *pick);
                let to = self.fresh_id();
                self.parcels.push((key.clone(), Way::Resume { from: to, origin: holder, token, request }));
                by(holder, Action::Detach { token, request, to, lease_ms: (*lease_ms).into() })
            }
            Verb::Release { pick, foreign_request } => {
                let Name { holder, token, request } = self.name(key, me, *pick);
                let request = if *foreign_request { RequestId(self.counter / 2) } else { request };
                by(holder, Action::Release { token, request })
            }
            Verb::Withdraw { pick } => self.withdrawal(*pick),
            Verb::End { pick, waiter, stale } => self.ending(key, me, (*pick, *waiter, *stale)),
            Verb::Fence { pick, shared } => {
                let Name { holder, token, request } = self.name(key, me, *pick);
                let mode = if *shared { Mode::Shared } else { Mode::Exclusive };
                by(holder, Action::Fence { token, request, upgrade: None, mode })
            }
            Verb::Look => by(me, Action::Look),
            Verb::Inspect => by(me, Action::Inspect),
            Verb::Open(_) | Verb::Beat { .. } | Verb::Close | Verb::Abandon | Verb::EndRow { .. } | Verb::Forget => {
                None
            }
        }
    }

    fn withdrawal(&self, pick: u8) -> Option<(SessionId, Operation)> {
        let asks = if pick.is_multiple_of(4) { &self.parts } else { &self.asks };
        let (key, session, ask) = picked(asks, pick)?.clone();
        Some((session, Operation { key, action: Action::Withdraw { request: ask.request } }))
    }

    fn ending(
        &self,
        key: &Key,
        me: SessionId,
        (pick, waiter, stale): (u8, bool, bool),
    ) -> Option<(SessionId, Operation)> {
        let record = self.record(key)?;
        let grants = record.grants.iter().map(|grant| grant.holder);
        let waiters = record.queue.iter().map(|waiter| waiter.holder);
        let holders: Vec<_> = if waiter { waiters.collect() } else { grants.collect() };
        let target = *picked(&holders, pick)?;
        let beat = self.view.sessions.get(&target).map_or(0, |row| row.beat);
        Some((
            me,
            Operation { key: key.clone(), action: Action::End { target, beat: beat.wrapping_sub(stale.into()) } },
        ))
    }

    fn record(&self, key: &Key) -> Option<&Record> {
        self.view.records.get(key)?.as_ref()
    }

    fn ask(&mut self, key: &Key, me: SessionId, wish: &Wish) -> Acquire {
        let request = RequestId(self.count());
        let attempt = self.count();
        let way = match wish.way {
            WayWish::Plain => Way::Plain,
            WayWish::Steal => Way::Steal,
            WayWish::Upgrade(pick) => {
                let Name { token, request, .. } = self.name(key, me, pick);
                Way::Upgrade { token, request }
            }
            WayWish::Resume(pick) => {
                let left: Vec<_> = self.parcels.iter().filter(|(at, _)| at == key).map(|(_, way)| *way).collect();
                picked(&left, pick).copied().unwrap_or(Way::Plain)
            }
        };
        Acquire {
            mode: wish.mode,
            wait: wish.wait,
            priority: wish.priority,
            way,
            alone: wish.alone,
            info: format!("{attempt}\n\"\\"),
            ..Acquire::new(request, attempt)
        }
    }

    fn ask_again(&mut self, pick: u8, change: Change) -> Option<(SessionId, Operation)> {
        let (key, session, mut ask) = picked(&self.asks, pick)?.clone();
        if !matches!(change, Change::None) {
            ask.attempt = self.count();
        }
        match change {
            Change::None | Change::Attempt => {}
            Change::Wait(wait) => ask.wait = wait,
            Change::Priority(priority) => ask.priority = priority,
            Change::Steals if ask.way == Way::Plain && ask.mode == Mode::Exclusive => ask.way = Way::Steal,
            Change::Steals => {}
        }
        Some((session, Operation { key, action: Action::Acquire(ask) }))
    }

    /// As the door has it: plain tries, places of their own, each key once, and one attempt for all.
    fn ask_all(&mut self, me: SessionId, wishes: &[(u8, Wish)]) -> Option<(SessionId, Operation)> {
        let mut wishes: Vec<_> = wishes.to_vec();
        wishes.sort_by_key(|(key, _)| *key);
        wishes.dedup_by_key(|(key, _)| *key);
        let mut asks = Vec::new();
        for (key, wish) in wishes {
            let key = self.keys[usize::from(key)].clone();
            let wish = Wish { way: WayWish::Plain, wait: false, ..wish };
            asks.push((key.clone(), self.ask(&key, me, &wish)));
        }
        let attempt = self.count();
        asks.iter_mut().for_each(|(_, ask)| ask.attempt = attempt);
        let (first, _) = asks.first()?.clone();
        self.parts.extend(asks.iter().map(|(key, ask)| (key.clone(), me, ask.clone())));
        Some((me, Operation { key: first, action: Action::AcquireAll(asks) }))
    }

    fn name(&self, key: &Key, me: SessionId, pick: Pick) -> Name {
        let standing: Vec<Name> = self.record(key).map_or_else(Vec::new, names_in);
        let past: Vec<Name> = self.names.iter().filter(|(at, _)| at == key).map(|(_, name)| *name).collect();
        let none = Name { holder: me, token: Token::default(), request: RequestId(0) };
        match pick {
            Pick::Own(at) => picked(&standing, at).copied().unwrap_or(none),
            Pick::Standing(at) => Name { holder: me, ..picked(&standing, at).copied().unwrap_or(none) },
            Pick::Past(at) => picked(&past, at).copied().unwrap_or(none),
            Pick::Forged(number) => Name { token: token(number), ..none },
        }
    }

    fn remember(&mut self, before: &View) {
        for (key, record) in &self.view.records {
            let known = before.records.get(key).and_then(Option::as_ref).map_or_else(Vec::new, names_in);
            let is_known = |name: &Name| known.iter().any(|old| (old.token, old.holder) == (name.token, name.holder));
            let standing = record.as_ref().map_or_else(Vec::new, names_in);
            self.names.extend(standing.into_iter().filter(|name| !is_known(name)).map(|name| (key.clone(), name)));
        }
    }
}

fn names_in(record: &Record) -> Vec<Name> {
    let name = |grant: &Grant| Name { holder: grant.holder, token: grant.block.first, request: grant.request };
    record.grants.iter().map(name).collect()
}

fn picked<T>(from: &[T], pick: u8) -> Option<&T> {
    // The latest are the most telling.
    let back = usize::from(pick).checked_rem(from.len())?;
    from.iter().rev().nth(back)
}

/// The only answer of a batch with one operation.
pub(crate) fn only(reply: &Reply) -> Option<&Answer> {
    assert!(reply.answers.len() <= 1, "one operation, one answer: {:?}", reply.answers);
    reply.answers.first()
}

/// A token that nobody was granted: what is read can say anything.
pub(crate) fn token(number: u64) -> Token {
    let text = format!(
        "{{\"format\":1,\"last_token\":{number},\"revision\":0,\"grants\":[],\"queue\":[],\"last_exclusive\":0}}"
    );
    Record::decode(&text).unwrap().last_token
}

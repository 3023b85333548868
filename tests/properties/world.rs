//! A store of a few keys, the contexts that use it, and all that ever happened there.

use std::collections::BTreeMap;

use leasehold::machine::{
    Acquire, Action, Answer, Batch, Entry, Incarnation, Key, Monotonic, Operation, Record, Records, RequestId,
    StoreNow, Token, Wall, Way,
};

use crate::history::{Change, KEYS, Passing, Pick, Step, Stored, Verb, WayWish, Wish};
use crate::{extras, rules};

/// A grant as somebody may name it.
#[derive(Clone, Copy, Debug)]
struct Name {
    holder: Incarnation,
    token: Token,
    request: RequestId,
    beat: u64,
}

/// When entries run out by the store's own clock, kept apart from the code under test.
pub(crate) type Deadlines = BTreeMap<(Key, Incarnation, Entry), u64>;

pub(crate) struct World {
    pub(crate) records: Records,
    pub(crate) keys: Vec<Key>,
    pub(crate) trusted: bool,
    pub(crate) monotonic_ms: u64,
    pub(crate) wall_ms: u64,
    pub(crate) deadlines: Deadlines,
    /// A newer version of the same format wrote here.
    pub(crate) extras: bool,
    names: Vec<(Key, Name)>,
    asks: Vec<(Key, Incarnation, Acquire)>,
    /// Those of several keys are asked for together only.
    parts: Vec<(Key, Incarnation, Acquire)>,
    wholes: Vec<Operation>,
    counter: u64,
}

impl World {
    pub(crate) fn new(trusted: bool) -> Self {
        let keys: Vec<_> = (0..KEYS).map(|at| Key::new(&format!("key {at}")).unwrap()).collect();
        let mut records = Records::new();
        keys.iter().for_each(|key| records.load(key.clone(), None));
        Self {
            records,
            keys,
            trusted,
            monotonic_ms: 5_000,
            wall_ms: 1_790_000_000_000,
            deadlines: Deadlines::new(),
            extras: false,
            names: Vec::new(),
            asks: Vec::new(),
            parts: Vec::new(),
            wholes: Vec::new(),
            counter: 0,
        }
    }

    pub(crate) fn now(&self) -> StoreNow {
        let trusted = self.trusted.then_some(Monotonic::from_ms(self.monotonic_ms));
        StoreNow { wall: Wall::from_ms(self.wall_ms), trusted }
    }

    /// Lets one step happen, and holds it against the rules.
    pub(crate) fn step(&mut self, step: &Step) {
        self.pass(step.pass);
        if let Some(stored) = step.stored {
            self.store(stored);
        }
        let Some(operation) = self.operation(step) else { return };
        self.run(&operation);
    }

    pub(crate) fn run(&mut self, operation: &Operation) -> Answer {
        let before = self.records.clone();
        let now = self.now();
        let answers = Batch(vec![operation.clone()]).apply(&mut self.records, now);
        let [answer] = &answers[..] else { panic!("one operation, one answer: {answers:?}") };
        rules::hold(self, operation, answer, &before);
        self.remember(&before);
        answer.clone()
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

    /// Writes the records down and reads them again. A store's clock that is trusted is not written down.
    fn store(&mut self, stored: Stored) {
        self.extras |= stored == Stored::WithExtras;
        for key in self.keys.clone() {
            let Some(record) = self.records.peek(&key) else { continue };
            let text = record.encode();
            let again = Record::decode(&text).unwrap();
            assert_eq!(again.encode(), text);
            // Only a trusted store keeps more than it writes down: when entries run out.
            assert!(self.trusted || again == *record, "{text}");
            let text = if stored == Stored::WithExtras { extras::added(&text, || self.count()) } else { text };
            self.records.load(key, Some(&text));
        }
        self.deadlines.clear();
    }

    fn operation(&mut self, step: &Step) -> Option<Operation> {
        let key = self.keys[usize::from(step.key)].clone();
        let me = Incarnation(u128::from(step.who) + 10);
        let by = |holder, action| Some(Operation { key: key.clone(), holder, action });
        match &step.verb {
            Verb::Ask(wish) => {
                let ask = self.ask(&key, me, wish);
                self.asks.push((key.clone(), me, ask.clone()));
                by(me, Action::Acquire(ask))
            }
            Verb::AskAgain { pick, change } => self.ask_again(*pick, *change),
            Verb::AskAll(wishes) => self.ask_all(me, wishes),
            Verb::AskAllAgain { pick } => picked(&self.wholes, *pick).cloned(),
            Verb::Renew { pick, late, lease_ms, refill } => {
                let name = self.name(&key, me, *pick);
                let (beacon, lease_ms) = (self.counter % 3, u64::from(*lease_ms));
                let beat = if *late { name.beat } else { self.count() };
                by(name.holder, Action::Renew { token: name.token, beat, beacon, lease_ms, refill: *refill })
            }
            Verb::Downgrade(pick) => {
                let name = self.name(&key, me, *pick);
                by(name.holder, Action::Downgrade { token: name.token })
            }
            Verb::Release { pick, foreign_request } => {
                let Name { holder, token, request, .. } = self.name(&key, me, *pick);
                let request = if *foreign_request { RequestId(self.counter / 2) } else { request };
                by(holder, Action::Release { token, request })
            }
            Verb::Withdraw { pick } => {
                let asks = if pick % 4 == 0 { &self.parts } else { &self.asks };
                let (key, holder, ask) = picked(asks, *pick)?.clone();
                Some(Operation { key, holder, action: Action::Withdraw { request: ask.request } })
            }
            Verb::Evict { pick, stale } => {
                let name = self.name(&key, me, *pick);
                let beat = name.beat.wrapping_sub((*stale).into());
                by(me, Action::Evict { target: name.holder, entry: Entry::Grant(name.token), beat })
            }
            Verb::EvictWaiter { pick, stale } => {
                let waiter = picked(&self.records.peek(&key)?.queue, *pick)?;
                let beat = waiter.beat.wrapping_sub((*stale).into());
                by(me, Action::Evict { target: waiter.holder, entry: Entry::Waiter(waiter.request), beat })
            }
            Verb::Fence(pick) => {
                let name = self.name(&key, me, *pick);
                by(name.holder, Action::Fence { token: name.token, request: name.request })
            }
            Verb::Inspect => by(me, Action::Inspect),
        }
    }

    fn count(&mut self) -> u64 {
        self.counter += 1;
        self.counter
    }

    fn ask(&mut self, key: &Key, me: Incarnation, wish: &Wish) -> Acquire {
        let request = RequestId(self.count());
        let beat = self.count();
        let way = match wish.way {
            WayWish::Plain => Way::Plain,
            WayWish::Steal => Way::Steal,
            WayWish::Upgrade(pick) => Way::Upgrade(self.name(key, me, pick).token),
            WayWish::Resume(pick) => {
                let name = self.name(key, me, pick);
                Way::Resume { from: name.holder, token: name.token, request: name.request }
            }
        };
        let lease_ms = u64::from(wish.lease_ms);

        Acquire {
            mode: wish.mode,
            wait: wish.wait,
            priority: wish.priority,
            way,
            alone: wish.alone,
            // An heir whose lease is over at once would be granted and gone in one operation.
            heir_ms: (lease_ms / 2).max(1),
            beacon: beat % 3,
            instance: if beat.is_multiple_of(5) { "twin".into() } else { String::new() },
            info: format!("{beat}\n\"\\"),
            ..Acquire::new(request, beat, lease_ms)
        }
    }

    fn ask_again(&mut self, pick: u8, change: Change) -> Option<Operation> {
        let (key, holder, mut ask) = picked(&self.asks, pick)?.clone();
        if !matches!(change, Change::None) {
            ask.beat = self.count();
        }
        match change {
            Change::None | Change::Beat => {}
            Change::Wait(wait) => ask.wait = wait,
            Change::Priority(priority) => ask.priority = priority,
            Change::Steals if ask.way == Way::Plain && ask.mode == leasehold::machine::Mode::Exclusive => {
                ask.way = Way::Steal;
            }
            Change::Steals => {}
        }
        Some(Operation { key, holder, action: Action::Acquire(ask) })
    }

    /// As the door has it: plain tries, places of their own, each key once.
    fn ask_all(&mut self, me: Incarnation, wishes: &[(u8, Wish)]) -> Option<Operation> {
        let mut wishes: Vec<_> = wishes.to_vec();
        wishes.sort_by_key(|(key, _)| *key);
        wishes.dedup_by_key(|(key, _)| *key);
        let mut asks = Vec::new();
        for (key, wish) in wishes {
            let key = self.keys[usize::from(key)].clone();
            let wish = Wish { way: WayWish::Plain, wait: false, ..wish };
            asks.push((key.clone(), self.ask(&key, me, &wish)));
        }
        let (first, _) = asks.first()?.clone();
        self.parts.extend(asks.iter().map(|(key, ask)| (key.clone(), me, ask.clone())));
        let whole = Operation { key: first, holder: me, action: Action::AcquireAll(asks) };
        self.wholes.push(whole.clone());
        Some(whole)
    }

    fn name(&self, key: &Key, me: Incarnation, pick: Pick) -> Name {
        let standing: Vec<Name> = self.records.peek(key).map_or_else(Vec::new, names_in);
        let past: Vec<Name> = self.names.iter().filter(|(at, _)| at == key).map(|(_, name)| *name).collect();
        let none = Name { holder: me, token: Token::default(), request: RequestId(0), beat: 0 };
        match pick {
            Pick::Own(at) => picked(&standing, at).copied().unwrap_or(none),
            Pick::Standing(at) => Name { holder: me, ..picked(&standing, at).copied().unwrap_or(none) },
            Pick::Past(at) => picked(&past, at).copied().unwrap_or(none),
            Pick::Forged(number) => Name { token: token(number), ..none },
        }
    }

    fn remember(&mut self, before: &Records) {
        for key in self.keys.clone() {
            let (Some(old), Some(record)) = (before.peek(&key), self.records.peek(&key)) else { continue };
            let known = names_in(old);
            let fresh = names_in(record).into_iter().filter(|name| known.iter().all(|old| old.token != name.token));
            self.names.extend(fresh.map(|name| (key.clone(), name)));
        }
    }
}

fn names_in(record: &Record) -> Vec<Name> {
    let name = |grant: &leasehold::machine::Grant| Name {
        holder: grant.holder,
        token: grant.block.first,
        request: grant.request,
        beat: grant.beat,
    };
    record.grants.iter().map(name).collect()
}

fn picked<T>(from: &[T], pick: u8) -> Option<&T> {
    // The latest are the most telling.
    let back = usize::from(pick).checked_rem(from.len())?;
    from.iter().rev().nth(back)
}

/// A token that nobody was granted: what is read can say anything.
pub(crate) fn token(number: u64) -> Token {
    let text = format!(
        "{{\"format\":1,\"last_token\":{number},\"revision\":0,\"grants\":[],\"queue\":[],\
         \"last_exclusive\":0,\"stolen\":[{number}]}}"
    );
    Record::decode(&text).unwrap().stolen[0]
}

//! Rule p at the store: what those who are gone left does not count, they get nothing any more, and their tombstones go
//! when nothing names them.

use alloc::{vec, vec::Vec};

use crate::machine::{
    Acquire, Action, Answer, Entry, FORMAT, Grant, Granted, Incarnation, Key, Operation, Outcome, Record, Records,
    RequestId, StoreNow, Token, TokenBlock, Tombstone, Wall, Way,
};

const A: Incarnation = Incarnation(0xa);
const B: Incarnation = Incarnation(0xb);
const C: Incarnation = Incarnation(0xc);

fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

fn tombstone(holder: Incarnation, keys: &[&str]) -> Tombstone {
    Tombstone { holder, keys: keys.iter().map(|name| key(name)).collect() }
}

fn ask(request: u64, wait: bool) -> Acquire {
    Acquire { wait, ..Acquire::new(RequestId(request), 1, 1_000) }
}

/// A store, one operation after the other.
#[derive(Clone, Default)]
struct Bench {
    records: Records,
}

impl Bench {
    /// A holds this key, and B waits for it.
    fn contended(name: &str) -> (Self, TokenBlock) {
        let mut bench = Self::default();
        let block = bench.hold(A, name);
        assert!(matches!(bench.acquire(B, name, true).outcome, Outcome::Waiting { .. }));
        (bench, block)
    }

    fn apply(&mut self, holder: Incarnation, name: &str, action: Action) -> Answer {
        let now = StoreNow { wall: Wall::from_ms(1_000), trusted: None };
        Operation { key: key(name), holder, action }.apply(&mut self.records, now)
    }

    fn acquire(&mut self, holder: Incarnation, name: &str, wait: bool) -> Answer {
        self.apply(holder, name, Action::Acquire(ask(1, wait)))
    }

    fn hold(&mut self, holder: Incarnation, name: &str) -> TokenBlock {
        match self.acquire(holder, name, false).outcome {
            Outcome::Granted(Granted { block, .. }) => block,
            other => panic!("{other:?}"),
        }
    }

    fn record(&self, name: &str) -> &Record {
        self.records.peek(&key(name)).unwrap()
    }

    fn holders(&self, name: &str) -> Vec<Incarnation> {
        self.record(name).grants.iter().map(|grant| grant.holder).collect()
    }

    fn waiters(&self, name: &str) -> Vec<Incarnation> {
        self.record(name).queue.iter().map(|waiter| waiter.holder).collect()
    }

    /// What is to be written of tombstones: whose, and which keys are left.
    fn changed(&mut self) -> Vec<(Incarnation, Option<Vec<Key>>)> {
        let changed = self.records.changed_tombstones().into_iter();
        changed
            .map(|(holder, text)| (holder, text.map(|text| Tombstone::decode(holder, &text).unwrap().keys)))
            .collect()
    }
}

fn left(names: &[&str]) -> Option<Vec<Key>> {
    Some(names.iter().map(|name| key(name)).collect())
}

/// All that somebody may do at a key and that changes it.
fn deeds() -> Vec<Action> {
    let (token, request) = (Token(9), RequestId(7));
    vec![
        Action::Acquire(ask(7, true)),
        Action::Acquire(ask(7, false)),
        Action::AcquireAll(vec![(key("k"), ask(7, false)), (key("l"), ask(8, false))]),
        Action::Renew { token, beat: 1, beacon: 0, lease_ms: 1_000, refill: false },
        Action::Downgrade { token },
        Action::Release { token, request },
        Action::Withdraw { request },
        Action::Evict { target: A, entry: Entry::Grant(token), beat: 9 },
    ]
}

#[test]
fn p_a_tombstone_is_read_as_it_was_written() {
    let written = tombstone(A, &["k", "k\u{1f98a}\"\\", "\u{1}"]);
    assert_eq!(Tombstone::decode(A, &written.encode()), Some(written));
    assert_eq!(Tombstone::decode(A, &tombstone(A, &[]).encode()), Some(tombstone(A, &[])));
}

#[test]
fn p_mutilated_text_is_refused_or_read_but_never_a_panic() {
    let text = tombstone(A, &["k", "l\"\\"]).encode();
    for at in (0..text.len()).filter(|at| text.is_char_boundary(*at)) {
        for patch in ["", "\"", "\\", "{", "]", "9", "99999999999999999999", "\\ud800", "null"] {
            let mutilated = [&text[..at], patch, text.get(at + 1..).unwrap_or_default()].concat();
            if let Some(read) = Tombstone::decode(A, &mutilated) {
                assert_eq!(Tombstone::decode(A, &read.encode()), Some(read), "{mutilated}");
            }
        }
    }
}

/// Who wrote it is gone, whatever it says.
#[test]
fn p_one_that_cannot_be_read_counts_and_is_left_alone() {
    let newer = tombstone(A, &["k"]).encode().replacen("\"format\":1", "\"format\":2", 1);
    assert_eq!(FORMAT, 1);
    for text in [newer.as_str(), "", "null", "{}", "{\"format\":1}", "{\"format\":1,\"keys\":[7]}"] {
        assert_eq!(Tombstone::decode(A, text), None, "{text}");
        let (mut bench, _) = Bench::contended("k");
        bench.records.load_tombstone(A, text);
        assert!(matches!(bench.acquire(C, "k", true).outcome, Outcome::Waiting { .. }));
        assert_eq!(bench.holders("k"), [B], "{text}");
        assert_eq!(bench.changed(), [], "{text}");
        assert_eq!(bench.acquire(A, "k", true).outcome, Outcome::Superseded, "{text}");
    }
}

#[test]
fn p_whatever_is_done_removes_what_the_gone_left_and_grants_to_the_next() {
    for deed in deeds() {
        let (mut bench, _) = Bench::contended("k");
        bench.records.entomb(tombstone(A, &["k"]));
        let answer = bench.apply(C, "k", deed.clone());
        assert_eq!(bench.holders("k"), [B], "{deed:?}");
        let [heir] = &answer.promoted[..] else { panic!("{deed:?}: {answer:?}") };
        assert_eq!((heir.holder, heir.request, &heir.key), (B, RequestId(1), &key("k")), "{deed:?}");
        assert_eq!(bench.changed(), [(A, None)], "{deed:?}");
    }
}

#[test]
fn p_who_only_looks_changes_nothing_and_does_not_see_the_gone() {
    let (mut bench, block) = Bench::contended("k");
    bench.acquire(C, "k", true);
    bench.records.entomb(tombstone(A, &["k"]));
    bench.records.entomb(tombstone(B, &["k"]));
    let before = bench.record("k").clone();
    let answer = bench.apply(C, "k", Action::Inspect);
    let Outcome::Status { grants, queue, .. } = answer.outcome else { panic!("{answer:?}") };
    assert_eq!((grants, queue.iter().map(|waiter| waiter.holder).collect::<Vec<_>>()), (Vec::<Grant>::new(), vec![C]));
    let fence = Action::Fence { token: block.first, request: RequestId(1) };
    assert!(matches!(bench.apply(A, "k", fence).outcome, Outcome::NotCurrent { .. }), "the gone write no more");
    assert_eq!((bench.record("k"), answer.promoted), (&before, Vec::new()));
    assert_eq!(bench.changed(), [], "both are named still");
}

#[test]
fn p_a_gone_waiter_is_passed_over() {
    let (mut bench, block) = Bench::contended("k");
    bench.acquire(C, "k", true);
    bench.records.entomb(tombstone(B, &["k"]));
    let answer = bench.apply(A, "k", Action::Release { token: block.first, request: RequestId(1) });
    assert_eq!(answer.promoted.iter().map(|heir| heir.holder).collect::<Vec<_>>(), [C]);
    assert_eq!((bench.holders("k"), bench.waiters("k")), (vec![C], vec![]));
}

#[test]
fn p_a_tombstone_goes_with_the_last_key_that_may_name_it() {
    let mut bench = Bench::default();
    bench.hold(A, "k");
    bench.hold(A, "l");
    bench.records.entomb(tombstone(A, &["k", "l", "m"]));
    assert_eq!(bench.changed(), [], "nothing was cleaned yet");
    bench.acquire(B, "k", false);
    assert_eq!(bench.changed(), [(A, left(&["l", "m"]))]);
    assert_eq!(bench.changed(), [], "told once");
    bench.apply(B, "l", Action::Inspect);
    assert_eq!(bench.changed(), [], "a look cleans nothing");
    bench.acquire(B, "l", false);
    assert_eq!(bench.changed(), [(A, left(&["m"]))]);
    // Nothing of A ever came to this key.
    bench.acquire(B, "m", false);
    assert_eq!(bench.changed(), [(A, None)]);
    bench.acquire(B, "m", false);
    assert_eq!(bench.changed(), []);
}

#[test]
fn p_one_without_keys_goes_at_once() {
    let mut bench = Bench::default();
    bench.records.load_tombstone(A, &tombstone(A, &[]).encode());
    bench.acquire(B, "k", false);
    assert_eq!(bench.changed(), [(A, None)]);
    assert_eq!(bench.changed(), []);
}

#[test]
fn p_a_record_that_cannot_be_read_keeps_the_tombstone() {
    let mut bench = Bench::default();
    bench.records.load(key("l"), Some("of another world"));
    bench.records.entomb(tombstone(A, &["k", "l"]));
    bench.acquire(B, "k", false);
    bench.acquire(B, "l", false);
    bench.records.sweep();
    assert_eq!(bench.changed(), [(A, left(&["l"]))]);
    bench.records.load(key("l"), None);
    bench.acquire(B, "l", false);
    assert_eq!(bench.changed(), [(A, None)]);
}

#[test]
fn p_who_sweeps_leaves_the_keys_where_somebody_waits() {
    let (mut bench, _) = Bench::contended("k");
    bench.hold(A, "l");
    bench.hold(C, "m");
    bench.acquire(A, "m", true);
    bench.records.entomb(tombstone(A, &["k", "l", "m"]));
    let before = bench.records.revisions();
    bench.records.sweep();
    let written: Vec<_> = bench.records.changed_since(&before).into_iter().map(|(key, _)| key).collect();
    assert_eq!(written, [key("l"), key("m")]);
    assert_eq!((bench.holders("k"), bench.waiters("k")), (vec![A], vec![B]), "B does it, and is granted by that");
    assert_eq!((bench.holders("l"), bench.holders("m"), bench.waiters("m")), (vec![], vec![C], vec![]));
    assert_eq!(bench.changed(), [(A, left(&["k"]))]);
}

#[test]
fn p_a_transaction_knows_whose_tombstones_it_must_read() {
    let mut whole = Bench::default();
    whole.hold(A, "k");
    let text = whole.record("k").encode();
    let mut records = Records::new();
    records.load(key("k"), Some(&text));
    assert!(records.name_others(B) && !records.name_others(A));
    records.load_tombstone(A, &tombstone(A, &["k", "l"]).encode());
    assert_eq!(records.unvisited(), [key("l")]);
    records.load(key("l"), None);
    assert_eq!(records.unvisited(), []);
}

#[test]
fn p_the_gone_get_nothing_any_more() {
    let (token, request) = (Token(9), RequestId(1));
    let steal = Acquire { way: Way::Steal, ..ask(2, true) };
    let resume = Acquire { way: Way::Resume { from: B, token, request }, ..ask(2, false) };
    for late in [ask(1, true), ask(1, false), ask(2, true), steal, resume] {
        let (mut bench, block) = Bench::contended("k");
        bench.acquire(B, "l", true);
        // B is an heir now, and C waits.
        bench.apply(A, "k", Action::Release { token: block.first, request });
        bench.acquire(C, "k", true);
        bench.records.entomb(tombstone(A, &["k", "l", "m"]));
        let both = vec![(key("k"), late.clone()), (key("l"), ask(3, false))];
        let before = (bench.record("k").clone(), bench.record("l").clone());
        assert_eq!(bench.apply(A, "k", Action::Acquire(late.clone())).outcome, Outcome::Superseded, "{late:?}");
        assert!(matches!(bench.apply(A, "k", Action::AcquireAll(both)).outcome, Outcome::BusyAll(_)), "{late:?}");
        assert_eq!((bench.record("k"), bench.record("l")), (&before.0, &before.1), "{late:?}");
        // Nor where nobody is in the way.
        let free = vec![(key("m"), ask(4, false)), (key("n"), ask(5, false))];
        assert_eq!(bench.apply(A, "m", Action::AcquireAll(free)).outcome, Outcome::Superseded);
        assert_eq!(bench.apply(A, "m", Action::Acquire(late.clone())).outcome, Outcome::Superseded, "{late:?}");
        assert_eq!((bench.holders("m"), bench.waiters("m"), bench.holders("n")), (vec![], vec![], vec![]));
    }
}

#[test]
fn p_what_the_gone_do_late_does_no_harm() {
    let (mut bench, block) = Bench::contended("k");
    bench.acquire(C, "k", true);
    bench.records.entomb(tombstone(A, &["k", "l"]));
    bench.apply(C, "k", Action::Withdraw { request: RequestId(99) });
    let (token, request) = (block.first, RequestId(1));
    let late = [
        Action::Renew { token, beat: 99, beacon: 0, lease_ms: 1_000, refill: true },
        Action::Downgrade { token },
        Action::Release { token, request },
        Action::Withdraw { request },
        Action::Fence { token, request },
    ];
    let before = bench.record("k").clone();
    assert_eq!(bench.holders("k"), [B]);
    for action in late {
        let answer = bench.apply(A, "k", action.clone());
        let stale = matches!(answer.outcome, Outcome::NotCurrent { .. } | Outcome::Withdrawn);
        assert!(stale && answer.promoted.is_empty(), "{action:?}: {answer:?}");
        assert_eq!(*bench.record("k"), before, "{action:?}");
    }
    // What it does late at a key of its own is the end of it there, and lets the next one in.
    let (mut bench, block) = Bench::contended("k");
    bench.records.entomb(tombstone(A, &["k"]));
    let renewal = Action::Renew { token: block.first, beat: 99, beacon: 0, lease_ms: 1_000, refill: false };
    let answer = bench.apply(A, "k", renewal);
    assert!(matches!(answer.outcome, Outcome::NotCurrent { .. }), "{answer:?}");
    assert_eq!((bench.holders("k"), answer.promoted.len()), (vec![B], 1));
}

/// A lease that was taken over is of who took it.
#[test]
fn p_what_was_taken_over_in_time_stays() {
    let mut bench = Bench::default();
    let block = bench.hold(A, "k");
    let way = Way::Resume { from: A, token: block.first, request: RequestId(1) };
    let resumed = bench.apply(B, "k", Action::Acquire(Acquire { way, ..ask(5, false) }));
    assert!(matches!(resumed.outcome, Outcome::Granted(_)));
    bench.records.entomb(tombstone(A, &["k"]));
    assert!(matches!(bench.acquire(C, "k", false).outcome, Outcome::Busy { .. }));
    assert_eq!(bench.holders("k"), [B]);
    // One that nobody took in time goes with who left it.
    let block = bench.hold(C, "l");
    bench.records.entomb(tombstone(C, &["l"]));
    let way = Way::Resume { from: C, token: block.first, request: RequestId(1) };
    let answer = bench.apply(B, "l", Action::Acquire(Acquire { way, ..ask(6, false) }));
    assert!(matches!(answer.outcome, Outcome::NotCurrent { .. }), "{answer:?}");
    assert!(bench.holders("l").is_empty());
}

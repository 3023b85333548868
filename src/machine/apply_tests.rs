//! What a store does, step by step.

use alloc::vec::Vec;

use super::{
    Acquire, Action, Answer, Body, Entry, Granted, Incarnation, Key, Message, Monotonic, Operation, Outcome, Record,
    Records, RequestId, StoreId, StoreNow, Token, TokenBlock, Unreadable, Wall,
};

const A: Incarnation = Incarnation(0xa);
const B: Incarnation = Incarnation(0xb);
const C: Incarnation = Incarnation(0xc);

/// One key of a store with a clock of its own.
struct Bench {
    records: Records,
    key: Key,
    now_ms: u64,
    trusted: bool,
    beat: u64,
}

impl Bench {
    fn new(trusted: bool) -> Self {
        Self { records: Records::new(), key: Key::new("k").unwrap(), now_ms: 1_000, trusted, beat: 0 }
    }

    fn apply(&mut self, holder: Incarnation, action: Action) -> Answer {
        let trusted = self.trusted.then_some(Monotonic::from_ms(self.now_ms));
        let now = StoreNow { wall: Wall::from_ms(self.now_ms), trusted };
        Operation { key: self.key.clone(), holder, action }.apply(&mut self.records, now)
    }

    fn acquire(&mut self, holder: Incarnation, request: u64, wait: bool, lease_ms: u64) -> Answer {
        self.beat += 1;
        let ask = Acquire { wait, heir_ms: lease_ms / 2, ..Acquire::new(RequestId(request), self.beat, lease_ms) };
        self.apply(holder, Action::Acquire(ask))
    }

    fn granted(&mut self, holder: Incarnation, request: u64, lease_ms: u64) -> TokenBlock {
        match self.acquire(holder, request, false, lease_ms).outcome {
            Outcome::Granted(granted) => granted.block,
            other => panic!("{other:?}"),
        }
    }

    fn refused(&mut self, holder: Incarnation, request: u64) -> bool {
        matches!(self.acquire(holder, request, false, 300).outcome, Outcome::Busy { .. })
    }

    fn release(&mut self, holder: Incarnation, request: u64, token: Token) -> Answer {
        self.apply(holder, Action::Release { token, request: RequestId(request) })
    }

    fn record(&self) -> &Record {
        self.records.peek(&self.key).unwrap()
    }
}

/// M6: `test_lease_locks`.
#[test]
fn m6_leases_run_out_by_a_trusted_clock_and_generations_grow() {
    let mut bench = Bench::new(true);
    let first = bench.granted(A, 1, 0);
    assert_eq!(bench.granted(A, 1, 300), first, "the same holder extends, and its generation stays");
    assert!(bench.refused(B, 1) && bench.refused(B, 2));
    bench.now_ms += 50;
    assert!(bench.refused(B, 3), "the lease is not over yet");
    bench.now_ms += 250;
    let second = bench.granted(B, 4, 0);
    assert!(second.first > first.last);
    let mut last = second;
    for turn in 0..4 {
        bench.now_ms += 1;
        let holder = if turn % 2 == 0 { A } else { B };
        let next = bench.granted(holder, 10 + turn, 0);
        assert!(next.first > last.last, "leases of 0 ms alternate");
        last = next;
    }
    bench.now_ms += 1;
    let long = bench.granted(A, 20, 10_000);
    for _ in 0..3 {
        bench.now_ms += 9_000;
        assert!(bench.refused(B, 30), "a long lease blocks");
        assert_eq!(bench.granted(A, 20, 10_000), long, "and its holder keeps extending");
    }
}

#[test]
fn a_wall_clock_never_ends_a_lease() {
    let mut bench = Bench::new(false);
    bench.granted(A, 1, 300);
    bench.now_ms += 1_000_000;
    assert!(bench.refused(B, 1));
}

#[test]
fn who_releases_grants_to_the_next_in_line() {
    let mut bench = Bench::new(false);
    let block = bench.granted(A, 1, 1_000);
    assert!(matches!(bench.acquire(B, 1, true, 1_000).outcome, Outcome::Waiting { .. }));
    assert!(matches!(bench.acquire(C, 1, true, 1_000).outcome, Outcome::Waiting { .. }));
    let answer = bench.release(A, 1, block.first);
    assert_eq!(answer.outcome, Outcome::Released);
    let [heir] = &answer.promoted[..] else { panic!("{answer:?}") };
    assert_eq!((heir.holder, heir.lease_ms), (B, 500), "an heir's first lease is short");
    assert!(heir.block.first > block.last);
    let Outcome::Granted(Granted { block: adopted, lease_ms, contended, .. }) =
        bench.acquire(B, 1, true, 1_000).outcome
    else {
        panic!("adopting is asking again");
    };
    assert_eq!((adopted, lease_ms, contended), (heir.block, 1_000, true));
}

#[test]
fn a_stale_release_renewal_or_withdrawal_changes_nothing() {
    let mut bench = Bench::new(false);
    let old = bench.granted(A, 1, 1_000);
    bench.release(A, 1, old.first);
    bench.granted(B, 1, 1_000);
    let before = bench.record().clone();
    let renew = Action::Renew { token: old.first, beat: 99, beacon: 0, lease_ms: 1_000, refill: false };
    assert!(matches!(bench.release(A, 1, old.first).outcome, Outcome::NotCurrent { .. }));
    assert!(matches!(bench.apply(A, renew).outcome, Outcome::NotCurrent { .. }));
    bench.apply(A, Action::Withdraw { request: RequestId(1) });
    assert_eq!(*bench.record(), before);
}

#[test]
fn an_eviction_needs_the_very_beat_that_was_seen() {
    let mut bench = Bench::new(false);
    let block = bench.granted(A, 1, 1_000);
    let beat = bench.record().grants[0].beat;
    let evict = Action::Evict { target: A, entry: Entry::Grant(block.first), beat };
    bench.apply(A, Action::Renew { token: block.first, beat: beat + 1, beacon: 0, lease_ms: 1_000, refill: false });
    assert_eq!(bench.apply(B, evict.clone()).outcome, Outcome::Moved);
    let evict = Action::Evict { target: A, entry: Entry::Grant(block.first), beat: beat + 1 };
    assert_eq!(bench.apply(B, evict).outcome, Outcome::Evicted);
    assert!(bench.record().grants.is_empty());
}

#[test]
fn a_request_names_its_attempt_and_a_later_one_replaces_it() {
    let mut bench = Bench::new(false);
    let block = bench.granted(A, 1, 1_000);
    bench.acquire(B, 1, true, 1_000);
    bench.acquire(C, 1, true, 1_000);
    bench.acquire(B, 2, true, 1_000);
    assert_eq!(bench.acquire(B, 1, true, 1_000).outcome, Outcome::Superseded, "a late duplicate");
    let order: Vec<_> = bench.record().queue.iter().map(|waiter| (waiter.holder, waiter.request.0)).collect();
    assert_eq!(order, [(C, 1), (B, 2)], "an abandoned place is lost");
    bench.apply(C, Action::Withdraw { request: RequestId(1) });
    let answer = bench.release(A, 1, block.first);
    assert_eq!((answer.promoted[0].holder, answer.promoted[0].request.0), (B, 2));
}

/// One of the keys was stolen meanwhile.
#[test]
fn an_older_attempt_at_several_keys_leaves_what_a_newer_one_got() {
    let both = |beat| {
        let ask = |name, request| (Key::new(name).unwrap(), Acquire::new(RequestId(request), beat, 1_000));
        Action::AcquireAll([ask("k", 1), ask("l", 2)].into())
    };
    let mut bench = Bench::new(false);
    assert!(matches!(bench.apply(A, both(13)).outcome, Outcome::GrantedAll(_)));
    let steal = Acquire { way: super::Way::Steal, ..Acquire::new(RequestId(1), 1, 1_000) };
    let (key, now) = (Key::new("l").unwrap(), StoreNow { wall: Wall::from_ms(1_000), trusted: None });
    Operation { key, holder: B, action: Action::Acquire(steal) }.apply(&mut bench.records, now);
    let before = bench.record().clone();
    assert!(matches!(bench.apply(A, both(12)).outcome, Outcome::BusyAll(_)));
    assert_eq!(*bench.record(), before, "it comes late");
    assert!(matches!(bench.apply(A, both(14)).outcome, Outcome::BusyAll(_)));
    assert!(bench.record().grants.is_empty(), "what an attempt without an answer left is given back");
}

#[test]
fn an_older_beat_is_ignored() {
    let mut bench = Bench::new(false);
    let block = bench.granted(A, 1, 1_000);
    let renew = |beat, lease_ms| Action::Renew { token: block.first, beat, beacon: beat, lease_ms, refill: false };
    bench.apply(A, renew(9, 2_000));
    bench.apply(A, renew(8, 500));
    let grant = &bench.record().grants[0];
    assert_eq!((grant.beat, grant.beacon, grant.lease_ms), (9, 9, 2_000));
}

#[test]
fn tokens_grow_over_a_wiped_store_and_refuse_at_the_end() {
    let mut bench = Bench::new(false);
    let before = bench.granted(A, 1, 1_000);
    bench.records = Records::new();
    bench.now_ms += 1;
    assert!(bench.granted(A, 2, 1_000).first > before.last);
    bench.records = Records::new();
    bench.now_ms = u64::MAX;
    let capped = bench.granted(A, 3, 1_000);
    assert_eq!(capped.first.as_u64(), 1 << 52, "one wrong clock cannot use up a key");
    bench.release(A, 3, capped.first);
    bench.records.record(&bench.key.clone()).unwrap().last_token = Token((1 << 53) - 64);
    assert_eq!(bench.acquire(A, 4, true, 1_000).outcome, Outcome::Exhausted);
    assert!(bench.record().queue.is_empty());
}

#[test]
fn unknown_fields_survive_and_a_newer_format_is_refused() {
    let mut bench = Bench::new(false);
    let block = bench.granted(A, 1, 1_000);
    let text = bench.record().encode().replacen("\"beat\"", "\"mood\":[\"calm\"],\"beat\"", 1);
    let text = text.replacen("{", "{\"later\":{\"a\":1},", 1);
    let key = bench.key.clone();
    bench.records.load(key.clone(), Some(&text));
    bench.apply(A, Action::Renew { token: block.first, beat: 50, beacon: 0, lease_ms: 1_000, refill: false });
    let again = bench.record().encode();
    assert!(again.contains("\"mood\":[\"calm\"]") && again.contains("\"later\":{\"a\":1}"), "{again}");
    let newer = again.replacen("\"format\":1", "\"format\":2", 1);
    bench.records.load(key, Some(&newer));
    let unreadable = Unreadable::FormatTooNew { found: 2, known: 1 };
    assert_eq!(bench.acquire(A, 9, true, 1_000).outcome, Outcome::Unreadable(unreadable));
}

#[test]
fn what_is_written_is_read_again() {
    let mut bench = Bench::new(false);
    bench.granted(A, 1, 1_000);
    bench.acquire(B, 1, true, 1_000);
    let record = bench.record().clone();
    assert_eq!(Record::decode(&record.encode()), Ok(record));
    for text in ["", "{}", "null", "{\"format\":1}", "{\"format\":0,\"last_token\":1}"] {
        assert_eq!(Record::decode(text), Err(Unreadable::Corrupt), "{text}");
    }
}

/// Anybody of the origin can write to the store and post on the channel.
#[test]
fn mutilated_text_is_refused_or_read_but_never_a_panic() {
    let mut bench = Bench::new(false);
    bench.granted(A, 1, 1_000);
    bench.acquire(B, 1, true, 1_000);
    let block = TokenBlock { first: Token(64), last: Token(127) };
    let body = Body::Granted { holder: A, request: RequestId(1), block, lease_ms: 1_000, previous: Token(0) };
    let message = Message { store: StoreId(9), key: Key::new("k\u{1f98a}\"").unwrap(), body };
    assert_eq!(Message::decode(&message.encode()), Some(message.clone()));
    for text in [bench.record().encode(), message.encode()] {
        for at in (0..text.len()).filter(|at| text.is_char_boundary(*at)) {
            for patch in ["", "\"", "\\", "{", "]", "9", "99999999999999999999", "\\ud800", "null"] {
                let mutilated = [&text[..at], patch, text.get(at + 1..).unwrap_or_default()].concat();
                let _ = Message::decode(&mutilated);
                if let Ok(record) = Record::decode(&mutilated) {
                    assert_eq!(Record::decode(&record.encode()), Ok(record), "{mutilated}");
                }
            }
        }
    }
}

#[test]
fn tokens_out_of_range_are_none() {
    let block = TokenBlock { first: Token(64), last: Token(127) };
    let body = Body::Granted { holder: A, request: RequestId(1), block, lease_ms: 1_000, previous: Token(0) };
    let text = Message { store: StoreId(9), key: Key::new("k").unwrap(), body }.encode();
    for (good, bad) in [("127", "9007199254740992"), ("127", "18446744073709551615"), ("127", "63"), ("64", "-1")] {
        assert_eq!(Message::decode(&text.replacen(good, bad, 1)), None, "{bad}");
    }
}

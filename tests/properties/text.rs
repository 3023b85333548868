//! Whatever stands in a store or comes over a channel is read or refused, and what was read can be worked with.
//!
//! `BOLERO_RANDOM_ITERATIONS=1000000 BOLERO_RANDOM_TEST_TIME_MS=600000` look longer.

use std::time::Duration;

use leasehold::machine::{
    Acquire, Action, Body, Entry, Incarnation, Key, Message, Mode, Monotonic, Operation, Outcome, Record, Records,
    RequestId, StoreId, StoreNow, Token, Unreadable, Wall, Way,
};

/// Of so many actions, one is tried on each text.
const SAMPLE: usize = 5;

/// How a text is spoilt: where, how, and with what.
type Edit = (u16, u8, u8);

const PATCHES: [&str; 24] = [
    "",
    "\"",
    "\\",
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "0",
    "9",
    "-1",
    "+7",
    "1e9",
    "null",
    "true",
    "\\ud800",
    "\u{1f98a}",
    " \n",
    "{\"a\":[]}",
    "[[[[[[[[",
    "\"exclusive\"",
    "\"shared\"",
    "\"format\":1,",
];

const NUMBERS: [&str; 14] = [
    "0",
    "1",
    "2",
    "63",
    "64",
    "127",
    "2147483647",
    "-2147483648",
    "4503599627370496",
    "9007199254740928",
    "9007199254740991",
    "9007199254740992",
    "18446744073709551615",
    "18446744073709551616",
];

#[test]
fn any_bytes_are_read_or_refused() {
    let limits = bolero::check!().with_iterations(20_000).with_test_time(Duration::from_secs(2));
    limits.for_each(|bytes: &[u8]| read(&String::from_utf8_lossy(bytes)));
}

#[test]
fn spoilt_records_and_messages_are_read_or_refused_and_can_be_worked_with() {
    let texts: Vec<String> = records().into_iter().chain(messages().iter().map(Message::encode)).collect();
    texts.iter().for_each(|text| read(text));
    let limits = bolero::check!().with_type::<(u8, Vec<Edit>)>().with_iterations(20_000);
    limits.with_test_time(Duration::from_secs(3)).for_each(|(which, edits)| {
        let text = texts[usize::from(*which) % texts.len()].clone();
        read(&edits.iter().take(6).fold(text, |text, edit| spoil(&text, *edit)));
    });
}

/// Every number of every text, at every limit: what a random engine reaches seldom.
#[test]
fn numbers_at_their_limits_are_read_or_refused_and_can_be_worked_with() {
    for text in records().into_iter().chain(messages().iter().map(Message::encode)) {
        for at in 0..numbers_in(&text).len() {
            for number in NUMBERS {
                read(&with_number(&text, at, number));
            }
        }
    }
}

fn read(text: &str) {
    if let Some(message) = Message::decode(text) {
        assert_eq!(Message::decode(&message.encode()), Some(message));
    }
    match Record::decode(text) {
        Ok(record) => {
            let again = record.encode();
            assert_eq!(Record::decode(&again), Ok(record.clone()), "{again}");
            work_with(&record);
        }
        Err(Unreadable::FormatTooNew { found, known }) => assert!(found > known),
        Err(_) => {}
    }
}

/// Applies actions to the record, by all who may; what comes out can be written and read again. Which actions and when
/// differs from text to text: all of them at all times would take minutes.
fn work_with(record: &Record) {
    let text = record.encode();
    let salt = text.bytes().map(usize::from).sum::<usize>();
    let holders = [record.grants.first().map(|grant| grant.holder), record.queue.last().map(|waiter| waiter.holder)];
    let holders: Vec<_> = holders.into_iter().flatten().chain([Incarnation(77)]).collect();
    for (at, action) in actions(record).into_iter().enumerate().skip(salt % SAMPLE).step_by(SAMPLE) {
        let draw = salt / SAMPLE + at;
        let trusted = draw.is_multiple_of(2).then_some(Monotonic::from_ms(u64::MAX - 5));
        let wall = Wall::from_ms([0, 1_790_000_000_000, u64::MAX][draw / 2 % 3]);
        let holder = holders[draw / 6 % holders.len()];
        survives(&text, &Operation { key: Key::new("k").unwrap(), holder, action }, StoreNow { wall, trusted });
    }
}

fn survives(text: &str, operation: &Operation, now: StoreNow) {
    let mut records = Records::new();
    records.load(operation.key.clone(), Some(text));
    let answer = operation.apply(&mut records, now);
    assert!(!matches!(answer.outcome, Outcome::Unreadable(_)), "it was read");
    let after = records.peek(&operation.key).unwrap().encode();
    let again = Record::decode(&after).map(|record| record.encode());
    assert_eq!(again.as_ref(), Ok(&after), "{operation:?} at {now:?} of {text}");
}

fn actions(record: &Record) -> Vec<Action> {
    let grant = record.grants.first();
    let token = grant.map_or(record.last_token, |grant| grant.block.first);
    let (from, beat) = grant.map_or((Incarnation(1), 0), |grant| (grant.holder, grant.beat));
    let held = grant.map_or(RequestId(u64::MAX), |grant| grant.request);
    let queued = record.queue.last().map_or(RequestId(0), |waiter| waiter.request);
    let renew = |beat, refill| Action::Renew { token, beat, beacon: u64::MAX, lease_ms: u64::MAX, refill };
    let mut actions = vec![
        renew(beat, false),
        renew(u64::MAX, true),
        Action::Downgrade { token },
        Action::Release { token, request: held },
        Action::Withdraw { request: queued },
        Action::Evict { target: from, entry: Entry::Grant(token), beat },
        Action::Inspect,
        Action::Fence { token, request: held },
    ];
    let evicted = record.queue.first().map(|waiter| (waiter.holder, waiter.request, waiter.beat));
    actions.extend(evicted.map(|(target, request, beat)| Action::Evict {
        target,
        entry: Entry::Waiter(request),
        beat,
    }));
    let asks = asks(token, from, [held, queued, RequestId(u64::MAX)]);
    let all = |ask: &Acquire| Action::AcquireAll(vec![(Key::new("k").unwrap(), ask.clone())]);
    actions.extend(asks.iter().map(all));
    actions.extend(asks.into_iter().map(Action::Acquire));
    actions
}

fn asks(token: Token, from: Incarnation, requests: [RequestId; 3]) -> Vec<Acquire> {
    let request = requests[0];
    let ways = [Way::Plain, Way::Steal, Way::Upgrade(token), Way::Resume { from, token, request }];
    let mut asks = Vec::new();
    for (at, way) in ways.into_iter().enumerate() {
        for request in requests {
            let mode = if at % 2 == 0 { Mode::Exclusive } else { Mode::Shared };
            let plain = Acquire { mode, way, ..Acquire::new(request, u64::MAX, u64::MAX) };
            asks.push(Acquire { wait: true, priority: i32::MIN, alone: true, ..plain.clone() });
            asks.push(plain);
        }
    }
    asks
}

fn spoil(text: &str, (at, how, which): Edit) -> String {
    let which = usize::from(which);
    let patch = PATCHES[which % PATCHES.len()];
    let boundary = |wish: usize| (0..=wish.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let start = boundary(usize::from(at) % (text.len() + 1));
    let end = boundary(start + 1 + which / 8).max(start);
    match how % 8 {
        // Most texts stay well-formed, and so get further than the reader.
        0..4 => with_number(text, at.into(), NUMBERS[which % NUMBERS.len()]),
        4 => [&text[..start], patch, &text[end..]].concat(),
        5 => [&text[..start], patch, &text[start..]].concat(),
        6 => [&text[..end], &text[start..]].concat(),
        _ => text[..start].to_owned(),
    }
}

fn with_number(text: &str, which: usize, number: &str) -> String {
    let numbers = numbers_in(text);
    let Some(at) = which.checked_rem(numbers.len()) else { return text.to_owned() };
    let (start, end) = numbers[at];
    [&text[..start], number, &text[end..]].concat()
}

/// Where the numbers stand: after a colon, a bracket or a comma.
fn numbers_in(text: &str) -> Vec<(usize, usize)> {
    let starts = text.match_indices([':', '[', ',']).map(|(at, _)| at + 1);
    let numbers = starts.map(|start| {
        let length = text[start..].bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'-').count();
        (start, start + length)
    });
    numbers.filter(|(start, end)| start < end).collect()
}

/// A record without anybody, one with readers, waiters and an upgrade, one with a writer who robbed somebody.
fn records() -> Vec<String> {
    let key = Key::new("k").unwrap();
    let mut records = Records::new();
    let mut texts = vec![Record::default().encode()];
    let now = StoreNow { wall: Wall::from_ms(1_000), trusted: None };
    let mut ask = |holder, ask: Acquire| {
        let operation = Operation { key: key.clone(), holder: Incarnation(holder), action: Action::Acquire(ask) };
        operation.apply(&mut records, now);
        records.peek(&key).unwrap().clone()
    };
    let plain = |request, mode| Acquire {
        wait: true,
        mode,
        info: "\u{1f98a}\"".into(),
        ..Acquire::new(RequestId(request), request, 500)
    };
    ask(1, plain(1, Mode::Shared));
    let readers = ask(2, plain(2, Mode::Shared));
    ask(3, Acquire { priority: -3, ..plain(3, Mode::Exclusive) });
    let token = readers.grants[0].block.first;
    let upgrade = ask(1, Acquire { way: Way::Upgrade(token), ..plain(4, Mode::Exclusive) }).encode();
    texts.push(upgrade.replacen("\"beat\"", "\"mood\":[\"calm\",{\"a\":1.5}],\"beat\"", 3));
    texts.push(ask(4, Acquire { way: Way::Steal, instance: "i".into(), ..plain(5, Mode::Exclusive) }).encode());
    texts
}

fn messages() -> Vec<Message> {
    let store = StoreId(9);
    let key = Key::new("k\u{1f98a}\"").unwrap();
    let holder = Incarnation(u128::MAX);
    let reader = Record::decode(&records()[1]).unwrap().grants.remove(0);
    let (token, block) = (reader.block.first, reader.block);
    let granted = Body::Granted { holder, request: RequestId(1), block, lease_ms: 1_000, previous: token };
    let bodies = [
        granted,
        Body::Wanted { holder, tries: true },
        Body::Freed { holder },
        Body::InUse { holder },
        Body::Evicted { holder, token },
        Body::Stolen { holder, token },
    ];
    bodies.into_iter().map(|body| Message { store, key: key.clone(), body }).collect()
}

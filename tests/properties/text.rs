//! Whatever stands in a store or comes over a channel is read or refused, and what was read can be worked with.
//!
//! `BOLERO_RANDOM_ITERATIONS=1000000 BOLERO_RANDOM_TEST_TIME_MS=600000` look longer.

use std::time::Duration;

use leasehold::machine::{
    Acquire, Action, Batch, Beat, Body, Ending, Key, LONGEST_SILENCE_MS, Message, Mode, Monotonic, Operation, Outcome,
    Record, Records, RequestId, Row, Session, SessionId, SessionStep, StoreId, StoreNow, Token, Unreadable, Wall, Way,
};

/// Of this many actions, one is tried on each text.
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
fn spoilt_texts_are_read_or_refused_and_can_be_worked_with() {
    let texts = texts();
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
    for text in texts() {
        for at in 0..numbers_in(&text).len() {
            for number in NUMBERS {
                read(&with_number(&text, at, number));
            }
        }
    }
}

/// A text of each kind that is written.
fn texts() -> Vec<String> {
    let messages = messages();
    records().into_iter().chain(rows()).chain(messages.iter().map(Message::encode)).collect()
}

/// A text may stand anywhere: as a record, as a session's row, as the store's row, as a message.
fn read(text: &str) {
    if let Some(message) = Message::decode(text) {
        assert_eq!(Message::decode(&message.encode()), Some(message));
    }
    read_session(text);
    read_store(text);
    match Record::decode(text) {
        Ok(record) => {
            let again = record.encode();
            assert_eq!(Record::decode(&again), Ok(record.clone()), "{again}");
            work_with(&record);
        }
        Err(Unreadable::FormatTooNew { found, known }) => assert!(found > known),
        Err(_) => left_alone(text),
    }
}

fn read_session(text: &str) {
    let Ok((id, row)) = Session::decode(text) else { return watched_only(text) };
    let again = row.encode(id);
    assert_eq!(Session::decode(&again), Ok((id, row.clone())), "{again}");
    assert!(row.lease_ms <= LONGEST_SILENCE_MS, "nobody is waited for longer than anybody may be silent: {text}");
    for trusted in [None, Some(Monotonic::from_ms(u64::MAX - 5))] {
        let mut records = Records::new();
        records.load_session(id, Some(text));
        let beat = Beat { beat: u64::MAX, beacon: true, lease_ms: u64::MAX, floor: u64::MAX };
        let batch = Batch { step: SessionStep::Beat(beat), ..Batch::new(id, Vec::new()) };
        batch.apply(&mut records, StoreNow { wall: Wall::from_ms(u64::MAX), trusted });
        let after = records.text(&Row::Session(id)).expect("a beat ends nobody");
        assert!(Session::decode(&after).is_ok(), "{after}");
    }
}

/// A row that cannot be read stands in the way, is never written, and goes when somebody saw it stand still.
fn watched_only(text: &str) {
    let (id, key) = (SessionId(4), Key::new("k").unwrap());
    let now = StoreNow { wall: Wall::from_ms(1_000), trusted: None };
    let mut records = Records::new();
    records.load(key.clone(), Some(&held_by(id).encode()));
    records.load_session(id, Some(text));
    records.load_session(SessionId(77), Some(&Session::default().encode(SessionId(77))));
    let run = |records: &mut Records, session, step, action: Option<Action>| {
        let operations = action.map(|action| Operation { key: key.clone(), action }).into_iter().collect();
        let mut reply = Batch { step, ..Batch::new(session, operations) }.apply(records, now);
        reply.answers.pop().map(|answer| answer.outcome)
    };
    let steal = Acquire { way: Way::Steal, ..Acquire::new(RequestId(1), 1) };
    let beat = SessionStep::Beat(Beat { beat: u64::MAX, beacon: true, lease_ms: 1, floor: 9 });
    run(&mut records, id, beat, Some(Action::Look));
    let ask = Action::Acquire(Acquire::new(RequestId(9), 1));
    let Some(Outcome::Busy { ahead }) = run(&mut records, SessionId(77), SessionStep::Stay, Some(ask)) else {
        panic!("it stands in the way: {text}");
    };
    assert!(ahead[0].lease_ms == LONGEST_SILENCE_MS && !ahead[0].beacon, "{ahead:?}");
    run(&mut records.clone(), SessionId(77), SessionStep::Stay, Some(Action::Acquire(steal)));
    assert!(!records.take_changed().contains(&Row::Session(id)), "what cannot be read is not written: {text}");
    let end = |beat| Some(Action::End { target: id, beat });
    let moved = run(&mut records, SessionId(77), SessionStep::Stay, end(ahead[0].beat.wrapping_add(1)));
    assert_eq!(moved, Some(Outcome::Moved));
    let ended = run(&mut records, SessionId(77), SessionStep::Stay, end(ahead[0].beat));
    assert_eq!((ended, records.take_changed().contains(&Row::Session(id))), (Some(Outcome::Ended), true), "{text}");
}

/// A record that one session holds and another waits for, of which the first is to be any.
fn held_by(session: SessionId) -> Record {
    let mut record = Record::decode(&records()[2]).expect("it was written so");
    record.grants[0].holder = session;
    record
}

fn read_store(text: &str) {
    let (mut records, lock) = (Records::new(), Key::of_lock("l"));
    if records.load_store(Some(text), StoreId(1)).is_err() {
        return;
    }
    let stored = records.text(&Row::Store).expect("a store has a row");
    let mut again = Records::new();
    again.load_store(Some(&stored), StoreId(2)).expect("it was read before");
    assert_eq!((again.store(), again.text(&Row::Store)), (records.store(), Some(stored)));
    // Locks come and go, and the floor with them, until there are no tokens left.
    let step = SessionStep::Open { beat: Beat { beat: 1, ..Beat::default() }, instance: String::new() };
    let take = Operation { key: lock.clone(), action: Action::Acquire(Acquire::new(RequestId(1), 1)) };
    let give = Operation { key: lock, action: Action::Withdraw { request: RequestId(1) } };
    let batch = Batch { step, ..Batch::new(SessionId(1), vec![take, give]) };
    batch.apply(&mut records, StoreNow { wall: Wall::from_ms(u64::MAX), trusted: None });
    let floor = records.text(&Row::Store).expect("a store has a row");
    again.load_store(Some(&floor), StoreId(2)).expect("it was written here");
}

/// What is no record answers so to everything, and is never written.
fn left_alone(text: &str) {
    let (key, ask) = (Key::new("k").unwrap(), Acquire::new(RequestId(1), 1));
    let step = SessionStep::Open { beat: Beat { beat: 1, ..Beat::default() }, instance: String::new() };
    let actions = [
        Action::Acquire(ask.clone()),
        Action::AcquireAll(vec![(Key::new("a").unwrap(), ask.clone()), (key.clone(), ask)]),
        Action::End { target: SessionId(1), beat: 0 },
        Action::Look,
        Action::Inspect,
    ];
    let operations = actions.map(|action| Operation { key: key.clone(), action }).to_vec();
    let mut records = Records::new();
    records.load(key.clone(), Some(text));
    let batch = Batch { step, forgets: vec![key.clone()], ..Batch::new(SessionId(77), operations) };
    let reply = batch.apply(&mut records, StoreNow { wall: Wall::from_ms(1_000), trusted: None });
    let is_refused = |outcome: &Outcome| matches!(outcome, Outcome::Unreadable(_) | Outcome::UnreadableAt(1, _));
    let refused = reply.answers.iter().filter(|answer| is_refused(&answer.outcome)).count();
    assert_eq!(refused, reply.answers.len(), "{:?}", reply.answers);
    let written: Vec<_> = records.take_changed().into_iter().filter(|row| matches!(row, Row::Record(_))).collect();
    assert_eq!((written, records.check(&key).is_err()), (vec![], true), "{text}");
}

/// Applies actions to the record, by all who may; what comes out can be written and read again. Which actions and when
/// differs from text to text: all of them at all times would take minutes.
fn work_with(record: &Record) {
    let text = record.encode();
    let salt = text.bytes().map(usize::from).sum::<usize>();
    let holders = [record.grants.first().map(|grant| grant.holder), record.queue.last().map(|waiter| waiter.holder)];
    let holders: Vec<_> = holders.into_iter().flatten().chain([SessionId(77)]).collect();
    for (at, action) in actions(record).into_iter().enumerate().skip(salt % SAMPLE).step_by(SAMPLE) {
        let draw = salt / SAMPLE + at;
        let trusted = draw.is_multiple_of(2).then_some(Monotonic::from_ms(u64::MAX - 5));
        let wall = Wall::from_ms([0, 1_790_000_000_000, u64::MAX][draw / 2 % 3]);
        let key = if draw.is_multiple_of(3) { Key::of_lock("l") } else { Key::new("k").unwrap() };
        let who = holders[draw / 6 % holders.len()];
        survives(record, who, draw, &Operation { key, action }, StoreNow { wall, trusted });
    }
}

/// Of the sessions that stand in the record some are alive, some have ended, and of some nobody knows.
fn survives(record: &Record, who: SessionId, draw: usize, operation: &Operation, now: StoreNow) {
    let text = record.encode();
    let mut records = Records::new();
    records.load(operation.key.clone(), Some(&text));
    let batch = Batch { forgets: vec![operation.key.clone()], ..Batch::new(who, vec![operation.clone()]) };
    let mut alive = Session::default();
    (alive.beat, alive.lease_ms) = (u64::MAX, u64::MAX);
    for (at, session) in records.sessions_of(&batch).into_iter().enumerate() {
        let row = if session == who { 0 } else { (draw / 7 + at) % 4 };
        match row {
            0 | 1 => records.load_session(session, Some(&alive.encode(session))),
            2 => records.load_session(session, None),
            _ => {}
        }
    }
    let reply = batch.apply(&mut records, now);
    // Nothing is stolen from a session of which nobody knows.
    let steals = match &operation.action {
        Action::Acquire(ask) => ask.way == Way::Steal,
        Action::AcquireAll(asks) => asks.iter().any(|(_, ask)| ask.way == Way::Steal),
        _ => false,
    };
    assert!(steals || !matches!(reply.answers[0].outcome, Outcome::Unreadable(_)), "it was read");
    for row in records.take_changed() {
        let Some(after) = records.text(&row) else { continue };
        match row {
            Row::Record(_) => {
                let again = Record::decode(&after).map(|record| record.encode());
                assert_eq!(again.as_ref(), Ok(&after), "{operation:?} at {now:?} of {text}");
            }
            Row::Session(id) => {
                let again = Session::decode(&after).map(|(named, row)| (named, row.encode(named)));
                assert_eq!(again, Ok((id, after)), "{operation:?} at {now:?} of {text}");
            }
            Row::Store => Records::new().load_store(Some(&after), StoreId(1)).expect("the floor is read again"),
        }
    }
}

fn actions(record: &Record) -> Vec<Action> {
    let grant = record.grants.first();
    let token = grant.map_or(record.last_token, |grant| grant.block.first);
    let from = grant.map_or(SessionId(1), |grant| grant.holder);
    let held = grant.map_or(RequestId(u64::MAX), |grant| grant.request);
    let queued = record.queue.last().map_or(RequestId(0), |waiter| waiter.request);
    let verify = |refill| Action::Verify { token, request: held, refill };
    let mut actions = vec![
        verify(false),
        verify(true),
        Action::Downgrade { token, request: held },
        Action::Detach { token, request: held, to: SessionId(u128::MAX), lease_ms: LONGEST_SILENCE_MS },
        Action::Release { token, request: held },
        Action::Withdraw { request: queued },
        Action::End { target: from, beat: u64::MAX },
        Action::Look,
        Action::Inspect,
        Action::Fence { token, request: held, upgrade: None, mode: Mode::Exclusive },
    ];
    let ended = record.queue.first().map(|waiter| waiter.holder);
    actions.extend(ended.map(|target| Action::End { target, beat: u64::MAX }));
    let asks = asks(token, from, [held, queued, RequestId(u64::MAX)]);
    let all = |ask: &Acquire| Action::AcquireAll(vec![(Key::new("k").unwrap(), ask.clone())]);
    actions.extend(asks.iter().map(all));
    actions.extend(asks.into_iter().map(Action::Acquire));
    actions
}

fn asks(token: Token, from: SessionId, requests: [RequestId; 3]) -> Vec<Acquire> {
    let request = requests[0];
    let origin = SessionId(u128::MAX);
    let ways = [Way::Plain, Way::Steal, Way::Upgrade { token, request }, Way::Resume { from, origin, token, request }];
    let mut asks = Vec::new();
    for (at, way) in ways.into_iter().enumerate() {
        for request in requests {
            let mode = if at % 2 == 0 { Mode::Exclusive } else { Mode::Shared };
            let plain = Acquire { mode, way, ..Acquire::new(request, u64::MAX) };
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
    written().0
}

/// The rows of a session that was robbed, of one of a trusted store, and of a store; some with a newer one's fields.
fn rows() -> Vec<String> {
    written().1
}

/// The records and the rows that a short history leaves.
fn written() -> (Vec<String>, Vec<String>) {
    let key = Key::new("k").unwrap();
    let mut records = Records::whole(StoreId(u128::MAX));
    let mut texts = vec![Record::default().encode()];
    let now = StoreNow { wall: Wall::from_ms(1_000), trusted: Some(Monotonic::from_ms(7)) };
    let mut ask = |session, ask: Acquire| {
        let id = SessionId(session);
        let operation = Operation { key: key.clone(), action: Action::Acquire(ask) };
        let mut batch = Batch::new(id, vec![operation]);
        if records.session(id).is_none() {
            let beat = Beat { beat: 3, beacon: true, lease_ms: 500, floor: 1 };
            batch.step = SessionStep::Open { beat, instance: "i\u{1f98a}".into() };
        }
        batch.apply(&mut records, now);
        records.peek(&key).unwrap().clone()
    };
    let plain = |request, mode| Acquire {
        wait: true,
        mode,
        info: "\u{1f98a}\"".into(),
        ..Acquire::new(RequestId(request), request)
    };
    ask(1, plain(1, Mode::Shared));
    let readers = ask(2, plain(2, Mode::Shared));
    ask(3, Acquire { priority: -3, ..plain(3, Mode::Exclusive) });
    let (token, request) = (readers.grants[0].block.first, readers.grants[0].request);
    let upgrade = ask(1, Acquire { way: Way::Upgrade { token, request }, ..plain(4, Mode::Exclusive) }).encode();
    texts.push(upgrade.replacen("\"request\"", "\"mood\":[\"calm\",{\"a\":1.5}],\"request\"", 3));
    texts.push(ask(4, Acquire { way: Way::Steal, ..plain(5, Mode::Exclusive) }).encode());
    let lock = Operation { key: Key::of_lock("l"), action: Action::Acquire(plain(6, Mode::Exclusive)) };
    let step = SessionStep::Open { beat: Beat { beat: 1, ..Beat::default() }, instance: String::new() };
    let free = Operation { key: Key::of_lock("l"), action: Action::Withdraw { request: RequestId(6) } };
    let ends = vec![Ending { session: SessionId(3), beat: Some(3) }];
    let observed = StoreNow { trusted: None, ..now };
    Batch { step, ends, ..Batch::new(SessionId(5), vec![lock, free]) }.apply(&mut records, observed);
    let row = |row| records.text(&row).expect("it stands");
    let rows = [row(Row::Session(SessionId(1))), row(Row::Session(SessionId(5))), row(Row::Store)];
    let newer = rows.clone().map(|text| text.replacen('{', "{\"later\":[{\"a\":\"}\"}],", 1));
    (texts, rows.into_iter().chain(newer).collect())
}

fn messages() -> Vec<Message> {
    let store = StoreId(9);
    let key = Key::new("k\u{1f98a}\"").unwrap();
    let holder = SessionId(u128::MAX);
    let reader = Record::decode(&records()[1]).unwrap().grants.remove(0);
    let (token, block) = (reader.block.first, reader.block);
    let bodies = [
        Body::Granted { holder, request: RequestId(1), block, previous: token, contended: true },
        Body::Wanted { holder, by: SessionId(7), tries: true },
        Body::Freed { asker: holder },
        Body::InUse { asker: holder },
        Body::Gone { holder },
        Body::Ended { holder },
        Body::Stolen { holder, token },
    ];
    bodies.into_iter().map(|body| Message { store, key: key.clone(), body }).collect()
}

//! What is written down, and what is made of texts that somebody else wrote.

use alloc::{string::String, vec::Vec};

use super::{
    Action, Batch, Body, Message, Mode, Outcome, Record, Records, RequestId, Session, Stolen, Unreadable,
    bench::{A, B, Bench, key, operation},
    codec::StoreRow,
    config::LONGEST_SILENCE_MS,
    id::StoreId,
    time::Wall,
    token::{Token, TokenBlock},
};

/// What a text is made into, at each place.
const PATCHES: [&str; 9] = ["", "\"", "\\", "{", "]", "9", "99999999999999999999", "\\ud800", "null"];

fn mutilated(text: &str) -> impl Iterator<Item = String> {
    let places = (0..text.len()).filter(|at| text.is_char_boundary(*at));
    places
        .flat_map(move |at| PATCHES.map(|patch| [&text[..at], patch, text.get(at + 1..).unwrap_or_default()].concat()))
}

fn message() -> Message {
    let block = TokenBlock { first: Token(64), last: Token(127) };
    let body = Body::Granted { holder: A, request: RequestId(1), block, previous: Token(0), contended: false };
    Message { store: StoreId(9), key: key("k\u{1f98a}\""), body }
}

fn row() -> Session {
    let stolen = |key, token, request| Stolen { key, token: Token(token), request: RequestId(request) };
    let robbed = [stolen(key("k\u{1f98a}\"\\"), 64, 2), stolen(key("\u{1}"), 5, 1)].into();
    Session {
        beat: 7,
        beacon: true,
        lease_ms: 20_000,
        instance: "desk \"1\"".into(),
        floor: 3,
        heard_at: Wall::from_ms(1_000),
        robbed,
        deadline: Some(super::time::Monotonic::from_ms(21_000)),
        ..Session::default()
    }
}

#[test]
fn unknown_fields_survive_and_a_newer_format_is_refused() {
    let mut bench = Bench::new(false);
    bench.granted(A, 1, Mode::Exclusive);
    bench.queued(B, 1, Mode::Shared);
    let text = bench.record().encode().replace("\"request\"", "\"mood\":[\"calm\"],\"request\"");
    let text = text.replacen('{', "{\"later\":{\"a\":1},", 1);
    bench.records.load(key("k"), Some(&text));
    let token = bench.record().grants[0].block.first;
    bench.apply(A, Action::Downgrade { token, request: RequestId(1) });
    let again = bench.record().encode();
    assert_eq!(bench.holders(), [A, B], "changed, and granted to the next");
    assert_eq!(again.matches("\"mood\":[\"calm\"]").count(), 2, "{again}");
    assert!(again.contains("\"later\":{\"a\":1}"), "{again}");
    let newer = again.replacen("\"format\":1", "\"format\":2", 1);
    bench.records.load(key("k"), Some(&newer));
    let unreadable = Unreadable::FormatTooNew { found: 2, known: 1 };
    assert_eq!(bench.ask(A, 9, Mode::Exclusive).outcome, Outcome::Unreadable(unreadable));
}

#[test]
fn a_row_keeps_what_a_later_version_wrote_of_itself() {
    let text = row().encode(A).replacen('{', "{\"mood\":[\"calm\"],", 1);
    let (session, row) = Session::decode(&text).unwrap();
    assert_eq!((session, row.encode(A).contains("\"mood\":[\"calm\"]")), (A, true));
}

#[test]
fn what_is_written_is_read_again() {
    let mut bench = Bench::new(false);
    bench.granted(A, 1, Mode::Exclusive);
    bench.queued(B, 1, Mode::Exclusive);
    let record = bench.record().clone();
    assert_eq!(Record::decode(&record.encode()), Ok(record));
    assert_eq!(Session::decode(&row().encode(A)), Ok((A, row())));
    assert_eq!(Message::decode(&message().encode()), Some(message()));
    let mut store = StoreRow::new(StoreId(9));
    store.floor = Token(700);
    assert_eq!(StoreRow::decode(&store.encode()), Ok(store));
    for text in ["", "{}", "null", "{\"format\":1}", "{\"format\":0,\"last_token\":1}"] {
        assert_eq!(Record::decode(text), Err(Unreadable::Corrupt), "{text}");
        assert_eq!(Session::decode(text), Err(Unreadable::Corrupt), "{text}");
        assert_eq!(StoreRow::decode(text), Err(Unreadable::Corrupt), "{text}");
    }
}

/// Anybody of the origin can write to the store and post on the channel.
#[test]
fn mutilated_text_is_refused_or_read_but_never_a_panic() {
    let mut bench = Bench::new(false);
    bench.granted(A, 1, Mode::Exclusive);
    bench.queued(B, 1, Mode::Exclusive);
    for text in mutilated(&bench.record().encode()) {
        if let Ok(record) = Record::decode(&text) {
            assert_eq!(Record::decode(&record.encode()), Ok(record), "{text}");
        }
    }
    for text in mutilated(&row().encode(A)) {
        if let Ok((session, row)) = Session::decode(&text) {
            assert_eq!(Session::decode(&row.encode(session)), Ok((session, row)), "{text}");
        }
    }
    for text in mutilated(&message().encode()) {
        if let Some(message) = Message::decode(&text) {
            assert_eq!(Message::decode(&message.encode()), Some(message), "{text}");
        }
    }
}

#[test]
fn tokens_out_of_range_are_none() {
    let text = message().encode();
    for (good, bad) in [("127", "9007199254740992"), ("127", "18446744073709551615"), ("127", "63"), ("64", "-1")] {
        assert_eq!(Message::decode(&text.replacen(good, bad, 1)), None, "{bad}");
    }
}

/// A session that never was, with a lease of 30,000 years: whoever it blocks waits as long as anybody may be silent.
#[test]
fn a_lease_without_end_ends() {
    let text = row().encode(A).replacen("\"lease_ms\":20000", "\"lease_ms\":1000000000000000", 1);
    assert_eq!(Session::decode(&text).unwrap().1.lease_ms, LONGEST_SILENCE_MS);
    let mut bench = Bench::new(false);
    bench.granted(A, 1, Mode::Exclusive);
    let newer = text.replacen("\"format\":1", "\"format\":2", 1);
    for text in [&text, &newer, ""] {
        bench.records.load_session(A, Some(text));
        let Outcome::Waiting { ahead, .. } = bench.ask(B, 1, Mode::Exclusive).outcome else { panic!("{text}") };
        assert_eq!(ahead[0].lease_ms, LONGEST_SILENCE_MS, "{text}");
    }
}

/// A context of a newer version beats, and its row stays as long as it was.
#[test]
fn any_change_of_a_row_that_cannot_be_read_counts_as_a_beat() {
    let newer = row().encode(A).replacen("\"format\":1", "\"format\":2", 1);
    let mut bench = Bench::new(false);
    bench.granted(A, 1, Mode::Exclusive);
    let mut beats = Vec::new();
    for beat in ["\"beat\":7", "\"beat\":8", "\"beat\":8"] {
        bench.records.load_session(A, Some(&newer.replacen("\"beat\":7", beat, 1)));
        let Outcome::Waiting { ahead, .. } = bench.ask(B, 1, Mode::Exclusive).outcome else { panic!("it blocks") };
        beats.push(ahead[0].beat);
    }
    assert!(beats[0] != beats[1] && beats[1] == beats[2], "{beats:?}");
    let end = Action::End { target: A, beat: beats[0] };
    assert_eq!((bench.apply(B, end).outcome, bench.holders()), (Outcome::Moved, alloc::vec![A]));
}

/// It may be that of whoever holds a key. Every version names its session in its row.
#[test]
fn a_row_that_does_not_say_whose_it_is_stops_whoever_reads_all() {
    let own = Session::default().encode(B);
    for nameless in ["", "{\"format\":9}", "{\"format\":1,\"session\":\"x\"}"] {
        let mut records = Records::new();
        assert_eq!(records.load_all_sessions([&*own, nameless]), Err(Unreadable::Corrupt), "{nameless}");
        let mut bench = Bench::new(false);
        bench.granted(A, 1, Mode::Exclusive);
        records.load(key("k"), Some(&bench.record().encode()));
        // Whoever goes on all the same judges nobody whose row was not read.
        for action in [Action::End { target: A, beat: 0 }, Action::Look] {
            let batch = Batch::new(B, [operation("k", action)].into());
            batch.apply(&mut records, bench.now());
            assert_eq!(records.peek(&key("k")).unwrap().grants[0].holder, A);
        }
    }
}

#[test]
fn a_record_that_says_that_its_tokens_are_out_of_range_is_none() {
    let mut bench = Bench::new(false);
    bench.granted(A, 1, Mode::Exclusive);
    let text = bench.record().encode();
    let last = bench.record().last_token;
    for field in ["last_token", "last_exclusive"] {
        let written = alloc::format!("\"{field}\":{last}");
        assert!(text.contains(&written));
        let beyond = text.replacen(&written, &alloc::format!("\"{field}\":{}", 1_u64 << 53), 1);
        assert_eq!(Record::decode(&beyond), Err(Unreadable::Corrupt), "{field}");
    }
}

//! list, status, steal and watch; and what is said to who waits.

use std::{fs, path::PathBuf};

use nix::sys::signal::Signal;
use rusqlite::Connection;

use crate::harness::{Running, Scratch, done};
use crate::until::wait_until;

/// How many wait for `k`.
pub(crate) fn queued(scratch: &Scratch) -> usize {
    let status = scratch.done(&["status", "k", "--json"]);
    assert_eq!(status.code, 0, "{status:?}");
    status.out.split_once("\"queue\":[").expect("there is a queue").1.matches("\"info\"").count()
}

pub(crate) fn until_queued(scratch: &Scratch, count: usize) {
    wait_until("the queue", || queued(scratch) == count);
}

#[test]
fn list_shows_holders_and_waiters_by_their_prefix() {
    let scratch = Scratch::new();
    assert_eq!(scratch.done(&["list", "--json"]).out, "[]\n");
    let holder = scratch.ready(&[], "echo ready; exec sleep 600");
    let waiter = scratch.start(&["run", "-q", "-s", "k", "true"]);
    until_queued(&scratch, 1);
    let list = scratch.done(&["list"]);
    let lines: Vec<_> = list.out.lines().collect();
    assert_eq!(lines.len(), 2, "{list:?}");
    let words: Vec<_> = lines[1].split_whitespace().collect();
    assert_eq!((words[0], words[1], words[3], words[6]), ("k", "exclusive", "in", "1"), "{list:?}");
    assert!(lines[1].contains(&format!("pid {}: sh -c", holder.pid())), "{list:?}");
    assert_eq!(scratch.done(&["list", "k"]).out.lines().count(), 2);
    assert_eq!(scratch.done(&["list", "other"]).out.lines().count(), 1, "the head alone");
    drop(waiter);
}

#[test]
fn status_shows_who_holds_and_who_waits() {
    let scratch = Scratch::new();
    let free = scratch.done(&["status", "k"]);
    assert!(free.out.starts_with("k: free"), "{free:?}");
    let holder = scratch.ready(&["-s"], "echo ready; exec sleep 600");
    let waiter = scratch.start(&["run", "-q", "k", "true"]);
    until_queued(&scratch, 1);
    let status = scratch.done(&["status", "k"]).out;
    assert!(
        status.contains("k: held (shared, token ") && status.contains(&format!("pid {}", holder.pid())),
        "{status}"
    );
    assert!(status.contains("waiting as number 1 (exclusive): "), "{status}");
    assert!(status.contains(&format!("pid {}", waiter.pid())), "{status}");
}

/// For a service's log. A lease that was lost is not called released.
#[test]
fn a_grant_and_a_release_are_told_if_that_was_chosen() {
    let scratch = Scratch::new();
    assert_eq!(scratch.done(&["run", "k", "true"]).err, "");
    let told = scratch.done(&["run", "--verbose", "k", "sh", "-c", "echo $LEASEHOLD_TOKEN"]);
    let [granted, released] = told.err.lines().collect::<Vec<_>>()[..] else { panic!("{told:?}") };
    assert_eq!(granted, format!("leasehold: the lease of \"k\" is granted, with token {}", told.out.trim_end()));
    let span = released.strip_prefix("leasehold: the lease of \"k\" is released, after ").expect(released);
    assert!(span.strip_suffix(" s").is_some_and(|span| span.parse::<f64>().is_ok()), "{released}");
    let holder = scratch.ready(&["--verbose"], "echo ready; exec sleep 600");
    assert_eq!(scratch.done(&["steal", "k"]).code, 0);
    let (code, err) = holder.end();
    assert!(code == 75 && err.contains("is granted") && err.contains("is lost") && !err.contains("released"), "{err}");
}

/// As `git diff --exit-code`: a script need not read the words.
#[test]
fn status_says_with_its_exit_code_whether_a_key_is_taken() {
    let scratch = Scratch::new();
    let code = |arguments: &[&str]| scratch.done(&[&["status", "--exit-code"], arguments].concat()).code;
    assert_eq!(code(&["k"]), 0);
    let holder = scratch.ready(&["-s"], "echo ready; exec sleep 600");
    assert_eq!((code(&["k"]), code(&["--json", "k"]), code(&["other"])), (1, 1, 0));
    assert_eq!(scratch.done(&["status", "k"]).code, 0, "nobody asked");
    let waiter = scratch.start(&["run", "-q", "k", "true"]);
    until_queued(&scratch, 1);
    waiter.signal(Signal::SIGSTOP);
    holder.signal(Signal::SIGKILL);
    wait_until("the mark of the dead", || scratch.done(&["status", "k"]).out.contains("is dead"));
    assert_eq!(code(&["k"]), 1, "somebody alive waits");
    waiter.signal(Signal::SIGKILL);
    wait_until("nobody alive", || code(&["k"]) == 0);
}

/// The files of the beacons, of whoever left them.
pub(crate) fn beacons(scratch: &Scratch) -> Vec<PathBuf> {
    let folder = format!("{}-leasehold.d", scratch.file().display());
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|kind| kind == "beacon")).collect()
}

#[test]
fn the_dead_are_marked() {
    let scratch = Scratch::new();
    let holder = scratch.ready(&[], "echo ready; exec sleep 600");
    let waiter = scratch.start(&["run", "-q", "k", "true"]);
    until_queued(&scratch, 1);
    let shown = |arguments: &[&str]| scratch.done(arguments).out;
    assert!(!shown(&["list"]).contains("dead") && !shown(&["list", "--json"]).contains("dead"));
    assert_eq!(shown(&["list", "--json"]).matches(r#""life":"alive""#).count(), 2);
    waiter.signal(Signal::SIGKILL);
    wait_until("its mark", || shown(&["list", "--json"]).contains(r#""life":"dead""#));
    assert_eq!(cells(&shown(&["list"]))[6], "0", "nobody alive waits");
    assert!(shown(&["status", "k"]).trim_end().ends_with("(its process has ended)"));
    holder.signal(Signal::SIGKILL);
    wait_until("its mark", || shown(&["list", "--json"]).matches(r#""life":"dead""#).count() == 2);
    let list = shown(&["list"]);
    assert_eq!(cells(&list)[3], "dead", "{list}");
    let status = shown(&["status", "k"]);
    assert!(status.starts_with("k: its holder (exclusive, token "), "{status}");
    // Who waits is told as well. Another one may have taken the beacon away: then the death is proved a moment later.
    beacons(&scratch).iter().for_each(|beacon| fs::remove_file(beacon).unwrap());
    let next = scratch.start(&["run", "k", "echo", "granted"]);
    next.until_err("(its process has ended)");
    assert_eq!(next.line().as_deref(), Some("granted"));
}

/// The words of the line below the head.
fn cells(table: &str) -> Vec<&str> {
    table.lines().nth(1).expect("there is a line").split_whitespace().collect()
}

#[test]
fn names_cannot_turn_the_direction_of_a_line() {
    let scratch = Scratch::new();
    let done = scratch.done(&["run", "--info", "me\u{2066}", "a\u{202e}b", "leasehold", "list"]);
    assert!(done.out.contains(r"a\u{202e}b") && done.out.contains(r"me\u{2066}"), "{done:?}");
}

/// As a program that uses the library may.
#[test]
fn a_holder_that_says_nothing_of_itself_is_named_by_its_session() {
    let scratch = Scratch::new();
    let holder = scratch.ready(&["--info", ""], "echo ready; exec sleep 600");
    let json = scratch.done(&["list", "--json"]).out;
    let session = json.split_once(r#""session":""#).and_then(|(_, rest)| rest.split('"').next()).expect("it has one");
    assert!(session.len() == 32 && session.bytes().all(|digit| digit.is_ascii_hexdigit()), "{json}");
    let short = format!("session {}…", &session[..8]);
    assert!(scratch.done(&["list"]).out.trim_end().ends_with(&short));
    assert!(scratch.done(&["status", "k"]).out.trim_end().ends_with(&format!("by {short}")));
    let waiter = scratch.start(&["run", "k", "true"]);
    waiter.until_err(&format!("held by {short}"));
    drop(holder);
}

/// Each line is one value, and it ends with its reader.
#[test]
fn watch_writes_a_line_of_json_each_second_for_as_long_as_it_is_read() {
    let scratch = Scratch::new();
    let script = "leasehold watch --json | (read a; read b; echo \"$a\"; echo \"$b\")";
    let watcher = Running::start(&mut scratch.command("sh", &["-c", script]));
    assert_eq!([watcher.line(), watcher.line(), watcher.line()], [Some("[]".into()), Some("[]".into()), None]);
    let (code, err) = watcher.end();
    assert!(code == 0 && err.contains("there is no such file yet") && err.lines().count() == 1, "{err}");
    assert!(!scratch.file().exists(), "who looks makes no store");
    let live = scratch.start(&["watch", "--json", "k"]);
    assert_eq!(live.line().as_deref(), Some("[]"));
    let holder = scratch.ready(&[], "echo ready; exec sleep 600");
    let line = std::iter::from_fn(|| live.line()).find(|line| line != "[]").expect("it is shown");
    assert!(line.starts_with(r#"[{"key":"k","#) && line.ends_with("}]"), "{line}");
    assert!(line.contains(&format!("pid {}", holder.pid())), "{line}");
    live.signal(Signal::SIGTERM);
    let (code, err) = live.end();
    // The file is there a moment before its tables are. Each of the two is told once.
    let told = ["there is no such file yet", "nobody has used the tables"].map(|why| err.matches(why).count());
    assert!(code == 143 && told[0] == 1 && told[1] <= 1 && err.lines().count() == told[0] + told[1], "{err}");
}

/// A name may hold what JSON must escape, and what would command a terminal.
#[test]
fn names_are_escaped() {
    let scratch = Scratch::new();
    // U+009B begins a command, as ESC [ does, and U+202E turns the line.
    let done = scratch.done(&["run", "--info", "\u{9b}2J", "a\u{202e}b", "leasehold", "list", "--json"]);
    assert!(done.out.contains(r"a\u202eb") && done.out.contains(r"\u009b2J") && done.out.is_ascii(), "{done:?}");
    let key = "a \"b\" \\ \u{1b}[2J\n\té";
    let script = "leasehold list --json; leasehold list";
    let done = scratch.done(&["run", key, "sh", "-c", script]);
    assert!(done.out.starts_with(r#"[{"key":"a \"b\" \\ \u001b[2J\n\té","#), "{done:?}");
    assert!(!done.out.contains('\u{1b}'), "{done:?}");
    assert!(done.out.contains(r#"a "b" \ \u{1b}[2J\n\té"#), "{done:?}");
}

#[test]
fn a_reader_that_has_read_enough_is_no_failure() {
    let scratch = Scratch::new();
    let script = "for i in 1 2 3; do leasehold man; done | head -n 1";
    let done = done(&mut scratch.command("sh", &["-c", script]));
    assert_eq!((done.code, &*done.err), (0, ""));
}

#[test]
fn a_key_that_was_never_used_is_free_and_nothing_is_said_of_its_tokens() {
    let scratch = Scratch::new();
    assert_eq!(scratch.done(&["status", "k"]).out, "k: free\n", "there is no store yet");
    assert_eq!(scratch.done(&["run", "k", "true"]).code, 0);
    assert_eq!(scratch.done(&["status", "other"]).out, "other: free\n");
    let used = scratch.done(&["status", "k"]).out;
    assert!(used.starts_with("k: free; its next token will be above "), "{used}");
}

#[test]
fn who_waits_is_told_who_holds_the_key() {
    let scratch = Scratch::new();
    let holder = scratch.ready(&[], "echo ready; exec sleep 600");
    let waiter = scratch.start(&["run", "k", "true"]);
    waiter.until_err("waiting for \"k\", which is held by ");
    let said = waiter.err();
    assert!(said.contains(&format!("pid {}: sh -c echo ready; exec sleep 600", holder.pid())), "{said}");
    let second = scratch.start(&["run", "k", "true"]);
    second.until_err("; 1 waits before us");
    let third = scratch.start(&["run", "k", "true"]);
    third.until_err("; 2 wait before us");
    let quiet = scratch.opened(&["run", "-q", "-w", "1.3", "k", "true"]);
    assert_eq!((quiet.code, &*quiet.err), (1, ""));
}

/// The outer leasehold waits for its command, and the command waits for the lease of the outer leasehold.
#[test]
fn who_waits_for_its_own_parent_is_told_so() {
    let scratch = Scratch::new();
    let nested = scratch.start(&["run", "k", "leasehold", "run", "k", "true"]);
    nested.until_err("leasehold run k true; we run under that lease");
    let stranger = scratch.start(&["run", "k", "true"]);
    stranger.until_err("; 1 waits before us");
    let said = stranger.err();
    assert!(!said.contains("we run under"), "{said}");
}

/// What is long is cut: everybody who waits reads it.
#[test]
fn a_long_command_line_is_cut() {
    let scratch = Scratch::new();
    let long = "é".repeat(3_000);
    let done = scratch.done(&["run", "k", "sh", "-c", "leasehold status k --json", &long]);
    assert!(done.code == 0 && done.out.contains("é…\"") && done.out.len() < 1_000, "{done:?}");
}

#[test]
fn what_others_see_can_be_chosen() {
    let scratch = Scratch::new();
    let holder = scratch.ready(&["--info", "nightly backup"], "echo ready; exec sleep 600");
    let status = scratch.done(&["status", "k"]).out;
    assert!(status.trim_end().ends_with("by nightly backup") && !status.contains("sleep"), "{status}");
    drop(holder);
}

#[test]
fn a_thief_shows_whom_it_robbed_and_has_a_larger_token() {
    let scratch = Scratch::new();
    assert_eq!(scratch.done(&["steal", "k"]).out, "nobody held \"k\"\n");
    let victim = scratch.ready(&[], "echo ready; echo $LEASEHOLD_TOKEN; exec sleep 600");
    let token: u64 = victim.line().unwrap().parse().unwrap();
    let thief = scratch.done(&["steal", "k", "--", "sh", "-c", "echo $LEASEHOLD_TOKEN; exit 5"]);
    assert_eq!(thief.code, 5, "{thief:?}");
    assert!(thief.err.contains("took \"k\" from "), "{thief:?}");
    assert!(thief.err.contains(&format!("pid {}", victim.pid())) && thief.err.contains(&format!("token {token}")));
    assert!(thief.out.trim().parse::<u64>().unwrap() > token, "{thief:?}");
    assert_eq!(victim.end().0, 75);
}

/// In the form of `status --json`.
#[test]
fn a_thief_writes_json_for_programs() {
    let scratch = Scratch::new();
    assert_eq!(scratch.done(&["steal", "--json", "k"]).out, "{\"key\":\"k\",\"previous_holders\":[]}\n");
    let victim = scratch.ready(&[], "echo ready; exec sleep 600");
    let status = scratch.done(&["status", "--json", "k"]).out;
    let holder = status.split_once("\"session\":").and_then(|(_, rest)| rest.split(']').next()).expect("it is held");
    let thief = scratch.done(&["steal", "--json", "k"]);
    assert!(
        thief.out.starts_with("{\"key\":\"k\",\"previous_holders\":[{\"mode\":\"exclusive\",\"token\":"),
        "{thief:?}"
    );
    assert!(thief.out.ends_with(&format!("{holder}]}}\n")), "{thief:?} is not {status}");
    assert_eq!((thief.code, &*thief.err), (0, ""));
    assert_eq!(victim.end().0, 75);
}

#[test]
fn a_thief_with_a_command_writes_no_json() {
    let scratch = Scratch::new();
    let holder = scratch.ready(&[], "echo ready; exec sleep 600");
    let thief = scratch.done(&["steal", "--json", "k", "echo", "ran"]);
    assert!(thief.code == 64 && thief.out.is_empty() && thief.err.contains("leave one of them out"), "{thief:?}");
    assert_eq!(scratch.done(&["run", "-n", "k", "true"]).code, 1, "it took nothing");
    drop(holder);
}

#[test]
fn a_theft_without_a_command_hands_the_key_to_who_waits() {
    let scratch = Scratch::new();
    let victim = scratch.ready(&[], "echo ready; exec sleep 600");
    let waiter = scratch.start(&["run", "-q", "k", "echo", "granted"]);
    until_queued(&scratch, 1);
    let thief = scratch.done(&["steal", "k"]);
    assert!(thief.out.contains(&format!("pid {}", victim.pid())), "{thief:?}");
    assert_eq!(waiter.line().as_deref(), Some("granted"));
    assert_eq!(victim.end().0, 75);
}

#[test]
fn watch_prints_once_where_there_is_no_terminal() {
    let scratch = Scratch::new();
    let holder = scratch.ready(&[], "echo ready; exec sleep 600");
    let watched = scratch.done(&["watch"]);
    assert!(watched.code == 0 && watched.out.contains(&format!("pid {}", holder.pid())), "{watched:?}");
    assert!(!watched.out.contains('\u{1b}'), "{watched:?}");
}

/// A monitor goes on when its store answers again. With a rollback journal, which another program may choose, a writer keeps readers
/// away.
#[test]
fn a_watch_outlasts_a_store_that_is_away() {
    let scratch = Scratch::new();
    drop(scratch.ready(&[], "echo ready; exec sleep 600"));
    let mut other = Connection::open(scratch.file()).unwrap();
    let journal: String = other.query_row("PRAGMA journal_mode = DELETE", [], |row| row.get(0)).unwrap();
    assert_eq!(journal, "delete");
    let watch = scratch.start(&["watch", "--json"]);
    assert!(watch.line().unwrap().contains("exclusive"));
    other.busy_timeout(std::time::Duration::from_secs(10)).unwrap();
    let busy = other.transaction_with_behavior(rusqlite::TransactionBehavior::Exclusive).unwrap();
    busy.execute("DELETE FROM leasehold_record", []).unwrap();
    watch.until_err("still watching");
    busy.commit().unwrap();
    while watch.line().expect("it goes on") != "[]" {}
}

/// A holder has died, and this version cannot read its row: a newer version wrote it, or it is damaged. To prove it dead takes over a day.
#[test]
fn a_holder_whose_session_cannot_be_read_is_not_waited_for() {
    let scratch = Scratch::new();
    for unreadable in ["json_set(state, '$.format', 2)", "'garbage'"] {
        let holder = scratch.ready(&["--lease", "2"], "echo ready; exec sleep 600");
        holder.signal(Signal::SIGKILL);
        holder.end();
        let database = Connection::open(scratch.file()).unwrap();
        let change = format!("UPDATE leasehold_session SET state = {unreadable}");
        assert!(database.execute(&change, []).unwrap() > 0);
        for limit in [&["-n"][..], &["-w", "0.1"]] {
            let done = scratch.done(&[&["run"], limit, &["k", "--", "echo", "granted"]].concat());
            assert_eq!((done.code, &*done.out), (1, ""), "{unreadable}, {limit:?}: {done:?}");
        }
        let listed = scratch.done(&["list"]);
        assert!(listed.out.contains("unknown") && !listed.out.contains(" s ago"), "{unreadable}: {listed:?}");
        database.execute_batch("DELETE FROM leasehold_session; DELETE FROM leasehold_record").unwrap();
    }
}

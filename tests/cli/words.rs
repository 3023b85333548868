//! The command gets its words, its input and its environment as they are.

use std::{ffi::OsStr, io::Write, os::unix::ffi::OsStrExt, process::Stdio};

use crate::harness::{Running, Scratch};
use crate::skipped::skip;

#[test]
fn words_arrive_as_they_are() {
    let scratch = Scratch::new();
    for words in [
        &["a b", "", "it's", "\"q\"", "$HOME", "*", "back\\slash", "two\tparts"][..],
        &["-n", "-x", "--store", "--help", "-E"],
        &["a", "--", "b", "--"],
    ] {
        let mut arguments = vec!["run", "k", "--", "sh", "-c", "printf '[%s]\\n' \"$@\"", "sh"];
        arguments.extend(words);
        let done = scratch.done(&arguments);
        let shown: Vec<_> = words.iter().map(|word| format!("[{word}]")).collect();
        assert_eq!(done.out.lines().collect::<Vec<_>>(), shown, "{done:?}");
    }
}

#[test]
fn the_two_dashes_may_be_left_out_and_options_end_at_the_key() {
    let scratch = Scratch::new();
    for before in [&["run", "k"][..], &["run", "k", "--"], &["run", "--", "k"], &["run", "--", "k", "--"]] {
        let mut arguments = before.to_vec();
        arguments.extend(["printf", "%s", "-n"]);
        let done = scratch.done(&arguments);
        assert_eq!((done.code, &*done.out), (0, "-n\n"), "{before:?}: {done:?}");
    }
}

#[test]
fn a_word_that_is_not_utf_8_arrives_as_it_is() {
    let scratch = Scratch::new();
    let mut command = scratch.leasehold(&["run", "k", "printf", "%s"]);
    let output = command.arg(OsStr::from_bytes(b"\xff\xfe\x80")).output().unwrap();
    assert_eq!(output.stdout, b"\xff\xfe\x80");
}

/// People who are used to flock, or who forget `run`, write such lines.
#[test]
fn a_command_without_run_is_told_of_run() {
    let scratch = Scratch::new();
    for words in [&["backup", "./backup.sh"][..], &["-n", "backup", "true"], &["lock", "backup"]] {
        let done = scratch.done(words);
        let remedy = "write leasehold run [OPTIONS] KEY COMMAND...";
        assert!(done.code == 64 && done.err.contains(remedy) && done.err.lines().count() == 1, "{done:?}");
    }
    for words in [&["run", "--until", "3", "k", "true"][..], &["list", "-n"], &["help", "nothing"]] {
        let done = scratch.done(words);
        assert!(done.code == 64 && !done.err.contains("write leasehold run"), "{done:?}");
    }
}

#[test]
fn a_key_that_is_not_utf_8_is_refused() {
    let scratch = Scratch::new();
    let mut command = scratch.leasehold(&["run"]);
    let output = command.arg(OsStr::from_bytes(b"\xff")).arg("true").output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(64) && err.contains("UTF-8"), "{err}");
}

/// Neither as what to do, nor as the name of the program.
#[test]
fn a_first_word_that_is_not_utf_8_is_refused() {
    use std::os::unix::process::CommandExt;
    let scratch = Scratch::new();
    let word = OsStr::from_bytes(b"\xff");
    let program = env!("CARGO_BIN_EXE_leasehold");
    let (mut first, mut name) = (scratch.command(program, &[word]), std::process::Command::new(program));
    name.arg0(word).arg("lend").current_dir(&scratch.0);
    for command in [first.arg("run"), &mut name] {
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(64), "{output:?}");
        assert!(output.stderr.starts_with(b"leasehold: "), "{output:?}");
    }
}

/// The control characters of this key would clear the terminal and ring its bell.
#[test]
fn a_key_with_control_characters_is_escaped() {
    let scratch = Scratch::new();
    let key = "k\u{1b}[2J\u{7}";
    let holder = scratch.start(&["run", key, "--", "sh", "-c", "echo ready; exec sleep 600"]);
    assert_eq!(holder.line().as_deref(), Some("ready"));
    let refused = scratch.done(&["run", "-w", "0.1", "--store", "sqlite:other\u{1b}[2J/leases.db", key, "true"]);
    let waiting = scratch.start(&["run", key, "true"]);
    waiting.until_err("waiting for");
    let shown = [scratch.done(&["status", key]).out, scratch.done(&["list"]).out, waiting.err(), refused.err];
    for text in shown {
        let commands = |letter: char| letter.is_control() && letter != '\n';
        assert!(!text.is_empty() && !text.contains(commands), "{text:?}");
    }
}

#[test]
fn input_and_outputs_are_passed_through() {
    let scratch = Scratch::new();
    let mut command = scratch.leasehold(&["run", "k", "sh", "-c", "tr a-z A-Z; echo also >&2"]);
    let mut running = Running::start(command.stdin(Stdio::piped()));
    running.input().write_all(b"one\ntwo\n").unwrap();
    assert_eq!([running.line(), running.line(), running.line()], [Some("ONE".into()), Some("TWO".into()), None]);
    assert_eq!(running.end(), (0, "also\n".into()));
}

/// As with any other command, SIGPIPE ends the writer.
#[test]
fn a_reader_that_goes_away_ends_the_command() {
    let scratch = Scratch::new();
    let script = "leasehold run k -- yes | head -n 1; leasehold run -n k echo free";
    let done = crate::harness::done(&mut scratch.command("sh", &["-c", script]));
    assert_eq!((&*done.out, &*done.err), ("y\nfree\n", ""));
}

#[test]
fn the_command_finds_key_token_and_store_in_its_environment() {
    let scratch = Scratch::new();
    let show =
        "echo $LEASEHOLD_KEY; echo $LEASEHOLD_TOKEN; echo $LEASEHOLD_STORE; leasehold status \"$LEASEHOLD_KEY\" --json";
    let mut tokens = Vec::new();
    for _ in 0..2 {
        let done = scratch.done(&["run", "the key", "sh", "-c", show]);
        let lines: Vec<_> = done.out.lines().collect();
        assert_eq!((lines[0], lines[2]), ("the key", &*scratch.url()));
        assert!(lines[3].contains(&format!("\"token\":{}", lines[1])), "the token is the lease's: {done:?}");
        tokens.push(lines[1].parse::<u64>().unwrap());
    }
    assert!(tokens[1] > tokens[0], "tokens grow: {tokens:?}");
}

/// The descriptors of the store stay with leasehold: the command would keep its beacon alive otherwise.
#[test]
fn the_command_inherits_no_other_descriptor() {
    let scratch = Scratch::new();
    if !std::path::Path::new("/proc/self/fd").exists() {
        return skip("there is no /proc");
    }
    // A shell that becomes leasehold, which becomes a shell: both have what they were given, and nothing else.
    let show = "for file in /proc/$$/fd/*; do echo ${file##*/}; done";
    let script = format!("{show}; echo then; exec leasehold run k -- sh -c '{show}'");
    let done = crate::harness::done(&mut scratch.command("sh", &["-c", &script]));
    let (before, after) = done.out.split_once("then\n").expect("it was said");
    assert_eq!(before, after, "{done:?}");
}

/// By default, the signal of that limit ends a process without a message. Leasehold blocks it for itself; it ends the command as ever.
#[test]
fn a_limit_on_the_size_of_files_is_told_with_its_remedy() {
    let scratch = Scratch::new();
    let limited = |line: &str| crate::harness::done(&mut scratch.command("sh", &["-c", line]));
    for line in
        ["ulimit -f 0; leasehold run k -- true", "leasehold run k -- true; ulimit -f 0; leasehold run k -- true"]
    {
        let done = limited(line);
        assert!(done.code == 69 && done.err.contains("ulimit -f"), "{line}: {done:?}");
    }
    let big = "head -c 1000000 /dev/zero > big; echo \"code $?\"";
    let done = limited(&format!("leasehold run k -- sh -c 'ulimit -f 1; {big}'"));
    assert_eq!(done.out, format!("code {}\n", 128 + nix::sys::signal::Signal::SIGXFSZ as i32), "{done:?}");
}

#[test]
fn a_relative_store_in_a_folder_that_was_deleted_is_told_with_the_remedy() {
    let scratch = Scratch::new();
    let line = "mkdir gone && cd gone && rmdir ../gone && leasehold list --store sqlite:leases.db";
    let done = crate::harness::done(&mut scratch.command("sh", &["-c", line]));
    assert!(
        done.code == 69 && done.err.contains("current directory") && done.err.contains("absolute path"),
        "{done:?}"
    );
}

//! Who only looks changes no file, however the URL is spelt.

use std::fs;

use crate::harness::Scratch;

/// Some have parameters that say nothing.
const SPELLINGS: [&str; 5] = ["?", "?prefix=x&", "?&prefix=x", "?&", "?prefix=x"];

#[test]
fn list_and_watch_make_no_file() {
    let scratch = Scratch::new();
    for parameters in SPELLINGS {
        let url = format!("sqlite:new.db{parameters}");
        for order in [&["list"][..], &["watch"], &["status", "k"]] {
            let done = scratch.done(&[order, &["--store", &url]].concat());
            assert!(done.code == 0 && done.err.contains("there is no such file yet"), "{url}: {done:?}");
            assert_eq!(fs::read_dir(&scratch.0).unwrap().count(), 0, "{url}");
        }
    }
}

#[test]
fn who_looks_changes_nothing_in_the_file_of_another_program() {
    let scratch = Scratch::new();
    rusqlite::Connection::open(scratch.file()).unwrap().execute_batch("CREATE TABLE mine (x)").unwrap();
    let before = fs::read(scratch.file()).unwrap();
    for parameters in SPELLINGS {
        let done = scratch.done(&["list", "--store", &format!("{}{parameters}", scratch.url())]);
        assert!(done.code == 0 && done.err.contains("nobody has used the tables"), "{parameters}: {done:?}");
        assert!(fs::read(scratch.file()).unwrap() == before, "{parameters}");
    }
}

#[test]
fn who_looks_sees_the_tables_of_the_prefix() {
    let scratch = Scratch::new();
    let url = |parameters| format!("{}{parameters}", scratch.url());
    let held = |parameters| {
        let (url, look) = (url("?prefix=x"), url(parameters));
        let done = scratch.done(&["run", "--store", &url, "k", "--", "leasehold", "list", "--store", &look]);
        done.out.contains("exclusive")
    };
    for parameters in ["?prefix=x&", "?&prefix=x"] {
        assert!(held(parameters), "{parameters}");
    }
    assert!(!held("?prefix=y"));
}

/// Nobody knows which is meant.
#[test]
fn two_prefixes_are_refused() {
    let scratch = Scratch::new();
    for order in [&["list"][..], &["watch"], &["status", "k"], &["run", "k", "true"]] {
        let url = scratch.url() + "?prefix=y&prefix=x";
        let mut command = scratch.leasehold(order);
        let done = crate::harness::done(command.env("LEASEHOLD_STORE", url));
        assert!(done.code == 64 && done.err.contains("the prefix is given twice"), "{done:?}");
        assert_eq!(fs::read_dir(&scratch.0).unwrap().count(), 0);
    }
}

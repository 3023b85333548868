//! Passwords in what was typed are not repeated on stderr, which logs keep.

use crate::harness::{Scratch, done};

#[test]
fn a_password_in_a_store_that_is_no_url_is_not_shown() {
    let scratch = Scratch::new();
    for url in [
        "password=hunter2 host=127.0.0.1:5432",
        "user=app password=hunter2 host=::1 dbname=x",
        "PGPASSWORD=hunter2 postgres://db/app",
        "app/hunter2@db:5432",
    ] {
        for arguments in
            [&["list", "--store", url][..], &["run", "--store", url, "k", "true"], &["bench", "--store", url]]
        {
            let done = scratch.done(arguments);
            assert_eq!(done.code, 64, "{done:?}");
            assert!(!done.err.contains("hunter2") && done.err.contains("sqlite:"), "{done:?}");
        }
    }
}

#[test]
fn a_password_in_a_word_at_the_wrong_place_is_not_shown() {
    const URL: &str = "postgres://app:hunter2@db/app";
    let scratch = Scratch::new();
    for arguments in [
        &["run", "k", "--store=URL", "true"][..],
        &["steal", "k", "--store=URL"],
        &["elect", "k", "--st=URL", "true"],
        &["run", "k", "-URL", "true"],
        &["status", "k", "URL"],
        &["status", "k", "--stor", "URL"],
        &["--store=URL", "list"],
        &["list", "--stor=URL"],
        &["list", "--json=URL"],
        &["run", "-n=URL", "k", "true"],
        &["run", "-w", "URL", "k", "true"],
        &["run", "-E", "URL", "k", "true"],
        &["run", "--on-loss", "URL", "k", "true"],
        &["bench", "--rounds", "URL"],
        &["URL", "list"],
        &["completions", "URL"],
    ] {
        let words: Vec<_> = arguments.iter().map(|word| word.replace("URL", URL)).collect();
        let done = done(scratch.leasehold(&[]).args(&words));
        assert_eq!(done.code, 64, "{words:?}: {done:?}");
        assert!(!done.err.contains("hunter2") && done.err.lines().count() == 1, "{words:?}: {done:?}");
    }
}

#[test]
fn a_password_in_a_url_in_place_of_the_command_is_not_shown() {
    let done = Scratch::new().done(&["run", "k", "postgres://app:hunter2@db/app", "true"]);
    assert!(done.code == 127 && done.err.contains("not found") && !done.err.contains("hunter2"), "{done:?}");
}

#[test]
fn a_password_in_a_url_in_place_of_the_key_is_not_shown() {
    let scratch = Scratch::new();
    for words in
        [&["run", "postgres://app:hunter2@db/app"][..], &["run", "postgres://app:hunter2@db/app", "-c", "true"]]
    {
        let done = scratch.done(words);
        assert!(done.code == 64 && !done.err.contains("hunter2"), "{done:?}");
    }
}

/// A user types the password as it is: the client takes what follows the first `@` for the host.
#[test]
#[cfg(feature = "store-postgres")]
fn a_password_with_an_at_sign_is_not_shown_as_the_host() {
    let scratch = Scratch::new();
    for url in [
        "postgres://u:hun@ter2@no-such-host.invalid:1/db",
        "postgres://u:hun@ter2/x@no-such-host.invalid:1/db",
        "postgres://u:hun@ter2,x@no-such-host.invalid:1/db",
        "postgres://no-such-host.invalid/db?user=me@tenant&password=ter2",
    ] {
        let done = scratch.done(&["list", "--store", url]);
        assert_eq!(done.code, 64, "{done:?}");
        assert!(!done.err.contains("ter2") && done.err.contains("@ as %40"), "{done:?}");
    }
}

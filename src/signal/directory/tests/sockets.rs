//! Messages and wake-ups.

use std::{fs, os::unix::net::UnixDatagram, sync::mpsc, thread};

use super::{
    super::{DirectorySignals, Ear, ear, listener::Listener},
    BUSY, OTHER, OWN, Scratch, inbox,
};
use crate::executor::Shared;
use crate::machine::{Body, Key, Message, SessionId, StoreId};
use crate::signal::Signals;

#[test]
fn a_socket_that_nobody_listens_at_goes_with_the_first_message() {
    let scratch = Scratch::new();
    let socket = scratch.dead_socket(OTHER, "socket");
    assert!(!ear::tell(&scratch.0, OTHER, "hello"));
    assert!(!socket.exists());
}

#[test]
fn a_context_that_does_not_listen_holds_nobody_up() {
    let scratch = Scratch::new();
    let full = UnixDatagram::bind(scratch.file(OTHER, "socket")).unwrap();
    let (sender, sent) = mpsc::channel();
    let directory = scratch.0.clone();
    thread::spawn(move || {
        let taken = (0..10_000).filter(|_| ear::tell(&directory, OTHER, "hello")).count();
        sender.send(taken).unwrap();
    });
    let taken = sent.recv_timeout(BUSY).expect("what does not fit is lost");
    assert!((1..10_000).contains(&taken), "{taken} messages fit");
    drop(full);
    assert!(scratch.file(OTHER, "socket").exists(), "it is full, and not dead");
}

#[test]
fn whoever_hears_is_woken_by_the_end_and_without_the_name_of_the_socket() {
    let scratch = Scratch::new();
    let (inbox, _notices) = inbox();
    let ear = Ear::open(&scratch.0, OWN);
    let listener = Shared::new(Listener::new(&scratch.0, OWN, ear, None, Shared::downgrade(&inbox)));
    fs::remove_file(scratch.file(OWN, "socket")).unwrap();
    listener.end();
    assert!(listener.hears(BUSY), "else the thread would go on until its next look");
}

#[test]
fn a_deleted_socket_is_opened_again_and_heard() {
    let scratch = Scratch::new();
    let ear = Ear::open(&scratch.0, OWN);
    fs::remove_dir_all(&scratch.0).unwrap();
    ear.keep_open();
    assert!(ear::tell(&scratch.0, OWN, "hello"));
    assert_eq!(ear.hear(BUSY).as_deref(), Some(""), "whoever woke the old one is heard");
    assert_eq!(ear.hear(BUSY).as_deref(), Some("hello"));
}

#[test]
fn a_context_that_is_awake_looks_for_its_socket() {
    let scratch = Scratch::new();
    let (inbox, _notices) = inbox();
    let ear = Ear::open(&scratch.0, OWN);
    let listener = Shared::new(Listener::new(&scratch.0, OWN, ear, None, Shared::downgrade(&inbox)));
    fs::remove_file(scratch.file(OWN, "socket")).unwrap();
    listener.keep();
    assert!(ear::tell(&scratch.0, OWN, "hello"), "others find it again");
}

#[test]
fn a_message_for_all_reaches_more_than_a_few() {
    // If the context rests at once, its listener sends the remaining copies before it ends.
    for rests in [false, true] {
        let scratch = Scratch::new();
        let sockets: Vec<_> =
            (10..200).map(|id| UnixDatagram::bind(scratch.file(SessionId(id), "socket")).unwrap()).collect();
        let (inbox, _notices) = inbox();
        let signals = DirectorySignals::new(&scratch.0);
        signals.wake(OWN, true, Shared::downgrade(&inbox));
        let body = Body::Gone { holder: OWN };
        let message = Message { store: StoreId(1), key: Key::new("k").unwrap(), body };
        signals.send(&message);
        if rests {
            signals.rest();
        }
        for socket in sockets {
            socket.set_read_timeout(Some(BUSY)).unwrap();
            let mut bytes = [0; 1_000];
            let length = socket.recv(&mut bytes).unwrap();
            assert_eq!(bytes[..length], *message.encode().as_bytes());
        }
    }
}

//! What a session has to say: it waits for a connection, and then for the server's answer.

use core::time::Duration;
use std::{collections::VecDeque, string::String};

use tokio::{task::JoinSet, time::timeout};

use super::{
    super::{carrier::Row, literal::text, names::Names},
    link::Link,
};
use crate::machine::{Message, SessionId};

/// The server refuses a notification of 8,000 bytes.
const LONGEST: usize = 7_999;

/// More than a session says before it is connected. If more messages wait, the oldest one that does not outlive
/// its sender is lost, or else the oldest one. They are hints, so they may be lost.
const MOST: usize = 128;
/// How long a session that becomes idle waits until its last messages are sent.
const LIMIT: Duration = Duration::from_secs(1);

/// A notification.
#[derive(Debug)]
pub(in super::super) struct Letter {
    channel: String,
    payload: String,
    /// If it is for one session, the advisory lock that this one has while it listens.
    ear: Option<i64>,
    /// Its recipient needs it even if its sender has closed.
    outlives: bool,
}

impl Letter {
    /// `None` if only the sender itself would get it, or if it is too long.
    pub(in super::super) fn of(message: &Message, from: SessionId, names: &Names) -> Option<Self> {
        let recipient = message.body.recipient();
        let payload = format!("{from} {}", message.encode());
        let is_sent = recipient != Some(from) && payload.len() <= LONGEST;
        let channel = recipient.map_or_else(|| names.channel(), |session| names.channel_of(session));
        let outlives = message.body.outlives_its_sender();
        is_sent.then(|| Self { channel, payload, ear: recipient.map(|session| names.ear(session)), outlives })
    }

    /// Sends the notification. The second column says whether its recipient listens: the shared lock is free if that session does not hold
    /// the exclusive one. It is released at once, since the session may be about to take its own.
    pub(in super::super) fn statement(&self) -> String {
        let listens = self.ear.map_or_else(
            || "true".into(),
            |ear| format!("CASE WHEN pg_try_advisory_lock_shared({ear}) THEN NOT pg_advisory_unlock_shared({ear}) ELSE true END"),
        );
        format!("SELECT pg_notify({}, {}), {listens}", text(&self.channel), text(&self.payload))
    }

    /// Whether the statement found a listener.
    pub(in super::super) fn is_heard(rows: &[Row]) -> bool {
        rows.first().is_some_and(|row| row.is_true(1))
    }
}

#[derive(Debug, Default)]
pub(super) struct Outbox {
    waiting: VecDeque<Letter>,
    on_their_way: JoinSet<()>,
    /// Those that nobody needs once their sender has closed. One to a dead session is sent again and again, since that never listens.
    passing: JoinSet<()>,
}

impl Outbox {
    /// Sends by this connection; without one the letter waits.
    pub(super) fn send(&mut self, letter: Letter, link: Option<&Link>) {
        match link {
            Some(link) => {
                let under_way = if letter.outlives { &mut self.on_their_way } else { &mut self.passing };
                while under_way.try_join_next().is_some() {}
                under_way.spawn(link.notify(letter));
            }
            None => {
                if self.waiting.len() == MOST {
                    let passing = self.waiting.iter().position(|waiting| !waiting.outlives);
                    self.waiting.remove(passing.unwrap_or(0));
                }
                self.waiting.push_back(letter);
            }
        }
    }

    /// Sends what waits.
    pub(super) fn flush(&mut self, link: &Link) {
        for letter in core::mem::take(&mut self.waiting) {
            self.send(letter, Some(link));
        }
    }

    /// Whether anything waits for a connection that others have to learn even if this session ends.
    pub(super) fn waits(&self) -> bool {
        self.waiting.iter().any(|letter| letter.outlives)
    }

    /// Waits until the server has every message that was sent and that outlives its sender.
    pub(super) async fn finish(&mut self) {
        let sent = async { while self.on_their_way.join_next().await.is_some() {} };
        // A server that does not answer is not waited for.
        let _ = timeout(LIMIT, sent).await;
    }
}

#[cfg(test)]
mod tests {
    use std::string::ToString;

    use super::*;
    use crate::machine::{Body, Key, StoreId};

    fn letter(outlives: bool) -> Letter {
        Letter { channel: "c".to_string(), payload: "p".to_string(), ear: None, outlives }
    }

    /// Only keys of `leases.locks`, which does not exist natively, are longer than the longest key of a user. The server would refuse the
    /// notification, and with it the transaction that grants the lease.
    #[test]
    fn a_message_that_is_too_long_is_not_sent() {
        let names = Names { database: "1/2".into(), prefix: "leasehold".into(), schema: "public".into() };
        let is_sent = |key| {
            let message = Message { store: StoreId(1), key, body: Body::Ended { holder: SessionId(2) } };
            Letter::of(&message, SessionId(3), &names).is_some()
        };
        assert!(is_sent(Key::new(&"\u{1}".repeat(1_024)).unwrap()));
        assert!(!is_sent(Key::of_lock(&"\u{1}".repeat(1_400))));
    }

    /// A session that was ended as dead never listens, so closing would wait until the message to it is given up.
    #[test]
    fn a_message_to_a_session_that_was_ended_as_dead_holds_up_no_close() {
        let names = Names { database: "1/2".into(), prefix: "leasehold".into(), schema: "public".into() };
        let outlives = |body| {
            let message = Message { store: StoreId(1), key: Key::new("k").unwrap(), body };
            Letter::of(&message, SessionId(3), &names).is_some_and(|letter| letter.outlives)
        };
        assert!(!outlives(Body::Ended { holder: SessionId(2) }));
        assert!(outlives(Body::InUse { asker: SessionId(2) }));
    }

    /// Without the message, a context learns of its grant only at its next heartbeat. A request is sent again.
    #[test]
    fn requests_do_not_push_out_what_others_have_to_learn() {
        let mut outbox = Outbox::default();
        outbox.send(letter(true), None);
        (0..2 * MOST).for_each(|_| outbox.send(letter(false), None));
        assert!(outbox.waits() && outbox.waiting.len() == MOST);
        (0..2 * MOST).for_each(|_| outbox.send(letter(true), None));
        assert_eq!(outbox.waiting.len(), MOST);
    }
}

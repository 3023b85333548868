//! A closing context's blind delete of a session's row, if somebody's transaction keeps the row locked.

use core::time::Duration;

use tokio::time::timeout;

use super::{Place, carrier::Round, lending::Errand, signals::Turn, transaction::begin_last_word};
use crate::executor::Shared;
use crate::machine::SessionId;

/// How long it waits for a connection. A manager that closes waits for a moment only.
const CONNECTS: Duration = Duration::from_millis(700);
/// How long the message has to arrive.
const ARRIVES: Duration = Duration::from_millis(200);
/// How long the server waits for the row. If somebody keeps it locked for longer, the session ends by its silence.
const PATIENCE: Duration = Duration::from_secs(60);

/// Has the server delete a session's row as soon as nobody keeps it locked, even if this process ends before that: a server executes a
/// message to its end, whether or not its sender is still there. A connection that has to wait for that is closed, since nobody else could
/// use it meanwhile. The turn to speak ends when the message has had time to arrive.
pub(super) async fn say(place: Shared<Place>, session: SessionId, turn: Turn) {
    // Without a connection, or if the server refuses, the session ends by its silence.
    let Ok(mut lent) = place.lending.lend(Errand::Any, CONNECTS).await else { return };
    let mut round = Round::default();
    begin_last_word(PATIENCE, &mut round);
    round.add(&place.names.delete_session(session));
    round.add("COMMIT");
    let answered = timeout(ARRIVES, lent.loan.carry(&round)).await;
    if matches!(answered, Ok(Ok(_))) {
        lent.give_back();
    }
    drop(turn);
}

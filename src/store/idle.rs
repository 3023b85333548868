//! Which keys a list may leave out.

use crate::machine::Record;

/// Whether this is the record of a key that nobody holds or waits for. What cannot be read may be in use.
pub(super) fn is_idle(text: &str) -> bool {
    Record::decode(text).is_ok_and(|record| record.is_idle())
}

#[cfg(test)]
mod tests {
    use std::{format, string::String};

    use super::*;
    use crate::machine::{
        Acquire, Action, Batch, Beat, Key, Now, Operation, Outcome, Records, RequestId, Row, SessionId, SessionStep,
        StoreClock, StoreId, StoreNow,
    };

    fn key() -> Key {
        Key::new("k").unwrap()
    }

    /// Runs an operation, and returns its outcome and the text of the record.
    fn apply(records: &mut Records, action: Action) -> (Outcome, String) {
        let step = SessionStep::Open { beat: Beat { lease_ms: 1_000, ..Beat::default() }, instance: String::new() };
        let batch = Batch { step, ..Batch::new(SessionId(1), [Operation { key: key(), action }].into()) };
        let mut reply = batch.apply(records, StoreNow::new(StoreClock::Observed, Now::default()));
        (reply.answers.remove(0).outcome, records.text(&Row::Record(key())).unwrap())
    }

    #[test]
    fn a_record_is_idle_once_its_lease_is_released() {
        let (mut records, request) = (Records::whole(StoreId(1)), RequestId(1));
        let acquire = Acquire { info: "\"grants\":[],\"queue\":[]".into(), ..Acquire::new(request, 1) };
        let (Outcome::Granted(granted), held) = apply(&mut records, Action::Acquire(acquire)) else { panic!() };
        assert!(!is_idle(&held), "{held}");
        let (_, free) = apply(&mut records, Action::Release { token: granted.block.first, request });
        assert!(is_idle(&free), "{free}");
    }

    #[test]
    fn what_cannot_be_read_is_not_idle() {
        let text = |format: u64, last_token: u64| {
            format!(
                r#"{{"format":{format},"last_token":{last_token},"revision":2,"grants":[],"queue":[],"last_exclusive":64}}"#
            )
        };
        assert!(is_idle(&text(1, 64)));
        for unreadable in [&text(2, 64), &text(1, u64::MAX), "", "{}"] {
            assert!(!is_idle(unreadable), "{unreadable}");
        }
    }
}

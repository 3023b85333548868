//! The pauses between one connection and the next, for the signals of a session.

use core::time::Duration;

/// The longest pause.
const LONGEST: Duration = Duration::from_secs(2);

/// Each pause is twice as long as the previous one, up to the longest, until a connection has lasted. After each new connection the context
/// asks about all that it holds, so with short pauses a server that cuts each connection at once would be asked many times a second.
pub(super) struct Backoff {
    shortest: Duration,
    next: Duration,
}

impl Backoff {
    pub(super) const fn new(shortest: Duration) -> Self {
        Self { shortest, next: shortest }
    }

    /// Notes that a connection has ended after it had lasted for this long.
    pub(super) fn stood(&mut self, time: Duration) {
        if time > LONGEST {
            self.next = self.shortest;
        }
    }

    /// The pause before the next connection.
    pub(super) fn next(&mut self) -> Duration {
        let pause = self.next;
        self.next = LONGEST.min(pause * 2);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_connection_that_has_lasted_makes_the_pauses_short_again() {
        let mut backoff = Backoff::new(Duration::from_millis(500));
        let next_ms = |backoff: &mut Backoff| backoff.next().as_millis();
        assert_eq!([(); 5].map(|()| next_ms(&mut backoff)), [500, 1_000, 2_000, 2_000, 2_000]);
        backoff.stood(LONGEST);
        assert_eq!(next_ms(&mut backoff), 2_000, "it was cut too soon");
        backoff.stood(LONGEST * 2);
        assert_eq!(next_ms(&mut backoff), 500);
    }
}

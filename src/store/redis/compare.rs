//! One run of the script that writes rows only if all that the decision rests on still stand as they were read.

use core::time::Duration;
use std::{
    collections::HashMap,
    string::{String, ToString},
    vec::Vec,
};

use redis::{Cmd, RedisError, Value};
use tokio::time::Instant;

use super::{
    failure::{self, Stage},
    link::Link,
    lua::Script,
    memory::{Found, Text},
};
use crate::machine::{SessionId, StoreError};

/// What a script of the user's is given.
#[derive(Debug, Default)]
pub(super) struct ScriptInput {
    pub(super) keys: Vec<Vec<u8>>,
    pub(super) arguments: Vec<Vec<u8>>,
}

impl ScriptInput {
    /// For the plain script, in which there is none.
    pub(super) const NONE: Self = Self { keys: Vec::new(), arguments: Vec::new() };
}

/// One run of the script.
#[derive(Debug, Default)]
pub(super) struct Comparison {
    /// What was read.
    pub(super) read: Vec<(String, Found)>,
    /// Of which rows, by their names, the decision rests on these facts only; of all others it rests on the whole text.
    pub(super) facts: Vec<(String, String)>,
    /// What is to be written; `None` deletes.
    pub(super) writes: Vec<(String, Option<String>)>,
    /// The session that is to learn of other sessions, and of how many.
    pub(super) told: Option<(SessionId, usize)>,
    pub(super) letters: Vec<Enclosed>,
    pub(super) reservation: Option<Reservation>,
}

/// A message that is published with the writes.
#[derive(Debug)]
pub(super) struct Enclosed {
    pub(super) channel: String,
    pub(super) text: String,
    /// The row that goes with it, by its name; empty for none.
    pub(super) row: String,
}

/// Reserves records for the next try of a transaction. A try that fails again renews it.
#[derive(Debug)]
pub(super) struct Reservation {
    /// The name of the session that makes it.
    pub(super) name: String,
    /// The rows that reserve the records. The script respects the reservations of others even if none is wanted here.
    pub(super) rows: Vec<String>,
    /// For how long the script reserves the records if the comparison fails, in ms; 0 if it does not.
    pub(super) wanted_ms: u64,
}

/// What became of it.
#[derive(Debug)]
pub(super) enum Outcome {
    /// All rows were as read, and the writes are done.
    Done {
        /// What the user's script returned, or without one the other sessions that were asked for.
        said: Value,
        /// How many listeners heard each message; empty for a user's script.
        heard: Value,
        /// How long the script took to answer.
        trip: Duration,
    },
    /// A row differs, or another transaction has reserved a record. Nothing was written.
    Stale {
        /// The rows, read at one moment.
        snapshot: Snapshot,
        /// Whether no other transaction has reserved a record.
        is_free: bool,
        /// How long the script took to answer.
        trip: Duration,
    },
}

/// Rows as they stood at one moment.
pub(super) type Snapshot = HashMap<String, Found>;

/// A row that is replaced may grow by this many bytes, as numbers in it do, and still counts as one that needs no more memory.
const GROWTH: usize = 32;

impl Comparison {
    /// Runs the script. The inner error is the server's refusal, or that of the user's own script.
    ///
    /// # Errors
    /// [`StoreError`] if there was no answer.
    pub(super) async fn run(
        &self,
        link: &Link,
        script: &Script,
        keys: [&str; 2],
        input: &ScriptInput,
        stage: Stage<'_>,
    ) -> Result<Result<Outcome, RedisError>, StoreError> {
        let (mut script, mut full) = (script, None);
        loop {
            let mut asked_at = Instant::now();
            let mut answer = link.ask(&self.command("EVALSHA", &script.digest, keys, input), stage).await?;
            if answer.as_ref().is_err_and(|refusal| refusal.code() == Some("NOSCRIPT")) {
                // The script did not run. `EVAL` sends its text, and the server learns it, in a second round trip.
                asked_at = Instant::now();
                answer = link.ask(&self.command("EVAL", &script.text, keys, input), stage).await?;
            }
            match (answer, &script.when_full) {
                (Ok(value), _) => {
                    let read = self.read_answer(value, asked_at.elapsed());
                    return read.map(Ok).ok_or_else(|| failure::of_answer(stage));
                }
                (Err(refusal), Some(other)) if refusal.code() == Some("OOM") && self.needs_no_memory() => {
                    (script, full) = (other, Some(refusal));
                }
                // A server that does not know the flag refuses the other script for that. Then the first refusal says more.
                (Err(refusal), _) => return Ok(Err(full.unwrap_or(refusal))),
            }
        }
    }

    /// Whether it only deletes rows and replaces others, as heartbeats and releases do.
    fn needs_no_memory(&self) -> bool {
        self.writes.iter().all(|(name, text)| {
            let Some(text) = text else { return true };
            let read = self.read.iter().find(|(known, _)| known == name).and_then(|(_, found)| found.as_ref());
            read.is_some_and(|read| text.len() <= read.len() + GROWTH)
        })
    }

    fn command(&self, verb: &str, script: &str, keys: [&str; 2], input: &ScriptInput) -> Cmd {
        let mut command = redis::cmd(verb);
        command.arg(script).arg(keys.len() + input.keys.len()).arg(&keys).arg(&input.keys);
        match &self.reservation {
            Some(Reservation { name, rows, wanted_ms }) => {
                command.arg(rows.len()).arg(name).arg(wanted_ms).arg(rows);
            }
            None => {
                command.arg(0).arg("").arg(0);
            }
        }
        command.arg(self.read.len());
        for (name, found) in &self.read {
            let facts = self.facts.iter().find(|(known, _)| known == name).map(|(_, facts)| facts.as_str());
            let whole = found.as_ref().map_or("", |text| &text.digest);
            command.arg(name).arg(facts.unwrap_or(whole));
        }
        let set = self.writes.iter().filter_map(|(name, text)| Some((name, text.as_ref()?)));
        let deleted = self.writes.iter().filter(|(_, text)| text.is_none());
        command.arg(set.clone().count()).arg(deleted.clone().count());
        set.for_each(|(name, text)| {
            command.arg(name).arg(text);
        });
        deleted.for_each(|(name, _)| {
            command.arg(name);
        });
        let (own, wanted) = self.told.map_or((String::new(), 0), |(session, wanted)| (session.to_string(), wanted));
        command.arg(own).arg(wanted).arg(self.letters.len());
        for Enclosed { channel, text, row } in &self.letters {
            command.arg(channel).arg(text).arg(row);
        }
        command.arg(&input.arguments);
        command
    }

    fn read_answer(&self, answer: Value, trip: Duration) -> Option<Outcome> {
        let Value::Array(parts) = answer else { return None };
        let mut parts = parts.into_iter();
        match parts.next()? {
            Value::Int(1) => {
                let mut part = || parts.next().unwrap_or(Value::Nil);
                Some(Outcome::Done { said: part(), heard: part(), trip })
            }
            Value::Int(0) => {
                let (Value::Array(found), Value::Array(named)) = (parts.next()?, parts.next()?) else { return None };
                let is_free = parts.next()? == Value::Int(1);
                let mut snapshot = Snapshot::new();
                let mut named = named.into_iter();
                while let (Some(Value::BulkString(name)), Some(text)) = (named.next(), named.next()) {
                    snapshot.insert(String::from_utf8(name).ok()?, found_in(text)?);
                }
                for ((name, _), text) in self.read.iter().zip(found) {
                    snapshot.insert(name.clone(), found_in(text)?);
                }
                Some(Outcome::Stale { snapshot, is_free, trip })
            }
            _ => None,
        }
    }
}

fn found_in(value: Value) -> Option<Found> {
    match value {
        Value::BulkString(bytes) => Some(Some(Text::new(bytes))),
        Value::Nil => Some(None),
        _ => None,
    }
}

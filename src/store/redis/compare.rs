//! The script that writes rows only if all that the decision rests on still stand as they were read.

use core::time::Duration;
use std::{
    collections::HashMap,
    format,
    string::{String, ToString},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    vec::Vec,
};

use redis::{Cmd, RedisError, Value};
use tokio::time::Instant;

use super::{
    failure::{self, Stage},
    link::Link,
};
use crate::machine::{SessionId, StoreError};

/// What stands under the name of a row, and its digest, which Redis computes by `redis.sha1hex`.
#[derive(Debug)]
pub(super) struct Text {
    bytes: Vec<u8>,
    digest: String,
}

impl Text {
    pub(super) fn new(bytes: Vec<u8>) -> Arc<Self> {
        let digest = sha1_smol::Sha1::from(&bytes).digest().to_string();
        Arc::new(Self { bytes, digest })
    }

    /// As text. What is none cannot be read as a row either.
    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }
}

/// A row by its name, and what stands there; `None` if nothing does.
pub(super) type Found = Option<Arc<Text>>;

/// A script for `EVALSHA`.
#[derive(Debug)]
pub(super) struct Script {
    text: String,
    digest: String,
}

/// Reads the rows that its arguments name, each with its premise. If a premise fails, the
/// answer is all of them as they stand, and the sessions that their texts name, which the next attempt most likely wants.
/// If all hold, the rows that follow are written, and those after them deleted.
///
/// A record may be reserved. The reservation is a row of its own: it names a session, and expires within a second by the server's
/// clock. Until then only that session writes the record; any other is answered as if a premise had failed. A transaction that has
/// failed twice makes a reservation when it fails again. Other writes to the record then cannot make its next try fail, if that try
/// arrives in time. A transaction for more than eight keys (`MOST_RESERVED` in `contest.rs`) neither makes nor respects
/// reservations. Nor does a user who may not ask for the TIME. No lease depends on that clock.
///
/// A premise is the digest of the whole row, empty if there must be none; or, in JSON, some facts that must stand in the row:
/// whose store it is, or a grant. Numbers up to 2^53 are exact in Lua.
///
/// Messages are published with the writes, and the answer counts the listeners of each. One that the user may not send counts as unheard.
/// A message may name one of the rows that are written: then the row's new text follows on a second line, unless it is longer than 4 KiB.
///
/// The ids of all sessions with a row stand in a sorted set, so that a session that opens is told of those that follow it. It is written
/// before the rows: a user who may not write it, or who finds another type under its name, has then written nothing.
///
/// Where no row is set, a field that nobody has is deleted: a replica refuses that, so that nothing is ever read from one.
const COMPARE: &str = r#"
local function has(text, premise)
    local row, facts = cjson.decode(text), cjson.decode(premise)
    if row.format ~= facts.format then return false end
    if facts.store then return row.store == facts.store end
    for _, grant in ipairs(row.grants) do
        if grant.holder == facts.holder and grant.token == facts.token and grant.request == facts.request then
            return true
        end
    end
    return false
end
local function stands(text, premise)
    if string.sub(premise, 1, 1) ~= '{' then return (text and redis.sha1hex(text) or '') == premise end
    local readable, is_there = pcall(has, text, premise)
    return readable and is_there
end
local rows, index, same, found, was = KEYS[1], KEYS[2], true, {}, {}
local reserved, own_name, wanted_ms, over = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3]), {}
local at = 5 + reserved
local function clock_ms()
    local time = redis.pcall('TIME')
    return not time.err and time[1] * 1000 + math.floor(time[2] / 1000)
end
local function is_taken(row)
    local text = redis.pcall('HGET', rows, row)
    local name, till = string.match(type(text) == 'string' and text or '', '^(%x+) (%d+)$')
    if not name then return false end
    local now = name ~= own_name and clock_ms()
    local left = now and till - now or 0
    if left > 0 and left <= 1000 then return true end
    over[#over + 1] = row
    return false
end
local function refusal()
    local probe = redis.pcall('HDEL', rows, '')
    return type(probe) == 'table' and probe.err and probe
end
for i = 1, tonumber(ARGV[4 + reserved]) do
    found[i] = redis.pcall('HGET', rows, ARGV[at])
    if type(found[i]) == 'table' then return found[i] end
    same = same and stands(found[i], ARGV[at + 1])
    was[ARGV[at]] = found[i]
    at = at + 2
end
local is_free = true
for i = 4, 3 + reserved do is_free = is_free and not is_taken(ARGV[i]) end
if not (same and is_free) then
    local now = is_free and wanted_ms > 0 and clock_ms()
    if now then
        local text = string.format('%s %d', own_name, now + wanted_ms)
        for i = 4, 3 + reserved do redis.pcall('HSET', rows, ARGV[i], text) end
    end
    local named, seen = {}, {}
    for i = 1, #found do
        for session in string.gmatch(found[i] or '', '"holder":"(%x+)"') do
            if not seen[session] and #named < 64 then
                seen[session] = true
                named[#named + 1] = 'session:' .. session
                named[#named + 1] = redis.call('HGET', rows, named[#named])
            end
        end
    end
    return refusal() or {0, found, named, is_free and 1 or 0}
end
for i = 1, #over do redis.pcall('HDEL', rows, over[i]) end
local sets, deletions = tonumber(ARGV[at]), tonumber(ARGV[at + 1])
local set, deleted = at + 2, at + 2 + 2 * sets
for i = set, deleted - 2, 2 do
    local session = not was[ARGV[i]] and string.match(ARGV[i], '^session:(%x+)$')
    if session then redis.call('ZADD', index, 0, session) end
end
for i = deleted, deleted + deletions - 1 do
    local session = string.match(ARGV[i], '^session:(%x+)$')
    if session then redis.call('ZREM', index, session) end
end
local written = {}
for i = set, deleted - 2, 2 do
    redis.call('HSET', rows, ARGV[i], ARGV[i + 1])
    written[ARGV[i]] = ARGV[i + 1]
end
for i = deleted, deleted + deletions - 1 do
    redis.call('HDEL', rows, ARGV[i], (string.gsub(ARGV[i], '^lease:', 'reserved:')))
end
at = deleted + deletions
local own, wanted, others = ARGV[at], tonumber(ARGV[at + 1]), {}
at = at + 2
local function tell(from, to)
    local left = wanted - #others / 2
    if left <= 0 then return end
    local found = redis.pcall('ZRANGEBYLEX', index, from, to, 'LIMIT', 0, left)
    for _, session in ipairs(found) do
        local text = redis.call('HGET', rows, 'session:' .. session)
        if text then
            others[#others + 1] = session
            others[#others + 1] = text
        else
            redis.pcall('ZREM', index, session)
        end
    end
end
tell('(' .. own, '+')
tell('-', '(' .. own)
local heard = {}
for i = 1, tonumber(ARGV[at]) do
    local text, row = ARGV[at + 2], written[ARGV[at + 3]]
    if row and #row <= 4096 then text = text .. '\n' .. row end
    local listeners = redis.pcall('PUBLISH', ARGV[at + 1], text)
    heard[i] = type(listeners) == 'number' and listeners or 0
    at = at + 3
end
at = at + 1
"#;

impl Script {
    /// Writes rows, and nothing else.
    pub(super) fn plain() -> Self {
        Self::new(format!("{COMPARE}return sets == 0 and refusal() or {{1, others, heard}}"))
    }

    /// Runs the user's own script if the rows stand as they were read. It finds its own keys and arguments, and its lines
    /// have their own numbers.
    pub(super) fn around(users: &str) -> Self {
        Self::new(format!(
            "local function script(KEYS, ARGV) {users}\nend\n{COMPARE}\
             local keys, arguments = {{}}, {{}}\n\
             for i = 3, #KEYS do keys[i - 2] = KEYS[i] end\n\
             for i = at, #ARGV do arguments[i - at + 1] = ARGV[i] end\n\
             return {{1, (script(keys, arguments))}}"
        ))
    }

    fn new(text: String) -> Self {
        let digest = sha1_smol::Sha1::from(&text).digest().to_string();
        Self { text, digest }
    }
}

/// No reservation lasts longer than this, in ms, because its maker may have died. The script knows the number, too.
pub(super) const LONGEST_MS: u64 = 1_000;

/// A record of more bytes does not go with a message. The script knows the number, too.
pub(super) const LONGEST_ENCLOSED: usize = 4_096;

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
        let mut asked_at = Instant::now();
        let mut answer = link.ask(&self.command("EVALSHA", &script.digest, keys, input), stage).await?;
        if answer.as_ref().is_err_and(|refusal| refusal.code() == Some("NOSCRIPT")) {
            // The script did not run. `EVAL` sends its text, and the server learns it, in a second round trip.
            asked_at = Instant::now();
            answer = link.ask(&self.command("EVAL", &script.text, keys, input), stage).await?;
        }
        match answer {
            Ok(value) => self.read_answer(value, asked_at.elapsed()).map(Ok).ok_or_else(|| failure::of_answer(stage)),
            Err(refusal) => Ok(Err(refusal)),
        }
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

/// How many rows are remembered.
const REMEMBERED: usize = 4_096;

/// What this process saw last. A guess: what rests on it is written only if it still stands.
#[derive(Debug, Default)]
pub(super) struct Memory(Mutex<HashMap<String, Arc<Text>>>);

impl Memory {
    /// No other code runs under the lock, so the map is sound even if the lock is poisoned.
    fn texts(&self) -> MutexGuard<'_, HashMap<String, Arc<Text>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn guess(&self, name: &str) -> Found {
        self.texts().get(name).cloned()
    }

    pub(super) fn learn(&self, name: &str, found: Found) {
        let mut texts = self.texts();
        let Some(text) = found else {
            texts.remove(name);
            return;
        };
        if texts.len() >= REMEMBERED {
            texts.clear();
        }
        texts.insert(name.to_string(), text);
    }
}

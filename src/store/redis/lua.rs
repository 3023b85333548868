//! The script that writes rows only if all that the decision rests on still stand as they were read.

use std::{
    boxed::Box,
    format,
    string::{String, ToString},
};

/// A script for `EVALSHA`.
#[derive(Debug)]
pub(super) struct Script {
    pub(super) text: String,
    pub(super) digest: String,
    /// The same script for a server whose memory is full, if it may write there at all.
    pub(super) when_full: Option<Box<Self>>,
}

/// Lets a script write although the memory of the server has reached `maxmemory`. Servers before Redis 7 do not know it.
/// Source: <https://redis.io/docs/latest/develop/programmability/lua-api/#script-flags>.
const ALLOW_OOM: &str = "#!lua flags=allow-oom";

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
            return grant.mode == facts.mode
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
        let text = format!("{COMPARE}return sets == 0 and refusal() or {{1, others, heard}}");
        let when_full = Self::new(format!("{ALLOW_OOM}\n{text}"));
        Self { when_full: Some(Box::new(when_full)), ..Self::new(text) }
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
        Self { text, digest, when_full: None }
    }
}

/// No reservation lasts longer than this, in ms, because its maker may have died. The script knows the number, too.
pub(super) const LONGEST_MS: u64 = 1_000;

/// A record of more bytes does not go with a message. The script knows the number, too.
pub(super) const LONGEST_ENCLOSED: usize = 4_096;

//! Records and messages as text: JSON with a `format` number, so that an old tab and a fresh one run side by side.

use alloc::string::{String, ToString};
use core::fmt;

use super::{
    id::{Incarnation, RequestId, StoreId},
    json::{Extra, Fields, Object},
    key::Key,
    message::{Body, Message},
    mode::Mode,
    record::{FORMAT, Grant, Record, Waiter},
    time::Wall,
    token::{Token, TokenBlock},
};

/// Why a stored record cannot be used. It is left as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Unreadable {
    /// A newer version wrote it.
    FormatTooNew {
        /// The format that was found.
        found: u64,
        /// The newest format that this version knows.
        known: u64,
    },
    /// It is no record of ours.
    Corrupt,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FormatTooNew { found, known } => {
                write!(out, "the record has format {found}, this version knows {known}; update this program")
            }
            Self::Corrupt => out.write_str("the stored value is no lease record; it was left as it is"),
        }
    }
}

impl core::error::Error for Unreadable {}

fn check_format(fields: &mut Fields<'_>) -> Result<(), Unreadable> {
    match fields.number("format") {
        FORMAT => Ok(()),
        found if found > FORMAT => Err(Unreadable::FormatTooNew { found, known: FORMAT }),
        _ => Err(Unreadable::Corrupt),
    }
}

impl Record {
    /// Writes the record down.
    pub fn encode(&self) -> String {
        Object::new()
            .number("format", FORMAT)
            .number("last_token", self.last_token.0)
            .number("revision", self.revision)
            .list("grants", &self.grants, encode_grant)
            .list("queue", &self.queue, encode_waiter)
            .number("last_exclusive", self.last_exclusive.0)
            .list("stolen", &self.stolen, encode_token)
            .end(&self.extra)
    }

    /// Reads what [`encode`](Self::encode) wrote, in this version or in another of the same format.
    ///
    /// # Errors
    /// [`Unreadable`] if a newer version wrote it, or if it is no record at all.
    pub fn decode(text: &str) -> Result<Self, Unreadable> {
        let mut fields = Fields::read(text).ok_or(Unreadable::Corrupt)?;
        check_format(&mut fields)?;
        decode_record(fields).ok_or(Unreadable::Corrupt)
    }
}

fn decode_record(mut fields: Fields<'_>) -> Option<Record> {
    let mut record = Record {
        last_token: Token(fields.number("last_token")),
        revision: fields.number("revision"),
        grants: fields.list("grants", decode_grant),
        queue: fields.list("queue", decode_waiter),
        last_exclusive: Token(fields.number("last_exclusive")),
        stolen: fields.numbers("stolen").iter().map(|token| Token(*token)).collect(),
        extra: fields.rest(),
    };
    // No token is granted twice, whatever was written there.
    for grant in &record.grants {
        record.last_token = record.last_token.max(grant.block.last);
    }
    fields.is_sound().then_some(record)
}

fn encode_token(token: &Token) -> String {
    token.0.to_string()
}

fn encode_grant(grant: &Grant) -> String {
    Object::new()
        .id("holder", grant.holder.0)
        .text("instance", &grant.instance)
        .number("request", grant.request.0)
        .text("mode", grant.mode.name())
        .number("token", grant.block.first.0)
        .number("tokens", grant.block.last.0)
        .number("previous", grant.previous.0)
        .number("beat", grant.beat)
        .number("beacon", grant.beacon)
        .number("lease_ms", grant.lease_ms)
        .number("renewed_at", grant.renewed_at.as_ms())
        .number("expires_at", grant.expires_at.as_ms())
        .text("info", &grant.info)
        .end(&grant.extra)
}

fn decode_grant(fields: &mut Fields<'_>) -> Option<Grant> {
    let (block, mode) = (decode_block(fields)?, decode_mode(fields)?);
    Some(Grant {
        holder: Incarnation(fields.id("holder")),
        instance: fields.text("instance"),
        request: RequestId(fields.number("request")),
        mode,
        block,
        previous: Token(fields.number("previous")),
        beat: fields.number("beat"),
        beacon: fields.number("beacon"),
        lease_ms: fields.number("lease_ms"),
        renewed_at: Wall::from_ms(fields.number("renewed_at")),
        expires_at: Wall::from_ms(fields.number("expires_at")),
        deadline: None,
        info: fields.text("info"),
        extra: fields.rest(),
    })
}

fn decode_mode(fields: &mut Fields<'_>) -> Option<Mode> {
    Mode::from_name(&fields.text("mode"))
}

/// Anybody can write what is read here: tokens out of range are none.
fn decode_block(fields: &mut Fields<'_>) -> Option<TokenBlock> {
    TokenBlock::from_range(fields.number("token"), fields.number("tokens"))
}

fn encode_waiter(waiter: &Waiter) -> String {
    Object::new()
        .id("holder", waiter.holder.0)
        .text("instance", &waiter.instance)
        .number("request", waiter.request.0)
        .text("mode", waiter.mode.name())
        .integer("priority", waiter.priority)
        .number("ticket", waiter.ticket)
        .list("upgrades", waiter.upgrades.as_slice(), encode_token)
        .number("alone", waiter.alone.into())
        .number("beat", waiter.beat)
        .number("beacon", waiter.beacon)
        .number("lease_ms", waiter.lease_ms)
        .number("heir_ms", waiter.heir_ms)
        .text("info", &waiter.info)
        .end(&waiter.extra)
}

fn decode_waiter(fields: &mut Fields<'_>) -> Option<Waiter> {
    let mode = decode_mode(fields)?;
    Some(Waiter {
        holder: Incarnation(fields.id("holder")),
        instance: fields.text("instance"),
        request: RequestId(fields.number("request")),
        mode,
        priority: fields.integer("priority"),
        ticket: fields.number("ticket"),
        upgrades: fields.numbers("upgrades").first().copied().map(Token),
        alone: fields.number("alone") > 0,
        beat: fields.number("beat"),
        beacon: fields.number("beacon"),
        lease_ms: fields.number("lease_ms"),
        heir_ms: fields.number("heir_ms"),
        deadline: None,
        info: fields.text("info"),
        extra: fields.rest(),
    })
}

impl Message {
    /// Writes the message down.
    pub fn encode(&self) -> String {
        let mut head = Object::new();
        head.number("format", FORMAT).id("store", self.store.0).text("key", self.key.as_str());
        match self.body {
            Body::Granted { holder, request, block, lease_ms, previous } => head
                .text("kind", "granted")
                .id("holder", holder.0)
                .number("request", request.0)
                .number("token", block.first.0)
                .number("tokens", block.last.0)
                .number("lease_ms", lease_ms)
                .number("previous", previous.0),
            Body::Wanted { holder, tries } => {
                head.text("kind", "wanted").id("holder", holder.0).number("tries", tries.into())
            }
            Body::Freed { holder } => head.text("kind", "freed").id("holder", holder.0),
            Body::InUse { holder } => head.text("kind", "in_use").id("holder", holder.0),
            Body::Gone { holder } => head.text("kind", "gone").id("holder", holder.0),
            Body::Evicted { holder, token } => {
                head.text("kind", "evicted").id("holder", holder.0).number("token", token.0)
            }
            Body::Stolen { holder, token } => {
                head.text("kind", "stolen").id("holder", holder.0).number("token", token.0)
            }
        }
        .end(&Extra::default())
    }

    /// Reads a message. Anybody can post on a channel: what is malformed, or newer than us, is `None`.
    pub fn decode(text: &str) -> Option<Self> {
        let mut fields = Fields::read(text)?;
        check_format(&mut fields).ok()?;
        let store = StoreId(fields.id("store"));
        let key = Key::new(&fields.text("key")).ok()?;
        let holder = Incarnation(fields.id("holder"));
        let body = match fields.text("kind").as_str() {
            "granted" => Body::Granted {
                holder,
                request: RequestId(fields.number("request")),
                block: decode_block(&mut fields)?,
                lease_ms: fields.number("lease_ms"),
                previous: Token(fields.number("previous")),
            },
            "wanted" => Body::Wanted { holder, tries: fields.number("tries") > 0 },
            "freed" => Body::Freed { holder },
            "in_use" => Body::InUse { holder },
            "gone" => Body::Gone { holder },
            "stolen" => Body::Stolen { holder, token: Token(fields.number("token")) },
            "evicted" => Body::Evicted { holder, token: Token(fields.number("token")) },
            _ => return None,
        };
        fields.is_sound().then_some(Self { store, key, body })
    }
}

//! Records and messages as text: JSON with a `format` number, so that tabs with different versions can run side by side.

use alloc::string::{String, ToString};
use core::fmt;

use super::{
    Body, FORMAT, Grant, Message, Record, Waiter,
    config::LONGEST_SILENCE_MS,
    failure::{StoreError, StoreErrorKind},
    id::{RequestId, SessionId, StoreId},
    json::{Extra, Fields, Object},
    key::Key,
    mode::Mode,
    session::{Session, Stolen},
    time::{Monotonic, Wall},
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
    /// It is not a record of this library.
    Corrupt,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FormatTooNew { found, known } => {
                write!(out, "the record has format {found}, this version knows {known}; update this program")
            }
            Self::Corrupt => out.write_str(
                "the stored value is no lease record; it was left as it is; delete it; in a browser, delete it from the object store \
                 `leasehold` of your database, or from `leases` in leasehold's own, or clear the site's data",
            ),
        }
    }
}

impl core::error::Error for Unreadable {}

impl From<Unreadable> for StoreError {
    fn from(unreadable: Unreadable) -> Self {
        Self::permanent(StoreErrorKind::Unavailable, unreadable.to_string())
    }
}

/// The store's own row.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct StoreRow {
    pub(super) id: StoreId,
    /// The largest token of all deleted records.
    pub(super) floor: Token,
    extra: Extra,
}

impl StoreRow {
    pub(super) const fn new(id: StoreId) -> Self {
        Self { id, floor: Token(0), extra: Extra::none() }
    }

    pub(super) fn encode(&self) -> String {
        Object::new().number("format", FORMAT).id("store", self.id.0).number("floor", self.floor.0).end(&self.extra)
    }

    pub(super) fn decode(text: &str) -> Result<Self, Unreadable> {
        let mut fields = Fields::read(text);
        check_format(&mut fields)?;
        let (id, floor) = (StoreId(fields.id("store")), Token(fields.number("floor")));
        let row = Self { id, floor, extra: fields.rest() };
        if fields.is_sound() { Ok(row) } else { Err(Unreadable::Corrupt) }
    }
}

impl Session {
    /// Encodes the row as text, together with its session's id.
    pub fn encode(&self, session: SessionId) -> String {
        let robbed = |entry: &mut Object, stolen: &Stolen| {
            entry.text("key", stolen.key.as_str()).number("token", stolen.token.0);
            entry.number("request", stolen.request.0).close(&Extra::none());
        };
        Object::new()
            .number("format", FORMAT)
            .id("session", session.0)
            .number("beat", self.beat)
            .number("beacon", self.beacon.into())
            .number("lease_ms", self.lease_ms)
            .text("instance", &self.instance)
            .number("floor", self.floor)
            .number("heard_at", self.heard_at.as_ms())
            .list("robbed", &self.robbed, robbed)
            .optional("deadline", self.deadline.map(Monotonic::as_ms))
            .end(&self.extra)
    }

    /// The session whose row this is, if the text has its id, even if the rest cannot be read.
    pub(super) fn id_of(text: &str) -> Option<SessionId> {
        let mut fields = Fields::read(text);
        let id = SessionId(fields.id("session"));
        fields.is_sound().then_some(id)
    }

    /// Decodes what [`encode`](Self::encode) wrote: the session's id, and the row.
    ///
    /// # Errors
    /// [`Unreadable`] if a newer version wrote it, or if it is no row at all.
    pub fn decode(text: &str) -> Result<(SessionId, Self), Unreadable> {
        let mut fields = Fields::read(text);
        check_format(&mut fields)?;
        let robbed = |fields: &mut Fields<'_>| {
            let key = Key::new(&fields.text("key")).ok()?;
            Some(Stolen { key, token: Token(fields.number("token")), request: RequestId(fields.number("request")) })
        };
        let session = SessionId(fields.id("session"));
        let row = Self {
            beat: fields.number("beat"),
            beacon: fields.number("beacon") > 0,
            // Capped, so that nobody waits for a session longer than any session may be silent, whatever the row says.
            lease_ms: fields.number("lease_ms").min(LONGEST_SILENCE_MS),
            instance: fields.text("instance"),
            floor: fields.number("floor"),
            heard_at: Wall::from_ms(fields.number("heard_at")),
            robbed: fields.list("robbed", robbed),
            deadline: fields.numbers("deadline").first().copied().map(Monotonic::from_ms),
            unreadable: None,
            extra: fields.rest(),
        };
        if fields.is_sound() { Ok((session, row)) } else { Err(Unreadable::Corrupt) }
    }
}

fn check_format(fields: &mut Fields<'_>) -> Result<(), Unreadable> {
    match fields.number("format") {
        FORMAT => Ok(()),
        found if found > FORMAT => Err(Unreadable::FormatTooNew { found, known: FORMAT }),
        _ => Err(Unreadable::Corrupt),
    }
}

impl Record {
    /// Encodes the record as text.
    pub fn encode(&self) -> String {
        Object::new()
            .number("format", FORMAT)
            .number("last_token", self.last_token.0)
            .number("revision", self.revision)
            .list("grants", &self.grants, encode_grant)
            .list("queue", &self.queue, encode_waiter)
            .number("last_exclusive", self.last_exclusive.0)
            .end(&self.extra)
    }

    /// Decodes what [`encode`](Self::encode) wrote, in this version or in another one of the same format.
    ///
    /// # Errors
    /// [`Unreadable`] if a newer version wrote it, or if it is no record at all.
    pub fn decode(text: &str) -> Result<Self, Unreadable> {
        let mut fields = Fields::read(text);
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
        extra: fields.rest(),
    };
    // So no token is granted twice, whatever the text says.
    for grant in &record.grants {
        record.last_token = record.last_token.max(grant.block.last);
    }
    let in_range = Token::from_u64(record.last_token.max(record.last_exclusive).0).is_some();
    (fields.is_sound() && in_range).then_some(record)
}

fn encode_grant(object: &mut Object, grant: &Grant) {
    object
        .id("holder", grant.holder.0)
        .number("request", grant.request.0)
        .text("mode", grant.mode.name())
        .number("token", grant.block.first.0)
        .number("tokens", grant.block.last.0)
        .number("previous", grant.previous.0)
        .text("info", &grant.info)
        .close(&grant.extra);
}

fn decode_grant(fields: &mut Fields<'_>) -> Option<Grant> {
    let (holder, request) = (SessionId(fields.id("holder")), RequestId(fields.number("request")));
    Some(Grant {
        holder,
        request,
        mode: decode_mode(fields)?,
        block: decode_block(fields)?,
        previous: Token(fields.number("previous")),
        info: fields.text("info"),
        extra: fields.rest(),
    })
}

fn decode_mode(fields: &mut Fields<'_>) -> Option<Mode> {
    Mode::from_name(fields.word("mode"))
}

/// Anybody may have written this text, so tokens out of range are refused.
fn decode_block(fields: &mut Fields<'_>) -> Option<TokenBlock> {
    TokenBlock::from_range(fields.number("token"), fields.number("tokens"))
}

fn encode_waiter(object: &mut Object, waiter: &Waiter) {
    object
        .id("holder", waiter.holder.0)
        .number("request", waiter.request.0)
        .text("mode", waiter.mode.name())
        .integer("priority", waiter.priority)
        .number("ticket", waiter.ticket)
        .optional("upgrades", waiter.upgrades.map(|token| token.0))
        .number("alone", waiter.alone.into())
        .text("info", &waiter.info)
        .close(&waiter.extra);
}

fn decode_waiter(fields: &mut Fields<'_>) -> Option<Waiter> {
    let (holder, request) = (SessionId(fields.id("holder")), RequestId(fields.number("request")));
    Some(Waiter {
        holder,
        request,
        mode: decode_mode(fields)?,
        priority: fields.integer("priority"),
        ticket: fields.number("ticket"),
        upgrades: fields.numbers("upgrades").first().copied().map(Token),
        alone: fields.number("alone") > 0,
        info: fields.text("info"),
        extra: fields.rest(),
    })
}

impl Message {
    /// Encodes the message as text.
    pub fn encode(&self) -> String {
        let mut head = Object::new();
        head.number("format", FORMAT).id("store", self.store.0).text("key", self.key.as_str());
        match self.body {
            Body::Granted { holder, request, block, previous, contended } => head
                .text("kind", "granted")
                .id("holder", holder.0)
                .number("request", request.0)
                .number("token", block.first.0)
                .number("tokens", block.last.0)
                .number("previous", previous.0)
                .number("contended", contended.into()),
            Body::Wanted { holder, by, tries } => {
                head.text("kind", "wanted").id("holder", holder.0).id("by", by.0).number("tries", tries.into())
            }
            Body::Freed { asker } => head.text("kind", "freed").id("holder", asker.0),
            Body::InUse { asker } => head.text("kind", "in_use").id("holder", asker.0),
            Body::Gone { holder } => head.text("kind", "gone").id("holder", holder.0),
            Body::Ended { holder } => head.text("kind", "ended").id("holder", holder.0),
            Body::Stolen { holder, token } => {
                head.text("kind", "stolen").id("holder", holder.0).number("token", token.0)
            }
        }
        .end(&Extra::none())
    }

    /// Decodes a message. Anybody can post on a channel, so the result is `None` if the text is malformed or in a newer format.
    pub fn decode(text: &str) -> Option<Self> {
        let mut fields = Fields::read(text);
        check_format(&mut fields).ok()?;
        let store = StoreId(fields.id("store"));
        let key = Key::new(&fields.text("key")).ok()?;
        let kind = fields.word("kind");
        let holder = SessionId(fields.id("holder"));
        let body = match kind {
            "granted" => Body::Granted {
                holder,
                request: RequestId(fields.number("request")),
                block: decode_block(&mut fields)?,
                previous: Token(fields.number("previous")),
                contended: fields.number("contended") > 0,
            },
            "wanted" => Body::Wanted { holder, by: SessionId(fields.id("by")), tries: fields.number("tries") > 0 },
            "freed" => Body::Freed { asker: holder },
            "in_use" => Body::InUse { asker: holder },
            "gone" => Body::Gone { holder },
            "stolen" => Body::Stolen { holder, token: Token(fields.number("token")) },
            "ended" => Body::Ended { holder },
            _ => return None,
        };
        fields.is_sound().then_some(Self { store, key, body })
    }
}

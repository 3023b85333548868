//! A lease without a guard, on its way to another guard.

use alloc::{borrow::ToOwned, format, string::String, vec::Vec};
use core::fmt;

use crate::machine::{Key, Mode, Parcel, RequestId, SessionId, Token};

/// The beginning of the text form, with its version.
const NAME: &str = "leasehold-parts";
const FORMAT: u64 = 1;
/// The end of the text form, so that a truncated text is recognised.
const END: &str = "end";

/// A lease that was taken out of its guard by [`LeaseGuard::into_parts`](crate::LeaseGuard::into_parts).
/// [`LeaseManager::resume`](crate::LeaseManager::resume), in the same context or in another one on the same store, makes a guard of it
/// again. [Encoded](Self::encode) as text, it can be passed to another process.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "the lease runs out unless it is resumed"]
pub struct LeaseParts {
    key: String,
    holder: SessionId,
    token: Token,
    mode: Mode,
    parcel: Option<Parcel>,
}

impl LeaseParts {
    pub(crate) fn new(key: &str, holder: SessionId, token: Token, mode: Mode, parcel: Option<Parcel>) -> Self {
        Self { key: key.to_owned(), holder, token, mode, parcel }
    }

    /// The key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The context that held the lease.
    pub fn holder(&self) -> SessionId {
        self.holder
    }

    /// The token of the guard that was taken apart. The next guard has a larger one.
    pub fn token(&self) -> Token {
        self.token
    }

    /// How the key is held.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// What the machine needs to know; `None` if the lease could not be taken out.
    pub(crate) fn parcel(&self) -> Option<&Parcel> {
        self.parcel.as_ref()
    }

    /// The parts as a text without spaces and control characters, for a pipe, a file or a command line.
    ///
    /// Anybody who has the text can take the lease, so keep it secret. Only the first to [resume](crate::LeaseManager::resume) it succeeds.
    ///
    /// ```
    /// # use leasehold::{LeaseManager, LeaseParts, executor::TokioExecutor, store::MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let leases = LeaseManager::builder(MemoryStore::new(), TokioExecutor::new()).build()?;
    /// let text = leases.lock("notes").acquire().await?.into_parts().encode();
    /// // … in another process, on the same store …
    /// let guard = leases.resume(LeaseParts::decode(&text)?).await?;
    /// assert!(guard.is_valid());
    /// # Ok(()) }
    /// ```
    pub fn encode(&self) -> String {
        let Self { key, holder, token, mode, parcel } = self;
        let lease = parcel.as_ref().map_or_else(
            || "-:-:-:-".to_owned(),
            |parcel| format!("{}:{}:{}:{}", parcel.from, parcel.grant, parcel.next, parcel.request.0),
        );
        format!("{NAME}:{FORMAT}:{}:{holder}:{token}:{lease}:{}:{END}", mode.name(), escape(key))
    }

    /// Decodes parts that were [encoded](Self::encode).
    ///
    /// # Errors
    /// [`InvalidParts`] if the text is not such parts, or is damaged.
    pub fn decode(text: &str) -> Result<Self, InvalidParts> {
        let fields: Vec<&str> = text.split(':').collect();
        let (NAME, Some(format)) = (fields[0], fields.get(1).and_then(|format| format.parse().ok())) else {
            return Err(InvalidParts::NotParts);
        };
        if format > FORMAT {
            return Err(InvalidParts::FormatTooNew { found: format, known: FORMAT });
        }
        let [_, _, mode, holder, token, from, grant, next, request, key, END] = fields[..] else {
            return Err(InvalidParts::NotParts);
        };
        let mode = field("mode", mode, Mode::from_name)?;
        let holder = field("holder", holder, SessionId::from_digits)?;
        let token = field("token", token, token_of)?;
        let key = field("key", key, |text| unescape(text).filter(|name| Key::new(name).is_ok()))?;
        let parcel = if [from, grant, next, request] == ["-"; 4] {
            None
        } else {
            let from = field("session", from, SessionId::from_digits)?;
            let (grant, next) = (field("grant", grant, token_of)?, field("next token", next, token_of)?);
            let request = RequestId(field("request", request, |text| text.parse().ok())?);
            Some(Parcel { from, origin: holder, grant, next, request, mode })
        };
        Ok(Self { key, holder, token, mode, parcel })
    }
}

fn field<T>(name: &'static str, text: &str, read: impl FnOnce(&str) -> Option<T>) -> Result<T, InvalidParts> {
    read(text).ok_or_else(|| InvalidParts::Field { name, found: text.to_owned() })
}

fn token_of(text: &str) -> Option<Token> {
    Token::from_u64(text.parse().ok()?)
}

/// Percent signs, colons, spaces and control characters as `%` and two hexadecimal digits a byte.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        if "%:".contains(letter) || letter.is_whitespace() || letter.is_control() {
            let mut bytes = [0; 4];
            letter.encode_utf8(&mut bytes).bytes().for_each(|byte| escaped.push_str(&format!("%{byte:02x}")));
        } else {
            escaped.push(letter);
        }
    }
    escaped
}

fn unescape(text: &str) -> Option<String> {
    let mut pieces = text.split('%');
    let mut bytes = pieces.next()?.as_bytes().to_vec();
    for piece in pieces {
        let (digits, rest) = piece.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    String::from_utf8(bytes).ok()
}

/// Why a text is not a valid [`LeaseParts`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidParts {
    /// The text is something else, or was truncated.
    NotParts,
    /// A newer version of this library wrote it.
    FormatTooNew {
        /// The format that was found.
        found: u64,
        /// The newest format that this version knows.
        known: u64,
    },
    /// One of its fields is damaged.
    Field {
        /// Which one.
        name: &'static str,
        /// What was found there.
        found: String,
    },
}

impl fmt::Display for InvalidParts {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotParts => out.write_str(
                "the text is not an encoded lease, or it was cut; pass on the text of LeaseParts::encode unchanged",
            ),
            Self::FormatTooNew { found, known } => write!(
                out,
                "the lease was encoded in format {found}, and this version knows {known}; update leasehold here"
            ),
            Self::Field { name, found } => write!(
                out,
                "the {name} of the encoded lease is damaged: \"{found}\"; pass on the text of LeaseParts::encode unchanged"
            ),
        }
    }
}

impl core::error::Error for InvalidParts {}

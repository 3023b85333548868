//! The parts of a URL, whichever store it names.

use std::{format, vec::Vec};

use super::{refused, schemes};
use crate::machine::StoreError;

/// The parameter of a PostgreSQL URL that turns signals off, or adds beacons. Like the prefix, only `from_url` reads it.
const SIGNALS: &str = "signals=";

/// The parts of a URL. No error shows it whole: it may contain a password.
pub(in crate::store) struct Parts<'a> {
    pub(in crate::store) scheme: &'a str,
    /// Between the scheme and the parameters.
    pub(in crate::store) place: &'a str,
    /// All the parameters, as written.
    query: &'a str,
    pub(in crate::store) prefix: Option<&'a str>,
    /// A second prefix, which is refused.
    pub(super) second_prefix: Option<&'a str>,
    /// The choices of signals in the URL of a PostgreSQL database.
    pub(in crate::store) signals: Vec<&'a str>,
    /// The other parameters.
    pub(in crate::store) others: Vec<&'a str>,
}

impl<'a> Parts<'a> {
    pub(super) fn of(url: &'a str) -> Result<Self, StoreError> {
        // A secret that is read from a file often ends in a line break. The URL would then name another SQLite file, which nobody else
        // uses.
        let is_quote = |end: char| matches!(end, '"' | '\'');
        if url.trim() != url || url.starts_with(is_quote) || url.ends_with(is_quote) {
            return Err(refused(
                "the URL begins or ends with a space, a line break or a quotation mark; remove it".into(),
            ));
        }
        Self::parse(url).ok_or_else(|| {
            // Anything but a plain name may contain a password.
            let is_plain = url.chars().all(|letter| letter.is_alphanumeric() || "./_-".contains(letter));
            let shown = if is_plain { format!("{url:?}") } else { "what was given".into() };
            refused(format!("{shown} is not the URL of a store; such a URL begins with one of {}", schemes()))
        })
    }

    fn parse(url: &'a str) -> Option<Self> {
        let (scheme, rest) = url.split_once(':')?;
        // A text that is not a URL may contain a password, as in `password=secret host=::1`.
        if !scheme.chars().all(|letter| letter.is_ascii_alphanumeric() || "+-.".contains(letter)) {
            return None;
        }
        // The client of PostgreSQL takes everything before the first `@` for the user and the password.
        let login = if scheme.starts_with("postgres") { rest.find('@').unwrap_or(0) } else { 0 };
        let place = &rest[..rest[login..].find('?').map_or(rest.len(), |at| login + at)];
        let query = rest[place.len()..].strip_prefix('?').unwrap_or("");
        let parameters = query.split('&').filter(|parameter| !parameter.is_empty());
        let (prefixes, others): (Vec<_>, Vec<_>) = parameters.partition(|parameter| parameter.starts_with("prefix="));
        let mut prefixes = prefixes.iter().filter_map(|parameter| parameter.strip_prefix("prefix="));
        let (prefix, second_prefix) = (prefixes.next(), prefixes.next());
        let of_signals = |parameter: &&str| scheme.starts_with("postgres") && parameter.starts_with(SIGNALS);
        let (signals, others) = others.into_iter().partition(of_signals);
        Some(Self { scheme, place, query, prefix, second_prefix, signals, others })
    }

    /// Whether the prefix or the choice of signals may be a part of a password with a question mark, or follow such a password. The URL of
    /// a file has no password.
    pub(super) fn is_unclear(&self) -> bool {
        let is_read_here = self.prefix.is_some() || !self.signals.is_empty() || self.query.contains("?prefix=");
        is_read_here && self.query.contains('@') && !matches!(self.scheme, "sqlite" | "memory" | "indexeddb")
    }

    /// Refuses all parameters except those that the store knows: the prefix, or none.
    pub(in crate::store) fn check_parameters(&self, known: &[&str]) -> Result<(), StoreError> {
        let prefix = self.prefix.filter(|_| known.is_empty()).map(|_| "prefix");
        let Some(other) = self.others.first().copied().or(prefix) else { return Ok(()) };
        let name = other.split('=').next().unwrap_or_default();
        // Anything but a plain name may be a part of a password.
        let is_plain = name.chars().all(|letter| letter.is_ascii_lowercase() || letter == '_');
        let name = if is_plain { name } else { "…" };
        let remedy =
            if known.is_empty() { "leave it out" } else { "it can only have prefix, and the path cannot have a ?" };
        Err(refused(format!("a URL of {}: has no parameter {name:?}; {remedy}", self.scheme)))
    }
}

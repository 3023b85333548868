//! Where the servers of a cluster are, and below which prefix the leases stand.

use std::{format, string::String, vec::Vec};

use crate::machine::{StoreError, StoreErrorKind};

/// etcd's port for clients.
const PORT: &str = "2379";
/// Longer prefixes are of no use.
const LONGEST_PREFIX: usize = 200;
/// What the keys of a store begin with after its prefix. As a part of a prefix, they could make two stores meet.
const PARTS: [&str; 4] = ["store", "record", "session", "message"];

/// The servers, and who asks them.
pub(super) struct Address {
    /// Each is `host:port`.
    pub(super) hosts: Vec<String>,
    pub(super) user: Option<(String, String)>,
}

impl Address {
    /// Reads `etcd://user:password@host:port,host:port`. The scheme, the user and the ports may be left out.
    pub(super) fn parse(text: &str) -> Result<Self, StoreError> {
        let lower = text.to_ascii_lowercase();
        if lower.starts_with("https:") || lower.starts_with("etcds:") {
            return Err(refused(
                "EtcdStore connects without TLS only; use etcd://host:port over a network or a tunnel that encrypts",
            ));
        }
        let rest =
            ["etcd:", "http:"].iter().find_map(|scheme| lower.starts_with(scheme).then(|| &text[scheme.len()..]));
        let rest = rest.unwrap_or(text);
        let rest = rest.strip_prefix("//").unwrap_or(rest).trim_end_matches('/');
        let (user, hosts) = match rest.rsplit_once('@') {
            Some((user, hosts)) => (Some(named(user)?), hosts),
            None => (None, rest),
        };
        let hosts: Vec<_> = hosts.split(',').map(host).collect::<Result<_, _>>()?;
        Ok(Self { hosts, user })
    }
}

/// A user with a password, both percent-encoded.
fn named(user: &str) -> Result<(String, String), StoreError> {
    let parts = user.split_once(':').and_then(|(name, password)| Some((decoded(name)?, decoded(password)?)));
    parts.filter(|(name, _)| !name.is_empty()).ok_or_else(|| {
        refused(
            "what stands before @ in the address of etcd is not user:password; percent-encode special characters, for example @ as %40",
        )
    })
}

fn decoded(text: &str) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let [first, after @ ..] = rest {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (digits, after) = after.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(core::str::from_utf8(digits).ok()?, 16).ok()?);
        rest = after;
    }
    String::from_utf8(bytes).ok()
}

fn host(text: &str) -> Result<String, StoreError> {
    let text = text.trim();
    // An IPv6 address has colons of its own, between brackets.
    let after_name = text.rsplit_once(']').map_or(text, |(_, after)| after);
    let (name, port) = match after_name.rsplit_once(':') {
        Some((_, port)) => (&text[..text.len() - port.len() - 1], port),
        None => (text, PORT),
    };
    let fits = |letter: char| letter.is_alphanumeric() || ".-_[]:%".contains(letter);
    if name.is_empty() || !name.chars().all(fits) || port.parse::<u16>().is_err() {
        // What stands where a port should may be the password of a user without a host.
        let shown = if after_name.contains(':') { format!("{name}:…") } else { text.into() };
        return Err(refused(&format!("{shown:?} is not an etcd server; write host:port, such as 127.0.0.1:2379")));
    }
    Ok(format!("{name}:{port}"))
}

/// Whether keys can begin like this, and no key of another prefix can be one of this.
pub(super) fn check_prefix(prefix: &str) -> Result<(), StoreError> {
    let plain = |letter: char| letter.is_ascii_graphic();
    let is_sound = (1..=LONGEST_PREFIX).contains(&prefix.len())
        && prefix.chars().all(plain)
        && !prefix.ends_with('/')
        && !prefix.split('/').any(|part| PARTS.contains(&part));
    if is_sound {
        return Ok(());
    }
    Err(refused(&format!(
        "{prefix:?} cannot begin the keys of the leases; use 1 to {LONGEST_PREFIX} visible ASCII characters that do not end with /, and \
         no part {} between slashes",
        PARTS.join(", ")
    )))
}

pub(super) fn refused(sentence: &str) -> StoreError {
    StoreError::permanent(StoreErrorKind::Unsupported, sentence)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_names_servers_and_a_user() {
        let address = Address::parse("etcd://me:p%40ss%3A@one,two:2380,[::1]:7,[::2]").unwrap();
        assert_eq!(address.hosts, ["one:2379", "two:2380", "[::1]:7", "[::2]:2379"]);
        assert_eq!(address.user, Some(("me".into(), "p@ss:".into())));
        assert_eq!(Address::parse("//127.0.0.1:1").unwrap().hosts, ["127.0.0.1:1"]);
        assert_eq!(Address::parse("h").unwrap().hosts, ["h:2379"]);
        assert_eq!(Address::parse("http://h:1/").unwrap().hosts, ["h:1"]);
    }

    #[test]
    fn what_is_no_address_is_refused_and_no_password_is_told() {
        for text in ["", "etcd:", "a,,b", "a:b", "a:99999", "https://a", "a b:1", "a/b", ":1"] {
            assert!(Address::parse(text).is_err(), "{text:?}");
        }
        for text in
            ["me@a", "me:secret%@a", "me:secret%ff@a", ":secret@a", "me:secret@a b", "me:secret", "a,etcd://me:secret"]
        {
            let error = Address::parse(text).err().unwrap().to_string();
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn a_prefix_keeps_stores_apart() {
        for prefix in ["leasehold", "/app/leases", "a", "recording"] {
            assert!(check_prefix(prefix).is_ok(), "{prefix:?}");
        }
        for prefix in ["", "a/", "a/record/b", "session", "a/message", "a\0", "a b", "é", &"a".repeat(201)] {
            assert!(check_prefix(prefix).is_err(), "{prefix:?}");
        }
    }
}

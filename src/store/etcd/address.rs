//! The addresses of a cluster's servers, and the prefix of the leases.

use std::{format, string::String, vec::Vec};

use super::tls::Tls;
use crate::{
    machine::{StoreError, StoreErrorKind},
    store::tls::decoded,
};

/// etcd's port for clients.
const PORT: &str = "2379";
/// The longest prefix, in bytes.
const LONGEST_PREFIX: usize = 200;
/// What the keys of a store begin with after its prefix. As a part of a prefix, they could make two stores meet.
const PARTS: [&str; 5] = ["store", "record", "session", "message", "reserved"];

/// The servers, and the user of the connection.
pub(super) struct Address {
    /// Each is `host:port`.
    pub(super) hosts: Vec<String>,
    pub(super) user: Option<(String, String)>,
    /// How connections are encrypted, if they are.
    pub(super) tls: Option<Tls>,
}

/// The schemes that an address, or a server in it, may begin with, and whether each asks for TLS.
const SCHEMES: [(&str, bool); 4] = [("etcd:", false), ("http:", false), ("etcds:", true), ("https:", true)];

impl Address {
    /// Reads `etcds://user:password@host:port,host:port?ca=file`. The scheme, the user, the ports and the parameters may be left out.
    pub(super) fn parse(text: &str) -> Result<Self, StoreError> {
        let (encrypts, rest) = scheme(text);
        let (user, rest) = match rest.rsplit_once('@') {
            Some((user, rest)) => (Some(named(user)?), rest),
            None => (None, rest),
        };
        let (hosts, query) = rest.split_once('?').unwrap_or((rest, ""));
        let hosts: Vec<_> = hosts.split(',').map(|text| host(text, encrypts)).collect::<Result<_, _>>()?;
        let tls = Tls::parse(query)?;
        if encrypts == Some(true) {
            Tls::check()?;
            return Ok(Self { hosts, user, tls: Some(tls) });
        }
        if tls != Tls::default() {
            return Err(refused("ca, cert, key and server_name are for TLS; begin the address of etcd with etcds://"));
        }
        Ok(Self { hosts, user, tls: None })
    }
}

/// Whether the scheme, if there is one, asks for TLS; and the text after it.
fn scheme(text: &str) -> (Option<bool>, &str) {
    let lower = text.to_ascii_lowercase();
    for (name, encrypts) in SCHEMES {
        let Some(rest) = lower.strip_prefix(name).map(|_| &text[name.len()..]) else { continue };
        // A host may be named like a scheme; then a port follows the colon.
        if rest
            .split(',')
            .next()
            .is_none_or(|port| port.is_empty() || !port.bytes().all(|digit| digit.is_ascii_digit()))
        {
            return (Some(encrypts), rest.strip_prefix("//").unwrap_or(rest));
        }
    }
    (None, text.strip_prefix("//").unwrap_or(text))
}

/// A user with a password, both percent-encoded.
fn named(user: &str) -> Result<(String, String), StoreError> {
    let parts = user.split_once(':').and_then(|(name, password)| Some((decoded(name)?, decoded(password)?)));
    // With a comma or a second @, a server would be taken for the user or a part of the password.
    parts.filter(|(name, _)| !name.is_empty() && !user.contains(['@', ','])).ok_or_else(|| {
        refused(
            "what stands before @ in the address of etcd is not user:password; write it once, before the first server, and percent-encode \
             special characters, for example @ as %40 and a comma as %2C",
        )
    })
}

/// One server. It may repeat the scheme of the address.
fn host(text: &str, encrypts: Option<bool>) -> Result<String, StoreError> {
    let (own, text) = scheme(text.trim());
    if own.is_some() && own != encrypts {
        return Err(refused(
            "the servers of etcd must all use TLS, or none of them; write one scheme, before the first server",
        ));
    }
    let text = text.trim_end_matches('/');
    // An IPv6 address has colons of its own, between brackets. Any other bracket may be a part of a password.
    let after_name = text.rsplit_once(']').filter(|(before, _)| is_address(before)).map_or(text, |(_, after)| after);
    let (name, port) = match after_name.rsplit_once(':') {
        Some((_, port)) => (&text[..text.len() - port.len() - 1], port),
        None => (text, PORT),
    };
    let fits = |letter: char| letter.is_alphanumeric() || ".-_[]:%".contains(letter);
    if name.is_empty() || !name.chars().all(fits) || port.parse::<u16>().is_err() {
        // What follows a colon may be the password of a user without a host.
        let shown = match after_name.find(':') {
            Some(at) => format!("{}:…", &text[..text.len() - after_name.len() + at]),
            None => text.into(),
        };
        return Err(refused(&format!(
            "{shown:?} is not an etcd server; write host:port, such as 127.0.0.1:2379, with a port up to 65535 and no path"
        )));
    }
    Ok(format!("{name}:{port}"))
}

/// Whether this is a bracket and an IPv6 address, which may have a zone.
fn is_address(text: &str) -> bool {
    let address = text.strip_prefix('[').and_then(|text| text.split('%').next());
    address.is_some_and(|text| text.parse::<core::net::Ipv6Addr>().is_ok())
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
        assert_eq!(Address::parse("etcd:2379,etcd2:7").unwrap().hosts, ["etcd:2379", "etcd2:7"], "a host named etcd");
        assert_eq!(Address::parse("http://a:1,http://b:2").unwrap().hosts, ["a:1", "b:2"]);
    }

    #[test]
    fn an_address_asks_for_tls_by_its_scheme() {
        for text in ["etcds://u:p@a:1,b:2?ca=c", "https://u:p@a:1,https://b:2/?ca=c", "ETCDS:u:p@a:1,b:2?ca=c"] {
            let parsed = Address::parse(text);
            if !super::super::tls::ENCRYPTS {
                assert!(parsed.err().unwrap().message.contains("store-etcd-tls"));
                continue;
            }
            let address = parsed.unwrap();
            assert_eq!(
                (&address.hosts[..], address.tls.is_some()),
                (&["a:1".into(), "b:2".into()][..], true),
                "{text}"
            );
        }
        for (text, remedy) in [
            ("etcd://a?ca=c", "etcds://"),
            ("a,https://b", "one scheme"),
            ("etcd://a?x=1", "no parameter \"x\""),
            ("etcd://a?Prefix=x", "no such parameter"),
        ] {
            let error = Address::parse(text).err().unwrap().message;
            assert!(error.contains(remedy), "{text}: {error}");
        }
    }

    #[test]
    fn what_is_no_address_is_refused_and_no_password_is_told() {
        for text in ["", "etcd:", "a,,b", "a:b", "a:99999", "a b:1", "a/b", ":1"] {
            assert!(Address::parse(text).is_err(), "{text:?}");
        }
        for text in [
            "me@a",
            "me:secret%@a",
            "me:secret%ff@a",
            ":secret@a",
            "me:secret@a b",
            "me:secret",
            "me:secret:secret",
            "me:sec://secret",
            "me:se!cret]secret",
            "[me:se!cret]secret",
            "a,etcd://me:secret",
            "a:1,me:secret@b:1",
        ] {
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

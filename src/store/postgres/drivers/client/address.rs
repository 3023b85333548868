//! What the URL of a database says: where it is, and how connections are encrypted.

use core::time::Duration;
use std::{borrow::ToOwned, format, string::String, vec::Vec};

use tokio_postgres::{Config, config::SslMode};

use super::{super::super::options::invalid, failed, tls};
use crate::{machine::StoreError, store::tls::Certificates};

/// The names that libpq has for them.
const FILES: [&str; 3] = ["sslrootcert", "sslcert", "sslkey"];

const NO_TLS: &str = "the URL asks for an encrypted connection (sslmode), and the store has no TLS connector; enable leasehold's feature \
    store-postgres-tls, or give PostgresStoreBuilder::tls a connector, or PostgresStore::from_pool a pool that encrypts, or write \
    sslmode=disable where the network is trusted";
const UNUSED: &str =
    "sslrootcert, sslcert and sslkey in the URL are of no use without encryption; write sslmode=require beside them";
const VERIFIES: &str = "the URL asks for sslmode=verify-ca or verify-full, which tokio-postgres does not support; write \
    sslmode=require, and give PostgresStoreBuilder::tls a connector that verifies, or none";
const NAMED_TWICE: &str = "the URL names certificates, and PostgresStoreBuilder::tls gives a connector that has its own; leave out \
    sslrootcert, sslcert and sslkey, or the connector";

/// Where a database is.
#[derive(Debug)]
pub(super) struct Address {
    pub(super) config: Config,
    /// How the store encrypts connections by itself. `None` if the application gave a connector, or if nothing is encrypted.
    pub(super) encryption: Option<Certificates>,
}

impl Address {
    /// The password is never part of a message.
    pub(super) fn read(url: &str, has_connector: bool) -> Result<Self, StoreError> {
        let (head, separator, mut parameters) = split(url);
        let files = Certificates::taken(FILES, &mut parameters)?;
        let verifies = parameters.iter().any(|parameter| parameter.starts_with("sslmode=verify"));
        if verifies && (has_connector || !tls::ENCRYPTS) {
            return Err(invalid(if has_connector { VERIFIES } else { NO_TLS }));
        }
        if has_connector && files != Certificates::default() {
            return Err(invalid(NAMED_TWICE));
        }
        for parameter in &mut parameters {
            // The store verifies whenever it encrypts.
            if ["sslmode=verify-ca", "sslmode=verify-full"].contains(parameter) {
                *parameter = "sslmode=require";
            }
        }
        let config = parsed(&format!("{head}{}", parameters.join(separator)))?;
        let encrypts = config.get_ssl_mode() == SslMode::Require;
        if encrypts && !has_connector && !tls::ENCRYPTS {
            return Err(invalid(NO_TLS));
        }
        if !encrypts && files != Certificates::default() {
            return Err(invalid(UNUSED));
        }
        Ok(Self { config, encryption: (encrypts && !has_connector).then_some(files) })
    }
}

/// The part before the parameters, what separates these, and the parameters.
fn split(url: &str) -> (String, &'static str, Vec<&str>) {
    if !url.contains("://") {
        // A list of options. A value in quotes may have spaces, so a list with quotes is left to the client as a whole, and cannot name
        // certificates.
        let is_plain = !url.contains(['\'', '\\']);
        return (String::new(), " ", if is_plain { url.split_whitespace().collect() } else { Vec::from([url]) });
    }
    // A question mark before an `@` is a part of a password.
    match url.rsplit_once('?').filter(|(_, query)| !query.contains('@')) {
        Some((place, query)) => (format!("{place}?"), "&", query.split('&').collect()),
        None => (url.to_owned(), "&", Vec::new()),
    }
}

fn parsed(url: &str) -> Result<Config, StoreError> {
    let mut config: Config = url.parse().map_err(|error| {
        let remedy = match url.contains("prefix=") {
            true => {
                "to choose a prefix, write ?prefix= in a URL for store::from_url or the command line, or call \
                 PostgresStoreBuilder::prefix"
            }
            false => "write it like postgres://user@host/database",
        };
        invalid(format!("the URL of the database cannot be read: {}; {remedy}", failed(&error).said))
    })?;
    if config.get_application_name().is_none() {
        config.application_name("leasehold");
    }
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(Duration::from_secs(5));
    }
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encryption_is_asked_for_by_the_url_alone() {
        for url in [
            "postgres://u@h/d",
            "postgres://u:se?sslmode=require@h/d",
            "postgres://u@h/d?sslmode=prefer",
            "host=h dbname=d",
        ] {
            assert_eq!(Address::read(url, false).unwrap().encryption, None, "{url}");
        }
        for url in
            ["postgres://u@h/d?sslmode=require&sslrootcert=/a%20b.pem", "host=h sslmode=verify-full sslrootcert=c.pem"]
        {
            let read = Address::read(url, false);
            if !tls::ENCRYPTS {
                assert!(read.unwrap_err().message.contains("store-postgres-tls"), "{url}");
                continue;
            }
            let address = read.unwrap();
            assert!(address.encryption.unwrap().ca.is_some(), "{url}");
            assert_eq!(address.config.get_ssl_mode(), SslMode::Require);
        }
        assert_eq!(Address::read("postgres://u@h/d?sslmode=require", true).unwrap().encryption, None);
    }

    #[test]
    fn what_contradicts_itself_is_refused_with_its_remedy() {
        for (url, has_connector, remedy) in [
            ("postgres://u:hunter2@h/d?sslrootcert=c.pem", false, "sslmode=require beside them"),
            ("postgres://u:hunter2@h/d?sslmode=disable&sslrootcert=c.pem", false, "sslmode=require beside them"),
            ("postgres://u:hunter2@h/d?sslmode=require&sslrootcert=c.pem", true, "or the connector"),
            ("postgres://u:hunter2@h/d?sslmode=verify-full", true, "a connector that verifies"),
            ("postgres://u:hunter2@h/d?sslcert=c.pem", false, "sslcert= and sslkey="),
            ("postgres://u:hunter2@h/d?sslmode=always", false, "cannot be read"),
        ] {
            let error = Address::read(url, has_connector).unwrap_err().message;
            assert!(error.contains(remedy) && !error.contains("hunter2"), "{url}: {error}");
        }
    }
}

//! The part of a URL that the client of a server reads.

use std::{format, string::String};

use super::Parts;

impl Parts<'_> {
    /// The URL without the parameters that only [`from_url`](super::from_url) reads.
    pub(in crate::store) fn for_client(&self) -> String {
        let url = format!("{}:{}", self.scheme, self.place);
        if self.others.is_empty() { url } else { format!("{url}?{}", self.others.join("&")) }
    }
}

/// The remedy for a prefix in a URL that a client reads: a URL for [`from_url`](super::from_url), or this call.
pub(in crate::store) fn prefix_remedy(call: &str) -> String {
    format!("to choose a prefix, write ?prefix= in a URL for store::from_url or the command line, or call {call}")
}

//! A URL is checked in a program that has not chosen its TLS provider yet. This test has a process of its own, because the choice
//! holds for a whole process.

use leasehold::store;
use rustls::crypto::{CryptoProvider, ring};

#[test]
fn checking_a_url_leaves_the_choice_of_a_provider_to_the_program() {
    for url in ["rediss://h", "rediss-cluster://h", "rediss-sentinel://h/m", "postgres://h/d?sslmode=require"] {
        store::check_url(url).unwrap();
    }
    assert!(CryptoProvider::get_default().is_none());
    ring::default_provider().install_default().unwrap();
}

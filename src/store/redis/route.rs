//! The way to the server that keeps the rows.

use core::{future::pending, sync::atomic::AtomicUsize};
use std::{string::String, sync::Arc};

use redis::{Client, ConnectionAddr, RedisError};

use super::{
    cluster::{Cluster, Redirect, redirect_in},
    node::{Node, address_of, prepared},
    sentinel::Group,
    servers::Servers,
};
use crate::{executor::Mutex, machine::StoreError, store::tls::Certificates};

pub(super) enum Route {
    /// The only server.
    Single(Client),
    /// The master that Sentinels name.
    Sentinel(Group),
    /// The node that has the slot of the rows.
    Cluster(Cluster),
}

impl Route {
    /// # Errors
    /// [`StoreError`] if the servers cannot be used together, or an address is invalid.
    pub(super) fn new(servers: &Servers, prefix: &str) -> Result<Self, StoreError> {
        Ok(match servers {
            Servers::Single(client) => Self::Single(prepared(client.get_connection_info().clone())?),
            Servers::Sentinel { name, sentinels, login } => Self::Sentinel(Group::new(name, sentinels, login)?),
            Servers::Cluster(nodes) => Self::Cluster(Cluster::new(prefix, nodes)?),
        })
    }

    /// The name in errors until a server has been found.
    pub(super) fn address(&self) -> String {
        match self {
            Self::Single(client) => address_of(client),
            Self::Sentinel(group) => group.address(),
            Self::Cluster(cluster) => cluster.address(),
        }
    }

    /// Where the server is, if there is a single one.
    pub(super) fn only_server(&self) -> Option<&ConnectionAddr> {
        if let Self::Single(client) = self { Some(client.get_connection_info().addr()) } else { None }
    }

    pub(super) fn database(&self) -> i64 {
        match self {
            Self::Single(client) => client.get_connection_info().redis_settings().db(),
            Self::Sentinel(group) => group.database(),
            Self::Cluster(_) => 0,
        }
    }

    /// Whether another server can take the place of the current one.
    pub(super) fn has_successors(&self) -> bool {
        !matches!(self, Self::Single(_))
    }

    pub(super) fn is_cluster(&self) -> bool {
        matches!(self, Self::Cluster(_))
    }

    /// Finds the server, and connects to it.
    ///
    /// # Errors
    /// [`StoreError`] if it cannot be found or reached.
    pub(super) async fn open(&self, files: &Certificates) -> Result<Node, StoreError> {
        match self {
            Self::Single(client) => Node::open(client.clone(), files).await,
            Self::Sentinel(group) => group.open(files).await,
            Self::Cluster(cluster) => cluster.open(files).await,
        }
    }

    /// Connects to the node that another one named.
    ///
    /// # Errors
    /// [`StoreError`] if it cannot be reached.
    pub(super) async fn open_at(&self, address: &str, files: &Certificates) -> Result<Node, StoreError> {
        match self {
            Self::Cluster(cluster) => cluster.open_at(address, files).await,
            Self::Single(_) | Self::Sentinel(_) => self.open(files).await,
        }
    }

    /// Whether a Sentinel names another server than the one at this address. A cluster's node redirects by itself.
    pub(super) async fn names_another(&self, address: &str, files: &Certificates) -> bool {
        match self {
            Self::Sentinel(group) => group.names_another(address, files).await,
            Self::Single(_) | Self::Cluster(_) => false,
        }
    }

    /// Completes when a Sentinel announces another master than the `current` one. `subscriptions` counts the Sentinels that it listens to.
    pub(super) async fn until_replaced(
        &self,
        files: &Certificates,
        subscriptions: &AtomicUsize,
        current: &Mutex<Arc<str>>,
    ) {
        match self {
            Self::Sentinel(group) => group.until_replaced(files, subscriptions, current).await,
            Self::Single(_) | Self::Cluster(_) => pending().await,
        }
    }

    /// A client of the server; `None` if it cannot be found.
    pub(super) async fn client(&self, files: &Certificates) -> Option<Client> {
        match self {
            Self::Single(client) => Some(client.clone()),
            Self::Sentinel(_) | Self::Cluster(_) => Some(self.open(files).await.ok()?.client),
        }
    }

    /// Where the cluster's node at `asked` redirects a command that it did not run.
    pub(super) fn redirect(&self, refusal: &RedisError, asked: &str) -> Option<Redirect> {
        if self.is_cluster() { redirect_in(refusal, asked) } else { None }
    }

    /// Notes that the server found last does not serve, so that another one is asked next.
    pub(super) fn ask_another(&self) {
        if let Self::Cluster(cluster) = self {
            cluster.ask_another();
        }
    }
}

//! Tells all listening sessions of a store what concerns each of them.

use std::vec::Vec;

use tokio::{sync::mpsc::UnboundedSender, time::Instant};

use super::link::Event;
use crate::executor::Mutex;

/// Where to tell each of them something. Some may rest already.
#[derive(Debug, Default)]
pub(in super::super) struct Ears(Mutex<Vec<UnboundedSender<Event>>>);

impl Ears {
    pub(super) fn add(&self, ear: UnboundedSender<Event>) {
        let mut ears = self.0.lock();
        ears.retain(|ear| !ear.is_closed());
        ears.push(ear);
    }

    /// A transaction got no answer, or no connection. Then the connections for signals may lead to a server that hangs, which nobody would
    /// notice otherwise: they only listen, and the server's machine keeps these connections alive.
    pub(in super::super) fn doubt(&self) {
        let at = Instant::now();
        self.0.lock().retain(|ear| ear.send(Event::Doubt { at }).is_ok());
    }
}

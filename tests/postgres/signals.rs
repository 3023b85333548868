//! The contract of signals, within one process and over two.

use std::{sync::Mutex, thread, time::Duration};

use futures::executor::block_on;
use leasehold::{
    executor::Shared,
    machine::{Message, SessionId},
    signal::{
        Beacons, Inbox, Signals,
        contract::{self, Half},
    },
    store::Store,
};
use tokio::runtime::Runtime;

use crate::{
    other::{Other, say, told},
    server::Place,
};

/// Several times what a message takes, or a look at the beacons.
const SETTLED: Duration = Duration::from_millis(150);

async fn settle() {
    thread::sleep(SETTLED);
}

/// The signals that a store brings, as a type.
#[derive(Debug)]
struct Brought(Shared<dyn Signals>);

impl Signals for Brought {
    fn beacons(&self) -> Beacons {
        self.0.beacons()
    }
    fn wake(&self, session: SessionId, beacon: bool, inbox: std::sync::Weak<dyn Inbox>) -> bool {
        self.0.wake(session, beacon, inbox)
    }
    fn rest(&self) {
        self.0.rest();
    }
    fn send(&self, message: &Message) {
        self.0.send(message);
    }
    fn watch(&self, watch: u64, session: SessionId) {
        self.0.watch(watch, session);
    }
    fn unwatch(&self, watch: u64) {
        self.0.unwatch(watch);
    }
}

async fn signals(place: &Place, beacons: bool) -> Brought {
    let builder = if beacons { place.builder().with_beacons() } else { place.builder() };
    Brought(builder.connect().await.unwrap().signals().expect("it brings signals"))
}

/// The other process: does what it is told, and answers.
pub(crate) fn obey(url: &str, prefix: &str) {
    let (place, runtime) = (Place { url: url.into(), prefix: prefix.into() }, Runtime::new().unwrap());
    let half = Half::new(runtime.block_on(signals(&place, true)));
    told().for_each(|line| say(&half.obey(&line)));
}

#[test]
fn signals_keep_the_contract_without_beacons() {
    let Some(place) = Place::new("signals_plain") else { return };
    let runtime = Runtime::new().unwrap();
    block_on(contract::all(async || runtime.block_on(signals(&place, false)), settle));
}

#[test]
fn signals_keep_the_contract_with_beacons() {
    let Some(place) = Place::new("signals_beacons") else { return };
    let runtime = Runtime::new().unwrap();
    block_on(contract::all(async || runtime.block_on(signals(&place, true)), settle));
}

#[test]
fn signals_over_two_processes_keep_the_contract() {
    let Some(place) = Place::new("signals_processes") else { return };
    let runtime = Runtime::new().unwrap();
    let one = Half::new(runtime.block_on(signals(&place, true)));
    let other = Mutex::new(Other::start("half", &place));
    let obey = async |line: String| other.lock().unwrap().ask(&line);
    block_on(contract::between(async |line: String| one.obey(&line), obey, settle));
}

#[test]
fn the_death_of_a_process_is_seen() {
    let Some(place) = Place::new("signals_death") else { return };
    let runtime = Runtime::new().unwrap();
    let one = Half::new(runtime.block_on(signals(&place, true)));
    let other = Mutex::new(Other::start("half", &place));
    let obey = async |line: String| other.lock().unwrap().ask(&line);
    let kill = async || other.lock().unwrap().kill();
    block_on(contract::a_death_is_seen(async |line: String| one.obey(&line), obey, kill, settle));
}

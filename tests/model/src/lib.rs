//! leasehold's core under a model checker: the shipped `Machine` and `Batch::apply`, not a copy of them.
//!
//! Two or three contexts, one store with one key or two, a network that delays, loses and doubles, and users who read, write,
//! rob, upgrade and downgrade; within the budgets of a
//! [`Configuration`] every order of events is tried. What must hold is listed in [`Rule`].
//!
//! * [`port`] and the views of the record that it exports are the only places that know how the core is spoken to.
//! * [`State`] and [`Action`] are the world; [`step`](World::step) is what an action does to it.
//! * [`ledger`] compares the records before and after each operation; [`evidence`] knows who saw which session stand still;
//!   [`fair`] runs a world to rest.
//! * [`configurations`] is the table, and [`check`] runs one line of it.

mod action;
mod budget;
mod change;
mod check;
mod configuration;
mod context;
mod disturb;
pub mod evidence;
pub mod fair;
mod hashed;
pub mod ledger;
mod model;
mod obey;
pub mod port;
mod rivals;
mod rows;
mod rules;
mod state;
mod statements;
mod step;
mod table;
mod trace;
mod view;
mod wanted;
mod watch;

pub use action::{Action, Deed};
pub use budget::Budget;
pub use check::{Finding, Report, check};
pub use configuration::{Configuration, Flaw, Users};
pub use context::{Context, Guard, Owed, Stage};
pub use hashed::Hashed;
pub use model::World;
pub use port::Want;
pub use rules::{Broken, Rule};
pub use state::{Signal, State, Transaction, Write};
pub use table::{Size, beyond_assumptions, configurations, given_up, patient};

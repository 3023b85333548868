//! Judges what processes wrote down.
//!
//! A guard holds its lease from the first moment at which it said that it was valid until the last: a grant that ended does not come back.
//! The judge takes the first moment as late and the last as early as the notes allow, so that no clock causes an accusation.

use std::collections::BTreeMap;

use leasehold::{LostReason, machine::Monotonic};

use super::{
    Note, What,
    judge::{Judge, Tally, Watched, Witness},
};

/// A theft without an answer may still take effect for this many µs: no request to a store is under way for longer.
const THEFT_MAY_COME: u64 = 5_000_000;

/// What the notes say of a guard at one moment.
struct Noted {
    valid: bool,
    shared: bool,
    token: u64,
    loss: Option<LostReason>,
}

impl Witness for Noted {
    fn is_awake(&self) -> bool {
        true
    }

    fn is_valid(&self) -> bool {
        self.valid
    }

    fn is_shared(&self) -> bool {
        self.shared
    }

    fn token(&self) -> u64 {
        self.token
    }

    fn loss(&self) -> Option<LostReason> {
        self.loss
    }
}

/// All notes about one request and its guard.
#[derive(Debug)]
struct Life {
    key: usize,
    asked: u64,
    steals: bool,
    granted: Option<(u64, u64, bool)>,
    refused: Option<u64>,
    /// The latest time at which it became valid, and the earliest at which it was last valid.
    valid: Option<(u64, u64)>,
    last: u64,
}

/// By context and number.
type Name = (u64, u64);

/// At most this many violations are reported. Each shows again at every later moment; the first ones say what happened.
const MOST_TOLD: usize = 8;

/// In the order in which moments of the same time are judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Moment {
    Ends,
    Noted(usize),
    MayBeStolen,
    Begins,
}

/// Says what is wrong with a history, and how much there was to judge. The writes are in the order in which they were committed.
pub(super) fn judge(notes: &[Note], writes: &[(usize, u64)], tally: &Tally) -> Result<usize, String> {
    let lives = lives(notes)?;
    let mut moments: Vec<(u64, Moment, Name)> =
        notes.iter().enumerate().map(|(at, note)| (note.at, Moment::Noted(at), (note.context, note.guard))).collect();
    for (name, life) in &lives {
        if let Some((from, to)) = life.valid.filter(|(from, to)| from < to) {
            moments.extend([(from, Moment::Begins, *name), (to, Moment::Ends, *name)]);
        }
    }
    moments.extend(thefts(&lives));
    moments.sort_unstable();
    let mut session = Session {
        lives: &lives,
        notes,
        judge: Judge::new(tally.clone()),
        floors: BTreeMap::new(),
        left: BTreeMap::new(),
    };
    for (at, moment, name) in moments {
        session.see(at, moment, name);
    }
    for &(key, token) in writes {
        if !lives.values().any(|life| life.key == key && life.granted.is_some_and(|granted| granted.1 == token)) {
            session.judge.accuse(format!("a write by {token} of k{key} was committed, which nobody was granted"));
        }
        session.judge.written(key, token);
    }
    let wrong = session.judge.wrong();
    if wrong.is_empty() {
        Ok(lives.values().filter(|life| life.granted.is_some()).count())
    } else {
        Err(wrong[..wrong.len().min(MOST_TOLD)].join("\n"))
    }
}

fn lives(notes: &[Note]) -> Result<BTreeMap<Name, Life>, String> {
    let mut lives = BTreeMap::<Name, Life>::new();
    for note in notes {
        let name = (note.context, note.guard);
        if let What::Asks { key, steals } = note.what {
            let (granted, refused, valid) = (None, None, None);
            lives.insert(name, Life { key, asked: note.at, steals, granted, refused, valid, last: note.at });
            continue;
        }
        let life = lives.get_mut(&name).ok_or_else(|| format!("nobody asked for it: {note:?}"))?;
        life.last = note.at;
        match note.what {
            What::Granted { token, shared } => life.granted = Some((note.at, token, shared)),
            What::Refused => life.refused = Some(note.at),
            What::Valid { since } => {
                let (from, to) = life.valid.get_or_insert((note.at, since));
                (*from, *to) = (note.at.min(*from), since.max(*to));
            }
            _ => {}
        }
    }
    Ok(lives)
}

/// From when on each grant may have been stolen: its holder believes in it until it is notified. A thief that got no answer may have stolen
/// later.
fn thefts(lives: &BTreeMap<Name, Life>) -> Vec<(u64, Moment, Name)> {
    let mut found = Vec::new();
    for (thief, theft) in lives.iter().filter(|(_, life)| life.steals) {
        let unanswered = theft.refused.unwrap_or(theft.asked) + THEFT_MAY_COME;
        let (until, token) = theft.granted.map_or((unanswered, u64::MAX), |(at, token, _)| (at, token));
        for (name, life) in lives.iter().filter(|(name, life)| *name != thief && life.key == theft.key) {
            let Some((granted, own, _)) = life.granted else { continue };
            if own < token && life.asked < until && life.last > theft.asked {
                found.push((granted.max(theft.asked), Moment::MayBeStolen, *name));
            }
        }
    }
    found
}

struct Session<'a> {
    lives: &'a BTreeMap<Name, Life>,
    notes: &'a [Note],
    judge: Judge<Noted>,
    /// The largest exclusive token that anybody held when a request was sent. Later grants have larger ones.
    floors: BTreeMap<Name, u64>,
    /// Releases that the store accepted after somebody else held the key.
    left: BTreeMap<Name, u64>,
}

impl Session<'_> {
    fn position(&self, name: Name) -> Option<usize> {
        let life = &self.lives[&name];
        let guard = (name.0, life.key, life.granted?.1);
        self.judge.guards.iter().position(|watched| (watched.context, watched.key, watched.token) == guard)
    }

    fn see(&mut self, at: u64, moment: Moment, name: Name) {
        let (key, now) = (self.lives[&name].key, Monotonic::from_ms(at / 1_000));
        match moment {
            Moment::Noted(index) => self.see_note(name, self.notes[index].what, now),
            Moment::Begins => {
                if let Some(position) = self.position(name) {
                    self.judge.guards[position].witness.valid = true;
                    self.judge.believes(position);
                }
            }
            Moment::Ends => {
                if let Some(position) = self.position(name) {
                    self.judge.guards[position].witness.valid = false;
                }
            }
            Moment::MayBeStolen => {
                if let Some((_, token, _)) = self.lives[&name].granted {
                    self.judge.was_stolen(key, token);
                }
            }
        }
        if !matches!(moment, Moment::Noted(index) if matches!(self.notes[index].what, What::Valid { .. })) {
            self.judge.look(now);
        }
    }

    fn see_note(&mut self, name: Name, what: What, now: Monotonic) {
        let (key, position) = (self.lives[&name].key, self.position(name));
        match what {
            What::Asks { .. } => drop(self.floors.insert(name, self.judge.newest(key).1)),
            What::Granted { token, shared } => {
                let floor = self.floors[&name];
                if token <= floor {
                    self.judge.accuse(format!(
                        "{token} of k{key} was granted to {name:?}, which asked after {floor} was held"
                    ));
                }
                let noted = Noted { valid: false, shared, token, loss: None };
                self.judge.hand_out(Watched::new(noted, name.0, (key, token, token)), now);
            }
            What::Lost(reason) => {
                let Some(position) = position else { return };
                if reason == LostReason::Evicted {
                    let token = self.judge.guards[position].token;
                    self.judge.was_evicted(key, token, now);
                }
                self.judge.guards[position].witness.loss = Some(reason);
            }
            What::Leaves => {
                let Some(position) = position else { return };
                self.judge.look_at_losses();
                let watched = self.judge.guards.swap_remove(position);
                let (newest, newest_exclusive) = self.judge.newest(key);
                let newer = if watched.witness.shared { newest_exclusive } else { newest };
                if newer > watched.grant && !self.judge.is_robbed(key, watched.grant) {
                    self.left.insert(name, newer);
                }
            }
            What::Released => {
                if let Some(newer) = self.left.get(&name) {
                    self.judge
                        .accuse(format!("the release of {name:?} was accepted after k{key} was granted as {newer}"));
                }
            }
            What::Untold => self.judge.accuse(format!("{name:?} was never told what became of its lease of k{key}")),
            What::Valid { .. } | What::Refused | What::Wrote | What::WroteNot => {}
        }
    }
}

mod doctored;

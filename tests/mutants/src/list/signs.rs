//! Beacons.

use crate::{
    Mutant,
    Suite::{Histories, Rule},
    edit,
};

const SIGHT: &str = "src/machine/sight.rs";
const PRESENCE: &str = "src/machine/presence.rs";

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new(
        "rule m",
        "a moved beat does not restart the watch of its beacon",
        Rule("protocol::m_"),
        &[edit(
            SIGHT,
            "wanted.get(beacon).map(|wanted| &wanted.suspects) != Some(&watch.suspects)",
            "wanted.get(beacon).is_none() && watch.id > 0",
        )],
    )
    .noting("harmless alone: an eviction names the beat that was read before"),
    Mutant::new(
        "rule m",
        "absence condemns what was read after it was seen",
        Rule("protocol::m_"),
        &[
            edit(
                SIGHT,
                "wanted.get(beacon).map(|wanted| &wanted.suspects) != Some(&watch.suspects)",
                "wanted.get(beacon).is_none() && watch.id > 0",
            ),
            edit(
                SIGHT,
                "            if !self.watches.placed.contains_key(&beacon) {",
                "            if let Some(known) = self.watches.placed.get_mut(&beacon) {
                known.suspects = watch.suspects;
            } else {",
            ),
        ],
    ),
    Mutant::new(
        "rule m",
        "a beacon that was lowered is raised again",
        Rule("protocol::n_"),
        &[edit(PRESENCE, "self.presence.generation += 1;", "self.presence.generation = 1;")],
    ),
    Mutant::new(
        "rule n",
        "the record names a beacon that does not stand",
        Histories("on_a_prompt_store"),
        &[edit(PRESENCE, "if self.state == State::Standing {", "if self.state != State::Resting {")],
    ),
    Mutant::new(
        "rule n",
        "a context rests while something is held or awaited",
        Rule("protocol::n_"),
        &[edit(
            PRESENCE,
            "(true, _) => self.presence.rest_at = None,",
            "(true, _) => _ = self.presence.rest_at.get_or_insert_with(|| now.plus(IDLE_LIMIT_MS)),",
        )],
    ),
];

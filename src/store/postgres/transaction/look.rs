//! A transaction that only looks takes no lock: it waits for no writer, and no writer waits for it. It needs no right but SELECT.

use std::string::String;

use super::{
    super::{
        carrier::Round,
        failure,
        rows::{Access, Hold, load_records, text_of_session},
    },
    Attempt, Fault,
    settings::begin_to_look,
};
use crate::machine::{Records, Reply};

impl Attempt<'_> {
    /// What a batch that only looks is told, from one snapshot; `None` for any other batch.
    pub(super) async fn look(&mut self) -> Result<Option<Reply>, Fault> {
        let (batch, names) = (&self.work.batch, self.names);
        if !batch.only_looks() {
            return Ok(None);
        }
        let (keys, mut records) = (batch.keys(), Records::new());
        let mut round = Round::default();
        begin_to_look(self.work.limit, &mut round);
        let (found, store) =
            (round.add(&names.read_records(&keys, Hold::Not)), round.add(&names.read_store(Hold::Not)));
        let (standby, hiding) = (round.add(failure::IS_STANDBY), round.add(&names.ask_hiding(Access::Look)));
        let answers = self.loan.carry(&round).await?;
        if failure::is_standby(answers.rows(standby)) {
            return Err(failure::of_a_standby().into());
        }
        failure::check_hiding(answers.rows(hiding))?;
        load_records(&mut records, &keys, answers.rows(found));
        self.load_store(&mut records, &answers, store)?;
        let sessions = records.sessions_of(batch);
        let mut round = Round::one(&names.read_sessions(&sessions, Hold::Not));
        round.add("ROLLBACK");
        let answers = self.loan.carry(&round).await?;
        for session in sessions {
            let text = text_of_session(answers.rows(0), session).map(String::from);
            records.load_session(session, text.as_deref());
        }
        Ok(Some(batch.apply(&mut records, self.work.now)))
    }
}

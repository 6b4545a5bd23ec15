//! Executes the actions of operators on pages.

use std::sync::Arc;

use tokio::runtime::Handle;
use underload_fleet::orchestrator::Answer;
use underload_fleet::store::{Needs, Result, StoreError};

use crate::http::{Core, NotDone, Turn};
use crate::operator::{self, Operator};
use crate::pages::{Action, Operate};
use crate::random;

/// Executes actions in the queue of the devices' requests.
pub struct Desk {
    core: Arc<Core>,
}

impl Desk {
    pub fn new(core: Arc<Core>) -> Self {
        Self { core }
    }

    /// Executes `work` and waits for it. Must not be called on a thread of asynchronous tasks.
    fn ask<A: Send + 'static>(
        &self,
        needs: Needs,
        work: impl FnMut(&mut Turn<'_>) -> Result<A> + Send + 'static,
    ) -> Result<A> {
        let done = Handle::current().block_on(self.core.writers.ask(0, needs, work));
        done.map_err(|error| match error {
            NotDone::Broken { what } => StoreError::broken(what),
            busy => StoreError::temporary(busy.to_string()),
        })
    }
}

impl Operate for Desk {
    fn who_has(&self, now_ms: u64, name: &str, sha256: &str) -> Result<Option<Operator>> {
        let (name, sha256, core) = (name.to_owned(), sha256.to_owned(), Arc::clone(&self.core));
        self.ask(Needs::default(), move |turn| {
            let found = operator::who_has(turn.tx, now_ms, &name, &sha256)?;
            if found.is_none() {
                core.refusals.log(turn.tx, now_ms, "refused a log-in")?;
            }
            Ok(found)
        })
    }

    fn count_refusal(&self) {
        self.core.refusals.count();
    }

    fn act(&self, _now: u64, operator: &Operator, action: &Action) -> Result<Result<(), String>> {
        let (core, who, action) = (Arc::clone(&self.core), operator.name.clone(), action.clone());
        let needs = Needs { admits: true, ..Needs::default() };
        let done = self.ask(needs, move |turn| act(&core, turn, &who, &action))?;
        Ok(done.map_err(|rejection| rejection.message))
    }
}

fn act(core: &Core, turn: &mut Turn<'_>, who: &str, action: &Action) -> Answer<()> {
    let Turn { tx, now_ms, rng } = turn;
    let rules = &core.rules;
    Ok(match action {
        Action::ApplyPlan(text) => {
            rules.apply_plan(*tx, *now_ms, who, text, &random::bytes()?)?.map(drop)
        }
        Action::StopPlan(name) => rules.stop_plan(*tx, *now_ms, who, name)?.map(drop),
        Action::LogIn => rules.log_in(*tx, *now_ms, who)?,
        Action::LookAtDevice(id) => rules.look_at_device(*tx, *now_ms, who, *id)?,
        Action::RemoveDevice(id) => rules.remove_device(*tx, *now_ms, rng, who, *id)?,
    })
}

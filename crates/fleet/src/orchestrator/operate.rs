//! What operators do. Each of it is written down in the log.

use data_encoding::BASE32_NOPAD;
use underload_aqm::rng::Rng;

use super::settle::{keep, missed, settle, study_key};
use super::{Answer, Kind, Orchestrator, PLANS_MAX, Rejection, Stop, answer, enrol};
use crate::device::{Attributes, DeviceId};
use crate::plan::{Load, Plan};
use crate::store::{Code, CodeFor, LogEntry, PlanRow, Server, Transaction};

const REMOVED: &str = "the device was removed";

/// A code that is to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewCode {
    /// What for.
    pub makes: CodeFor,
    /// What the operator knows of the line.
    pub attributes: Attributes,
    /// It is good for so long.
    pub valid_ms: u64,
    /// From a source of randomness that nobody can foretell.
    pub secret: [u8; 16],
}

fn not_found(message: String) -> Stop {
    Rejection::new(Kind::NotFound, "not-found", message).into()
}

fn log(tx: &mut dyn Transaction, at_ms: u64, who: &str, what: String) -> Result<(), Stop> {
    Ok(tx.log(&LogEntry { at_ms, who: who.to_owned(), what })?)
}

/// Reads a plan that is to be applied now.
///
/// # Errors
/// Returns all mistakes of the text, a line each, or why the plan can never be applied: it has no
/// name, it is over, or it exceeds a budget of its own.
pub fn applicable(text: &str, now_ms: u64) -> Result<Plan, Rejection> {
    let plan = Plan::parse(text)
        .map_err(|error| Rejection::new(Kind::BadRequest, "bad-plan", error.to_string()))?;
    let refuse = |kind, code, message: String| Err(Rejection::new(kind, code, message));
    if plan.name.is_empty() {
        let message = "a plan that is applied needs a `name`".to_owned();
        return refuse(Kind::BadRequest, "no-name", message);
    }
    if plan.is_over(now_ms) {
        let message = "until: the plan's last day is over".to_owned();
        return refuse(Kind::Conflict, "over", message);
    }
    let excesses = Load::of(&plan).excesses(&plan);
    if !excesses.is_empty() {
        let words = excesses.iter().map(|excess| {
            let (key, takes, most) = (excess.key, excess.takes, excess.may_take);
            format!("budget.{key}: the plan takes {takes:.3}, and may take {most}")
        });
        let message = words.collect::<Vec<_>>().join("\n");
        return refuse(Kind::Conflict, "over-budget", message);
    }
    Ok(plan)
}

#[expect(clippy::missing_errors_doc, reason = "the store's, which changes nothing")]
impl Orchestrator {
    /// Makes a code for enrolment, and returns its text, which is kept nowhere.
    pub fn new_code(
        &self,
        tx: &mut dyn Transaction,
        now_ms: u64,
        who: &str,
        it: &NewCode,
    ) -> Answer<String> {
        answer(new_code(tx, now_ms, who, it))
    }

    /// Applies a plan: devices that it is for take part from their next request on. The same again
    /// changes nothing; a plan that was applied does not change, and its name does not come back.
    /// `secret` is of 32 bytes that nobody can foretell: its pseudonyms are made by it.
    pub fn apply_plan(
        &self,
        tx: &mut dyn Transaction,
        now_ms: u64,
        who: &str,
        text: &str,
        secret: &[u8; 32],
    ) -> Answer<PlanRow> {
        answer(self.apply(tx, now_ms, who, text, secret))
    }

    /// Stops a plan for good. Runs that are under way end.
    pub fn stop_plan(
        &self,
        tx: &mut dyn Transaction,
        now_ms: u64,
        who: &str,
        name: &str,
    ) -> Answer<PlanRow> {
        answer(stop(tx, now_ms, who, name))
    }

    /// Removes a device or a server: it is told to stop for good.
    pub fn remove_device(
        &self,
        tx: &mut dyn Transaction,
        now_ms: u64,
        rng: &mut Rng,
        who: &str,
        id: DeviceId,
    ) -> Answer<()> {
        answer(self.remove(tx, now_ms, rng, who, id))
    }

    /// Sends agents to another address of a server, which its own heartbeats do not change.
    pub fn set_server_address(
        &self,
        tx: &mut dyn Transaction,
        now_ms: u64,
        who: &str,
        name: &str,
        address: &str,
    ) -> Answer<()> {
        answer(set_server_address(tx, now_ms, who, name, address))
    }

    fn apply(
        &self,
        tx: &mut dyn Transaction,
        now_ms: u64,
        who: &str,
        text: &str,
        secret: &[u8; 32],
    ) -> Result<PlanRow, Stop> {
        let plan = applicable(text, now_ms)?;
        let refuse = |kind, code, message: String| Stop::from(Rejection::new(kind, code, message));
        let plans = self.plans(tx)?;
        if let Some(same) = plans.iter().find(|applied| applied.row.name == plan.name) {
            if same.row.text == text && same.row.stopped_ms.is_none() {
                return Ok(same.row.clone());
            }
            let message = format!(
                "there is a plan `{}` already: what it collected would not be told apart; give \
                 this one another name",
                plan.name
            );
            return Err(refuse(Kind::Conflict, "name-taken", message));
        }
        if plans.iter().filter(|applied| now_ms < applied.ends_ms()).count() >= PLANS_MAX {
            let message = format!("{PLANS_MAX} plans are applied: stop one first");
            return Err(refuse(Kind::Conflict, "too-many-plans", message));
        }
        let row = PlanRow {
            name: plan.name,
            text: text.to_owned(),
            applied_ms: now_ms,
            stopped_ms: None,
        };
        tx.put_plan(&row)?;
        tx.put_setting(&study_key(&row.name), secret)?;
        log(tx, now_ms, who, format!("applied the plan {}", row.name))?;
        Ok(row)
    }

    fn remove(
        &self,
        tx: &mut dyn Transaction,
        now_ms: u64,
        rng: &mut Rng,
        who: &str,
        id: DeviceId,
    ) -> Result<(), Stop> {
        let Some(mut device) = tx.device(id)? else {
            return remove_server(tx, now_ms, who, id);
        };
        if device.is_removed {
            return Ok(());
        }
        // Its lease stays until the server tells that the run is over, or it expires: the run may
        // go on until then.
        let plans = self.plans(tx)?;
        let mut ended = settle(&mut device, &plans, now_ms, rng);
        for schedule in &mut device.schedules {
            let name = schedule.plan.clone();
            ended.extend(schedule.open.drain(..).map(|open| missed(&name, &open, REMOVED)));
            ended.extend(schedule.leave(now_ms));
        }
        device.is_removed = true;
        keep(tx, now_ms, device, &plans, &ended)?;
        log(tx, now_ms, who, format!("removed the device {id}"))
    }
}

fn new_code(
    tx: &mut dyn Transaction,
    now_ms: u64,
    who: &str,
    it: &NewCode,
) -> Result<String, Stop> {
    enrol::acceptable(&it.attributes)?;
    let text = BASE32_NOPAD.encode(&it.secret);
    let code = Code {
        hash: enrol::hash_of(&text),
        makes: it.makes,
        attributes: it.attributes.clone(),
        expires_ms: now_ms.saturating_add(it.valid_ms).min(i64::MAX as u64),
        used_by: None,
    };
    tx.put_code(&code)?;
    let what = match it.makes {
        CodeFor::Device => "device",
        CodeFor::Server => "server",
    };
    log(tx, now_ms, who, format!("made a code for a {what}"))?;
    Ok(text)
}

fn stop(tx: &mut dyn Transaction, now_ms: u64, who: &str, name: &str) -> Result<PlanRow, Stop> {
    let found = tx.plans()?.into_iter().find(|row| row.name == name);
    let Some(mut row) = found else { return Err(not_found(format!("no plan `{name}`"))) };
    if row.stopped_ms.is_none() {
        row.stopped_ms = Some(now_ms);
        tx.put_plan(&row)?;
        log(tx, now_ms, who, format!("stopped the plan {name}"))?;
    }
    Ok(row)
}

fn set_server_address(
    tx: &mut dyn Transaction,
    now_ms: u64,
    who: &str,
    name: &str,
    address: &str,
) -> Result<(), Stop> {
    let known = tx.servers()?.into_iter().find(|server| server.address.name == name);
    let Some(mut server) = known.filter(|server| !server.is_removed) else {
        return Err(not_found(format!("no server `{name}`")));
    };
    address.clone_into(&mut server.address.address);
    enrol::acceptable_address(&server.address)?;
    tx.put_server(&server)?;
    log(tx, now_ms, who, format!("set the address of the server {name} to {address}"))
}

fn remove_server(
    tx: &mut dyn Transaction,
    now_ms: u64,
    who: &str,
    id: DeviceId,
) -> Result<(), Stop> {
    let Some(server) = tx.servers()?.into_iter().find(|server| server.device == id) else {
        return Err(not_found(format!("no device or server {id}")));
    };
    if !server.is_removed {
        tx.put_server(&Server { is_removed: true, ..server.clone() })?;
        log(tx, now_ms, who, format!("removed the server {}", server.address.name))?;
    }
    Ok(())
}

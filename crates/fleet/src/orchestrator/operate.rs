//! Requests of operators. Each change is recorded in the log.

use data_encoding::BASE32_NOPAD;
use underload_aqm::rng::Rng;

use super::settle::{REMOVED, missed, settle, store_outcomes, study_key};
use super::{Answer, Kind, Orchestrator, PLANS_MAX, Rejection, Stop, answer, enrol, reject};
use crate::device::{Attributes, DeviceId};
use crate::plan::{Load, Plan};
use crate::store::{Code, CodeFor, Device, LogEntry, PlanRow, Server, StoreError, Tx};

/// A code for enrolment to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewCode {
    pub makes: CodeFor,
    pub attributes: Attributes,
    /// External identifier of the line; empty for none.
    pub line: String,
    pub valid_ms: u64,
    /// From a cryptographically secure source of randomness.
    pub secret: [u8; 16],
}

pub(super) fn not_found<T>(message: String) -> Result<T, Stop> {
    reject(Kind::NotFound, "not-found", message)
}

pub(super) fn log(tx: Tx<'_>, at_ms: u64, who: &str, what: String) -> Result<(), Stop> {
    Ok(tx.log(&LogEntry { at_ms, who: who.to_owned(), what })?)
}

/// Parses a plan that is to be applied now.
///
/// # Errors
/// Returns all mistakes of the text, one per line, or why the plan can never be applied: it has no
/// name, it has ended, or it exceeds one of its budgets.
pub fn applicable(text: &str, now_ms: u64) -> Result<Plan, Rejection> {
    let plan = Plan::parse(text)
        .map_err(|error| Rejection::new(Kind::BadRequest, "bad-plan", error.to_string()))?;
    if plan.name.is_empty() {
        return reject(Kind::BadRequest, "no-name", "a plan that is applied needs a `name`");
    }
    if plan.is_over(now_ms) {
        return reject(Kind::Conflict, "over", "until: the plan's last day is over");
    }
    let excesses = Load::of(&plan).excesses(&plan);
    if !excesses.is_empty() {
        let lines = excesses.iter().map(|excess| {
            let (key, takes, most) = (excess.key, excess.takes, excess.may_take);
            format!("budget.{key}: the plan takes {takes:.3}, and may take {most}")
        });
        let message = lines.collect::<Vec<_>>().join("\n");
        return reject(Kind::Conflict, "over-budget", message);
    }
    Ok(plan)
}

impl Orchestrator {
    /// Makes codes for enrolment, and returns their texts, of which only hashes are stored.
    pub fn new_codes(
        &self,
        tx: Tx<'_>,
        now_ms: u64,
        who: &str,
        codes: &[NewCode],
    ) -> Answer<Vec<String>> {
        answer(|| {
            let named: Vec<&str> =
                codes.iter().map(|new| &*new.line).filter(|line| !line.is_empty()).collect();
            let found = tx.lines(&named)?;
            if let Some((line, _)) = named.iter().zip(found).find(|(_, found)| found.is_none()) {
                return not_found(format!("no line `{line}`"));
            }
            let mut texts = Vec::with_capacity(codes.len());
            for new in codes {
                enrol::acceptable(&new.attributes)?;
                let text = BASE32_NOPAD.encode(&new.secret);
                tx.put_code(&Code {
                    hash: enrol::hash_of(&text),
                    makes: new.makes,
                    attributes: new.attributes.clone(),
                    line: new.line.clone(),
                    expires_ms: now_ms.saturating_add(new.valid_ms).min(i64::MAX as u64),
                    used_by: None,
                })?;
                texts.push(text);
            }
            let what = match codes.first().map(|new| new.makes) {
                Some(CodeFor::Server) => "servers",
                _ => "devices",
            };
            log(tx, now_ms, who, format!("made {} codes for {what}", codes.len()))?;
            Ok(texts)
        })
    }

    /// Applies a plan: the devices that it includes take part from their next request on. Applying
    /// the same plan again changes nothing; an applied plan does not change, and its name cannot be
    /// used again. `secret` is random and makes the plan's pseudonyms.
    pub fn apply_plan(
        &self,
        tx: Tx<'_>,
        now_ms: u64,
        who: &str,
        text: &str,
        secret: &[u8; 32],
    ) -> Answer<PlanRow> {
        answer(|| {
            let plan = applicable(text, now_ms)?;
            let plans = self.plans(tx)?;
            if let Some(same) = plans.iter().find(|applied| applied.row.name == plan.name) {
                if same.row.text == text && same.row.stopped_ms.is_none() {
                    return Ok(same.row.clone());
                }
                let message = format!(
                    "there is a plan `{}` already: its results could not be told apart from this \
                     plan's; give this one another name",
                    plan.name
                );
                return reject(Kind::Conflict, "name-taken", message);
            }
            if plans.iter().filter(|applied| now_ms < applied.ends_ms()).count() >= PLANS_MAX {
                let message = format!("{PLANS_MAX} plans are applied: stop one first");
                return reject(Kind::Conflict, "too-many-plans", message);
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
        })
    }

    /// Stops a plan for good. Runs that are under way end.
    pub fn stop_plan(&self, tx: Tx<'_>, now_ms: u64, who: &str, name: &str) -> Answer<PlanRow> {
        answer(|| {
            let found = tx.plans()?.into_iter().find(|row| row.name == name);
            let Some(mut row) = found else { return not_found(format!("no plan `{name}`")) };
            if row.stopped_ms.is_none() {
                row.stopped_ms = Some(now_ms);
                tx.put_plan(&row)?;
                log(tx, now_ms, who, format!("stopped the plan {name}"))?;
            }
            Ok(row)
        })
    }

    /// Records that a viewer or an operator logged in.
    pub fn log_in(&self, tx: Tx<'_>, now_ms: u64, who: &str) -> Answer<()> {
        answer(|| log(tx, now_ms, who, "logged in".to_owned()))
    }

    /// Records that an operator looked at the page of a device.
    pub fn look_at_device(&self, tx: Tx<'_>, now_ms: u64, who: &str, id: DeviceId) -> Answer<()> {
        answer(|| log(tx, now_ms, who, format!("looked at the device {id}")))
    }

    /// Removes a device or a server, which then stops for good.
    pub fn remove_device(
        &self,
        tx: Tx<'_>,
        now_ms: u64,
        rng: &mut Rng,
        who: &str,
        id: DeviceId,
    ) -> Answer<()> {
        answer(|| {
            let Some(mut device) = tx.device(id)? else {
                return remove_server(tx, now_ms, who, id);
            };
            if device.is_removed {
                return Ok(());
            }
            device.is_removed = true;
            self.leave_plans(tx, now_ms, rng, device, REMOVED)?;
            log(tx, now_ms, who, format!("removed the device {id}"))
        })
    }

    /// Ends the schedules of a device, and stores it.
    pub(super) fn leave_plans(
        &self,
        tx: Tx<'_>,
        now_ms: u64,
        rng: &mut Rng,
        mut device: Device,
        reason: &'static str,
    ) -> Result<(), StoreError> {
        // The lease stays until the server reports the end of the run, or it expires: the run may
        // be under way until then.
        let plans = self.plans(tx)?;
        let times = (self.counted_from_ms(tx, now_ms)?, now_ms);
        let mut ended = settle(&mut device, &plans, times, rng);
        for schedule in &mut device.schedules {
            let name = schedule.plan.clone();
            ended.extend(schedule.open.drain(..).map(|open| missed(&name, &open, reason)));
            ended.extend(schedule.leave(now_ms, reason));
        }
        store_outcomes(tx, now_ms, device, &plans, &ended)
    }

    /// Sends agents to another address of a server, which its own heartbeats do not change.
    pub fn set_server_address(
        &self,
        tx: Tx<'_>,
        now_ms: u64,
        who: &str,
        name: &str,
        address: &str,
    ) -> Answer<()> {
        answer(|| {
            let known = tx.servers()?.into_iter().find(|server| server.address.name == name);
            let Some(mut server) = known.filter(|server| !server.is_removed) else {
                return not_found(format!("no server `{name}`"));
            };
            address.clone_into(&mut server.address.address);
            enrol::acceptable_address(&server.address)?;
            tx.put_server(&server)?;
            log(tx, now_ms, who, format!("set the address of the server {name} to {address}"))
        })
    }
}

fn remove_server(tx: Tx<'_>, now_ms: u64, who: &str, id: DeviceId) -> Result<(), Stop> {
    let Some(server) = tx.servers()?.into_iter().find(|server| server.device == id) else {
        return not_found(format!("no device or server {id}"));
    };
    if !server.is_removed {
        let what = format!("removed the server {}", server.address.name);
        tx.put_server(&Server { is_removed: true, ..server })?;
        log(tx, now_ms, who, what)?;
    }
    Ok(())
}

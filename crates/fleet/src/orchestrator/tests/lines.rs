//! Tests of lines: what an operator records, and what a device claims.

use super::*;
use crate::line::{CHANGES_MAX, LineUpdate};
use crate::operator::{LineState, ListLines, PutLines, PutLinesAnswer};
use crate::store::StoredResult;

impl Fleet {
    /// A device that claims these attributes, with a code without attributes.
    fn claiming(&mut self, seed: u8, claimed: Attributes) -> DeviceId {
        let code = self.code(CodeFor::Device, seed, Attributes::default());
        self.enrol_as(seed, &code, claimed, None).expect("the code is good").device
    }

    fn claiming_segment(&mut self, seed: u8, segment: &str) -> DeviceId {
        let segment = segment.to_owned();
        self.claiming(seed, Attributes { segment, ..Attributes::default() })
    }

    /// The run that is assigned to a device now, or the reason why no run is assigned.
    fn run_or_refusal(&mut self, id: DeviceId) -> Result<Assignment, Option<Refusal>> {
        let mut schedule = self.device(id);
        schedule.schedules[0].due_ms = self.now;
        (schedule.schedules[0].retry_ms, schedule.schedules[0].refusals) = (0, 0);
        self.change(|_, tx, _, _| tx.put_device(&schedule).map(Ok)).expect("memory");
        let answer = self.next(id);
        answer.run.ok_or(answer.refusal)
    }
}

#[test]
fn an_operators_attributes_stay_and_a_device_changes_others_rarely() {
    let mut fleet = Fleet::ready();
    let written = Attributes {
        firmware: "operator's".to_owned(),
        segment: "cmts-1".to_owned(),
        tier_up_bit_per_s: 10_000_000,
        ..Attributes::default()
    };
    let code = fleet.code(CodeFor::Device, 1, written);
    fleet.enrol_with(1, &code, None).expect("it is good");
    let device = id_of(1);
    let claim = |fleet: &mut Fleet, number: u64| {
        let told = Attributes {
            firmware: format!("claimed {number}"),
            measured: format!("measured {number}"),
            segment: "a neighbour's".to_owned(),
            tier_up_bit_per_s: 1_000_000_000,
            tier_down_bit_per_s: 2_000_000_000,
            ..Attributes::default()
        };
        fleet.requests += 1;
        let asked = Next { request: fleet.requests, attributes: Some(told), ..NEXT };
        fleet.ask(device, &asked).expect("it may ask");
        fleet.device(device).attributes
    };
    let mut kinds = BTreeMap::new();
    for number in 0..1_000 {
        let known = claim(&mut fleet, number);
        assert_eq!((known.firmware.as_str(), known.segment.as_str()), ("operator's", "cmts-1"));
        assert_eq!(known.tier_up_bit_per_s, 10_000_000);
        kinds.insert(known.measured.clone(), known);
        fleet.now += MINUTE / 60;
    }
    assert_eq!(kinds.len(), 4, "four changes at once: {kinds:?}");
    for day in 0..10 {
        fleet.now += 24 * 60 * MINUTE;
        for number in 0..10 {
            let known = claim(&mut fleet, 10_000 + 10 * day + number);
            kinds.insert(known.measured.clone(), known);
        }
    }
    assert_eq!(kinds.len(), 14, "one more each day");
    // The clock is years ahead for a while.
    fleet.now += 3_000 * 24 * 60 * MINUTE;
    claim(&mut fleet, 20_000);
    fleet.now -= 3_000 * 24 * 60 * MINUTE;
    for day in 0..10 {
        fleet.now += 24 * 60 * MINUTE;
        let known = claim(&mut fleet, 30_000 + day);
        assert_eq!(known.measured, format!("measured {}", 30_000 + day), "still one each day");
    }
}

#[test]
fn a_lease_reserves_at_most_the_plans_largest_tier() {
    let mut fleet = Fleet::ready();
    let claimed = Attributes {
        tier_up_bit_per_s: 1_000_000_000,
        tier_down_bit_per_s: 1_000_000_000_000,
        ..Attributes::default()
    };
    let device = fleet.claiming(1, claimed);
    fleet.given(device);
    let used = fleet.server("east");
    assert_eq!((used.reserved_up_bit_per_s, used.reserved_down_bit_per_s), (100_000_000, 40_000));
}

#[test]
fn a_claimed_segment_does_not_delay_lines_that_an_operator_assigned() {
    let mut fleet = Fleet::ready();
    let (written, neighbour) = (fleet.enrol(1, "cmts-1"), fleet.enrol(2, "cmts-1"));
    let (claiming, another) =
        (fleet.claiming_segment(3, "cmts-1"), fleet.claiming_segment(4, "cmts-1"));
    for device in [written, neighbour, claiming, another] {
        fleet.next(device);
    }
    let busy = Err(Some(Refusal::SegmentBusy));
    let claimed = fleet.run_or_refusal(claiming).expect("the segment is free");
    assert_eq!(fleet.run_or_refusal(another), busy, "claimed by two");
    let run = fleet.run_or_refusal(written).expect("a claim does not hold it back");
    assert_eq!(fleet.run_or_refusal(neighbour), busy, "written for two");
    fleet.release(claiming, claimed.lease_id).expect("it holds it");
    assert_eq!(fleet.run_or_refusal(another), busy, "an operator's line is loaded");
    fleet.release(written, run.lease_id).expect("it holds it");
    fleet.run_or_refusal(another).expect("all is free");
    // A later report does not turn a claim into an operator's attribute, or the reverse.
    let told = Attributes { segment: "cmts-1".to_owned(), ..Attributes::default() };
    let late = fleet.claiming(5, Attributes::default());
    let next = Next { request: 1_000, attributes: Some(told), ..NEXT };
    fleet.ask(late, &next).expect("it may ask");
    fleet.requests = 1_000;
    assert_eq!(fleet.run_or_refusal(late), busy, "claimed later");
    fleet.run_or_refusal(neighbour).expect("no line of an operator's is loaded");
}

#[test]
fn lines_of_a_later_wave_are_measured_from_its_day_on() {
    let waves = r#"
[[cohort]]
name = "first"
where = { segment = "cmts-1" }
[[cohort]]
name = "second"
where = { segment = "cmts-2" }
from = "2027-01-17"
"#;
    let mut fleet = Fleet::new();
    fleet.apply(&format!("{PLAN}{waves}")).expect("it is new");
    fleet.enrol_server(200, "east").expect("it is new");
    let (first, second) = (fleet.enrol(1, "cmts-1"), fleet.enrol(2, "cmts-2"));
    fleet.given(first);
    assert!(fleet.next(second).run.is_none());
    assert!(fleet.device(second).schedules.is_empty(), "{:?}", fleet.device(second));
    // Fleets of tests begin on 2027-01-15 at 8:00.
    fleet.now = START + 40 * 60 * MINUTE;
    fleet.given(second);
}

fn update(external_id: &str, values: &[(&str, &str)]) -> LineUpdate {
    let mut update = LineUpdate::default();
    update.set("external_id", external_id).expect("it is valid");
    for (name, value) in values {
        update.set(name, value).expect("it is valid");
    }
    update
}

impl Fleet {
    fn import(&mut self, lines: &[LineUpdate]) -> Result<PutLinesAnswer, Rejection> {
        self.put(lines, None, true)
    }

    /// Sets values of a line from a time on.
    fn set(&mut self, id: &str, values: &[(&str, &str)], from_ms: Option<u64>) {
        let update = LineUpdate { is_retired: Some(false), ..update(id, values) };
        self.put(&[update], from_ms, false).expect("it is known");
    }

    fn put(
        &mut self,
        lines: &[LineUpdate],
        from_ms: Option<u64>,
        is_import: bool,
    ) -> Result<PutLinesAnswer, Rejection> {
        let put = PutLines { lines: lines.to_vec(), from_ms, is_import, is_check: false };
        self.change(|it, tx, now, rng| it.put_lines(tx, now, rng, "me", &put))
    }

    /// Makes a code of a line; the empty name for none.
    pub(super) fn code_of(
        &mut self,
        line: &str,
        makes: CodeFor,
        secret: u8,
        attributes: Attributes,
    ) -> Result<String, Rejection> {
        let (line, secret) = (line.to_owned(), [secret; 16]);
        let new = [NewCode { makes, attributes, line, valid_ms: 60 * MINUTE, secret }];
        let made = self.change(|it, tx, now, _| it.new_codes(tx, now, "me", &new));
        made.map(|mut texts| texts.pop().expect("a text"))
    }

    /// A device that measures a line.
    fn measuring(&mut self, seed: u8, line: &str) -> DeviceId {
        let code = self.code_of(line, CodeFor::Device, seed, Attributes::default());
        self.enrol_with(seed, &code.expect("the line is known"), None).expect("it is good").device
    }

    fn shown(&mut self, id: &str) -> Result<LineState, Rejection> {
        let list = ListLines { external_id: Some(id.to_owned()), ..ListLines::default() };
        let found = self.change(|it, tx, now, _| it.list_lines(tx, now, "me", &list));
        found.map(|mut it| it.lines.pop().expect("a line"))
    }

    fn retire(&mut self, id: &str) -> Result<PutLinesAnswer, Rejection> {
        let retired = LineUpdate { is_retired: Some(true), ..update(id, &[]) };
        self.put(&[retired], None, false)
    }

    fn listed(&mut self, list: &ListLines) -> Vec<String> {
        let found =
            self.change(|it, tx, now, _| it.list_lines(tx, now, "me", list)).expect("a list");
        found.lines.into_iter().map(|state| state.line.external_id).collect()
    }

    /// The configuration of each stored result that measured, in the order of their arrival.
    fn configured(&self) -> Vec<String> {
        let measured = |it: &StoredResult| it.result.outcome == Outcome::Measured;
        let results = self.store.results().into_iter().filter(measured);
        results.map(|it| it.attributes.configured).collect()
    }
}

#[test]
fn a_result_has_the_attributes_that_its_line_had_at_its_time() {
    let mut fleet = Fleet::ready();
    let line = update("ACC-1", &[("name", "Mrs. Miller"), ("configured", "fifo")]);
    let new = PutLinesAnswer { created: 1, changed: 0 };
    assert_eq!(fleet.import(std::slice::from_ref(&line)), Ok(new));
    let device = fleet.measuring(1, "ACC-1");
    assert_eq!(fleet.device(device).attributes.configured, "fifo");
    assert_eq!(fleet.device(device).attributes.model, "told", "not recorded: the device's");
    let first = fleet.given(device);
    fleet.now += 10_000;
    fleet.release(device, first.lease_id).expect("it is held");
    // Recorded now, valid from now. The result of the run before comes from the spool, later.
    fleet.now += MINUTE;
    let changed_ms = fleet.now;
    fleet.set("ACC-1", &[("configured", "docsis-pie")], None);
    assert_eq!(fleet.device(device).attributes.configured, "docsis-pie");
    fleet.requests += 1;
    let waiting = Next { request: fleet.requests, waiting: 1, ..NEXT };
    fleet.ask(device, &waiting).expect("it may ask");
    assert_eq!(fleet.hand_in(device, 1, first.run).map(|it| it.new), Ok(1));
    let second = fleet.given(device);
    assert_eq!(fleet.hand_in(device, 2, second.run).map(|it| it.new), Ok(1));
    assert_eq!(fleet.configured(), ["fifo", "docsis-pie"]);
    fleet.release(device, second.lease_id).expect("it is held");
    // A change that is planned applies from its time on, without another request of the operator.
    let planned_ms = fleet.now + 30 * MINUTE;
    fleet.set("ACC-1", &[("configured", "")], Some(planned_ms));
    assert_eq!(fleet.device(device).attributes.configured, "docsis-pie");
    fleet.now = planned_ms;
    fleet.next(device);
    assert_eq!(fleet.device(device).attributes.configured, "");
    let state = fleet.shown("ACC-1").expect("it is known");
    assert_eq!((state.line.device, state.is_retired), (Some(device), false));
    assert_eq!(state.line.changes_of("configured"), [changed_ms, planned_ms]);
    // The same list again changes nothing, as each value is the one that is valid now.
    let same = update("ACC-1", &[("name", "Mrs. Miller")]);
    assert_eq!(fleet.import(&[same]), Ok(PutLinesAnswer::default()));
}

#[test]
fn an_enrolled_device_joins_a_line_with_what_its_code_said() {
    let mut fleet = Fleet::ready();
    let segment = "cmts-1".to_owned();
    let written = Attributes { segment, configured: "fifo".to_owned(), ..Attributes::default() };
    let code = fleet.code(CodeFor::Device, 1, written);
    let device = fleet.enrol_with(1, &code, None).expect("it is good").device;
    let hex = device.to_string();
    fleet.import(&[update("A", &[("device", &hex)]), update("B", &[])]).expect("new lines");
    let from_ms = Some(START);
    fleet.set("A", &[("configured", "pie")], from_ms);
    let state = fleet.shown("A").expect("it is known");
    assert_eq!((&*state.attributes.configured, &*state.attributes.segment), ("pie", "cmts-1"));
    assert_eq!(state.line.changes_of("configured"), [START], "the value of the code came before");
    // The device moves to another line, and no longer belongs to the first.
    fleet.set("B", &[("device", &hex)], None);
    assert_eq!(fleet.shown("A").expect("it is known").line.device, None);
    assert_eq!(fleet.device(device).line, "B");
    // Another device replaces the one of the line.
    let other = fleet.measuring(2, "B");
    assert_eq!(fleet.shown("B").expect("it is known").line.device, Some(other));
    assert_eq!((fleet.device(device).line, fleet.device(other).line), (String::new(), "B".into()));
    // Devices that swap their lines in one request, and a line that lost its device in it.
    fleet.set("A", &[("device", &hex)], None);
    let swapped = [("A", other), ("B", device)].map(|(line, id)| (line, id.to_string()));
    let swapped = swapped.map(|(line, id)| update(line, &[("device", &*id)]));
    assert_eq!(fleet.import(&swapped).map(|it| it.changed), Ok(2));
    assert_eq!((fleet.device(device).line, fleet.device(other).line), ("B".into(), "A".into()));
    let moved = [update("B", &[("device", &other.to_string())]), update("A", &[("region", "x")])];
    fleet.import(&moved).expect("both are known");
    assert_eq!(fleet.shown("A").expect("it is known").line.device, None);
    assert_eq!(fleet.shown("B").expect("it is known").line.device, Some(other));
    assert_eq!((fleet.device(device).line, fleet.device(other).line), (String::new(), "B".into()));
}

#[test]
fn all_faults_of_a_request_are_told_and_nothing_is_recorded() {
    let mut fleet = Fleet::ready();
    let nobody = DeviceId([9; 16]).to_string();
    let mut bad = update("C", &[]);
    bad.attributes.insert("measured".to_owned(), "pie".to_owned());
    let refused = fleet.import(&[
        update("A", &[]),
        update("B", &[("device", &nobody)]),
        bad,
        update("A", &[]),
        LineUpdate::default(),
    ]);
    let message = refused.expect_err("four faults").message;
    let expected = [
        "line `B`: there is no device",
        "line `C`: measured: expected one of the columns",
        "line `A`: occurs twice",
        "line ``: external_id: expected 1 to 64",
    ];
    for (line, expected) in message.lines().zip(expected) {
        assert!(line.starts_with(expected), "{line}");
    }
    assert_eq!((message.lines().count(), fleet.shown("A").is_err()), (4, true), "{message}");
    assert!(fleet.put(&[update("A", &[])], None, false).is_err(), "only an import creates lines");
    let code = fleet.code_of("A", CodeFor::Device, 1, Attributes::default());
    assert_eq!(code.expect_err("no such line").kind, Kind::NotFound);
    for count in [0, LINES_MAX + 1] {
        let many: Vec<_> = (0..count).map(|it| update(&format!("{it}"), &[])).collect();
        assert_eq!(fleet.import(&many).expect_err("too many or none").code, "bad-lines");
    }
    // A line has a limited history.
    fleet.import(&[update("A", &[])]).expect("a new line");
    for change in 0..CHANGES_MAX as u64 {
        let value = change.to_string();
        fleet.set("A", &[("model", &value)], Some(1 + change));
    }
    let full = fleet.put(&[update("A", &[("model", "x")])], Some(START), false);
    assert!(full.expect_err("too many").message.contains("at most 64 recorded"), "a limit");
}

#[test]
fn a_retired_line_has_no_runs_until_it_is_set_again() {
    let mut fleet = Fleet::ready();
    fleet.import(&[update("A", &[]), update("B", &[])]).expect("new lines");
    let device = fleet.measuring(1, "A");
    assert_eq!(fleet.retire("B").expect_err("no device").code, "bad-lines");
    let run = fleet.given(device);
    fleet.retire("A").expect("it is in use");
    let known = Stored { new: 0, known: 1, refused: 0 };
    assert_eq!(fleet.hand_in(device, 1, run.run), Ok(known), "the run has its outcome");
    let missed = (Outcome::Missed, "the line was retired".to_owned(), 1);
    assert_eq!(fleet.outcomes(), std::slice::from_ref(&missed));
    assert_eq!(fleet.store.count_devices(&Filter::default()).expect("memory"), 0);
    for day in 0..3 {
        fleet.now += 24 * 60 * MINUTE;
        // It is silent for a day, and then asks.
        fleet.change(|it, tx, now, rng| it.settle(tx, now, rng, 9).map(Ok)).expect("memory");
        let answer = if day == 1 { Some(fleet.next(device)) } else { None };
        assert!(answer.is_none_or(|it| it.run.is_none() && it.alone.is_none()));
    }
    assert_eq!(fleet.outcomes(), [missed], "nothing is missed any more");
    fleet.import(&[update("A", &[("model", "XB8")])]).expect("a list");
    assert!(fleet.device(device).is_retired, "a list of lines does not bring it back");
    fleet.set("A", &[], None);
    let again = fleet.given(device);
    assert_eq!(again.run, run.run + 1);
    assert_eq!(fleet.store.count_devices(&Filter::default()).expect("memory"), 1);
}

#[test]
fn lines_are_found_by_name_attribute_and_silence_and_looks_are_logged() {
    let mut fleet = Fleet::ready();
    let miller = update("ACC-1", &[("name", "Mrs. Miller"), ("region", "north")]);
    let jones = update("ACC-2", &[("name", "Jones"), ("region", "south")]);
    fleet.import(&[miller, jones, update("ACC-3", &[])]).expect("new lines");
    let silent = fleet.measuring(1, "ACC-1");
    fleet.now += 4 * 24 * 60 * MINUTE;
    fleet.measuring(2, "ACC-2");
    let list = |text: &str| ListLines { text: text.to_owned(), ..ListLines::default() };
    assert_eq!(fleet.listed(&list("mILLer")), ["ACC-1"]);
    assert_eq!(fleet.listed(&list("acc-")), ["ACC-1", "ACC-2", "ACC-3"]);
    let attributes = [("region".to_owned(), "south".to_owned())].into();
    assert_eq!(fleet.listed(&ListLines { attributes, ..list("") }), ["ACC-2"]);
    let of_days = |days| ListLines { silent_days: Some(days), ..list("") };
    assert_eq!(fleet.listed(&of_days(3)), ["ACC-1"]);
    assert!(fleet.listed(&of_days(4)).is_empty(), "not for longer than four days");
    let since_ms = Some(fleet.now - 3 * 24 * 60 * MINUTE);
    let filter = Filter { silent_since_ms: since_ms, ..Filter::default() };
    let devices = fleet.store.devices(&filter, None, 9).expect("memory");
    assert_eq!(devices.iter().map(|it| it.id).collect::<Vec<_>>(), [silent]);
    fleet.shown("ACC-1").expect("it is known");
    assert_eq!(fleet.shown("ACC-9").expect_err("it is not").kind, Kind::NotFound);
    let log = fleet.store.log(1).expect("memory");
    assert_eq!(log[0].what, "looked at the line `ACC-1`");
    let unknown = [("colour".to_owned(), "red".to_owned())].into();
    let list = ListLines { attributes: unknown, ..list("") };
    let refused = fleet.change(|it, tx, now, _| it.list_lines(tx, now, "me", &list));
    assert_eq!(refused.expect_err("no such attribute").code, "bad-filter");
}

//! Tests of the line attributes that a device claims.

use super::*;

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

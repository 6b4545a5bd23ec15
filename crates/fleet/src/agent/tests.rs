//! The decisions of a device, step by step, and under any sequence of answers.

use super::*;
use crate::message::{AssignedStep, Assignment, ServerAddress};
use crate::plan::Kind;
use crate::schedule::DAY;

const SECOND: Span = Span::from_secs(1);
const WALL_MS: u64 = 1_800_000_000_000;
const CONFIRM: Span = Span::from_secs(86_400);
const CONFIRM_MS: u64 = 86_400_000;
const IDLE: Local = Local { epoch: 7, waiting: 0, dropped: 0, is_busy: false, is_metered: false };
const WAITING: Local = Local { waiting: 3, ..IDLE };

fn server(name: &str) -> ServerAddress {
    let fingerprint = format!("sha256:{}", "ab".repeat(32));
    ServerAddress { name: name.to_owned(), address: format!("{name}:1"), fingerprint }
}

fn step(kind: Kind) -> AssignedStep {
    AssignedStep {
        name: format!("{kind:?}"),
        kind,
        duration_ms: 5_000,
        warm_up_ms: 1_000,
        classes: vec![0, 45],
        interval_ms: 20,
        probe_bytes: 100,
    }
}

fn assignment() -> Assignment {
    Assignment {
        plan: "a-plan".to_owned(),
        run: 4,
        not_before_ms: WALL_MS,
        not_after_ms: WALL_MS + 60_000,
        steps: vec![step(Kind::Upload)],
        lease: "a lease".to_owned(),
        lease_id: 9,
        servers: vec![server("east"), server("west")],
    }
}

fn alone() -> Alone {
    Alone {
        plan: "a-plan".to_owned(),
        runs_per_day: 24.0,
        from_s: 0,
        until_s: 86_400,
        until_ms: None,
        steps: vec![step(Kind::Latency), step(Kind::Upload)],
        servers: vec![server("east"), server("west")],
    }
}

fn next_answer(run: Option<Assignment>) -> NextAnswer {
    NextAnswer {
        now_ms: WALL_MS,
        next_poll_ms: WALL_MS + 600_000,
        run,
        refusal: None,
        alone: Some(alone()),
    }
}

fn answer(run: Option<Assignment>) -> News {
    News::Next(Box::new(next_answer(run)))
}

const RUN_BYTES: u64 = 1_000_000;

fn limits() -> Limits {
    Limits { runs_per_day: 10_000, bytes_per_day: 10 * RUN_BYTES * 10_000, ..Limits::default() }
}

fn over(began: Time) -> News {
    let (outcome, reason, steps) = (Outcome::Measured, String::new(), Vec::new());
    News::Ran(Box::new(Ran::Over { outcome, reason, began, steps, bytes: RUN_BYTES }))
}

fn turned_away() -> News {
    News::Ran(Box::new(Ran::TurnedAway { reason: "no room".to_owned() }))
}

/// A device with its time and random numbers.
struct Driven {
    agent: Agent,
    now: Time,
    rng: Rng,
}

impl Driven {
    fn begin(memory: Memory) -> Self {
        let settings = Settings {
            orchestrators: 2,
            start_within: Span::ZERO,
            version: "test".to_owned(),
            attributes: None,
            confirm_removal: CONFIRM,
            limits: limits(),
        };
        let (now, mut rng) = (Time::ZERO, Rng::new(1));
        // The device's own clock shows 1970.
        Self { agent: Agent::begin(settings, memory, now, 0, &mut rng), now, rng }
    }

    fn next(&mut self, local: &Local) -> Task {
        self.agent.next(self.now, local, &mut self.rng)
    }

    fn hear(&mut self, news: News) {
        self.agent.hear(self.now, news, &mut self.rng);
    }

    fn wait(&mut self, local: &Local) -> Span {
        let Task::Wait { until } = self.next(local) else { panic!("{:?}", self.next(local)) };
        let waited = until.since(self.now);
        self.now = until;
        waited
    }

    fn with_run() -> Self {
        let mut driven = Self::begin(Memory::default());
        assert!(matches!(driven.next(&IDLE), Task::Ask { .. }));
        driven.hear(answer(Some(assignment())));
        driven
    }

    fn kept(&mut self) -> RunResult {
        let Task::Keep(result) = self.next(&IDLE) else { panic!("{:?}", self.next(&IDLE)) };
        self.hear(News::Kept);
        *result
    }
}

#[test]
fn an_agent_polls_measures_spools_releases_and_uploads() {
    let mut driven = Driven::begin(Memory::default());
    let Task::Ask { orchestrator: 0, request } = driven.next(&IDLE) else { panic!() };
    assert_eq!((request.epoch, request.request), (7, 1));
    driven.now += SECOND;
    driven.hear(answer(Some(assignment())));
    let Task::Run(run) = driven.next(&IDLE) else { panic!() };
    assert_eq!((run.lease.as_deref(), &*run.server.name), (Some("a lease"), "east"));
    assert_eq!((run.began.at_ms, run.began.request, run.began.lease_id), (WALL_MS, 1, Some(9)));
    let began = driven.now;
    driven.now += SECOND * 10;
    driven.hear(over(began));
    let result = driven.kept();
    assert_eq!((result.run, result.at_ms, &*result.server), (4, WALL_MS, "east"));
    assert_eq!(result.fault(), None);
    assert!(matches!(
        driven.next(&WAITING),
        Task::Release { request: Release { lease_id: 9 }, .. }
    ));
    driven.hear(News::Released);
    assert_eq!(driven.next(&WAITING), Task::HandIn { orchestrator: 0, most: RESULTS_MAX });
    driven.hear(News::Stored);
    // The next request depends on the answer and not on the device's own clock.
    assert_eq!(driven.wait(&IDLE), SECOND * 590);
    let Task::Ask { request, .. } = driven.next(&IDLE) else { panic!() };
    assert_eq!(request.request, 2);
}

#[test]
fn an_agent_without_an_orchestrator_measures_only_latency_and_without_a_lease() {
    let mut driven = Driven::begin(Memory { alone: Some(alone()), ..Memory::default() });
    let (mut runs, mut asked) = (0, [0; 2]);
    while driven.now < Time::ZERO + SECOND * 86_400 * 20 {
        match driven.next(&IDLE) {
            Task::Wait { until } => driven.now = until,
            Task::Ask { orchestrator, .. } => {
                asked[orchestrator] += 1;
                driven.hear(News::Trouble(Trouble::NoAnswer));
            }
            Task::Run(run) => {
                assert_eq!((run.lease, run.began.run, run.began.lease_id), (None, 0, None));
                assert!(run.steps.iter().all(|step| step.kind == Kind::Latency));
                runs += 1;
                let began = driven.now;
                driven.hear(over(began));
                driven.kept();
            }
            task => panic!("{task:?}"),
        }
    }
    assert!((430..=530).contains(&runs), "24 a day: {runs}");
    // The last waits are half an hour on average, and both orchestrators are tried each time.
    assert!((800..=1_000).contains(&asked[0]), "{asked:?}");
    assert_eq!(asked[0], asked[1]);
    driven.now = driven.agent.contact_at;
    let Task::Ask { .. } = driven.next(&IDLE) else { panic!() };
    driven.hear(answer(None));
    assert!(!driven.agent.is_away());
    assert!(driven.wait(&IDLE) == SECOND * 600, "and no more unscheduled runs");
}

#[test]
fn after_a_refusal_the_run_moves_to_the_next_server() {
    let mut driven = Driven::with_run();
    driven.hear(turned_away());
    let Task::Move { request, .. } = driven.next(&IDLE) else { panic!() };
    assert_eq!((request.lease_id, &*request.tried), (9, &["east".to_owned()][..]));
    let (lease, server) = (Some("new".to_owned()), Some(server("west")));
    driven.hear(News::Moved(Moved { lease, server }));
    assert_eq!(driven.wait(&IDLE), limits::TRY_PAUSE);
    let Task::Run(run) = driven.next(&IDLE) else { panic!() };
    assert_eq!((run.lease.as_deref(), &*run.server.name), (Some("new"), "west"));
    driven.hear(turned_away());
    let Task::Move { request, .. } = driven.next(&IDLE) else { panic!() };
    assert_eq!(request.tried, ["east", "west"]);
    driven.hear(News::Moved(Moved { lease: None, server: None }));
    let result = driven.kept();
    assert_eq!((result.outcome, &*result.reason), (Outcome::Refused, "no room"));
    assert!(matches!(driven.next(&IDLE), Task::Wait { .. }), "nothing is left to give back");
}

#[test]
fn a_busy_home_a_late_start_or_a_metered_line_ends_the_run_with_an_outcome() {
    let mut driven = Driven::with_run();
    let busy = Local { is_busy: true, ..IDLE };
    let Task::Keep(result) = driven.next(&busy) else { panic!() };
    assert_eq!(result.outcome, Outcome::CrossTraffic);
    driven.hear(News::Kept);
    assert!(matches!(driven.next(&busy), Task::Release { .. }));
    let mut driven = Driven::with_run();
    driven.now += SECOND * 61;
    assert_eq!(driven.kept().outcome, Outcome::Failed);
    let mut driven = Driven::with_run();
    let Task::Keep(result) = driven.next(&Local { is_metered: true, ..IDLE }) else { panic!() };
    assert_eq!(result.outcome, Outcome::Failed);
    assert_eq!(result.reason, "the connection is metered");
}

#[test]
fn a_refused_device_retries_at_a_random_later_time() {
    for _ in 0..100 {
        let mut driven = Driven::begin(Memory::default());
        driven.next(&IDLE);
        driven.hear(News::Trouble(Trouble::Later { after_ms: 30_000 }));
        let waited = driven.wait(&IDLE);
        assert!((SECOND * 30..=SECOND * 60).contains(&waited), "{waited}");
        assert!(matches!(driven.next(&IDLE), Task::Ask { orchestrator: 0, .. }));
    }
}

fn removed(at_ms: u64) -> News {
    News::Trouble(Trouble::Removed { at_ms })
}

#[test]
fn a_device_stops_for_good_once_its_removal_is_stated_again_a_day_later() {
    let mut driven = Driven::with_run();
    driven.hear(turned_away());
    driven.next(&IDLE);
    driven.hear(removed(WALL_MS));
    assert_eq!(driven.kept().outcome, Outcome::Failed, "the run in hand ends");
    assert_eq!(driven.wait(&WAITING), CONFIRM, "and nothing is measured or asked for a day");
    let another = Task::HandIn { orchestrator: 1, most: RESULTS_MAX };
    assert_eq!(driven.next(&WAITING), another, "another orchestrator is asked");
    driven.hear(removed(WALL_MS + CONFIRM_MS));
    for _ in 0..10 {
        assert_eq!(driven.next(&WAITING), Task::Stop);
        driven.now += SECOND * 100_000;
    }
    let memory = Memory { removal: driven.agent.removal(), ..Memory::default() };
    assert_eq!(Driven::begin(memory).next(&IDLE), Task::Stop, "over restarts, too");
}

#[test]
fn a_withdrawn_or_replayed_removal_stops_no_device() {
    let mut driven = Driven::begin(Memory::default());
    driven.next(&IDLE);
    driven.hear(removed(WALL_MS));
    // An attacker recorded the statement and replays it.
    for _ in 0..100 {
        driven.wait(&IDLE);
        assert!(matches!(driven.next(&IDLE), Task::Ask { .. }));
        driven.hear(removed(WALL_MS));
    }
    // After a restart no orchestrator answers.
    let memory = Memory { removal: driven.agent.removal(), ..Memory::default() };
    let mut driven = Driven::begin(memory);
    for _ in 0..10 {
        assert!(matches!(driven.next(&IDLE), Task::Ask { .. }));
        driven.hear(News::Trouble(Trouble::NoAnswer));
        while let Task::Wait { until } = driven.next(&IDLE) {
            driven.now = until;
        }
    }
    // An orchestrator answers normally, so a later removal needs two statements again.
    assert!(matches!(driven.next(&IDLE), Task::Ask { .. }));
    driven.hear(answer(None));
    assert_eq!(driven.agent.removal(), None);
    driven.wait(&IDLE);
    driven.next(&IDLE);
    driven.hear(removed(WALL_MS + 2 * CONFIRM_MS));
    assert!(matches!(driven.next(&IDLE), Task::Wait { .. }));
    // The clock is set back by a year in between.
    driven.wait(&IDLE);
    driven.next(&IDLE);
    driven.hear(removed(WALL_MS - 365 * CONFIRM_MS));
    assert_eq!(driven.wait(&IDLE), CONFIRM);
    driven.next(&IDLE);
    driven.hear(removed(WALL_MS - 364 * CONFIRM_MS));
    assert_eq!(driven.next(&IDLE), Task::Stop);
}

#[test]
fn an_outdated_device_renews_less_and_less_often() {
    let mut driven = Driven::begin(Memory::default());
    let mut renewals = 0;
    while driven.now < Time::ZERO + SECOND * 86_400 {
        match driven.next(&IDLE) {
            Task::Wait { until } => driven.now = until,
            Task::Ask { .. } => driven.hear(News::Trouble(Trouble::Outdated)),
            Task::Renew => {
                renewals += 1;
                driven.hear(News::Renewed);
            }
            task => panic!("{task:?}"),
        }
    }
    assert!((24..100).contains(&renewals), "half an hour on average in the end: {renewals}");
}

#[test]
fn without_an_answer_a_batch_shrinks_and_nothing_is_dropped() {
    let mut driven = Driven::begin(Memory::default());
    let mut sizes = Vec::new();
    while sizes.len() < 20 {
        match driven.next(&WAITING) {
            Task::Wait { until } => driven.now = until,
            Task::HandIn { most, .. } => {
                sizes.push(most);
                driven.hear(News::Trouble(Trouble::NoAnswer));
            }
            task => panic!("{task:?}"),
        }
    }
    assert_eq!((sizes[0], sizes[8], sizes[19]), (256, 1, 1), "{sizes:?}");
}

#[test]
fn a_rejected_result_does_not_block_the_others() {
    let mut driven = Driven::begin(Memory::default());
    let mut sizes = Vec::new();
    while let Task::HandIn { most, .. } = driven.next(&WAITING) {
        sizes.push(most);
        driven.hear(News::Trouble(Trouble::Unfit));
    }
    assert_eq!(sizes, [256, 128, 64, 32, 16, 8, 4, 2, 1]);
    assert_eq!(driven.next(&WAITING), Task::Discard);
    driven.hear(News::Discarded);
    assert_eq!(driven.next(&WAITING), Task::HandIn { orchestrator: 0, most: 256 });
}

#[test]
fn an_interrupted_run_counts_as_failed_and_is_not_repeated() {
    let began = Began {
        request: 5,
        plan: "a-plan".to_owned(),
        run: 4,
        at_ms: WALL_MS,
        lease_id: Some(9),
        server: "east".to_owned(),
    };
    let memory = |interrupted| Memory {
        request: 5,
        began: Some(began.clone()),
        interrupted,
        ..Memory::default()
    };
    let mut driven = Driven::begin(memory(Some(began.clone())));
    let result = driven.kept();
    assert_eq!((result.outcome, result.run, result.at_ms), (Outcome::Failed, 4, WALL_MS));
    assert!(matches!(driven.next(&IDLE), Task::Release { request: Release { lease_id: 9 }, .. }));
    driven.hear(News::Released);
    let Task::Ask { request, .. } = driven.next(&IDLE) else { panic!() };
    assert_eq!(request.request, 6);
    // Whether this request was answered is unknown: it is repeated with its number.
    let mut driven = Driven::begin(Memory { request: 6, ..memory(None) });
    let Task::Ask { request, .. } = driven.next(&IDLE) else { panic!() };
    assert_eq!(request.request, 6);
}

#[test]
fn a_full_disk_is_waited_for_and_then_the_result_counts_as_lost() {
    let mut driven = Driven::with_run();
    let began = driven.now;
    driven.hear(over(began));
    for tries in 0..KEEP_TRIES {
        assert!(matches!(driven.next(&IDLE), Task::Keep(_)), "{tries}");
        driven.hear(News::NotKept);
        if tries == 0 {
            assert!(
                matches!(driven.next(&IDLE), Task::Release { .. }),
                "the server does not wait for the run"
            );
            driven.hear(News::Released);
        }
        if tries + 1 < KEEP_TRIES {
            assert_eq!(driven.wait(&IDLE), KEEP_AGAIN);
        }
    }
    while let Task::Wait { until } = driven.next(&IDLE) {
        driven.now = until;
    }
    let Task::Ask { request, .. } = driven.next(&IDLE) else { panic!() };
    assert_eq!(request.dropped, 1);
}

/// For any sequence of answers: each assigned run ends in one result, no load without a lease, no
/// request before its time, and no two in a row without an answer between them.
fn trouble(random: &mut Rng) -> News {
    News::Trouble(match random.below(4) {
        0 => Trouble::NoAnswer,
        1 => Trouble::Later { after_ms: u64::from(random.next_u32()) },
        2 => Trouble::Unfit,
        _ => Trouble::Refused,
    })
}

#[test]
fn each_run_has_one_outcome_for_all_answers() {
    for seed in 0..300 {
        let mut random = Rng::new(seed);
        let mut driven = Driven::begin(Memory::default());
        driven.rng = random.child("agent");
        let (mut given, mut ended, mut lost) = (0, 0, 0);
        for _ in 0..400 {
            let local = Local { is_busy: random.below(20) == 0, ..IDLE };
            let task = driven.next(&local);
            assert_eq!(task, driven.next(&local), "the same again");
            driven.now += Span::from_millis(u64::from(random.below(3_000)));
            let fails = random.below(3) == 0;
            match task {
                Task::Wait { until } => driven.now = driven.now.max(until),
                Task::Ask { .. } | Task::Move { .. } | Task::Release { .. } if fails => {
                    driven.hear(trouble(&mut random));
                }
                Task::Ask { .. } => {
                    let run = (random.below(2) == 0).then(assignment);
                    given += u32::from(run.is_some());
                    driven.hear(answer(run));
                }
                Task::Move { .. } => {
                    let lease = (random.below(2) == 0).then(|| "new".to_owned());
                    let server = lease.as_ref().map(|_| server("north"));
                    driven.hear(News::Moved(Moved { lease, server }));
                }
                Task::Release { .. } => driven.hear(News::Released),
                Task::Run(run) => {
                    let loads = run.steps.iter().any(|step| step.kind != Kind::Latency);
                    assert!(!loads || run.lease.is_some());
                    let began = driven.now;
                    driven.hear(if fails { turned_away() } else { over(began) });
                }
                Task::Keep(result) if fails => {
                    driven.hear(News::NotKept);
                    let is_lost = matches!(driven.agent.in_hand, InHand::Nothing);
                    lost += u32::from(is_lost && result.run > 0);
                }
                Task::Keep(result) => {
                    ended += u32::from(result.run > 0);
                    driven.hear(News::Kept);
                }
                task => panic!("{task:?}"),
            }
        }
        let in_hand = match &driven.agent.in_hand {
            InHand::Nothing => 0,
            InHand::Run(held) | InHand::Move(held) => u32::from(held.run > 0),
            InHand::Keep { result, .. } => u32::from(result.run > 0),
        };
        assert_eq!(given, ended + lost + in_hand, "seed {seed}");
        assert!(given > 5, "the premise: {given} runs");
    }
}

/// An orchestrator that names another server whenever one is unreachable.
#[test]
fn a_run_tries_four_servers_with_a_pause_between() {
    let mut driven = Driven::with_run();
    let (mut tries, begin) = (1, driven.now);
    let result = loop {
        match driven.next(&IDLE) {
            Task::Run(_) => driven.hear(turned_away()),
            Task::Move { request, .. } => {
                tries += 1;
                assert_eq!(request.tried.len() + 1, tries);
                let server = server(&format!("victim-{tries}"));
                let lease = Some("another lease".to_owned());
                driven.hear(News::Moved(Moved { lease, server: Some(server) }));
            }
            Task::Wait { until } => driven.now = until,
            Task::Keep(result) => break result,
            task => panic!("{task:?}"),
        }
    };
    assert_eq!((tries, result.outcome), (limits::TRIES_MAX, Outcome::Failed));
    assert_eq!(driven.now.since(begin), limits::TRY_PAUSE * 3);
    driven.hear(News::Kept);
    assert!(matches!(driven.next(&IDLE), Task::Release { .. }), "the lease is given back");
}

/// An orchestrator that assigns a run with each answer, for ten days and over restarts: no 24 hours
/// exceed the runs and bytes that the home allows.
#[test]
fn no_answer_can_raise_the_limits_of_a_home() {
    let home = Limits {
        runs_per_day: 20,
        bytes_per_day: 15 * RUN_BYTES,
        bytes_per_month: 60 * RUN_BYTES,
        ..Limits::default()
    };
    let mut driven = Driven::begin(Memory::default());
    driven.agent.settings.limits = home.clone();
    let (mut runs, mut asked) = (Vec::new(), 0);
    let (end, mut restarts_at) = (Time::ZERO + SECOND * 86_400 * 10, Time::ZERO);
    let mut began_at = Time::ZERO;
    while driven.now < end {
        if driven.now >= restarts_at && matches!(driven.agent.in_hand, InHand::Nothing) {
            // The clocks of the device and of the orchestrator jump by years in between.
            restarts_at = driven.now + SECOND * 40_000;
            let usage = driven.agent.usage.clone();
            let memory = Memory { usage, request: 1, ..Memory::default() };
            let settings = driven.agent.settings.clone();
            let wall_ms = WALL_MS * u64::from(driven.rng.below(3));
            driven.agent = Agent::begin(settings, memory, driven.now, wall_ms, &mut driven.rng);
        }
        match driven.next(&IDLE) {
            Task::Wait { until } => driven.now = until,
            Task::Ask { .. } => {
                asked += 1;
                let now_ms = WALL_MS * u64::from(1 + driven.rng.below(3));
                let (not_before_ms, not_after_ms) = (now_ms, now_ms + 1_000_000);
                let run = Assignment { not_before_ms, not_after_ms, ..assignment() };
                let mut answer = NextAnswer { now_ms, ..next_answer(Some(run)) };
                answer.next_poll_ms = 0;
                driven.hear(News::Next(Box::new(answer)));
            }
            Task::Run(run) => {
                assert!(run.bytes_max > 0);
                began_at = driven.now;
                runs.push((driven.now, run.bytes_max.min(RUN_BYTES)));
                driven.now += SECOND * 10;
                driven.hear(over(began_at));
            }
            Task::Keep(_) => driven.hear(News::Kept),
            Task::Release { .. } => driven.hear(News::Released),
            task => panic!("{task:?}"),
        }
    }
    for (place, (begin, _)) in runs.iter().enumerate() {
        let day = runs[place..].iter().take_while(|(at, _)| at.since(*begin) < DAY);
        assert!(day.clone().count() <= 20);
        assert!(day.map(|(_, bytes)| bytes).sum::<u64>() <= home.bytes_per_day);
    }
    let total: u64 = runs.iter().map(|(_, bytes)| bytes).sum();
    assert_eq!(total, home.bytes_per_month, "of ten days");
    assert!(began_at < end && asked > runs.len() as u64 * 2, "the premise: it was asked for more");
    // The limits allow 60 requests at once after each of 22 starts, and 80 per day.
    assert!(asked <= 60 * 22 + 80 * 10, "{asked} requests");
}

#[test]
fn an_agent_never_starts_a_run_beyond_its_limits() {
    let given = |change: fn(&mut Assignment)| {
        let mut driven = Driven::begin(Memory::default());
        driven.next(&IDLE);
        let mut run = assignment();
        change(&mut run);
        driven.hear(answer(Some(run)));
        driven.next(&IDLE)
    };
    let failed = |change: fn(&mut Assignment), words: &str| {
        let Task::Keep(result) = given(change) else { panic!("{words}: {:?}", given(change)) };
        assert_eq!(result.outcome, Outcome::Failed);
        assert!(result.reason.contains(words), "{}", result.reason);
        assert_eq!(result.fault(), None, "an orchestrator takes it");
    };
    failed(|run| run.steps[0].duration_ms = 3_000_000_000, "this agent allows 3600 s");
    failed(
        |run| run.steps = vec![AssignedStep { duration_ms: u64::MAX, ..step(Kind::Upload) }; 3_000],
        "steps",
    );
    failed(|run| run.steps[0].classes = (0..20_000).map(|it| (it % 64) as u8).collect(), "series");
    // Results must not contain these names.
    for change in [
        |run: &mut Assignment| run.plan = "x".repeat(1_000_000),
        |run: &mut Assignment| run.plan = "\u{20000}".repeat(65),
        |run: &mut Assignment| run.servers[0].name = "x".repeat(1_000_000),
        |run: &mut Assignment| run.servers[0].address = "x".repeat(1_000_000),
        |run: &mut Assignment| run.lease = "x".repeat(1_000_000),
    ] {
        assert!(matches!(given(change), Task::Wait { .. }));
    }
}

#[test]
fn measurements_without_an_orchestrator_respect_the_homes_limits() {
    let kept = |alone: Alone| {
        let mut driven = Driven::begin(Memory::default());
        driven.next(&IDLE);
        let given = NextAnswer { alone: Some(alone), ..next_answer(None) };
        driven.hear(News::Next(Box::new(given)));
        driven.agent.alone().cloned()
    };
    let good = kept(alone()).expect("it is allowed");
    assert!(good.steps.iter().all(|step| step.kind == Kind::Latency));
    let many = Alone { servers: vec![server("s"); 1_000], runs_per_day: 1e300, ..alone() };
    let many = kept(many).expect("within limits it is allowed");
    assert_eq!((many.servers.len(), many.runs_per_day), (4, f64::from(limits().runs_per_day)));
    let long = AssignedStep { duration_ms: u64::MAX, ..step(Kind::Latency) };
    for none in [
        Alone { steps: vec![long], ..alone() },
        Alone { steps: vec![step(Kind::Download)], ..alone() },
        Alone { servers: Vec::new(), ..alone() },
        Alone { runs_per_day: -1.0, ..alone() },
        Alone { plan: "x".repeat(1_000), ..alone() },
    ] {
        assert_eq!(kept(none.clone()), None, "{none:?}");
    }
    // No orchestrator answers and the home's limit is low: the device waits and does not spin.
    let mut driven = Driven::begin(Memory { alone: Some(alone()), ..Memory::default() });
    driven.agent.settings.limits.runs_per_day = 2;
    let (mut runs, mut turns) = (0, 0);
    while driven.now < Time::ZERO + DAY {
        turns += 1;
        match driven.next(&IDLE) {
            Task::Wait { until } => driven.now = until,
            Task::Ask { .. } => driven.hear(News::Trouble(Trouble::NoAnswer)),
            Task::Run(_) => {
                runs += 1;
                let began = driven.now;
                driven.hear(over(began));
                driven.kept();
            }
            task => panic!("{task:?}"),
        }
    }
    assert!(runs == 2 && turns < 1_000, "{runs} runs in {turns} turns");
}

#[test]
fn an_instant_before_the_last_clock_reading_converts_correctly() {
    let settings = Settings {
        orchestrators: 1,
        start_within: Span::ZERO,
        version: String::new(),
        attributes: None,
        confirm_removal: CONFIRM,
        limits: limits(),
    };
    let begin = Time::ZERO;
    let mut rng = Rng::new(1);
    let mut agent = Agent::begin(settings, Memory::default(), begin, WALL_MS, &mut rng);
    agent.set_clock(begin + SECOND * 20, WALL_MS + 20_000);
    assert_eq!(agent.now_ms(begin + SECOND * 5), WALL_MS + 5_000);
    assert_eq!(agent.now_ms(begin + SECOND * 25), WALL_MS + 25_000);
}

#[test]
fn instants_far_in_the_future_do_not_overflow() {
    let mut driven = Driven::begin(Memory::default());
    driven.next(&IDLE);
    let run = Assignment { not_before_ms: u64::MAX, not_after_ms: u64::MAX, ..assignment() };
    let News::Next(mut answer) = answer(Some(run)) else { panic!("it is one") };
    answer.next_poll_ms = u64::MAX;
    driven.hear(News::Next(answer));
    // The device waits as long as the answer demands, up to a limit.
    assert!(driven.wait(&IDLE) <= SECOND * 86_400);
}

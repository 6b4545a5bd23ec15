//! Checks of rows and transactions.

use underload_aqm::rng::Rng;

use super::change;
use super::samples::{self, LARGEST, id};
use crate::device::DeviceId;
use crate::line::Line;
use crate::store::{
    Archive, Code, CodeFor, Device, HeldLease, Leases, Needs, PlanRow, SEEN_ROWS, SEEN_WIDTH,
    Server, Store, StoreError, Transaction,
};

/// A row of each kind.
struct Rows {
    device: Device,
    code: Code,
    line: Line,
    server: Server,
    lease: HeldLease,
    plan: PlanRow,
    setting: Vec<u8>,
}

const SETTING: &str = "study-key/o'brien \u{1f6f0}";

impl Rows {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        Self {
            device: samples::device(&mut rng, id(1)),
            code: samples::code(&mut rng),
            line: samples::line(&mut rng, "o'brien", Some(id(1))),
            server: samples::server(&mut rng, "o'brien"),
            lease: samples::lease(LARGEST, id(1), "o'brien", Some("'segment'")),
            plan: samples::plan("trial"),
            setting: vec![0, 255, 39, 92, 0],
        }
    }

    fn put(&self, tx: &mut dyn Transaction) -> Result<(), StoreError> {
        tx.put_device(&self.device)?;
        tx.put_code(&self.code)?;
        tx.put_line(&self.line)?;
        tx.put_server(&self.server)?;
        tx.put_lease(&self.lease)?;
        tx.put_plan(&self.plan)?;
        tx.put_setting(SETTING, &self.setting)?;
        tx.log(&samples::log_entry(1))
    }

    fn are_there(&self, tx: &mut dyn Transaction) -> Result<(), StoreError> {
        assert_eq!(tx.device(self.device.id)?.as_ref(), Some(&self.device));
        assert_eq!(tx.code(&self.code.hash)?.as_ref(), Some(&self.code));
        let lines = tx.lines(&["O'brien", &self.line.external_id, ""])?;
        assert_eq!(lines, [None, Some(self.line.clone()), None]);
        assert_eq!(tx.servers()?, std::slice::from_ref(&self.server));
        assert_eq!(tx.lease(self.lease.id)?.as_ref(), Some(&self.lease));
        assert_eq!(tx.plans()?, std::slice::from_ref(&self.plan));
        assert_eq!(tx.setting(SETTING)?.as_ref(), Some(&self.setting));
        Ok(())
    }

    fn are_absent(&self, tx: &mut dyn Transaction) -> Result<(), StoreError> {
        assert_eq!(tx.device(self.device.id)?, None);
        assert_eq!(tx.code(&self.code.hash)?, None);
        assert_eq!(tx.lines(&[&self.line.external_id])?, [None]);
        assert_eq!(tx.servers()?, []);
        assert_eq!(
            (tx.lease(self.lease.id)?, leases(tx, Leases::Of(self.device.id)).pop()),
            (None, None)
        );
        assert_eq!(leases(tx, Leases::LoadedIn("'segment'")), []);
        assert_eq!(tx.plans()?, []);
        assert_eq!(tx.setting(SETTING)?, None);
        Ok(())
    }
}

pub(super) fn rows_are_as_they_were_put(store: &mut (impl Store + Archive)) {
    change(store, |tx| Rows::new(1).are_absent(tx));
    // Each row is replaced by one with other values.
    for seed in [1, 2] {
        let rows = Rows { code: Rows::new(1).code, ..Rows::new(seed) };
        change(store, |tx| rows.put(tx));
        change(store, |tx| rows.are_there(tx));
        assert_eq!(Archive::servers(store).expect("it answers"), [rows.server]);
        assert_eq!(Archive::plans(store).expect("it answers"), [rows.plan]);
    }
    let used = Code { used_by: Some(id(9)), makes: CodeFor::Server, ..Rows::new(1).code };
    let stopped = PlanRow { stopped_ms: Some(LARGEST), ..samples::plan("trial") };
    change(store, |tx| {
        tx.put_code(&used)?;
        tx.put_plan(&stopped)?;
        tx.put_plan(&samples::plan("another"))?;
        tx.put_setting(SETTING, &[])
    });
    change(store, |tx| {
        assert_eq!(tx.code(&used.hash)?, Some(used.clone()));
        assert_eq!(tx.plans()?, [samples::plan("another"), stopped.clone()], "by name");
        assert_eq!(tx.setting(SETTING)?, Some(Vec::new()));
        Ok(())
    });
}

pub(super) fn lines_are_listed_by_identifier_with_their_devices(
    store: &mut (impl Store + Archive),
) {
    let (mut rng, ids) = (Rng::new(8), ["9", "B", "a", "\u{e9}"]);
    let device = samples::device(&mut rng, id(1));
    let rows: Vec<_> = ids
        .map(|name| samples::line(&mut rng, name, (name == "B").then_some(device.id)))
        .into_iter()
        .map(|line| (line.clone(), line.device.map(|_| device.clone())))
        .collect();
    change(store, |tx| {
        tx.put_device(&device)?;
        rows.iter().rev().try_for_each(|(line, _)| tx.put_line(line))
    });
    assert_eq!(change(store, |tx| tx.lines_after("", 9)), rows, "in the order of bytes");
    assert_eq!(change(store, |tx| tx.lines_after("9", 2)), rows[1..3]);
    let last = rows[3].0.clone();
    assert_eq!(Archive::lines_after(store, "a", 9).expect("it answers"), [last]);
    let unknown = Line { device: Some(id(2)), ..rows[1].0.clone() };
    change(store, |tx| tx.put_line(&unknown));
    assert_eq!(change(store, |tx| tx.lines_after("9", 1)), [(unknown, None)]);
}

pub(super) fn what_is_not_committed_is_gone(store: &mut (impl Store + Archive)) {
    let (old, new) = (Rows::new(3), Rows::new(4));
    let result = samples::result(&mut Rng::new(5), 1, 0, 1);
    forget(store, &new, &result);
    change(store, |tx| new.are_absent(tx));
    change(store, |tx| old.put(tx));
    forget(store, &new, &result);
    change(store, |tx| old.are_there(tx));
    assert_eq!(store.log(9).expect("it answers").len(), 1);
    let mut seen = 0;
    let count = &mut |_: &_| {
        seen += 1;
        true
    };
    store.visit(&crate::store::Filter::default(), count).expect("it answers");
    assert_eq!(seen, 0, "results that were not committed");
    // The store does not recognise the result as a duplicate either.
    assert_eq!(change(store, |tx| tx.append(std::slice::from_ref(&result))), [true]);
}

fn forget(store: &mut dyn Store, rows: &Rows, result: &crate::store::StoredResult) {
    let mut tx = store.begin(&Needs::default()).expect("it begins");
    rows.put(&mut *tx).expect("it is put");
    tx.append(std::slice::from_ref(result)).expect("it is kept");
    tx.end_lease(rows.lease.id).expect("it ends");
}

pub(super) fn changes_are_seen_before_they_are_committed(store: &mut dyn Store) {
    let rows = Rows::new(6);
    change(store, |tx| {
        rows.put(tx)?;
        rows.are_there(tx)?;
        assert_eq!(leases(tx, Leases::Of(id(1))).pop().as_ref(), Some(&rows.lease));
        assert_eq!(leases(tx, Leases::LoadedIn("'segment'")).len(), 1);
        tx.end_lease(rows.lease.id)?;
        assert_eq!((tx.lease(rows.lease.id)?, leases(tx, Leases::Of(id(1))).pop()), (None, None));
        assert_eq!(leases(tx, Leases::LoadedIn("'segment'")), []);
        // Ending a lease again changes nothing.
        tx.end_lease(rows.lease.id)
    });
}

pub(super) fn a_result_is_kept_once(store: &mut (impl Store + Archive)) {
    let mut rng = Rng::new(7);
    let mut result = |device, epoch, sequence| samples::result(&mut rng, device, epoch, sequence);
    let first = [result(1, 0, 1), result(1, 0, 2), result(1, 0, 1), result(2, 0, 1)];
    assert_eq!(change(store, |tx| tx.append(&first)), [true, true, false, true]);
    let second =
        [result(1, 0, 2), result(1, 1, 2), result(1, u32::MAX, LARGEST), result(2, 0, LARGEST)];
    assert_eq!(change(store, |tx| tx.append(&second)), [false, true, true, true]);
    assert_eq!(change(store, |tx| tx.append(&second)), [false; 4]);
    assert_eq!(change(store, |tx| tx.append(&[])), [false; 0]);
    let mut kept = Vec::new();
    let keep = &mut |it: &crate::store::StoredResult| {
        kept.push(it.clone());
        true
    };
    store.visit(&crate::store::Filter::default(), keep).expect("it answers");
    let [a, b, _, d] = first;
    let [_, f, g, h] = second;
    assert_eq!(kept, [a, b, d, f, g, h], "the first of each, in the order in which they came");
}

pub(super) fn what_is_older_than_is_remembered_is_known(store: &mut (impl Store + Archive)) {
    let mut rng = Rng::new(11);
    let rows = SEEN_ROWS as u64 + 6;
    for epoch in [3, u32::MAX] {
        let mut one = |sequence| {
            let result = samples::result(&mut rng, 1, epoch, sequence);
            change(store, |tx| tx.append(std::slice::from_ref(&result)))[0]
        };
        // Each number belongs to another row.
        assert!((1..=rows).all(|row| one(row * SEEN_WIDTH)));
        let oldest = 7 * SEEN_WIDTH;
        let are_new = [1, oldest - 1, oldest, oldest + 1, rows * SEEN_WIDTH + 5].map(&mut one);
        assert_eq!(are_new, [false, false, false, true, true], "of epoch {epoch}");
        // Numbers that are far apart do not take more rows.
        for row in (rows * 2)..(rows * 3) {
            one(row * SEEN_WIDTH);
        }
        assert!(!one(rows * SEEN_WIDTH + 6), "it is too old by now");
    }
    // Results of older epochs are recognised; another device is not affected.
    let older = [samples::result(&mut rng, 1, 2, 9), samples::result(&mut rng, 2, 2, 9)];
    assert_eq!(change(store, |tx| tx.append(&older)), [false, true]);
}

fn leases(tx: &mut dyn Transaction, of: Leases<'_>) -> Vec<HeldLease> {
    tx.leases(of, 9).expect("it answers")
}

pub(super) fn leases_are_found_by_all_that_they_hold(store: &mut dyn Store) {
    let lease = |number, device, server, segment, expires_ms| HeldLease {
        expires_ms,
        ..samples::lease(number, id(device), server, segment)
    };
    let held = [
        lease(5, 1, "east", Some("s1"), 300),
        lease(4, 2, "east", Some("s1"), 100),
        lease(3, 3, "west", Some("s2"), 200),
        lease(2, 4, "west", None, 100),
        lease(1, 5, "east", Some(""), LARGEST),
    ];
    change(store, |tx| held.iter().try_for_each(|lease| tx.put_lease(lease)));
    change(store, |tx| {
        let loaded = |name| leases(tx, Leases::LoadedIn(name)).len();
        assert_eq!(["s1", "s2", "s3", "", "S1"].map(loaded), [2, 1, 0, 1, 0]);
        let [a, b, c, d, _] = &held;
        assert_eq!(leases(tx, Leases::Of(id(3))), std::slice::from_ref(c));
        assert_eq!(leases(tx, Leases::Of(id(9))), []);
        assert_eq!(leases(tx, Leases::ExpiredAt(99)), []);
        // A lease has expired at the instant of its expiry. Equal instants are ordered by number.
        assert_eq!(leases(tx, Leases::ExpiredAt(100)), [d.clone(), b.clone()]);
        assert_eq!(
            leases(tx, Leases::ExpiredAt(300)),
            [d.clone(), b.clone(), c.clone(), a.clone()]
        );
        assert_eq!(tx.leases(Leases::ExpiredAt(LARGEST - 1), 2)?, [d.clone(), b.clone()]);
        let later = |tx: &mut dyn Transaction, after_ms, limit| {
            let found = tx.leases(Leases::ExpiringAfter(after_ms), limit);
            let mut ids: Vec<u64> = found.expect("it answers").iter().map(|it| it.id).collect();
            ids.sort_unstable();
            ids
        };
        assert_eq!((later(tx, 99, 9), later(tx, 100, 9)), (vec![1, 2, 3, 4, 5], vec![1, 3, 5]));
        assert_eq!((later(tx, LARGEST, 9), later(tx, 0, 2).len()), (vec![], 2));
        let east = leases(tx, Leases::At("east"));
        assert_eq!(east.iter().map(|lease| lease.id).collect::<Vec<_>>(), [1, 4, 5]);
        assert_eq!(tx.leases(Leases::At("east"), 2)?.len(), 2);
        assert_eq!(leases(tx, Leases::At("north")), []);
        // The lease moves to another server, and its run no longer loads the segment.
        tx.put_lease(&lease(4, 2, "west", None, 400))?;
        assert_eq!(leases(tx, Leases::LoadedIn("s1")).len(), 1);
        assert_eq!(leases(tx, Leases::At("east")).len(), 2);
        assert_eq!(leases(tx, Leases::ExpiredAt(100)), std::slice::from_ref(d));
        tx.end_lease(5)
    });
    change(store, |tx| {
        assert_eq!(leases(tx, Leases::LoadedIn("s1")), []);
        assert_eq!(leases(tx, Leases::At("west")).len(), 3);
        Ok(())
    });
}

pub(super) fn the_overdue_come_in_their_order(store: &mut dyn Store) {
    let mut rng = Rng::new(8);
    let settles = [(1, 500), (2, 100), (3, u64::MAX), (4, 300), (5, LARGEST), (6, 0)];
    let devices = settles
        .map(|(number, settle_ms)| Device { settle_ms, ..samples::device(&mut rng, id(number)) });
    change(store, |tx| devices.iter().try_for_each(|device| tx.put_device(device)));
    let ids = |numbers: &[u8]| numbers.iter().map(|it| id(*it)).collect::<Vec<DeviceId>>();
    change(store, |tx| {
        assert_eq!(tx.overdue(0, 9)?, ids(&[6]));
        assert_eq!(tx.overdue(300, 9)?, ids(&[6, 2, 4]), "at its instant it is overdue");
        assert_eq!(tx.overdue(LARGEST - 1, 2)?, ids(&[6, 2]));
        tx.put_device(&Device { settle_ms: u64::MAX, ..devices[1].clone() })?;
        assert_eq!(tx.overdue(300, 9)?, ids(&[6, 4]), "also before it is committed");
        Ok(())
    });
    change(store, |tx| {
        assert_eq!(tx.overdue(LARGEST, 9)?, ids(&[6, 4, 1, 5]), "never is never");
        Ok(())
    });
}

pub(super) fn large_things_are_kept(store: &mut (impl Store + Archive)) {
    let mut rng = Rng::new(9);
    let many: Vec<_> = (1..=600).map(|number| samples::result(&mut rng, 1, 0, number)).collect();
    assert!(change(store, |tx| tx.append(&many)).iter().all(|is_new| *is_new));
    assert!(!change(store, |tx| tx.append(&many)).iter().any(|is_new| *is_new));
    let newest = store.results_of(id(1), 600).expect("it answers");
    assert!(newest.iter().rev().eq(&many));
    let large = vec![7; 2 << 20];
    let plan = PlanRow { text: "x".repeat(1 << 20), ..samples::plan("large") };
    change(store, |tx| {
        tx.put_setting("large", &large)?;
        tx.put_plan(&plan)
    });
    change(store, |tx| {
        assert!(tx.setting("large")? == Some(large.clone()) && tx.plans()? == [plan.clone()]);
        Ok(())
    });
}

/// Number of places that the racing threads take.
pub(super) const PLACES: usize = 25;

pub(super) fn counter(tx: &mut dyn Transaction, name: &str) -> Result<u64, StoreError> {
    let bytes = tx.setting(name)?.and_then(|bytes| bytes.try_into().ok());
    Ok(bytes.map_or(0, u64::from_be_bytes))
}

/// Takes places until none is left. Returns how many it took.
pub(super) fn race_for_places(store: &mut dyn Store, name: &str) -> usize {
    let mut got = 0;
    loop {
        match take_a_place(store, name) {
            Ok(true) => got += 1,
            Ok(false) => return got,
            // The place was taken by another transaction first.
            Err(StoreError::Temporary { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

fn take_a_place(store: &mut dyn Store, name: &str) -> Result<bool, StoreError> {
    let needs = Needs { admits: true, ..Needs::default() };
    let mut tx = store.begin(&needs)?;
    let taken = counter(&mut *tx, name)?;
    if taken >= PLACES as u64 {
        return Ok(false);
    }
    tx.put_setting(name, &(taken + 1).to_be_bytes())?;
    tx.commit()?;
    Ok(true)
}

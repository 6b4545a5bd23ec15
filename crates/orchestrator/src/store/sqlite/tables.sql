-- Numbers that may be above 2^63 are stored as the signed number of the same bits. Instants that are
-- compared, settle_ms and expires_ms, are stored less 2^63, so that their order is kept.

CREATE TABLE devices (
    number INTEGER PRIMARY KEY,
    id BLOB NOT NULL UNIQUE,
    public_key BLOB NOT NULL,
    model TEXT NOT NULL,
    firmware TEXT NOT NULL,
    tier TEXT NOT NULL,
    segment TEXT NOT NULL,
    region TEXT NOT NULL,
    configured TEXT NOT NULL,
    measured TEXT NOT NULL,
    tier_up_bit_per_s INTEGER NOT NULL,
    tier_down_bit_per_s INTEGER NOT NULL,
    line TEXT NOT NULL,
    is_retired INTEGER NOT NULL,
    enrolled_ms INTEGER NOT NULL,
    seen_ms INTEGER NOT NULL,
    is_removed INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    request INTEGER NOT NULL,
    waiting INTEGER NOT NULL,
    dropped INTEGER NOT NULL,
    settle_ms INTEGER NOT NULL,
    made INTEGER NOT NULL,
    schedules TEXT NOT NULL
) STRICT;
CREATE INDEX devices_to_settle ON devices (settle_ms);

CREATE TABLE codes (hash BLOB PRIMARY KEY, body TEXT NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE lines (external_id TEXT PRIMARY KEY, body TEXT NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE servers (name TEXT PRIMARY KEY, body TEXT NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE plans (name TEXT PRIMARY KEY, body TEXT NOT NULL) STRICT;
CREATE TABLE settings (name TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT, WITHOUT ROWID;

CREATE TABLE leases (
    id INTEGER PRIMARY KEY,
    device BLOB NOT NULL,
    server TEXT NOT NULL,
    segment TEXT,
    expires_ms INTEGER NOT NULL,
    body TEXT NOT NULL
) STRICT;
CREATE INDEX leases_by_device ON leases (device);
CREATE INDEX leases_by_server ON leases (server);
CREATE INDEX leases_by_segment ON leases (segment) WHERE segment IS NOT NULL;
CREATE INDEX leases_by_end ON leases (expires_ms);

CREATE TABLE log (
    number INTEGER PRIMARY KEY,
    at_ms INTEGER NOT NULL,
    who TEXT NOT NULL,
    what TEXT NOT NULL
) STRICT;

-- Results in the order in which they came.
CREATE TABLE results (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    device BLOB NOT NULL,
    day INTEGER NOT NULL,
    plan TEXT NOT NULL,
    body BLOB NOT NULL
) STRICT;
CREATE INDEX results_by_device ON results (device);
CREATE INDEX results_by_day ON results (day, plan);

-- Which sequence numbers of a device were seen; see `seen.rs`.
CREATE TABLE seen (
    device BLOB NOT NULL,
    epoch INTEGER NOT NULL,
    part INTEGER NOT NULL,
    bits BLOB NOT NULL,
    PRIMARY KEY (device, epoch, part)
) STRICT, WITHOUT ROWID;

-- Sums of results; see `rollup`. Sets of devices contain the devices' numbers.
CREATE TABLE numbers (number INTEGER PRIMARY KEY, device BLOB NOT NULL UNIQUE) STRICT;
CREATE TABLE keys (number INTEGER PRIMARY KEY, body TEXT NOT NULL UNIQUE) STRICT;
CREATE TABLE sums (
    level INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    day INTEGER NOT NULL,
    hour INTEGER NOT NULL,
    key INTEGER NOT NULL,
    tests INTEGER NOT NULL,
    sent INTEGER NOT NULL,
    lost INTEGER NOT NULL,
    bins BLOB NOT NULL,
    devices BLOB NOT NULL,
    PRIMARY KEY (level, kind, day, hour, key)
) STRICT, WITHOUT ROWID;
-- The transaction (always 0) and number of the last result that was folded; one row.
CREATE TABLE progress (last_change INTEGER NOT NULL, last_number INTEGER NOT NULL) STRICT;
INSERT INTO progress VALUES (0, 0);

-- The files of the archive, and files that are not used yet or any more; see `files/catalogue.rs`.
CREATE TABLE files (
    path TEXT PRIMARY KEY,
    plan TEXT NOT NULL,
    day INTEGER NOT NULL,
    rows INTEGER NOT NULL,
    results INTEGER NOT NULL,
    last INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    sha256 TEXT NOT NULL,
    unused_since_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

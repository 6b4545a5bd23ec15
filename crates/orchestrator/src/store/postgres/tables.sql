-- Numbers that may be above 2^63 are stored as the signed number of the same bits. Instants that are
-- compared, settle_ms and expires_ms, are stored less 2^63, so that their order is kept.

CREATE TABLE devices (
    id bytea PRIMARY KEY,
    public_key bytea NOT NULL,
    model text NOT NULL,
    firmware text NOT NULL,
    tier text NOT NULL,
    segment text NOT NULL,
    region text NOT NULL,
    configured text NOT NULL,
    measured text NOT NULL,
    tier_up_bit_per_s bigint NOT NULL,
    tier_down_bit_per_s bigint NOT NULL,
    line text NOT NULL,
    is_retired boolean NOT NULL,
    enrolled_ms bigint NOT NULL,
    seen_ms bigint NOT NULL,
    is_removed boolean NOT NULL,
    epoch bigint NOT NULL,
    request bigint NOT NULL,
    waiting bigint NOT NULL,
    dropped bigint NOT NULL,
    settle_ms bigint NOT NULL,
    made bigint NOT NULL,
    schedules text NOT NULL
) WITH (fillfactor = 70);
CREATE INDEX devices_to_settle ON devices (settle_ms);

CREATE TABLE codes (hash bytea PRIMARY KEY, body text NOT NULL);
CREATE TABLE lines (external_id text COLLATE "C" PRIMARY KEY, body text NOT NULL);
CREATE TABLE servers (name text PRIMARY KEY, body text NOT NULL) WITH (fillfactor = 20);
CREATE TABLE plans (name text PRIMARY KEY, body text NOT NULL);
CREATE TABLE settings (name text PRIMARY KEY, value bytea NOT NULL);
-- Whoever reserves or gives back locks the row first.
CREATE TABLE turns (name text PRIMARY KEY);
INSERT INTO turns VALUES ('admission');

CREATE TABLE leases (
    id bigint PRIMARY KEY,
    device bytea NOT NULL,
    server text NOT NULL,
    segment text,
    expires_ms bigint NOT NULL,
    body text NOT NULL
);
CREATE INDEX leases_by_device ON leases (device);
CREATE INDEX leases_by_server ON leases (server);
CREATE INDEX leases_by_segment ON leases (segment) WHERE segment IS NOT NULL;
CREATE INDEX leases_by_end ON leases (expires_ms);

CREATE TABLE log (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at_ms bigint NOT NULL,
    who text NOT NULL,
    what text NOT NULL
);

-- Results. Numbers of transactions that run side by side become visible out of order, so that whoever
-- works through the results goes by the transaction, up to the oldest that is not over.
CREATE TABLE results (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    change bigint NOT NULL DEFAULT (pg_current_xact_id()::text::bigint),
    device bytea NOT NULL,
    day bigint NOT NULL,
    plan text NOT NULL,
    body bytea NOT NULL
);
CREATE INDEX results_by_device ON results (device, number);
CREATE INDEX results_by_day ON results (day, plan, number);
CREATE INDEX results_by_change ON results (change, number);
ALTER TABLE results ALTER COLUMN body SET STORAGE EXTERNAL;

-- Which sequence numbers of a device were seen; see `seen.rs`.
CREATE TABLE seen (
    device bytea NOT NULL,
    epoch bigint NOT NULL,
    part bigint NOT NULL,
    bits bytea NOT NULL,
    PRIMARY KEY (device, epoch, part)
) WITH (fillfactor = 70);

-- Sums of results; see `rollup`. Sets of devices contain the devices' numbers.
CREATE TABLE numbers (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    device bytea NOT NULL UNIQUE
);
CREATE TABLE keys (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    body text NOT NULL UNIQUE
);
CREATE TABLE sums (
    level smallint NOT NULL,
    kind smallint NOT NULL,
    day bigint NOT NULL,
    hour smallint NOT NULL,
    key bigint NOT NULL,
    tests bigint NOT NULL,
    sent bigint NOT NULL,
    lost bigint NOT NULL,
    bins bytea NOT NULL,
    devices bytea NOT NULL,
    PRIMARY KEY (level, kind, day, hour, key)
);
ALTER TABLE sums ALTER COLUMN bins SET STORAGE EXTERNAL;
ALTER TABLE sums ALTER COLUMN devices SET STORAGE EXTERNAL;
-- The transaction and number of the last result that was folded; one row.
CREATE TABLE progress (last_change bigint NOT NULL, last_number bigint NOT NULL);
INSERT INTO progress VALUES (0, 0);

-- The files of the archive, and files that are not used yet or any more; see `files/catalogue.rs`.
CREATE TABLE files (
    path text PRIMARY KEY,
    plan text NOT NULL,
    day bigint NOT NULL,
    rows bigint NOT NULL,
    results bigint NOT NULL,
    last bigint NOT NULL,
    bytes bigint NOT NULL,
    sha256 text NOT NULL,
    unused_since_ms bigint NOT NULL
);

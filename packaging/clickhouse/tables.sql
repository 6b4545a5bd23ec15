-- Tables for the results of a fleet in ClickHouse, when they exceed one PostgreSQL database. Run
-- once.
--
-- A line of `inbox` is a stored result as JSON (`StoredResult` of underload-fleet); no command of
-- the program writes them yet (docs/fleet/storage.md). It becomes a row of `series` for each series
-- of probes. A line may be inserted any number of times, because whoever writes it retries after a
-- crash: rows of one device, epoch and sequence replace each other, and whoever reads says FINAL.
-- Sums would count such a row twice, so `sums` is not filled by what comes but day by day from
-- `series` (day.sql).

CREATE TABLE IF NOT EXISTS series
(
    plan LowCardinality(String),
    cohort LowCardinality(String),
    pseudonym String,
    epoch UInt32,
    sequence UInt64,
    run UInt64,
    at DateTime64(3, 'UTC'),
    day Date MATERIALIZED toDate(at, 'UTC'),
    hour UInt8 MATERIALIZED toHour(at, 'UTC'),
    model LowCardinality(String),
    firmware LowCardinality(String),
    region LowCardinality(String),
    segment String,
    tier_up_bit_per_s UInt64,
    tier_down_bit_per_s UInt64,
    configured LowCardinality(String),
    measured LowCardinality(String),
    step LowCardinality(String),
    kind LowCardinality(String),
    dscp UInt8,
    sent UInt64,
    lost UInt64,
    mean_us Nullable(UInt64),
    max_us Nullable(UInt64),
    p50_us Nullable(UInt64),
    p99_us Nullable(UInt64),
    tier_percent Nullable(Float64),
    grade LowCardinality(Nullable(String)),
    bins Array(UInt16) CODEC(Delta, ZSTD),
    counts Array(UInt64) CODEC(T64, ZSTD)
)
ENGINE = ReplacingMergeTree
PARTITION BY toYYYYMM(at, 'UTC')
ORDER BY (plan, step, dscp, pseudonym, epoch, sequence);

CREATE TABLE IF NOT EXISTS inbox (line String) ENGINE = Null;

CREATE MATERIALIZED VIEW IF NOT EXISTS inbox_to_series TO series AS
WITH
    JSONExtractRaw(line, 'result') AS result,
    JSONExtractRaw(line, 'attributes') AS attributes,
    arrayJoin(JSONExtractArrayRaw(result, 'steps')) AS one_step,
    arrayJoin(JSONExtractArrayRaw(one_step, 'series')) AS one_series,
    JSONExtract(one_series, 'bins', 'Array(Tuple(UInt16, UInt64))') AS pairs
SELECT
    JSONExtractString(result, 'plan') AS plan,
    JSONExtractString(line, 'cohort') AS cohort,
    JSONExtractString(line, 'pseudonym') AS pseudonym,
    toUInt32(JSONExtractUInt(line, 'epoch')) AS epoch,
    JSONExtractUInt(line, 'sequence') AS sequence,
    JSONExtractUInt(result, 'run') AS run,
    fromUnixTimestamp64Milli(toInt64(JSONExtractUInt(result, 'at_ms')), 'UTC') AS at,
    JSONExtractString(attributes, 'model') AS model,
    JSONExtractString(attributes, 'firmware') AS firmware,
    JSONExtractString(attributes, 'region') AS region,
    JSONExtractString(attributes, 'segment') AS segment,
    JSONExtractUInt(attributes, 'tier_up_bit_per_s') AS tier_up_bit_per_s,
    JSONExtractUInt(attributes, 'tier_down_bit_per_s') AS tier_down_bit_per_s,
    JSONExtractString(attributes, 'configured') AS configured,
    JSONExtractString(attributes, 'measured') AS measured,
    JSONExtractString(one_step, 'step') AS step,
    JSONExtractString(one_step, 'kind') AS kind,
    toUInt8(JSONExtractUInt(one_series, 'dscp')) AS dscp,
    JSONExtractUInt(one_series, 'sent') AS sent,
    JSONExtractUInt(one_series, 'lost') AS lost,
    JSONExtract(one_series, 'mean_us', 'Nullable(UInt64)') AS mean_us,
    JSONExtract(one_series, 'max_us', 'Nullable(UInt64)') AS max_us,
    JSONExtract(one_series, 'p50_us', 'Nullable(UInt64)') AS p50_us,
    JSONExtract(one_series, 'p99_us', 'Nullable(UInt64)') AS p99_us,
    JSONExtract(one_step, 'tier_percent', 'Nullable(Float64)') AS tier_percent,
    JSONExtract(one_step, 'grade', 'Nullable(String)') AS grade,
    pairs.1 AS bins,
    pairs.2 AS counts
FROM inbox
WHERE JSONExtractString(result, 'outcome') = 'measured';

CREATE TABLE IF NOT EXISTS sums
(
    day Date,
    plan LowCardinality(String),
    hour UInt8,
    cohort LowCardinality(String),
    region LowCardinality(String),
    model LowCardinality(String),
    firmware LowCardinality(String),
    step LowCardinality(String),
    kind LowCardinality(String),
    dscp UInt8,
    tests SimpleAggregateFunction(sum, UInt64),
    sent SimpleAggregateFunction(sum, UInt64),
    lost SimpleAggregateFunction(sum, UInt64),
    devices AggregateFunction(uniqExact, String),
    histogram AggregateFunction(sumMap, Array(UInt16), Array(UInt64))
)
ENGINE = AggregatingMergeTree
PARTITION BY day
ORDER BY (plan, step, dscp, cohort, region, model, firmware, hour, kind, day);

-- The delay in ms that a share of all probes took at most, from bins and their counts as sumMap
-- gives them; NULL where that probe was lost. Bin b holds what is above 1.02^(b-1) microseconds, up
-- to 1.02^b, evenly on a logarithmic scale: the numbers of the pages and of studies.
CREATE FUNCTION IF NOT EXISTS quantile_of_bins AS (share, histogram, lost) ->
    if(
        share * (arraySum(histogram.2) + lost) > arraySum(histogram.2) OR empty(histogram.1),
        NULL,
        arrayElement(
            arrayMap(
                (bin, count, seen) -> pow(
                    1.02, bin - (seen - share * (arraySum(histogram.2) + lost)) / count) / 1000,
                histogram.1, histogram.2, arrayCumSum(histogram.2)),
            arrayFirstIndex(
                seen -> seen >= share * (arraySum(histogram.2) + lost),
                arrayCumSum(histogram.2))));

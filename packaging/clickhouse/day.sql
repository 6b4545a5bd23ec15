-- Summarises a day, and replaces an earlier summary of it: some results arrive days later.
-- {day:Date} is the day.

ALTER TABLE sums DROP PARTITION {day:Date};

INSERT INTO sums
SELECT
    day, plan, hour, cohort, region, model, firmware, step, kind, dscp,
    count() AS tests,
    sum(sent) AS sent,
    sum(lost) AS lost,
    uniqExactState(pseudonym) AS devices,
    sumMapState(bins, counts) AS histogram
FROM series FINAL
-- Pooled numbers exclude runs that no orchestrator scheduled: a device makes them while it reaches
-- none.
WHERE day = {day:Date} AND run > 0
GROUP BY day, plan, hour, cohort, region, model, firmware, step, kind, dscp;

-- Puts a day together, again where it was before: results come late. {day:Date} is the day.

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
-- Runs of a device's own, which nobody scheduled, are in no pooled number.
WHERE day = {day:Date} AND run > 0
GROUP BY day, plan, hour, cohort, region, model, firmware, step, kind, dscp;

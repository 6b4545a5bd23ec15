-- The distribution over devices that a study shows: of each device the mean of its tests' means,
-- in bars of 15 ms, percent of the cohort's devices. {plan:String} is the plan.

SELECT
    cohort, step, dscp, bar_ms,
    count() AS devices,
    count() * 100 / sum(count()) OVER (PARTITION BY cohort, step, dscp) AS percent
FROM
(
    SELECT cohort, step, dscp, pseudonym, intDiv(toUInt64(avg(mean_us)), 15000) * 15 AS bar_ms
    FROM series FINAL
    WHERE plan = {plan:String} AND mean_us IS NOT NULL
    GROUP BY cohort, step, dscp, pseudonym
)
GROUP BY cohort, step, dscp, bar_ms
ORDER BY cohort, step, dscp, bar_ms;

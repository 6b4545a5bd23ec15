-- Latency of each cohort and class by day, with the numbers of tests and devices.

SELECT
    plan, day, cohort, step, dscp,
    sum(tests) AS tests,
    uniqExactMerge(devices) AS devices,
    quantile_of_bins(0.5, sumMapMerge(histogram), sum(lost)) AS p50_ms,
    quantile_of_bins(0.99, sumMapMerge(histogram), sum(lost)) AS p99_ms
FROM sums
GROUP BY plan, day, cohort, step, dscp
ORDER BY plan, day, cohort, step, dscp;

//! What a latency run recorded and what it means: samples, quantiles, tables, plots.

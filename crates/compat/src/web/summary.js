// The numbers of a measurement: quantiles, rates and curves of each phase.

import { PROBE_MS } from "./probe.js";

const RAMP_S = 3;             // the numbers of a load exclude its start
const LOAD_MBIT_S = 0.05;     // a lower rate loads no line
const PAUSES_MAX = 0.1;       // largest share of the time in which a refused load may pause
// Fewest samples for which a quantile is shown, as in the rest of the program.
const FEWEST = { p50: 1, p90: 50, p95: 100, p99: 500 };
const SHARES = { p50: 0.5, p90: 0.9, p95: 0.95, p99: 0.99 };

export const QUANTILES = Object.keys(FEWEST);
export const BUCKET_S = 0.25;
export const PHASES = [
  { name: "idle", seconds: 3 },
  { name: "down", seconds: 10 },
  { name: "up", seconds: 10 },
];
export const TOTAL_S = PHASES.reduce((sum, phase) => sum + phase.seconds, 0) + 1;
export const DELAYS = ["idle", "down", "up", "down inside", "up inside"];
export const RATES = ["down", "up"];
// Reasons for which a phase has no grade; `null` for a phase that has one.
export const NO_LOAD = [null, "the server gave no load", "next to nothing arrived",
  "the server gave load for a part of the time only"];

function quantile(sorted, share) {
  return sorted[Math.min(sorted.length - 1, Math.max(0, Math.ceil(share * sorted.length) - 1))];
}

// Returns each quantile of the sorted values; `null` if a quantile has too few values.
function told(sorted) {
  const one = (name) => (sorted.length >= FEWEST[name] ? quantile(sorted, SHARES[name]) : null);
  return Object.fromEntries(Object.keys(FEWEST).map((name) => [name, one(name)]));
}

// Returns the name of the highest known quantile above the median; `undefined` if none is known.
export const highest = (quantiles) => ["p99", "p95", "p90"].find((name) => quantiles[name] !== null);

export function summary(run, phase) {
  const starts = run.rates.filter((it) => it.phase === phase);
  const first = starts.length ? starts[0].at_s - 0.2 : 0;
  const from = phase === "idle" ? 0.5 : first + RAMP_S;
  const counts = (it) => it.phase === phase && it.at_s >= from;
  const probes = run.probes.filter(counts);
  const sorted = (its) => its.map((it) => it.ms).sort((a, b) => a - b);
  const values = sorted(probes.filter((it) => it.ms !== null));
  const own = (its) => told(sorted(its.filter((it) => counts(it) && it.ms !== null)));
  const inside = sorted(run.inside.filter((it) => it.phase === phase && it.after_s >= RAMP_S));
  const counted = starts.filter((it) => it.at_s >= from);
  const [a, b] = [counted[0], counted[counted.length - 1]];
  const rate = phase !== "idle" && a && b && b.at_s > a.at_s
    ? (b.bytes - a.bytes) * 8 / 1e6 / (b.at_s - a.at_s) : null;
  return {
    phase, rate, ...without(run, phase, rate, counted), probes: probes.length,
    lost: probes.filter((it) => it.lost).length,
    late: probes.filter((it) => it.late_ms > PROBE_MS[it.by]).length,
    ...told(values),
    largest: values.at(-1) ?? null, of_sent: ofSent(values, probes),
    inside: inside.length ? { ...told(inside), largest: inside.at(-1), readings: inside.length } : null,
    held_back: run.heldBack[phase] ?? false, in_order: run.inOrder[phase] ?? null,
    held_up_ms: own(run.held), mirror_ms: own(run.mirrored),
  };
}

// The highest known quantile of all probes sent, by which a load is judged, and whether it is a lost probe,
// which is longer than every answer. An answer needs enough answers, a lost probe enough probes. `null`
// with too few.
export function judged(answered, sent) {
  const isLost = (name) => Math.ceil(SHARES[name] * sent) > answered;
  const name = ["p99", "p95", "p90"].find((it) => (isLost(it) ? sent : answered) >= FEWEST[it]);
  return name ? { quantile: name, isLost: isLost(name) } : null;
}

// Returns the quantile by which a load is judged (`judged`), and its value, ms; `Infinity` for a lost probe.
function ofSent(values, probes) {
  const sent = values.length + probes.filter((it) => it.lost).length;
  const by = judged(values.length, sent);
  if (!by) return null;
  const ms = by.isLost ? Infinity : values[Math.ceil(SHARES[by.quantile] * sent) - 1];
  return { quantile: by.quantile, ms };
}

// Returns the reason for which a phase was not under load, or `null`, and the server's refusal.
function without(run, phase, rate, counted) {
  const refused = run.refused[phase] ?? null;
  const [hasLoad, noLoad, nothing, partly] = NO_LOAD;
  if (rate === null) return { refused, no_load: phase !== "idle" && refused ? noLoad : hasLoad };
  const pauses = counted.filter((it, index) => index > 0 && it.bytes === counted[index - 1].bytes).length;
  if (rate < LOAD_MBIT_S) return { refused, no_load: refused ? noLoad : nothing };
  const isPartly = refused && pauses > PAUSES_MAX * (counted.length - 1);
  return { refused, no_load: isPartly ? partly : hasLoad };
}

// Returns pairs of number and median for each quarter of a second that has a value.
function medians(pairs) {
  const buckets = new Map();
  for (const [seconds, value] of pairs) {
    const bucket = Math.floor(seconds / BUCKET_S);
    if (!buckets.has(bucket)) buckets.set(bucket, []);
    buckets.get(bucket).push(value);
  }
  return [...buckets].sort((a, b) => a[0] - b[0]).map(([bucket, its]) => (
    [bucket, its.sort((a, b) => a - b)[Math.ceil(its.length / 2) - 1]]));
}

// The curves of round trips by the names in `DELAYS`, and of rates by those in `RATES`.
export function curves({ probes, inside, rates }) {
  const answered = probes.filter((it) => it.ms !== null);
  const delays = DELAYS.map((name) => {
    const [phase, isInside] = name.split(" ");
    const its = (isInside ? inside : answered).filter((it) => it.phase === phase);
    return medians(its.map((it) => [it.at_s, it.ms]));
  });
  const mbitPerS = RATES.map((phase) => {
    const its = rates.filter((it) => it.phase === phase);
    return medians(its.slice(1).map((it, index) => [it.at_s,
      Math.max(0, it.bytes - its[index].bytes) * 8 / 1e6 / Math.max(1e-3, it.at_s - its[index].at_s)]));
  });
  return { delays, rates: mbitPerS };
}

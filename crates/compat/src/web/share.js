// Encodes a result as a line of numbers, for this browser's history and for links: after the `#`,
// which browsers never send to a server. The sentences come from the page, so a link cannot make it
// show foreign text.

import { DELAYS, highest, judged, NO_LOAD, PHASES, QUANTILES, RATES, BUCKET_S, TOTAL_S } from "./summary.js";

const NAME = "#result=";
const VERSION = 1;
const LENGTH_MAX = 16384;
const NUMBER = /^\d{1,10}(\.\d{1,3})?$/;
const BUCKETS_MAX = TOTAL_S / BUCKET_S * 2;   // a busy browser ends phases late
const STARTED_S = [1.5e9, 4.2e9];             // the years 2017 to 2103
const ROW_NUMBERS = 26;

const whole = (value) => (value === null ? "" : String(Number(value.toFixed(3))));
const rough = (value) => String(Number(value.toFixed(value < 10 ? 2 : 1)));
const quantiles = (from) => QUANTILES.map((name) => from?.[name] ?? null);

function rowText(row) {
  if (!row) return "";
  const sent = row.of_sent && Number.isFinite(row.of_sent.ms) ? row.of_sent.ms : null;
  return [
    row.probes, row.lost, row.late, ...quantiles(row), row.largest, sent, row.rate,
    NO_LOAD.indexOf(row.no_load), Number(row.held_back) + 2 * Number(row.in_order === true), ...quantiles(row.mirror_ms),
    ...quantiles(row.held_up_ms), ...quantiles(row.inside), row.inside?.largest ?? null,
    row.inside?.readings ?? null,
  ].map(whole).join(",");
}

// Encodes a curve: the index of its first quarter second, then a value for each quarter second,
// empty if there was no measurement.
function curveText(points) {
  if (!points.length) return "";
  const first = points[0][0];
  const values = Array(points.at(-1)[0] - first + 1).fill("");
  for (const [bucket, value] of points) values[bucket - first] = rough(value);
  return [first, ...values].join(",");
}

export function encode({ started_s: startedS, rows, curves }) {
  const byPhase = PHASES.map(({ name }) => rowText(rows.find((row) => row.phase === name)));
  const drawn = [...curves.delays, ...curves.rates].map(curveText);
  return NAME + [...byPhase, ...drawn, [VERSION, startedS].join(",")].join("_");
}

const require = (isRight, what) => { if (!isRight) throw new Error(what); };

function numbers(text) {
  return text === "" ? [] : text.split(",").map((word) => {
    require(word === "" || NUMBER.test(word), "a value is not a number of at most ten digits");
    return word === "" ? null : Number(word);
  });
}

function quantilesOf(its, largest) {
  const known = [...its, largest].filter((it) => it !== null);
  require(known.every((it, index) => index === 0 || known[index - 1] <= it), "a percentile exceeds a higher one");
  return Object.fromEntries(QUANTILES.map((name, index) => [name, its[index]]));
}

// Returns the judged quantile of all probes sent. A link contains only its value, which is `null`
// if that probe was lost or the quantile is unknown.
function ofSent(told, ms, answered, probes) {
  const by = ms === null ? judged(answered, probes) : { quantile: highest(told), isLost: false };
  if (!by?.quantile || (ms === null && !by.isLost)) return null;
  return { quantile: by.quantile, ms: ms ?? Infinity };
}

function rowOf(phase, text) {
  const its = numbers(text);
  if (!its.length) return [];
  require(its.length === ROW_NUMBERS, "a step has too few or too many values");
  const [probes, lost, late, ...values] = its;
  const [p50, p90, p95, p99, largest, sent, rate, noLoad, state] = values;
  require([probes, lost, late].every(Number.isInteger) && lost <= probes, "a count of probes is wrong");
  require(noLoad in NO_LOAD && [0, 1, 2, 3].includes(state), "a step has an unknown state");
  const told = quantilesOf([p50, p90, p95, p99], largest);
  const [mirror, heldUp, inside] = [9, 13, 17].map((from) => values.slice(from, from + QUANTILES.length));
  const [insideLargest, readings] = values.slice(21);
  return [{
    phase, probes, lost, late, ...told, largest, rate, no_load: NO_LOAD[noLoad], held_back: state % 2 === 1,
    in_order: state >= 2 || null,
    refused: null, of_sent: ofSent(told, sent, probes - lost, probes),
    mirror_ms: quantilesOf(mirror, null), held_up_ms: quantilesOf(heldUp, null),
    inside: readings ? { ...quantilesOf(inside, insideLargest), largest: insideLargest, readings } : null,
  }];
}

function curveOf(text) {
  const [first, ...values] = numbers(text);
  require(first === undefined || Number.isInteger(first), "a curve does not say when it begins");
  require((first ?? 0) + values.length <= BUCKETS_MAX, "a curve is longer than a measurement");
  return values.flatMap((value, index) => (value === null ? [] : [[first + index, value]]));
}

// Decodes the result in an address from `#` on; returns `null` if that part is not a result. Throws
// an error that says what is wrong with the result.
export function decode(fragment) {
  if (!fragment.startsWith(NAME)) return null;
  require(fragment.length <= LENGTH_MAX, `it is longer than ${LENGTH_MAX} characters`);
  const parts = fragment.slice(NAME.length).split("_");
  const [version, startedS] = numbers(parts.pop());
  require(version === VERSION, "it is cut short, or of another version of this page");
  require(parts.length === PHASES.length + DELAYS.length + RATES.length, "a part of it is missing");
  require(startedS >= STARTED_S[0] && startedS <= STARTED_S[1], "its time is impossible");
  const rows = PHASES.flatMap(({ name }, index) => rowOf(name, parts[index]));
  require(rows.some((row) => row.p50 !== null), "it has no round trips");
  const drawn = parts.slice(PHASES.length).map(curveOf);
  return {
    started_s: startedS, rows,
    curves: { delays: drawn.slice(0, DELAYS.length), rates: drawn.slice(DELAYS.length) },
  };
}

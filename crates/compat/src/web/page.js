// Measures latency under load: phases, what they show, and the file to keep. Probes and load are parts
// in workers of their own where these start.

import { openChannel, openMirror } from "./channel.js";
import { draw } from "./draw.js";
import { judge } from "./judge.js";
import { Load } from "./load.js";
import { PROBE_MS, Prober } from "./probe.js";
import { inPage, inWorker, wait } from "./thread.js";

const PHASES = [
  { name: "idle", seconds: 3 },
  { name: "down", seconds: 10 },
  { name: "up", seconds: 10 },
];
// `?workers=none` keeps everything in the page's thread.
const APART = new URLSearchParams(location.search).get("workers") !== "none";
const HOW = {
  channel: ["datagrams of a WebRTC data channel, never sent again, from the script's sending to its receiving",
    "They add the browser's work and encryption, about 1 ms, and each is a packet of about 100 bytes."],
  fetch: ["HTTPS requests of one byte, from the browser's sending to the first byte of the answer",
    "They add the browser's and the server's work and TLS, 1 to 5 ms; a lost packet shows as a late answer."],
};
const RAMP_S = 3;             // what a load's start shows counts for nothing
const LOAD_MBIT_S = 0.05;     // less than this loads no line
const PAUSES_MAX = 0.1;       // a load that is refused may rest for such a part of the time, untold
const BUSY_MS = 10;           // what this device alone may take of a high percentile, untold
const MIRROR_OPENS_MS = 1000; // it is waited for so long
// Samples below which a quantile is a guess that is not shown, as in all of the program.
const FEWEST = { p50: 1, p90: 50, p95: 100, p99: 500 };
const SHARES = { p50: 0.5, p90: 0.9, p95: 0.95, p99: 0.99 };
const ENDS_MS = 5000;         // a part that has not ended by then never does
const DRAW_MS = 500;
const TOTAL_S = PHASES.reduce((sum, phase) => sum + phase.seconds, 0) + 1;

const at = (id) => document.getElementById(id);
let run = null;

class Run {
  constructor() {
    this.stopped = new AbortController();
    this.probes = [];
    this.held = [];
    this.mirrored = [];
    this.peers = [];
    this.rates = [];
    this.inside = [];   // round trips of the loading connections, as the server's system has them
    this.heldBack = {}; // by phase: whether the server's limit, not the line, held up the load
    this.refused = {};  // by phase: why the server gave no load, the last time that it did not
    this.unsent = 0;
    this.lost = { up: 0, down: 0 };
    this.failed = "";
    this.heard = {};  // who waits for what a part tells
  }

  // What a part tells. Each counts time from when it was asked to start: their clocks lie a message apart.
  hear(told) {
    if (told.answered) this.probes.push(...told.answered);
    if (told.bytes !== undefined) {
      this.rates.push({ at_s: this.loadFrom + told.after_ms / 1000, phase: this.loaded, bytes: told.bytes });
      if (told.refused) this.refused[this.loaded] = told.refused;
    }
    if (told.inside) {
      const { readings, held_back: isHeldBack } = told.inside;
      this.heldBack[this.loaded] = isHeldBack;
      this.inside.push(...readings.map(([afterMs, us]) => (
        { at_s: this.loadFrom + afterMs / 1000, phase: this.loaded, ms: us / 1000, after_s: afterMs / 1000 })));
    }
    if (told.end) {
      ({ probes: this.probes, held: this.held, mirrored: this.mirrored } = told.end);
      ({ unsent: this.unsent, lost_up_down: this.lost } = told.end);
    }
    if (told.failed !== undefined) {
      this.failed = told.failed;
      this.stopped.abort();
    }
    for (const name of Object.keys(told)) this.heard[name]?.();
  }

  until(name) { return new Promise((done) => { this.heard[name] = done; }); }

  seconds() { return (performance.now() - this.start) / 1000; }

  async part(script, Part) {
    const hear = (told) => this.hear(told);
    return (APART && await inWorker(script, hear)) || inPage(Part, hear);
  }

  async open() {
    this.load = await this.part("load.js", Load);
    this.prober = await this.part("probe.js", Prober);
    const { peer, why } = await openChannel((channel) => this.take(channel));
    this.why = why ?? "";
    if (!peer) return;
    this.peers = [peer];
    const reflects = this.until("reflects");
    try {
      this.peers.push(...openMirror((ends) => this.prober.ask(["reflect", ...ends], ends)));
      await Promise.race([reflects, wait(MIRROR_OPENS_MS)]);
    } catch { /* a browser may have places for one peer */ }
  }

  take(channel) {
    const opened = this.until("opened");
    const closed = this.until("closed").then(() => { throw new Error("it closed"); });
    try {
      this.prober.ask(["use", channel], [channel]);
    } catch {
      // Not every browser lets workers have channels.
      this.prober.end();
      this.prober = inPage(Prober, (told) => this.hear(told));
      this.prober.ask(["use", channel]);
    }
    return Promise.race([opened, closed]);
  }

  async measure() {
    this.start = performance.now();
    this.prober.ask(["start"]);
    for (const { name, seconds } of PHASES) {
      if (this.stopped.signal.aborted) break;
      at("state").textContent = name === "idle" ? "idle …" : `loading ${name} …`;
      await this.phase(name, seconds);
    }
    const ended = this.until("end");
    this.prober.ask(["stop"]);
    await Promise.race([ended, wait(ENDS_MS)]);
  }

  async phase(name, seconds) {
    const until = performance.now() + seconds * 1000;
    const isLoaded = name !== "idle";
    this.prober.ask(["enter", name]);
    [this.loaded, this.loadFrom] = [name, this.seconds()];
    if (isLoaded) this.load.ask(["start", name]);
    let drawn = 0;
    while (performance.now() < until && !this.stopped.signal.aborted) {
      await wait(100);
      if (performance.now() - drawn < DRAW_MS) continue;
      drawn = performance.now();
      show(this);
    }
    this.prober.ask(["enter", "between"]);
    if (!isLoaded) return;
    const ended = this.until("ended");
    this.load.ask(["stop"]);
    await Promise.race([ended, wait(ENDS_MS)]);
  }

  end() {
    for (const part of [this.prober, this.load]) part?.end();
    for (const peer of this.peers) peer.close();
  }
}

function quantile(sorted, share) {
  return sorted[Math.min(sorted.length - 1, Math.max(0, Math.ceil(share * sorted.length) - 1))];
}

// Each quantile of the sorted values, `null` of too few.
function told(sorted) {
  const one = (name) => (sorted.length >= FEWEST[name] ? quantile(sorted, SHARES[name]) : null);
  return Object.fromEntries(Object.keys(FEWEST).map((name) => [name, one(name)]));
}

// The name of the highest quantile that is known above the median, if any is.
const highest = (quantiles) => ["p99", "p95", "p90"].find((name) => quantiles[name] !== null);

function summary(run, phase) {
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
    held_back: run.heldBack[phase] ?? false,
    held_up_ms: own(run.held), mirror_ms: own(run.mirrored),
  };
}

// The highest known quantile of all probes sent, by which a load is judged: a lost probe is longer than
// every answer.
function ofSent(values, probes) {
  const name = highest(told(values));
  if (!name) return null;
  const lost = probes.filter((it) => it.lost).length;
  return { quantile: name, ms: quantile([...values, ...Array(lost).fill(Infinity)], SHARES[name]) };
}

// Why a phase is no phase under load, if it is none; and what the server said when it refused load.
function without(run, phase, rate, counted) {
  const refused = run.refused[phase] ?? null;
  if (rate === null) return { refused, no_load: phase !== "idle" && refused ? "the server gave no load" : null };
  const pauses = counted.filter((it, index) => index > 0 && it.bytes === counted[index - 1].bytes).length;
  if (rate < LOAD_MBIT_S) return { refused, no_load: refused ? "the server gave no load" : "next to nothing arrived" };
  const isPartly = refused && pauses > PAUSES_MAX * (counted.length - 1);
  return { refused, no_load: isPartly ? "the server gave load for a part of the time only" : null };
}

function verdict(rows) {
  const idle = rows.find((row) => row.phase === "idle")?.p50 ?? null;
  const loaded = rows.filter((row) => row.phase !== "idle");
  const judged = loaded.filter((row) => !row.no_load && row.of_sent && row.rate !== null && idle !== null);
  const said = judge(judged.map((row) => ({
    step: row.phase, idle, beside: row.of_sent.ms, inside: row.inside?.[highest(row.inside)] ?? null,
    lostPercent: 100 * row.lost / row.probes, rate: row.rate, isHeldBack: row.held_back,
  })));
  const none = loaded.filter((row) => row.no_load).map((row) => (
    `Loaded ${row.phase}: no grade, because ${row.no_load}${row.refused ? `: ${row.refused}` : ""}.`));
  const unknown = judged.filter((row) => !row.inside).map((row) => row.phase);
  return {
    opening: [said.opening, ...none].filter(Boolean).join(" "), uses: said.uses, advice: said.advice.join(" "),
    unknown: unknown.length ? `Round trips inside the load ${unknown.join(" and ")} are not known: the server's `
      + "system, or this device's TCP without time stamps, does not tell them. The grade is of probes alone." : "",
  };
}

// Of this device alone: a datagram that never left it, and how late the probes' thread woke up.
function busy(rows) {
  const worst = (row) => [row.mirror_ms, row.held_up_ms].map((own) => [own[highest(own)], highest(own)])
    .filter(([ms]) => ms > BUSY_MS).sort((a, b) => b[0] - a[0])[0];
  const late = rows.map((row) => [row.phase, worst(row)]).filter(([, own]) => own)
    .map(([phase, [ms, share]]) => `${phase} ${ms.toFixed(0)} ms at ${share}`);
  return late.length ? "This device was busy, or this page in the background: what never left it was late, too "
    + `(${late.join(", ")}). Some round trips are shown too long by as much, or more.` : "";
}

function cell(row, text) {
  const td = document.createElement("td");
  td.textContent = text;
  row.append(td);
}

const show = (run) => draw({ latency: at("latency"), rate: at("rate") }, run, TOTAL_S);

function tabulate(rows) {
  const number = (value, digits = 1) => (value === null ? "–" : value.toFixed(digits));
  const line = (name, values, more) => {
    const row = document.createElement("tr");
    cell(row, name);
    for (const key of ["p50", "p90", "p95", "p99", "largest"]) cell(row, number(values[key]));
    for (const text of more) cell(row, text);
    return row;
  };
  at("rows").replaceChildren(...rows.flatMap((row) => [
    line(row.phase === "idle" ? "idle" : `loaded ${row.phase}`, row,
      [String(row.probes), String(row.lost), number(row.rate)]),
    ...(row.inside ? [line(`inside ${row.phase}`, row.inside, [String(row.inside.readings), "", ""])] : []),
  ]));
  const { opening, uses, advice, unknown } = verdict(rows);
  const own = busy(rows);
  at("verdict").textContent = own && opening.startsWith("Grade") ? `Uncertain. ${opening}` : opening;
  at("uses").replaceChildren(...uses.map((use) => {
    const item = document.createElement("li");
    item.textContent = use;
    return item;
  }));
  at("advice").textContent = advice;
  at("unknown").textContent = unknown;
  at("busy").textContent = own;
}

function sayHow(run) {
  const kinds = [...new Set(run.probes.map((it) => it.by))];
  const words = kinds.map((kind) => `Probes every ${PROBE_MS[kind]} ms: ${HOW[kind].join(". ")}`);
  const { up, down } = run.lost;
  if (kinds.includes("channel")) words.push(`Lost on the way up: ${up}, on the way down: ${down}.`);
  else words.unshift(`No data channel opened: ${run.why}.`);
  const here = [["probes", run.prober], ["load", run.load]].filter(([, part]) => part.where === "page");
  if (here.length) {
    words.push(`In the page's own thread, not in a worker: ${here.map(([name]) => name).join(" and ")}.`);
  }
  at("how").textContent = words.join(" ");
  return kinds;
}

async function measure() {
  at("start").hidden = true;
  at("state").textContent = "opening a channel …";
  run = new Run();
  await run.open();
  at("stop").hidden = false;
  at("keep").hidden = true;
  await run.measure();
  run.end();
  finish();
}

function finish() {
  const isWhole = !run.stopped.signal.aborted;
  const phases = PHASES.map((phase) => phase.name).filter((name) => run.probes.some((it) => it.phase === name));
  const rows = phases.map((phase) => summary(run, phase));
  show(run);
  tabulate(rows);
  const kinds = sayHow(run);
  at("state").textContent = isWhole ? "done" : `stopped${run.failed && `: ${run.failed}`}`;
  at("start").hidden = false;
  at("stop").hidden = true;
  const kept = {
    version: 1, kind: "underload web", started: new Date(performance.timeOrigin + run.start).toISOString(),
    complete: isWhole, probe: kinds.map((kind) => HOW[kind][0]).join("; then "),
    no_channel: run.why, probe_ms: PROBE_MS[kinds[0] ?? "fetch"],
    threads: { probes: run.prober.where, load: run.load.where },
    unsent: run.unsent, lost_up_down: run.lost, summary: rows, probes: run.probes, rates: run.rates,
    inside: run.inside,
  };
  const link = at("keep");
  if (link.href) URL.revokeObjectURL(link.href);
  link.href = URL.createObjectURL(new Blob([JSON.stringify(kept, null, 1)], { type: "application/json" }));
  link.download = "underload-result.json";
  link.hidden = false;
  window.underloadResult = kept;
}

at("start").addEventListener("click", measure);
at("stop").addEventListener("click", () => run.stopped.abort());
addEventListener("resize", () => { if (run) show(run); });

// Measures latency under load: probes on a fixed schedule, as datagrams where a data channel opens and
// as requests where none does, and load beside them by fetch.
"use strict";

const PHASES = [
  { name: "idle", seconds: 3 },
  { name: "down", seconds: 10 },
  { name: "up", seconds: 10 },
];
const PROBE_MS = { channel: 20, fetch: 50 };  // from one probe to the next
// `?probes=fetch` wants no channel, `?probes=channel` waits for one as long as it takes.
const WANTED = new URLSearchParams(location.search).get("probes");
const CHANNEL_OPENS_MS = WANTED === "channel" ? 60000 : 3000;
const CHANNEL_HELD_BYTES = 800;  // what the browser may hold back before probes are counted as not sent
const HOW = {
  channel: ["datagrams of a WebRTC data channel, never sent again, from the script's sending to its receiving",
    "They add the browser's work and encryption, about 1 ms, and each is a packet of about 100 bytes."],
  fetch: ["HTTPS requests of one byte, from the browser's sending to the first byte of the answer",
    "They add the browser's and the server's work and TLS, 1 to 5 ms; a lost packet shows as a late answer."],
};
const PROBES_OPEN_MAX = 40;   // more than this many under way are counted as late and not sent
const PROBE_LOST_MS = 5000;
const RAMP_S = 3;             // what a load's start shows counts for nothing
const LOADS = 3;              // connections; a browser opens six to one server
const UPLOAD_BYTES = 32 << 20;
const BUCKET_S = 0.25;
const DRAW_MS = 500;
const GRADES = [[30, "good"], [100, "noticeable"], [300, "poor"], [Infinity, "bad"]];

const at = (id) => document.getElementById(id);
const wait = (ms) => new Promise((done) => setTimeout(done, ms));
let run = null;

class Run {
  constructor() {
    // Made beforehand, once: it takes a browser longer than a probe does.
    this.body = new Blob([new Uint8Array(UPLOAD_BYTES)]);
    this.start = performance.now();
    this.stopped = new AbortController();
    this.probes = [];
    this.rates = [];
    this.pending = new Map();
    this.waiting = new Map();
    this.channel = null;
    this.sent = 0;
    this.last = { number: -1, arrived: 0 };  // of the answers: the highest number, what had arrived by then
    this.open = 0;
    this.number = 0;
    this.phase = "idle";
    this.unsent = 0;
    this.drawn = 0;
    this.observer = new PerformanceObserver((list) => {
      for (const entry of list.getEntries()) this.note(entry);
    });
    this.observer.observe({ type: "resource" });
  }

  seconds() { return (performance.now() - this.start) / 1000; }

  // The browser's own times: without the wait for a free connection, and without a handshake.
  note(entry) {
    const probe = this.pending.get(entry.name);
    if (!probe || !entry.responseStart) return;
    this.pending.delete(entry.name);
    probe.ms = entry.responseStart - entry.requestStart;
    probe.lateMs = Math.max(0, entry.requestStart - probe.due);
  }

  use({ peer, channel }) {
    this.channel = channel;
    channel.onmessage = (event) => this.answered(event.data);
    channel.onclose = () => { this.channel = null; };
    this.stopped.signal.addEventListener("abort", () => setTimeout(() => peer.close(), 2000));
  }

  async probeForEver(signal) {
    for (let due = this.start; !signal.aborted; due += PROBE_MS[this.channel ? "channel" : "fetch"]) {
      const ahead = due - performance.now();
      if (ahead > 0) await wait(ahead);
      if (signal.aborted) break;
      const isFull = this.channel ? this.channel.bufferedAmount > CHANNEL_HELD_BYTES : this.open >= PROBES_OPEN_MAX;
      if (isFull) { this.unsent += 1; continue; }
      const by = this.channel ? "channel" : "fetch";
      const probe = { at: (due - this.start) / 1000, due, by, phase: this.phase, ms: null, lateMs: 0, lost: false };
      this.probes.push(probe);
      if (this.channel) this.sendProbe(probe); else this.request(probe);
    }
  }

  // Eight bytes: its number, and room for what the server adds.
  sendProbe(probe) {
    const bytes = new DataView(new ArrayBuffer(8));
    probe.number = this.sent++;
    bytes.setUint32(0, probe.number, true);
    this.waiting.set(probe.number, probe);
    probe.sent = performance.now();
    probe.lateMs = Math.max(0, probe.sent - probe.due);
    try { this.channel.send(bytes.buffer); } catch { this.channel = null; }
  }

  answered(data) {
    const now = performance.now();
    if (!(data instanceof ArrayBuffer) || data.byteLength !== 8) return;
    const bytes = new DataView(data);
    const number = bytes.getUint32(0, true);
    const probe = this.waiting.get(number);
    if (!probe) return;
    this.waiting.delete(number);
    probe.ms = now - probe.sent;
    if (number > this.last.number) this.last = { number, arrived: bytes.getUint32(4, true) };
  }

  // Of the probes up to the last one that was answered: lost before the server, and after it.
  lostOnTheWay() {
    const { number, arrived } = this.last;
    const answered = this.probes.filter((it) => it.number <= number && it.ms !== null).length;
    return { up: Math.max(0, number + 1 - arrived), down: Math.max(0, arrived - answered) };
  }

  async request(probe) {
    const url = new URL(`small?${this.number++}`, location.href).href;
    this.pending.set(url, probe);
    this.open += 1;
    try {
      const limit = AbortSignal.timeout(PROBE_LOST_MS);
      const answer = await fetch(url, { cache: "no-store", signal: limit });
      await answer.arrayBuffer();
    } catch {
      probe.lost = true;
      this.pending.delete(url);
    }
    this.open -= 1;
  }

  async load(phase, seconds) {
    const end = new AbortController();
    this.stopped.signal.addEventListener("abort", () => end.abort());
    const flows = [];
    const count = { bytes: 0 };
    const session = Math.floor(Math.random() * 2 ** 48);
    for (let flow = 0; flow < LOADS && phase !== "idle"; flow += 1) {
      flows.push(phase === "down" ? download(count, end.signal) : upload(session, this.body, end.signal));
    }
    const until = performance.now() + seconds * 1000;
    while (performance.now() < until && !end.signal.aborted) {
      await wait(200);
      if (phase === "up") await received(session, count, end.signal);
      this.rates.push({ at: this.seconds(), phase, bytes: count.bytes });
      if (performance.now() - this.drawn >= DRAW_MS) {
        this.drawn = performance.now();
        draw(this);
      }
    }
    end.abort();
    await Promise.allSettled(flows);
  }
}

// Neither repeated nor put in order: a probe that is lost is lost. Or why none opens in time.
async function openChannel() {
  if (WANTED === "fetch") return { why: "as the address asks" };
  if (!window.RTCPeerConnection) return { why: "this browser has none" };
  const peer = new RTCPeerConnection();
  const channel = peer.createDataChannel("probes", { negotiated: true, id: 0, ordered: false, maxRetransmits: 0 });
  channel.binaryType = "arraybuffer";
  const opened = new Promise((done, failed) => { channel.onopen = done; channel.onclose = failed; });
  const signal = AbortSignal.timeout(CHANNEL_OPENS_MS);
  const late = new Promise((_, failed) => { signal.onabort = failed; });
  for (const end of [opened, late]) end.catch(() => {});
  try {
    await peer.setLocalDescription();
    const answer = await fetch("channel", { method: "POST", body: peer.localDescription.sdp, signal });
    if (answer.status === 204) throw new Error("the server has none");
    if (!answer.ok) throw new Error(`the server answers ${answer.status}`);
    await peer.setRemoteDescription({ type: "answer", sdp: await answer.text() });
    await Promise.race([opened, late]);
    return { peer, channel };
  } catch (error) {
    peer.close();
    const why = signal.aborted ? `it took longer than ${CHANNEL_OPENS_MS / 1000} s` : "it closed";
    return { why: (!signal.aborted && error.message) || why };
  }
}

async function download(count, signal) {
  while (!signal.aborted) {
    try {
      const answer = await fetch("large", { cache: "no-store", signal });
      if (!answer.ok) throw new Error(`the server answers ${answer.status}`);
      const reader = answer.body.getReader();
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        count.bytes += value.byteLength;
      }
    } catch (error) {
      if (!signal.aborted) await wait(200);
    }
  }
}

async function upload(session, body, signal) {
  while (!signal.aborted) {
    try {
      await fetch(`upload?${session}`, { method: "POST", body, signal });
    } catch {
      if (!signal.aborted) await wait(200);
    }
  }
}

// What the server has: what waits in this machine's buffers counts for nothing.
async function received(session, count, signal) {
  try {
    const answer = await fetch(`received?${session}`, { cache: "no-store", signal });
    if (answer.ok) count.bytes = Number(await answer.text());
  } catch { /* the next answer tells */ }
}

function quantile(sorted, share) {
  return sorted[Math.min(sorted.length - 1, Math.max(0, Math.ceil(share * sorted.length) - 1))];
}

function summary(run, phase) {
  const starts = run.rates.filter((it) => it.phase === phase);
  const first = starts.length ? starts[0].at - 0.2 : 0;
  const from = phase === "idle" ? 0.5 : first + RAMP_S;
  const probes = run.probes.filter((it) => it.phase === phase && it.at >= from);
  const values = probes.filter((it) => it.ms !== null).map((it) => it.ms).sort((a, b) => a - b);
  const counted = starts.filter((it) => it.at >= from);
  const [a, b] = [counted[0], counted[counted.length - 1]];
  const rate = phase !== "idle" && a && b && b.at > a.at
    ? (b.bytes - a.bytes) * 8 / 1e6 / (b.at - a.at) : null;
  return {
    phase, rate, probes: probes.length,
    lost: probes.filter((it) => it.lost).length,
    late: probes.filter((it) => it.lateMs > PROBE_MS[it.by]).length,
    p50: values.length ? quantile(values, 0.5) : null,
    p90: values.length >= 20 ? quantile(values, 0.9) : null,
    p99: values.length >= 100 ? quantile(values, 0.99) : null,
    largest: values.length ? values[values.length - 1] : null,
  };
}

function verdict(rows) {
  const idle = rows.find((row) => row.phase === "idle");
  const words = [];
  for (const row of rows) {
    const high = row.p99 ?? row.p90;
    if (row.phase === "idle" || high === null || !idle || idle.p50 === null) continue;
    const added = Math.max(0, high - idle.p50);
    const grade = GRADES.find(([most]) => added < most)[1];
    const share = row.p99 === null ? "p90" : "p99";
    words.push(`Loaded ${row.phase}: ${added.toFixed(0)} ms are added (${share}), ${grade}.`);
  }
  return words.join(" ");
}

function cell(row, text) {
  const td = document.createElement("td");
  td.textContent = text;
  row.append(td);
}

function show(rows) {
  at("rows").replaceChildren(...rows.map((values) => {
    const row = document.createElement("tr");
    const number = (value, digits) => (value === null ? "–" : value.toFixed(digits));
    cell(row, values.phase === "idle" ? "idle" : `loaded ${values.phase}`);
    for (const name of ["p50", "p90", "p99", "largest"]) cell(row, number(values[name], 1));
    cell(row, String(values.probes));
    cell(row, String(values.lost));
    cell(row, number(values.rate, 1));
    return row;
  }));
  at("verdict").textContent = verdict(rows);
}

const SVG = "http://www.w3.org/2000/svg";
function shape(name, attributes, text) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

function frame(height, most, unit) {
  const parts = [];
  for (const share of [0, 0.5, 1]) {
    const y = height - 18 - share * (height - 34);
    parts.push(shape("line", { class: "grid", x1: 44, x2: 716, y1: y, y2: y }));
    parts.push(shape("text", { x: 40, y: y + 4, "text-anchor": "end" }, (most * share).toFixed(most < 10 ? 1 : 0)));
  }
  parts.push(shape("text", { x: 716, y: 11, "text-anchor": "end" }, unit));
  return parts;
}

const TOTAL_S = PHASES.reduce((sum, phase) => sum + phase.seconds, 0) + 1;
const column = (seconds) => 44 + Math.min(1, seconds / TOTAL_S) * 672;

// Drawing takes the processor that the probes need: a curve of medians, twice a second.
function draw(run) {
  const buckets = new Map();
  for (const probe of run.probes) {
    if (probe.ms === null) continue;
    const bucket = Math.floor(probe.at / BUCKET_S);
    if (!buckets.has(bucket)) buckets.set(bucket, { phase: probe.phase, values: [] });
    buckets.get(bucket).values.push(probe.ms);
  }
  const medians = [...buckets].sort((a, b) => a[0] - b[0]).map(([bucket, { phase, values }]) => (
    { phase, at: (bucket + 0.5) * BUCKET_S, ms: quantile(values.sort((a, b) => a - b), 0.5) }));
  const mostMs = Math.max(10, ...medians.map((it) => it.ms)) * 1.05;
  const curves = PHASES.map(({ name }) => shape("polyline", {
    class: name,
    points: medians.filter((it) => it.phase === name)
      .map((it) => `${column(it.at).toFixed(1)},${(222 - it.ms / mostMs * 206).toFixed(1)}`).join(" "),
  }));
  at("latency").replaceChildren(...frame(240, mostMs, "ms"), ...curves);
  const lines = [];
  const rates = [];
  for (const phase of ["down", "up"]) {
    const of = run.rates.filter((it) => it.phase === phase);
    const curve = of.slice(1).map((it, index) => [it.at,
      Math.max(0, it.bytes - of[index].bytes) * 8 / 1e6 / Math.max(1e-3, it.at - of[index].at)]);
    rates.push(...curve.map((it) => it[1]));
    lines.push([phase, curve]);
  }
  const mostRate = Math.max(1, ...rates) * 1.05;
  at("rate").replaceChildren(...frame(160, mostRate, "Mbit/s"), ...lines.map(([phase, curve]) => shape("polyline", {
    class: phase,
    points: curve.map(([s, rate]) => `${column(s).toFixed(1)},${(142 - rate / mostRate * 126).toFixed(1)}`).join(" "),
  })));
}

function sayHow(run) {
  const kinds = [...new Set(run.probes.map((it) => it.by))];
  const words = kinds.map((kind) => `Probes every ${PROBE_MS[kind]} ms: ${HOW[kind].join(". ")}`);
  const { up, down } = run.lostOnTheWay();
  if (kinds.includes("channel")) words.push(`Lost on the way up: ${up}, on the way down: ${down}.`);
  else words.unshift(`No data channel opened: ${run.why}.`);
  at("how").textContent = words.join(" ");
  return kinds;
}

async function measure() {
  at("start").hidden = true;
  at("state").textContent = "opening a channel …";
  const opened = await openChannel();
  run = new Run();
  if (opened.channel) run.use(opened);
  run.why = opened.why ?? "";
  at("stop").hidden = false;
  at("keep").hidden = true;
  performance.setResourceTimingBufferSize(100);
  const probing = run.probeForEver(run.stopped.signal);
  for (const phase of PHASES) {
    if (run.stopped.signal.aborted) break;
    run.phase = phase.name;
    at("state").textContent = phase.name === "idle" ? "idle …" : `loading ${phase.name} …`;
    await run.load(phase.name, phase.seconds);
  }
  const isWhole = !run.stopped.signal.aborted;
  run.stopped.abort();
  await probing;
  for (let turn = 0; turn < 10 && (turn < 3 || run.waiting.size); turn += 1) await wait(100);
  for (const probe of run.waiting.values()) probe.lost = true;
  run.observer.disconnect();
  finish(isWhole);
}

function finish(isWhole) {
  const phases = PHASES.map((phase) => phase.name).filter((name) => run.probes.some((it) => it.phase === name));
  const rows = phases.map((phase) => summary(run, phase));
  draw(run);
  show(rows);
  const kinds = sayHow(run);
  at("state").textContent = isWhole ? "done" : "stopped";
  at("start").hidden = false;
  at("stop").hidden = true;
  const kept = {
    version: 1, kind: "underload web", started: new Date(performance.timeOrigin + run.start).toISOString(),
    complete: isWhole, probe: kinds.map((kind) => HOW[kind][0]).join("; then "),
    no_channel: run.why, probe_ms: PROBE_MS[kinds[0] ?? "fetch"], unsent: run.unsent, lost_up_down: run.lostOnTheWay(), summary: rows,
    probes: run.probes.map((it) => ({ at_s: it.at, phase: it.phase, ms: it.ms, late_ms: it.lateMs, lost: it.lost, by: it.by })),
    rates: run.rates.map((it) => ({ at_s: it.at, phase: it.phase, bytes: it.bytes })),
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

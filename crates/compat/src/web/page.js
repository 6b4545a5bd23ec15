// Measures latency under load: runs the phases, shows the result, and offers it as a file. Probes
// and load run in separate workers if the browser starts them.

import { openChannel, openMirror } from "./channel.js";
import { draw } from "./draw.js";
import { remember, results } from "./history.js";
import { Load } from "./load.js";
import { picture } from "./picture.js";
import { showHistory, tabulate, timeOf } from "./present.js";
import { PROBE_MS, Prober } from "./probe.js";
import { decode, encode } from "./share.js";
import { curves, PHASES, summary } from "./summary.js";
import { inPage, inWorker, wait } from "./thread.js";

// `?workers=none` runs everything in the page's thread.
const APART = new URLSearchParams(location.search).get("workers") !== "none";
const HOW = {
  channel: ["datagrams of a WebRTC data channel, without retransmission, from the script's sending to its receiving",
    "They add the browser's work and encryption, about 1 ms, and each is a packet of about 100 bytes."],
  fetch: ["HTTPS requests of one byte, from the browser's sending to the first byte of the answer",
    "They add the browser's and the server's work and TLS, 1 to 5 ms; a lost packet shows as a late answer."],
};
// The mirror, a channel from this device to itself, measures the delay of this device. If it has not
// opened after this time, the measurement begins without it.
const MIRROR_OPENS_MS = 1000;
const ENDS_MS = 5000;         // a part that has not ended after this time counts as failed
const DRAW_MS = 500;

const at = (id) => document.getElementById(id);
let run = null;
let shown = null;   // the result on the page

class Run {
  constructor() {
    this.stopped = new AbortController();
    this.probes = [];
    this.held = [];
    this.mirrored = [];
    this.peers = [];
    this.rates = [];
    this.inside = [];   // round trips of the loading connections, from the server's kernel
    this.heldBack = {}; // by phase: whether the server's limit, not the line, limited the load
    this.inOrder = {};  // by phase: whether nothing of an upload was lost; null if it is unknown
    this.refused = {};  // by phase: the latest reason for which the server refused load
    this.unsent = 0;
    this.lost = { up: 0, down: 0 };
    this.failed = "";
    this.heard = {};  // callbacks, by the name of the message that they wait for
  }

  // Handles a message from a part. Each part counts time from its start request, so the parts'
  // clocks differ by the delay of one message.
  hear(told) {
    if (told.answered) this.probes.push(...told.answered);
    if (told.bytes !== undefined) {
      this.rates.push({ at_s: this.loadFrom + told.after_ms / 1000, phase: this.loaded, bytes: told.bytes });
      if (told.refused) this.refused[this.loaded] = told.refused;
    }
    if (told.inside) {
      const { readings, held_back: isHeldBack, in_order: inOrder } = told.inside;
      this.inOrder[this.loaded] = inOrder;
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
    } catch { /* some browsers allow only one peer connection */ }
  }

  take(channel) {
    const opened = this.until("opened");
    const closed = this.until("closed").then(() => { throw new Error("it closed"); });
    try {
      this.prober.ask(["use", channel], [channel]);
    } catch {
      // Some browsers cannot transfer channels to workers.
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
      drawCurves(curves(this));
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

const drawCurves = (its) => draw({ latency: at("latency"), rate: at("rate") }, its);

// Shows a result and the buttons to share it.
function present(result) {
  shown = result;
  tabulate(result.rows);
  drawCurves(result.curves);
  for (const id of ["share", "picture"]) at(id).hidden = false;
  at("link").hidden = true;
}

async function measure() {
  if (location.hash) history.replaceState(null, "", location.pathname + location.search);
  at("start").hidden = true;
  at("origin").textContent = "";
  at("state").textContent = "opening a channel …";
  at("results").hidden = false;
  run = new Run();
  await run.open();
  at("stop").hidden = false;
  for (const id of ["keep", "share", "picture", "link"]) at(id).hidden = true;
  await run.measure();
  run.end();
  finish();
}

function finish() {
  const isWhole = !run.stopped.signal.aborted;
  const phases = PHASES.map((phase) => phase.name).filter((name) => run.probes.some((it) => it.phase === name));
  const rows = phases.map((phase) => summary(run, phase));
  const started = new Date(performance.timeOrigin + run.start);
  const kinds = sayHow(run);
  at("state").textContent = isWhole ? "done" : `stopped${run.failed && `: ${run.failed}`}`;
  at("start").hidden = false;
  at("stop").hidden = true;
  const result = { started_s: Math.floor(started / 1000), rows, curves: curves(run) };
  if (isWhole) keep(result);
  else {
    tabulate(rows);
    drawCurves(result.curves);
  }
  const kept = {
    version: 1, kind: "underload web", started: started.toISOString(),
    complete: isWhole, probe: kinds.map((kind) => HOW[kind][0]).join("; then "),
    no_channel: run.why, probe_ms: PROBE_MS[kinds[0] ?? "fetch"],
    threads: { probes: run.prober.where, load: run.load.where },
    unsent: run.unsent, lost_up_down: run.lost, summary: rows, probes: run.probes, rates: run.rates,
    inside: run.inside,
  };
  offer("keep", new Blob([JSON.stringify(kept, null, 1)], { type: "application/json" }));
  at("keep").hidden = false;
  window.underloadResult = kept;
}

// Stores a complete result and shows it from the numbers of its link, so that the link later shows
// the same sentences. The server's reason for refusing load is not part of the link.
function keep(result) {
  const link = encode(result);
  let decoded;
  try {
    decoded = decode(link);
  } catch {
    return tabulate(result.rows);   // not worth a link, for example without an answer
  }
  const rows = decoded.rows.map((row) => (
    { ...row, refused: result.rows.find((it) => it.phase === row.phase).refused }));
  present({ ...decoded, rows, link });
  if (!remember(link)) at("origin").textContent = "This browser stores no history for this page.";
  showHistory();
}

function offer(id, blob) {
  const link = at(id);
  if (link.href) URL.revokeObjectURL(link.href);
  link.href = URL.createObjectURL(blob);
}

// Shows the result that the page's address contains, if any.
function open() {
  if (run && !at("stop").hidden) return;   // not over a measurement
  let result;
  try {
    result = decode(location.hash);
  } catch (error) {
    at("origin").textContent = `This link has no result that can be shown: ${error.message}.`;
    return;
  }
  if (!result) return;
  const isOwn = results().some((it) => it.link === location.hash);
  present({ ...result, link: location.hash });
  at("keep").hidden = true;
  at("state").textContent = "";
  at("how").textContent = "";
  at("origin").textContent = isOwn ? `A result of this browser of ${timeOf(result)}.`
    : `A result from a link, of ${timeOf(result)}. Nobody has checked the numbers in the link. `
      + "The result says nothing about this device's line: measure that with the button above.";
}

async function share() {
  const address = new URL(shown.link, location.href);
  const link = at("link");
  [link.value, link.hidden] = [address.href, false];
  link.select();
  try {
    await navigator.clipboard.writeText(address.href);
    at("state").textContent = "link copied";
  } catch {
    at("state").textContent = "copy the link from the field below";
  }
}

async function savePicture() {
  const blob = await picture(shown);
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = "underload-result.png";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), ENDS_MS);
}

at("start").addEventListener("click", measure);
at("stop").addEventListener("click", () => run.stopped.abort());
at("share").addEventListener("click", share);
at("picture").addEventListener("click", savePicture);
addEventListener("hashchange", open);
addEventListener("resize", () => {
  if (shown) drawCurves(shown.curves);
  showHistory();
});
showHistory();
open();

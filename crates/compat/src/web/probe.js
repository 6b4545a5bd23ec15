// Sends probes on a fixed schedule: datagrams if a data channel opens, HTTPS requests otherwise.
// Records the round trip of each probe, how late this thread woke up for it, and the delay of
// datagrams that never leave this device.

import { serve, wait } from "./thread.js";

export const PROBE_MS = { channel: 20, fetch: 50 };  // between two probes
const CHANNEL_HELD_BYTES = 800;  // what the browser may hold back before probes are counted as not sent
const OPEN_MAX = 40;             // with more requests under way, a probe counts as not sent
const LOST_MS = 5000;
const MIRROR_SLOTS = 2;           // between two datagrams that stay on this device
const TELL_MS = 400;

export class Prober {
  // `tell` receives `opened` and `closed` of a channel, then `answered` probes, and all results at
  // the end.
  constructor(tell) {
    this.tell = tell;
    this.channel = null;
    this.phase = "idle";
    this.isStopped = false;
    this.probes = [];
    this.held = [];
    this.mirror = null;
    this.mirrored = [];            // by number: when it was sent, and what it took
    this.unsent = 0;
    this.datagrams = [];           // by number: the probe, and when it was sent
    this.last = { number: -1, arrived: 0 };  // of the answer with the highest number: number, arrived probes
    this.requests = new Map();     // by address: the probe, and when it was due
    this.open = 0;
    this.asked = 0;
    this.answered = [];
    this.told = 0;
    performance.setResourceTimingBufferSize(100);
    this.observer = new PerformanceObserver((list) => {
      for (const entry of list.getEntries()) this.note(entry);
    });
    this.observer.observe({ type: "resource" });
  }

  // Uses datagrams from when the channel opens until it closes.
  use(channel) {
    channel.binaryType = "arraybuffer";
    channel.onopen = () => {
      this.channel = channel;
      this.tell({ opened: true });
    };
    channel.onclose = () => {
      this.channel = null;
      this.tell({ closed: true });
    };
    channel.onmessage = (event) => this.receive(event.data);
  }

  // Uses datagrams from this device to itself once their channel opens.
  reflect(near, far) {
    far.binaryType = "arraybuffer";
    near.onopen = () => {
      this.mirror = near;
      this.tell({ reflects: true });
    };
    near.onclose = () => { this.mirror = null; };
    far.onmessage = ({ data }) => {
      const own = this.mirrored[new DataView(data).getUint32(0, true)];
      if (own) own.ms = performance.now() - own.sent;
    };
  }

  enter(phase) { this.phase = phase; }

  async start() {
    const start = performance.now();
    for (let due = start; !this.isStopped; due += PROBE_MS[this.channel ? "channel" : "fetch"]) {
      const ahead = due - performance.now();
      if (ahead > 0) await wait(ahead);
      if (this.isStopped) break;
      const slot = { at_s: (due - start) / 1000, phase: this.phase };
      this.held.push({ ...slot, ms: Math.max(0, performance.now() - due) });
      this.probe(slot, due);
      if (this.mirror && this.held.length % MIRROR_SLOTS === 0) this.sendToItself(slot);
      if (performance.now() - this.told >= TELL_MS) {
        this.told = performance.now();
        this.tell({ answered: this.answered });
        this.answered = [];
      }
    }
  }

  async stop() {
    this.isStopped = true;
    const isAwaited = () => this.datagrams.some(({ probe }) => probe.ms === null);
    for (let turn = 0; turn < 10 && (turn < 3 || isAwaited()); turn += 1) await wait(100);
    for (const { probe } of this.datagrams) probe.lost = probe.ms === null;
    this.observer.disconnect();
    const { probes, held, mirrored, unsent } = this;
    this.tell({ end: { probes, held, mirrored, unsent, lost_up_down: this.lostOnTheWay() } });
  }

  probe(slot, due) {
    const isFull = this.channel ? this.channel.bufferedAmount > CHANNEL_HELD_BYTES : this.open >= OPEN_MAX;
    if (isFull) {
      this.unsent += 1;
      return;
    }
    const by = this.channel ? "channel" : "fetch";
    const probe = { ...slot, ms: null, late_ms: 0, lost: false, by };
    this.probes.push(probe);
    if (this.channel) this.send(probe, due); else this.request(probe, due);
  }

  // A datagram has eight bytes: its number, and four for the server's count of arrivals.
  send(probe, due) {
    const bytes = new DataView(new ArrayBuffer(8));
    bytes.setUint32(0, this.datagrams.length, true);
    const sent = performance.now();
    this.datagrams.push({ probe, sent });
    probe.late_ms = Math.max(0, sent - due);
    try { this.channel.send(bytes.buffer); } catch { this.channel = null; }
  }

  // Sends a datagram of a probe's size, after the probe.
  sendToItself(slot) {
    const bytes = new DataView(new ArrayBuffer(8));
    bytes.setUint32(0, this.mirrored.length, true);
    this.mirrored.push({ ...slot, sent: performance.now(), ms: null });
    try { this.mirror.send(bytes.buffer); } catch { this.mirror = null; }
  }

  receive(data) {
    const now = performance.now();
    if (!(data instanceof ArrayBuffer) || data.byteLength !== 8) return;
    const bytes = new DataView(data);
    const number = bytes.getUint32(0, true);
    const asked = this.datagrams[number];
    if (!asked || asked.probe.ms !== null) return;
    asked.probe.ms = now - asked.sent;
    this.answered.push(asked.probe);
    if (number > this.last.number) this.last = { number, arrived: bytes.getUint32(4, true) };
  }

  // Counts the datagrams that were lost before the server and after it. Considers only those up to
  // the last answered one: later ones may be in flight.
  lostOnTheWay() {
    const { number, arrived } = this.last;
    const answered = this.datagrams.slice(0, number + 1).filter(({ probe }) => probe.ms !== null).length;
    return { up: Math.max(0, number + 1 - arrived), down: Math.max(0, arrived - answered) };
  }

  async request(probe, due) {
    const url = new URL(`small?${this.asked++}`, location.href).href;
    this.requests.set(url, { probe, due });
    this.open += 1;
    try {
      const answer = await fetch(url, { cache: "no-store", signal: AbortSignal.timeout(LOST_MS) });
      await answer.arrayBuffer();
    } catch {
      probe.lost = true;
      this.requests.delete(url);
    }
    this.open -= 1;
  }

  // Uses the browser's resource timing, which excludes the wait for a free connection and the
  // handshake.
  note(entry) {
    const asked = this.requests.get(entry.name);
    if (!asked || !entry.responseStart) return;
    this.requests.delete(entry.name);
    asked.probe.ms = entry.responseStart - entry.requestStart;
    asked.probe.late_ms = Math.max(0, entry.requestStart - asked.due);
    this.answered.push(asked.probe);
  }
}

serve(Prober);

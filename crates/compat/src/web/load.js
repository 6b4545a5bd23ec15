// The load: endless content down, or endless sending up.

import { serve, wait } from "./thread.js";

const FLOWS = 3;              // connections; a browser opens six to one server
const UPLOAD_BYTES = 32 << 20;
const TELL_MS = 200;

export class Load {
  // `tell` gets `bytes` that had arrived `after_ms` after the start, and `ended`.
  constructor(tell) {
    this.tell = tell;
    // Made beforehand, once: it takes a browser longer than a probe does.
    this.body = new Blob([new Uint8Array(UPLOAD_BYTES)]);
    this.end = null;
    performance.setResourceTimingBufferSize(100);
  }

  async start(phase) {
    this.end = new AbortController();
    const { signal } = this.end;
    const start = performance.now();
    const flows = [];
    const count = { bytes: 0 };
    const session = Math.floor(Math.random() * 2 ** 48);
    for (let flow = 0; flow < FLOWS; flow += 1) {
      flows.push(phase === "down" ? download(count, signal) : upload(session, this.body, signal));
    }
    while (!signal.aborted) {
      await wait(TELL_MS);
      if (phase === "up") await received(session, count, signal);
      if (!signal.aborted) this.tell({ after_ms: performance.now() - start, bytes: count.bytes });
    }
    await Promise.allSettled(flows);
    this.tell({ ended: true });
  }

  stop() { this.end.abort(); }
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
    } catch {
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

serve(Load);

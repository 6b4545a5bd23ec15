// Loads the line with endless downloads or endless uploads.

import { serve, wait } from "./thread.js";

const FLOWS = 3;              // connections; a browser opens six to one server
const UPLOAD_BYTES = 32 << 20;
const TELL_MS = 200;
const INSIDE_MS = 3000;       // the longest wait for the server's readings

export class Load {
  // `tell` receives the `bytes` that had arrived `after_ms` after the start, the server's latest
  // reason for refusing load as `refused`, and at the end `ended` with the round trips `inside` the
  // load.
  constructor(tell) {
    this.tell = tell;
    // Created once, before the load starts: creating it takes a browser longer than a probe takes.
    this.body = new Blob([new Uint8Array(UPLOAD_BYTES)]);
    this.end = null;
    performance.setResourceTimingBufferSize(100);
  }

  async start(phase) {
    this.end = new AbortController();
    const { signal } = this.end;
    const start = performance.now();
    const flows = [];
    const count = { bytes: 0, refused: null };
    const session = Math.floor(Math.random() * 2 ** 48);
    for (let flow = 0; flow < FLOWS; flow += 1) {
      flows.push(phase === "down" ? download(session, count, signal)
        : upload(session, count, this.body, signal));
    }
    while (!signal.aborted) {
      await wait(TELL_MS);
      if (phase === "up") await received(session, count, signal);
      if (!signal.aborted) this.tell({ after_ms: performance.now() - start, ...count });
    }
    await Promise.allSettled(flows);
    this.tell({ ended: true, inside: await inside(session) });
  }

  stop() { this.end.abort(); }
}

async function download(session, count, signal) {
  while (!signal.aborted) {
    try {
      const answer = await fetch(`large?${session}`, { cache: "no-store", signal });
      await check(answer, count);
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

async function upload(session, count, body, signal) {
  const post = (what) => fetch(`upload?${session}`, { method: "POST", body: what, signal });
  while (!signal.aborted) {
    try {
      await check(await post(body), count);
    } catch {
      if (signal.aborted) return;
      await wait(200);
      // A server that refuses an upload closes the connection without reading the body, and its
      // answer may be lost. A request with an empty body receives the answer.
      try { await check(await post(""), count); } catch { /* `count` has the reason, if any */ }
    }
  }
}

// Stores the server's reason in `count` and throws if the server refuses load.
async function check(answer, count) {
  if (answer.ok) return;
  const words = (await answer.text()).slice(0, 200);
  count.refused = words || `it answers ${answer.status}`;
  throw new Error(count.refused);
}

// Reads the bytes that the server received: bytes in this machine's send buffers do not count.
async function received(session, count, signal) {
  try {
    const answer = await fetch(`received?${session}`, { cache: "no-store", signal });
    if (answer.ok) count.bytes = Number(await answer.text());
  } catch { /* the next answer includes these bytes */ }
}

// Reads what only the server can measure: the round trips of the loading connections, whether its
// rate limit held back the load, and whether an upload lost nothing.
async function inside(session) {
  try {
    const answer = await fetch(`inside?${session}`, { cache: "no-store", signal: AbortSignal.timeout(INSIDE_MS) });
    if (answer.ok) return await answer.json();
  } catch { /* they are unknown */ }
  return { readings: [], held_back: false, in_order: null };
}

serve(Load);

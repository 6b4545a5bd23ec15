// A part of the measurement in a worker of its own, which nothing else in the page holds up. Where no
// worker starts the part is in the page's own thread, and the page and the file say so.

const STARTS_MS = 5000;

export const wait = (ms) => new Promise((done) => setTimeout(done, ms));

// A part in a worker; none if that does not start. `hear` gets what the part tells.
export async function inWorker(script, hear) {
  let worker;
  try {
    worker = new Worker(script, { type: "module" });
  } catch {
    return null;
  }
  const isReady = await new Promise((done) => {
    worker.onmessage = () => done(true);
    worker.onerror = () => done(false);
    setTimeout(() => done(false), STARTS_MS);
  });
  if (!isReady) {
    worker.terminate();
    return null;
  }
  worker.onmessage = (event) => hear(event.data);
  worker.onerror = (event) => hear({ failed: event.message });
  const ask = (words, given = []) => worker.postMessage(words, given);
  return { where: "worker", ask, end: () => worker.terminate() };
}

export function inPage(Part, hear) {
  const part = new Part(hear);
  return { where: "page", ask: ([name, ...values]) => { part[name](...values); }, end: () => {} };
}

// In a worker: makes the part, and does what it is asked to. In the page nothing.
export function serve(Part) {
  if (typeof DedicatedWorkerGlobalScope === "undefined") return;
  const part = new Part((told) => postMessage(told));
  self.onmessage = ({ data: [name, ...values] }) => { part[name](...values); };
  postMessage("ready");
}

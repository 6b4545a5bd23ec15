// Runs a part of the measurement in its own worker, so that the rest of the page cannot delay it.
// If the worker does not start, the part runs in the page's thread, and the page and the file
// report that.

const STARTS_MS = 5000;

export const wait = (ms) => new Promise((done) => setTimeout(done, ms));

// Starts a part in a worker; returns `null` if the worker does not start. `hear` receives the
// part's messages.
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

// Creates the part and executes the page's requests, in a worker; does nothing in the page itself.
export function serve(Part) {
  if (typeof DedicatedWorkerGlobalScope === "undefined") return;
  const part = new Part((told) => postMessage(told));
  self.onmessage = ({ data: [name, ...values] }) => { part[name](...values); };
  postMessage("ready");
}

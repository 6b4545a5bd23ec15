// The grade of a line, how it suits four uses, and what to change: the rules and the words of
// `underload measure`. `tests/judged.json` has cases that a test of each program checks.

// Least added delay that each grade excludes, ms; its letter; what a user notices if the grade is that
// of packets beside the load, and inside it.
const GRADES = [
  [5, "A+", "nobody notices that the line is busy", "nobody notices that the line is busy"],
  [30, "A", "calls and games keep working while the line is busy",
    "a page over a busy connection opens about as fast as over an idle one"],
  [60, "B", "fast games notice that the line is busy, calls do not",
    "a page over a busy connection opens a little later"],
  [200, "C", "fast games suffer while the line is busy, calls may lag",
    "a page over a busy connection opens noticeably later"],
  [400, "D", "calls lag and fast games suffer while the line is busy",
    "a page over a busy connection opens slowly"],
  [Infinity, "F", "everything interactive stalls while the line is busy",
    "whatever shares a busy connection stalls"],
];
const ADVICE_FROM_MS = 30;
const DEVICES_MS = 50;
const PAGE_ROUND_TRIPS = 10;
const SUITS = ["good", "fair", "poor"];
const CALL_MS = [150, 400];
const GAME_MS = [100, 400];
const PAGE_MS = [2000, 4000];
const LOSS_PERCENT = [1, 3];
const STREAMS = [[15, "4K"], [5, "1080p"], [3, "720p"]];
const SHAPED = 0.9;

// Quality of Outcome of a call, a game and a web page: where each is judged, the round trips at p99 up
// to which it is optimal and from which it is unacceptable, ms, and the least rate, Mbit/s.
const QUALITIES = [["beside", 200, 700, 0.1], ["beside", 100, 400, 0.1], ["inside", 200, 400, 1]];

const gradeOf = (ms) => GRADES.find(([below]) => ms < below) ?? GRADES[GRADES.length - 1];
const suits = (value, limits) => limits.filter((limit) => value > limit).length;

// The steps, each with what its load adds beside and inside itself, and the worse of the two.
function graded(steps) {
  return steps.map((step) => {
    const beside = step.beside - step.idle;
    const inside = step.inside === null ? null : step.inside - step.idle;
    const isInside = inside !== null && inside > beside;
    return { ...step, added: { beside, inside, isInside, worst: isInside ? inside : beside } };
  });
}

const worstOf = (items, key) => items.reduce((a, b) => (key(b) >= key(a) ? b : a));

function addsWhere({ beside, inside, isInside, worst }) {
  let adds = `adds ${worst.toFixed(0)} ms`;
  if (worst < 0.5) adds = "adds less than 1 ms";
  if (worst === Infinity) adds = "loses the probe at its highest percentile";
  if (inside === null) return adds;
  const [here, there, other] = isInside ? ["inside", "beside", beside] : ["beside", "inside", inside];
  return `${adds} ${here} it, ${other < 0.5 ? "less than 1" : other.toFixed(0)} ms ${there} it`;
}

function opening(steps) {
  const worst = worstOf(steps, (step) => step.added.worst);
  const [, letter, besideWords, insideWords] = gradeOf(worst.added.worst);
  const adds = addsWhere(worst.added);
  const from = steps.length === 1 ? "" : ` (step ${worst.step}, the worst of ${steps.length})`;
  if (worst.isHeldBack) {
    return `Grade ${letter} under a load that did not fill the line: it ${adds}${from}; a full line may be worse.`;
  }
  const open = steps.filter((step) => step.isHeldBack).map((step) => step.step).join(", ");
  const unknown = open ? ` The line was not full in step ${open}: it may be worse then.` : "";
  const isBeside = !worst.added.isInside || gradeOf(worst.added.beside)[1] === letter;
  return `Grade ${letter} for latency under load: the load ${adds}${from}; `
    + `${isBeside ? besideWords : insideWords}.${unknown}`;
}

function withLoss(step, level, because) {
  const byLoss = suits(step.lostPercent, LOSS_PERCENT);
  const lost = byLoss ? ` and ${step.lostPercent.toFixed(1)} % of the packets lost` : "";
  return { level: Math.max(level, byLoss), because: because + lost };
}

const orLost = (ms, because) => (ms === Infinity ? "too few probes came back" : because);

const INTERACTIVE = [
  ["call", "on the busy line", "beside this load", (step) => {
    const ms = step.idle / 2 + Math.max(0, step.added.beside) + DEVICES_MS;
    return { ms, ...withLoss(step, suits(ms, CALL_MS), orLost(ms, `${ms.toFixed(0)} ms from mouth to ear`)) };
  }],
  ["game", "on the busy line", "beside this load", (step) => {
    const ms = step.beside;
    return { ms, ...withLoss(step, suits(ms, GAME_MS), orLost(ms, `round trips of ${ms.toFixed(0)} ms`)) };
  }],
  ["web page", "on the busy connection", "inside this load", (step) => {
    if (step.inside === null) return null;
    const ms = step.inside * PAGE_ROUND_TRIPS;
    const because = `${PAGE_ROUND_TRIPS} round trips of ${step.inside.toFixed(0)} ms take ${(ms / 1000).toFixed(1)} s`;
    return { ms, level: suits(ms, PAGE_MS), because };
  }],
];

function uses(steps) {
  const lines = INTERACTIVE.flatMap(([name, full, partly, judge]) => {
    const judged = steps.flatMap((step) => {
      const it = judge(step);
      return it ? [{ ...it, when: step.isHeldBack ? partly : full }] : [];
    });
    if (!judged.length) return [];
    const level = Math.max(...judged.map((it) => it.level));
    const { when, because } = worstOf(judged.filter((it) => it.level === level), (it) => it.ms);
    return [`A ${name} ${when}: ${SUITS[level]}, ${because}.`];
  });
  return [...lines, ...video(steps)];
}

function video(steps) {
  const down = steps.filter((step) => step.step === "down");
  if (!down.length) return [];
  const { rate, isHeldBack } = worstOf(down, (step) => step.rate);
  const carried = STREAMS.find(([needed]) => rate >= needed);
  const level = !carried ? 2 : Number(carried[0] < STREAMS[1][0]);
  if (level && isHeldBack) return [];
  const carries = carried ? `carry ${carried[1]} (${carried[0]} Mbit/s)` : "carry no 720p (3 Mbit/s)";
  return [`A video stream: ${SUITS[level]}, ${rate.toFixed(1)} Mbit/s down ${carries}.`];
}

function advice(steps) {
  const bloated = steps.filter((step) => step.added.worst >= ADVICE_FROM_MS);
  if (!bloated.length) return [];
  const rates = ["down", "up"].flatMap((way) => {
    const found = bloated.find((step) => step.step === way && !step.isHeldBack);
    return found ? [`${(found.rate * SHAPED).toFixed(1)} Mbit/s ${way}`] : [];
  });
  const shape = rates.length ? `about ${rates.join(" and ")}` : "a little less than the line carries";
  return ["What to change: smart queue management (CAKE or FQ-CoDel) on the router, shaped to "
    + `${shape}; or ask the provider for active queue management on the modem.`];
}

// Returns the lowest Quality of Outcome (draft-ietf-ippm-qoo-10) of the applications whose conditions
// the step measured, percent; `null` if it measured those of none. The step has p99 `beside` and
// `inside` (`null` if unknown), and the other numbers of `judge`.
export function quality(step) {
  const score = (value, optimal, unacceptable) =>
    Math.max(0, Math.min(100, 100 * (unacceptable - value) / (unacceptable - optimal)));
  const scores = QUALITIES.flatMap(([where, optimal, unacceptable, least]) => {
    const isCarried = step.rate >= least;
    if (step[where] === null || (step.isHeldBack && !isCarried)) return [];
    return [Math.min(score(step[where], optimal, unacceptable), score(step.lostPercent, ...LOSS_PERCENT),
      isCarried ? 100 : 0)];
  });
  return scores.length ? Math.min(...scores) : null;
}

// The sentences of steps under load. Each has its name, `idle` (p50), `beside` (the highest known
// percentile of all probes sent, `Infinity` if that is a lost probe), `inside` (of the loading
// connections, `null` if unknown), all in ms, `lostPercent`, `rate` in Mbit/s and `isHeldBack`.
export function judge(steps) {
  if (!steps.length) return { opening: "", uses: [], advice: [] };
  const its = graded(steps);
  return { opening: opening(its), uses: uses(its), advice: advice(its) };
}

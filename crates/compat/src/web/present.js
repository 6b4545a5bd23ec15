// Shows a result as sentences and a table, and lists the latest results of this browser.

import { drawHistory } from "./draw.js";
import { forget, forgetAll, results } from "./history.js";
import { highest } from "./summary.js";

const BUSY_MS = 10;   // smaller delays within this device are not reported
const at = (id) => document.getElementById(id);

// The time of a result, on the clock of this device.
export function timeOf({ started_s: startedS }) {
  return new Date(startedS * 1000).toLocaleString([], { dateStyle: "medium", timeStyle: "short" });
}

const idleOf = (rows) => rows.find((row) => row.phase === "idle")?.p50 ?? null;

// Returns the rows under load that have all numbers for a grade.
function gradable(rows) {
  if (idleOf(rows) === null) return [];
  return rows.filter((row) => row.phase !== "idle" && !row.no_load && row.of_sent && row.rate !== null);
}

// The rows under load as the server judges them (`LoadedStep` of the program).
function steps(rows) {
  const idle = idleOf(rows);
  const inNs = (ms) => (Number.isFinite(ms) ? Math.round(ms * 1e6) : null);
  const percentile = (quantile, ms) => ({ quantile, ns: inNs(ms) });
  const here = (row, value) => ({ up: null, down: null, [row.phase]: value });
  return gradable(rows).map((row) => {
    const inside = row.inside && highest(row.inside);
    const answered = highest(row);
    return {
      step: row.phase, valid: true, loaded: true, idle_p50_ns: inNs(idle),
      beside: percentile(row.of_sent.quantile, row.of_sent.ms),
      answered: answered ? percentile(answered, row[answered]) : null,
      inside: inside ? percentile(inside, row.inside[inside]) : null,
      lost_percent: 100 * row.lost / row.probes, mbit_s: here(row, row.rate),
      held_back: { up: false, down: false, [row.phase]: row.held_back }, in_order: row.in_order === true,
    };
  });
}

// Requests from the server the judgement of each result and its sentences; the server judges by the
// rules of `underload measure`. A result is a list of rows. Returns `null` for every result if the
// server does not answer.
async function judgements(results) {
  try {
    const body = JSON.stringify(results.map(steps));
    const answer = await fetch("judgement", { method: "POST", body });
    if (answer.ok) return await answer.json();
  } catch { /* without the server the page shows only numbers */ }
  return results.map(() => null);
}

// Returns the sentences that depend on the judgement, and those that explain missing numbers.
function verdict(rows, judged) {
  const loaded = rows.filter((row) => row.phase !== "idle");
  const none = loaded.filter((row) => row.no_load).map((row) => (
    `Loaded ${row.phase}: no grade, because ${row.no_load}${row.refused ? `: ${row.refused}` : ""}.`));
  const unknown = gradable(rows).filter((row) => !row.inside).map((row) => row.phase);
  const { opening, uses, advice, sender } = judged?.sentences ?? {
    opening: "The server did not answer, so this result has no grade.", uses: [], advice: null, sender: null };
  return {
    opening: [opening, ...none].filter(Boolean).join(" "), uses, advice: advice ?? "", sender: sender ?? "",
    unknown: unknown.length ? `Round trips inside the load ${unknown.join(" and ")} are not known: the server's `
      + "system, or this device's TCP without time stamps, does not report them. The grade is of probes alone." : "",
  };
}

// The lowest Quality of Outcome of a call, a game and a web page in a loaded phase.
function qualityOf(row, judged) {
  const scores = judged?.judgement.steps.find((step) => step.step === row.phase)?.qoo.map((it) => it.score) ?? [];
  return scores.length ? Math.min(...scores) : null;
}

// The delays within this device: of datagrams that never leave it, and of its probing thread.
function busy(rows) {
  const worst = (row) => [row.mirror_ms, row.held_up_ms].map((own) => [own[highest(own)], highest(own)])
    .filter(([ms]) => ms > BUSY_MS).sort((a, b) => b[0] - a[0])[0];
  const late = rows.map((row) => [row.phase, worst(row)]).filter(([, own]) => own)
    .map(([phase, [ms, share]]) => `${phase} ${ms.toFixed(0)} ms at ${share}`);
  return late.length ? "This device was busy, or this page in the background: what never left it was late, too "
    + `(${late.join(", ")}). Some round trips are shown too long by as much, or more.` : "";
}

function cell(row, content) {
  const td = document.createElement("td");
  td.append(content);
  row.append(td);
}

const number = (value, digits = 1) => (value === null ? "–" : value.toFixed(digits));

let newest = null;   // the rows that the page shows

// Shows the numbers of a result, and its words once the server has judged it.
export async function tabulate(rows) {
  newest = rows;
  at("results").hidden = false;
  fill(rows, null);
  say({ opening: "", uses: [], advice: "", sender: "", unknown: "" }, busy(rows));
  at("verdict").ariaBusy = "true";
  const [judged] = await judgements([rows]);
  if (newest !== rows) return;
  fill(rows, judged);
  say(verdict(rows, judged), busy(rows), judged?.judgement.grade);
  at("verdict").ariaBusy = "false";
}

function fill(rows, judged) {
  const line = (name, values, more) => {
    const row = document.createElement("tr");
    cell(row, name);
    for (const key of ["p50", "p90", "p95", "p99", "largest"]) cell(row, number(values[key]));
    for (const text of more) cell(row, text);
    return row;
  };
  at("rows").replaceChildren(...rows.flatMap((row) => [
    line(row.phase === "idle" ? "idle" : `loaded ${row.phase}`, row,
      [String(row.probes), String(row.lost), number(row.rate), number(qualityOf(row, judged), 0)]),
    ...(row.inside ? [line(`inside ${row.phase}`, row.inside, [String(row.inside.readings), "", "", ""])] : []),
  ]));
}

// The colour of a grade, as in the program's report.
const colour = (grade) => (/^[AB]/.test(grade) ? "good" : grade === "C" ? "fair" : "poor");

function say({ opening, uses, advice, sender, unknown }, own, grade = "") {
  at("grade").textContent = grade;
  at("grade").className = `grade ${colour(grade)}`;
  at("grade").hidden = !grade;
  at("verdict").textContent = own && opening.startsWith("Grade") ? `Uncertain. ${opening}` : opening;
  at("uses").replaceChildren(...uses.map((use) => {
    const item = document.createElement("li");
    item.textContent = use;
    return item;
  }));
  at("advice").textContent = advice;
  at("sender").textContent = sender;
  at("unknown").textContent = unknown;
  at("busy").textContent = own;
}

function linkTo(result) {
  const link = document.createElement("a");
  link.href = result.link;
  link.textContent = timeOf(result);
  return link;
}

function deleter(result) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "Delete";
  button.setAttribute("aria-label", `Delete the result of ${timeOf(result)}`);
  button.addEventListener("click", () => {
    forget(result.link);
    showHistory();
  });
  return button;
}

// Median round trips when idle, and the percentiles that grade each load, ms; `null` if unknown.
function latencies(rows) {
  const find = (phase) => rows.find((row) => row.phase === phase);
  const loaded = ["down", "up"].map((phase) => find(phase)?.of_sent?.ms ?? null);
  return [find("idle")?.p50 ?? null, ...loaded];
}

export async function showHistory() {
  const all = results();
  at("history").hidden = !all.length;
  fillHistory(all, []);
  if (all.length) fillHistory(all, await judgements(all.map((result) => result.rows)));
}

function fillHistory(all, judged) {
  at("history-rows").replaceChildren(...all.map((result, index) => {
    const row = document.createElement("tr");
    const shown = latencies(result.rows).map((ms) => (ms === Infinity ? "lost" : number(ms)));
    const rates = ["down", "up"].map((phase) => result.rows.find((it) => it.phase === phase)?.rate ?? null);
    const contents = [linkTo(result), judged[index]?.judgement.grade ?? "–", ...shown, ...rates.map((rate) => number(rate)),
      deleter(result)];
    for (const content of contents) cell(row, content);
    return row;
  }));
  drawHistory(at("history-curve"), all.map(({ rows }) => latencies(rows)).reverse());
}

at("forget").addEventListener("click", () => {
  forgetAll();
  showHistory();
});

// A result in words, in its table, and in the table of this browser's latest ones.

import { drawHistory } from "./draw.js";
import { forget, forgetAll, results } from "./history.js";
import { judge, quality } from "./judge.js";
import { highest } from "./summary.js";

const BUSY_MS = 10;   // a smaller delay within this device is not reported
const at = (id) => document.getElementById(id);

// The time of a result, on the clock of this device.
export function timeOf({ started_s: startedS }) {
  return new Date(startedS * 1000).toLocaleString([], { dateStyle: "medium", timeStyle: "short" });
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

// The lowest Quality of Outcome of a call, a game and a web page, of loaded phases.
function qualityOf(row) {
  if (row.rate === null || row.no_load) return null;
  return quality({
    beside: row.of_sent?.quantile === "p99" ? row.of_sent.ms : null, inside: row.inside?.p99 ?? null,
    lostPercent: 100 * row.lost / row.probes, rate: row.rate, isHeldBack: row.held_back,
  });
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

function cell(row, content) {
  const td = document.createElement("td");
  td.append(content);
  row.append(td);
}

const number = (value, digits = 1) => (value === null ? "–" : value.toFixed(digits));

// Words and numbers of a result.
export function tabulate(rows) {
  const line = (name, values, more) => {
    const row = document.createElement("tr");
    cell(row, name);
    for (const key of ["p50", "p90", "p95", "p99", "largest"]) cell(row, number(values[key]));
    for (const text of more) cell(row, text);
    return row;
  };
  at("rows").replaceChildren(...rows.flatMap((row) => [
    line(row.phase === "idle" ? "idle" : `loaded ${row.phase}`, row,
      [String(row.probes), String(row.lost), number(row.rate), number(qualityOf(row), 0)]),
    ...(row.inside ? [line(`inside ${row.phase}`, row.inside, [String(row.inside.readings), "", "", ""])] : []),
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

const gradeOf = (rows) => verdict(rows).opening.match(/^Grade (\S+)/)?.[1] ?? "–";

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

export function showHistory() {
  const all = results();
  at("history").hidden = !all.length;
  at("history-rows").replaceChildren(...all.map((result) => {
    const row = document.createElement("tr");
    const shown = latencies(result.rows).map((ms) => (ms === Infinity ? "lost" : number(ms)));
    const rates = ["down", "up"].map((phase) => result.rows.find((it) => it.phase === phase)?.rate ?? null);
    const contents = [linkTo(result), gradeOf(result.rows), ...shown, ...rates.map((rate) => number(rate)),
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

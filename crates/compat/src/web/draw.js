// Draws the curves of a measurement over time.

import { BUCKET_S, DELAYS, RATES, TOTAL_S } from "./summary.js";

const [LEFT, RIGHT, TOP, BOTTOM] = [44, 8, 26, 22];
const TICK_S = 5;
const SVG = "http://www.w3.org/2000/svg";

function shape(name, attributes, text) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

// Draws axes and curves. A unit of the drawing is a pixel of the screen, so text has the same size on
// phones and desktops. The vertical axis ends at `least`, or higher if a value is larger.
function fill(svg, { height, end, ticks, unit, least, hasDots }, curves) {
  const most = ceiling(Math.max(least, ...curves.flatMap(([, its]) => its.map((it) => it[1]))));
  const width = Math.max(280, svg.clientWidth);
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  const x = (s) => LEFT + Math.min(1, s / end) * (width - LEFT - RIGHT);
  const y = (value) => height - BOTTOM - value / most * (height - TOP - BOTTOM);
  const parts = [];
  for (const share of [0, 0.5, 1]) {
    const at = y(most * share);
    parts.push(shape("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: at, y2: at }));
    const label = (most * share).toFixed(most < 10 ? 1 : 0);
    parts.push(shape("text", { x: LEFT - 4, y: at + 4, "text-anchor": "end" }, label));
  }
  for (const [s, label] of ticks) {
    parts.push(shape("line", { class: "grid", x1: x(s), x2: x(s), y1: height - BOTTOM, y2: height - BOTTOM + 4 }));
    parts.push(shape("text", { x: x(s), y: height - 5, "text-anchor": "middle" }, label));
  }
  parts.push(shape("text", { x: 2, y: 11 }, unit));
  const place = ([s, value]) => `${x(s).toFixed(1)},${y(value).toFixed(1)}`;
  const dot = (name, [s, value]) => shape("circle", { class: name, cx: x(s), cy: y(value), r: 3 });
  const drawn = curves.flatMap(([name, points]) => [
    shape("polyline", { class: name, points: points.map(place).join(" ") }),
    ...(hasDots ? points.map((point) => dot(name, point)) : []),
  ]);
  svg.replaceChildren(...parts, ...drawn);
}

// Returns a round number of at least `value`, for the top of an axis.
function ceiling(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 4, 5, 10].find((digit) => digit * power >= value) * power;
}

// Draws the curves over time. Drawing competes with the probes for the processor, so it shows
// medians of half-second intervals.
export function draw({ latency, rate }, { delays, rates }) {
  const ticks = [];
  for (let s = 0; s <= TOTAL_S; s += TICK_S) ticks.push([s, s ? `${s} s` : "0"]);
  const inSeconds = (points) => points.map(([bucket, value]) => [(bucket + 0.5) * BUCKET_S, value]);
  fill(latency, { height: 240, end: TOTAL_S, ticks, unit: "ms", least: 10 },
    DELAYS.map((name, index) => [name, inSeconds(delays[index])]));
  fill(rate, { height: 160, end: TOTAL_S, ticks, unit: "Mbit/s", least: 1 },
    RATES.map((name, index) => [name, inSeconds(rates[index])]));
}

// Draws the idle, download and upload latency of each stored result, oldest first.
export function drawHistory(svg, all) {
  const points = (index) => all.flatMap((ms, number) => (
    Number.isFinite(ms[index] ?? NaN) ? [[number + 0.5, ms[index]]] : []));
  const ticks = all.length > 1 ? [[0.5, "oldest"], [all.length - 0.5, "newest"]] : [];
  fill(svg, { height: 140, end: all.length, ticks, unit: "ms", least: 10, hasDots: true },
    DELAYS.slice(0, 3).map((name, index) => [name, points(index)]));
}

// The curves of a measurement over time.

const BUCKET_S = 0.25;
const [LEFT, RIGHT, TOP, BOTTOM] = [44, 8, 26, 22];
const TICK_S = 5;
const SVG = "http://www.w3.org/2000/svg";

function shape(name, attributes, text) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

// One unit is one pixel of the screen, so that text is as large on a phone as elsewhere.
function chart(svg, height, totalS, most, unit) {
  const width = Math.max(280, svg.clientWidth);
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  const x = (s) => LEFT + Math.min(1, s / totalS) * (width - LEFT - RIGHT);
  const y = (value) => height - BOTTOM - value / most * (height - TOP - BOTTOM);
  const parts = [];
  for (const share of [0, 0.5, 1]) {
    const at = y(most * share);
    parts.push(shape("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: at, y2: at }));
    const label = (most * share).toFixed(most < 10 ? 1 : 0);
    parts.push(shape("text", { x: LEFT - 4, y: at + 4, "text-anchor": "end" }, label));
  }
  for (let s = 0; s <= totalS; s += TICK_S) {
    parts.push(shape("line", { class: "grid", x1: x(s), x2: x(s), y1: height - BOTTOM, y2: height - BOTTOM + 4 }));
    parts.push(shape("text", { x: x(s), y: height - 5, "text-anchor": "middle" }, s ? `${s} s` : "0"));
  }
  parts.push(shape("text", { x: 2, y: 11 }, unit));
  const curve = (name, points) => shape("polyline", {
    class: name, points: points.map(([s, value]) => `${x(s).toFixed(1)},${y(value).toFixed(1)}`).join(" "),
  });
  return { parts, curve };
}

// A round number that is at least `value`: the top of an axis.
function ceiling(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 4, 5, 10].find((digit) => digit * power >= value) * power;
}

// The median of each bucket of time.
function medians(values) {
  const buckets = new Map();
  for (const { at_s: at, ms } of values) {
    const bucket = Math.floor(at / BUCKET_S);
    if (!buckets.has(bucket)) buckets.set(bucket, []);
    buckets.get(bucket).push(ms);
  }
  return [...buckets].sort((a, b) => a[0] - b[0]).map(([bucket, its]) => (
    [(bucket + 0.5) * BUCKET_S, its.sort((a, b) => a - b)[Math.ceil(its.length / 2) - 1]]));
}

const top = (curves, least) => ceiling(Math.max(least, ...curves.flatMap(([, its]) => its.map((it) => it[1]))));

// Drawing takes the processor that the probes need: curves of medians, twice a second.
export function draw({ latency, rate }, { probes, inside, rates }, totalS) {
  const answered = probes.filter((it) => it.ms !== null);
  const of = (its, phase) => medians(its.filter((it) => it.phase === phase));
  const delays = [...["idle", "down", "up"].map((phase) => [phase, of(answered, phase)]),
    ...["down", "up"].map((phase) => [`${phase} inside`, of(inside, phase)])];
  const delayChart = chart(latency, 240, totalS, top(delays, 10), "ms");
  latency.replaceChildren(...delayChart.parts, ...delays.map(([name, its]) => delayChart.curve(name, its)));
  const curves = ["down", "up"].map((phase) => {
    const its = rates.filter((it) => it.phase === phase);
    return [phase, its.slice(1).map((it, index) => [it.at_s,
      Math.max(0, it.bytes - its[index].bytes) * 8 / 1e6 / Math.max(1e-3, it.at_s - its[index].at_s)])];
  });
  const rateChart = chart(rate, 160, totalS, top(curves, 1), "Mbit/s");
  rate.replaceChildren(...rateChart.parts, ...curves.map(([name, its]) => rateChart.curve(name, its)));
}

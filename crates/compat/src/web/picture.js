// Paints a result as a picture: its sentences, and the curves of the page.

import { timeOf } from "./present.js";

const [WIDTH, MARGIN, SCALE] = [760, 20, 2];
const LINE = 1.4;   // relative to the size of the text

const at = (id) => document.getElementById(id);
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name);

function lines(canvas, text, width) {
  const all = [""];
  for (const word of text.split(" ")) {
    const longer = all.at(-1) ? `${all.at(-1)} ${word}` : word;
    if (canvas.measureText(longer).width <= width) all[all.length - 1] = longer;
    else all.push(word);
  }
  return all;
}

// Writes a paragraph below `top`; returns where the next one begins.
function paragraph(canvas, text, top, { size = 15, weight = "normal", ink = "--ink" } = {}) {
  canvas.font = `${weight} ${size}px system-ui, sans-serif`;
  canvas.fillStyle = colour(ink);
  let y = top;
  for (const line of text ? lines(canvas, text, WIDTH - 2 * MARGIN) : []) {
    y += size * LINE;
    canvas.fillText(line, MARGIN, y);
  }
  return y + (text ? size / 2 : 0);
}

const number = (shape, name) => Number(shape.getAttribute(name));

// Paints the lines, texts and curves of a chart.
function paint(canvas, svg) {
  for (const shape of svg.children) {
    const style = getComputedStyle(shape);
    [canvas.strokeStyle, canvas.fillStyle] = [style.stroke, style.fill];
    canvas.lineWidth = Number.parseFloat(style.strokeWidth);
    canvas.setLineDash(shape.classList.contains("inside") ? [6, 4] : []);
    canvas.beginPath();
    if (shape.tagName === "text") {
      canvas.font = "11px system-ui, sans-serif";
      canvas.textAlign = { end: "right", middle: "center" }[shape.getAttribute("text-anchor")] ?? "left";
      canvas.fillText(shape.textContent, number(shape, "x"), number(shape, "y"));
      canvas.textAlign = "left";
    } else if (shape.tagName === "line") {
      canvas.moveTo(number(shape, "x1"), number(shape, "y1"));
      canvas.lineTo(number(shape, "x2"), number(shape, "y2"));
    } else {
      for (const point of shape.points) canvas.lineTo(point.x, point.y);
    }
    canvas.stroke();
  }
}

// Paints a chart as wide as the picture; returns where the next part begins.
function chart(canvas, svg, top) {
  const { width, height } = svg.viewBox.baseVal;
  const scale = (WIDTH - 2 * MARGIN) / width;
  canvas.save();
  canvas.translate(MARGIN, top);
  canvas.scale(scale, scale);
  paint(canvas, svg);
  canvas.restore();
  return top + height * scale + MARGIN / 2;
}

function legend(canvas, top) {
  canvas.font = "13px system-ui, sans-serif";
  let x = MARGIN;
  for (const [text, ink, dash] of [["idle", "--idle", []], ["loaded down", "--down", []],
    ["loaded up", "--up", []], ["inside the load", "--ink", [6, 4]]]) {
    [canvas.strokeStyle, canvas.fillStyle, canvas.lineWidth] = [colour(ink), colour("--ink"), 3];
    canvas.setLineDash(dash);
    canvas.beginPath();
    canvas.moveTo(x, top + 12);
    canvas.lineTo(x + 22, top + 12);
    canvas.stroke();
    canvas.fillText(text, x + 28, top + 16);
    x += 28 + canvas.measureText(text).width + 20;
  }
  return top + 26;
}

// Paints the whole picture; returns its height.
function compose(canvas, result) {
  let y = paragraph(canvas, "Latency under load", MARGIN / 2, { size: 20, weight: "bold" });
  y = paragraph(canvas, `${at("origin").textContent ? "From a link, " : ""}${timeOf(result)}`, y,
    { size: 13, ink: "--faint" });
  y = paragraph(canvas, at("verdict").textContent, y, { size: 16, weight: "bold" });
  for (const use of at("uses").children) y = paragraph(canvas, use.textContent, y);
  for (const id of ["advice", "sender", "unknown", "busy"]) y = paragraph(canvas, at(id).textContent, y);
  y = legend(canvas, y + MARGIN / 2);
  y = chart(canvas, at("latency"), y);
  y = chart(canvas, at("rate"), y);
  return paragraph(canvas, "Round trips above, payload that arrived below. Measured with underload serve --web.", y,
    { size: 12, ink: "--faint" }) + MARGIN / 2;
}

// Returns the result on the page as PNG, in the page's colours.
export function picture(result) {
  const sheet = document.createElement("canvas");
  const canvas = sheet.getContext("2d");
  // Painted twice: the first time yields the height, which depends on the texts.
  const height = compose(canvas, result);
  [sheet.width, sheet.height] = [WIDTH * SCALE, Math.ceil(height) * SCALE];
  canvas.scale(SCALE, SCALE);
  canvas.fillStyle = colour("--paper");
  canvas.fillRect(0, 0, WIDTH, height);
  compose(canvas, result);
  return new Promise((done) => { sheet.toBlob(done, "image/png"); });
}

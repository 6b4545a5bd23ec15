// Runs a simulated trial (the program's own code as WebAssembly) with the settings on the left, and
// draws its curves and numbers. Makes no requests: the module is text in a script of the same
// folder.
"use strict";
(() => {
  const root = document.getElementById("pg-root");
  if (!root) return;
  if (!window.UNDERLOAD_PLAYGROUND || !window.WebAssembly) {
    root.textContent = "The simulator is not part of this copy of the book. In a clone of the " +
      "repository, `cargo xtask book` builds it.";
    return;
  }

  const RATES = [0.5, 1, 2, 3, 5, 7, 10, 15, 20, 30, 40, 50, 70, 100];
  // Parameters of each queue: key, label, unit, values of the slider, and the default among them.
  const SIZES = [8, 16, 32, 64, 96, 128, 192, 256, 384, 512, 1024, 2048];
  const TARGETS = [1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 100];
  const QUEUES = {
    fifo: { says: "a plain buffer", params: [["limit", "size", "KiB", SIZES, 256]] },
    "buffer-control": { says: "a modem's buffer by time",
      params: [["target", "length", "ms", [10, 20, 50, 100, 250, 500, 1000], 250]] },
    codel: { says: "CoDel", ecn: true, params: [["target", "target", "ms", TARGETS, 5],
      ["interval", "interval", "ms", [20, 50, 100, 200, 300, 500], 100]] },
    pie: { says: "PIE", ecn: true, params: [["target", "target", "ms", TARGETS, 15]] },
    "docsis-pie": { says: "the PIE of cable modems", params: [["target", "target", "ms", TARGETS, 10]] },
    "fq-codel": { says: "a queue per flow, with CoDel", ecn: true,
      params: [["target", "target", "ms", TARGETS, 5]] },
    cake: { says: "CAKE", params: [] },
    dualpi2: { says: "the dual queue of L4S", params: [["target", "target", "ms", TARGETS, 15]] },
  };
  const CONTROLS = ["cubic", "reno", "bbr", "prague"];
  const TRIAL_MS_GOOD = 100;

  const state = { rate: 20, rtt: 20, queue: "fifo", params: {}, uploads: 1, control: "cubic",
    ecn: false, stream: 0, seed: 1 };
  let kept = null, last = null, wanted = false, simulate = null;

  // ---- building the page -------------------------------------------------------------------
  const make = (name, attributes = {}, ...children) => {
    const svg = ["svg", "path", "line", "text", "g", "rect", "title"].includes(name);
    const node = svg ? document.createElementNS("http://www.w3.org/2000/svg", name)
      : document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    node.append(...children);
    return node;
  };
  const controls = make("div", { class: "pg-controls" });
  const told = make("p", { class: "pg-told", role: "status", "aria-live": "polite" });
  const charts = make("div", { class: "pg-charts" });
  const scenario = make("pre", {}, make("code", { class: "language-toml nohighlight" }));
  const cost = make("p", { class: "pg-cost" });

  const row = (label, input, shown) => {
    const id = `pg-${label.replace(/\W/g, "-")}`;
    input.id = id;
    return make("div", { class: "pg-row" }, make("label", { for: id }, label), input,
      ...(shown ? [shown] : []));
  };
  /// A slider over listed values.
  const slider = (label, unit, values, value, changed) => {
    const nearest = values.reduce((best, it, at) =>
      Math.abs(it - value) < Math.abs(values[best] - value) ? at : best, 0);
    const input = make("input", { type: "range", min: 0, max: values.length - 1, value: nearest });
    const shown = make("output", {});
    const show = () => {
      const text = `${values[input.value]} ${unit}`.trim();
      shown.textContent = text;
      input.setAttribute("aria-valuetext", text);
    };
    input.addEventListener("input", () => { show(); changed(values[input.value]); ask(); });
    show();
    return row(label, input, shown);
  };
  const choice = (label, options, value, changed) => {
    const input = make("select");
    for (const [key, says] of options) {
      const option = make("option", { value: key }, says);
      option.selected = key === value;
      input.append(option);
    }
    input.addEventListener("change", () => { changed(input.value); ask(); });
    return row(label, input);
  };
  const range = (low, high) => Array.from({ length: high - low + 1 }, (_, at) => low + at);

  const paramBox = make("div");
  const buildParams = () => {
    const queue = QUEUES[state.queue];
    paramBox.replaceChildren(...queue.params.map(([key, label, unit, values, value]) =>
      slider(`queue's ${label}`, unit, values, state.params[key] ?? value, (it) => {
        state.params[key] = it;
      })));
  };
  const build = () => {
    const ecn = make("input", { type: "checkbox" });
    ecn.checked = state.ecn;
    ecn.addEventListener("change", () => { state.ecn = ecn.checked; ask(); });
    const button = (text, pressed) => {
      const it = make("button", { type: "button" }, text);
      it.addEventListener("click", () => pressed(it));
      return it;
    };
    const keep = button("Keep this to compare", () => {
      kept = kept ? null : last;
      keep.textContent = kept ? "Compare no more" : "Keep this to compare";
      draw();
    });
    controls.append(
      slider("line, up", "Mbit/s", RATES, state.rate, (it) => { state.rate = it; }),
      slider("round trip without load", "ms", [2, 5, 10, 20, 30, 50, 80, 100, 150, 200, 300],
        state.rtt, (it) => { state.rtt = it; }),
      choice("queue", Object.entries(QUEUES).map(([key, it]) => [key, `${key}: ${it.says}`]),
        state.queue, (it) => { state.queue = it; state.params = {}; buildParams(); }),
      paramBox,
      slider("uploads", "", range(0, 8), state.uploads, (it) => { state.uploads = it; }),
      choice("congestion control", CONTROLS.map((it) => [it, it]), state.control,
        (it) => { state.control = it; }),
      row("marks instead of drops (ECN)", ecn),
      slider("stream that never slows down", "% of the line", range(0, 12).map((it) => it * 10),
        state.stream, (it) => { state.stream = it; }),
      make("div", { class: "pg-row" }, keep,
        button("Other random numbers", () => { state.seed += 1; ask(); })));
    buildParams();
    root.replaceChildren(controls, make("div", { class: "pg-out" }, told, charts), make("details",
      { class: "pg-scenario" }, make("summary", {}, "The same trial in the terminal"),
      make("p", {}, "Save this as playground.toml, and run ",
        make("code", {}, "underload run playground.toml --world sim"), ":"), scenario), cost);
  };

  // ---- the trial ---------------------------------------------------------------------------
  const spec = () => {
    const queue = QUEUES[state.queue];
    const items = queue.params.map(([key, , unit, , value]) =>
      `${key}=${state.params[key] ?? value}${unit}`);
    if (queue.ecn && state.ecn) items.push("ecn=on");
    return items.length ? `${state.queue}:${items.join(",")}` : state.queue;
  };
  const settings = () => {
    const rate = Math.round(state.rate * 1000);
    return { rate_kbit_per_s: rate, rtt_ms: state.rtt, queue: spec(), uploads: state.uploads,
      congestion_control: state.control, ecn: state.ecn,
      stream_kbit_per_s: Math.round(rate * state.stream / 100), seed: state.seed };
  };
  const start = async () => {
    const bytes = Uint8Array.from(atob(window.UNDERLOAD_PLAYGROUND), (it) => it.charCodeAt(0));
    const { instance } = await WebAssembly.instantiate(bytes, {});
    const { memory, reserve, trial, answer } = instance.exports;
    return (what) => {
      const text = new TextEncoder().encode(JSON.stringify(what));
      const place = reserve(text.length);
      new Uint8Array(memory.buffer, place, text.length).set(text);
      const length = trial();
      const said = new Uint8Array(memory.buffer, answer(), length);
      return JSON.parse(new TextDecoder().decode(said));
    };
  };
  /// Runs at most one trial per frame, however fast the sliders move.
  const ask = () => {
    if (wanted) return;
    wanted = true;
    requestAnimationFrame(() => {
      wanted = false;
      const begun = performance.now();
      const outcome = simulate(settings());
      const took = performance.now() - begun;
      if (outcome.error) {
        told.textContent = outcome.error;
        return;
      }
      last = outcome;
      root.dataset.took = took.toFixed(1);
      cost.textContent = `${outcome.length_s} s of line in ${took.toFixed(0)} ms of your browser` +
        (took > TRIAL_MS_GOOD ? "; fewer Mbit/s are faster." : ".");
      draw();
    });
  };

  // ---- pictures ----------------------------------------------------------------------------
  const WIDTH = 560, HEIGHT = 202, LEFT = 52, RIGHT = 20, TOP = 24, BOTTOM = 42;
  /// The next round number.
  const ceiling = (value) => {
    const power = 10 ** Math.floor(Math.log10(Math.max(value, 1e-3)));
    return [1, 2, 2.5, 5, 10].map((it) => it * power).find((it) => it >= value);
  };
  const number = (value) => String(Number(value.toPrecision(3)));
  const chart = (title, xs, ys, lines, bands = []) => {
    const [xEnd, xUnit] = xs, [yEnd, yUnit] = ys;
    const x = (value) => LEFT + value / xEnd * (WIDTH - LEFT - RIGHT);
    const y = (value) => HEIGHT - BOTTOM - Math.min(value / yEnd, 1) * (HEIGHT - TOP - BOTTOM);
    const svg = make("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": title });
    for (const [from, to] of bands) {
      svg.append(make("rect", { x: x(from), y: TOP, width: x(to) - x(from),
        height: HEIGHT - TOP - BOTTOM, class: "pg-band" }));
    }
    for (let at = 0; at <= 4; at += 1) {
      const [yAt, xAt] = [yEnd * at / 4, xEnd * at / 4];
      svg.append(
        make("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: y(yAt), y2: y(yAt), class: "pg-grid" }),
        make("text", { x: LEFT - 6, y: y(yAt) + 4, "text-anchor": "end" }, number(yAt)),
        make("text", { x: x(xAt), y: HEIGHT - BOTTOM + 17, "text-anchor": "middle" }, number(xAt)));
    }
    svg.append(make("text", { x: LEFT, y: 14, class: "pg-title" }, `${title}, ${yUnit}`),
      make("text", { x: WIDTH - RIGHT, y: HEIGHT - 4, "text-anchor": "end" }, xUnit));
    for (const { points, kind } of lines) {
      const path = points.map(([px, py], at) =>
        `${at ? "L" : "M"}${x(px).toFixed(1)} ${y(py).toFixed(1)}`).join("");
      svg.append(make("path", { d: path || "M0 0", class: `pg-line pg-${kind}` }));
    }
    return svg;
  };
  const zip = (xs, ys) => xs.map((it, at) => [it, ys[at]]);
  const overTime = (title, unit, of) => {
    const both = kept && kept !== last ? [[kept, "kept"], [last, "now"]] : [[last, "now"]];
    const top = Math.max(...both.flatMap(([it]) => of(it)), 1e-3);
    return chart(title, [last.length_s, "s"], [ceiling(top), unit],
      both.map(([it, kind]) => ({ points: zip(it.time_s, of(it)), kind })), [last.load_s]);
  };
  const shares = (values) => values.map((it, at) => [it, at * 100 / Math.max(values.length - 1, 1)]);
  const cdf = () => {
    const both = kept && kept !== last ? [[kept, "kept"], [last, "now"]] : [[last, "now"]];
    const top = Math.max(...both.flatMap(([it]) => [...it.sojourn_cdf_ms.slice(-1),
      ...it.rtt_cdf_ms.slice(-1)]), 1);
    const lines = both.flatMap(([it, kind]) => [
      { points: shares(it.sojourn_cdf_ms), kind },
      { points: shares(it.rtt_cdf_ms), kind: `${kind} pg-dashed` }]);
    return chart("Sojourn; dashes: round trip; under load", [ceiling(top), "ms"],
      [100, "% took less"], lines);
  };
  const sentence = (it) => {
    const ms = (value) => (value === null ? "no answer" : `${number(value)} ms`);
    const [offered, dropped, marked] = it.packets;
    const high = it.rtt_high_ms ? `, ${ms(it.rtt_high_ms[1])} (${it.rtt_high_ms[0]})` : "";
    return `Round trip ${ms(it.idle_p50_ms)} idle; under load ${ms(it.rtt_p50_ms)} (p50)${high}. ` +
      `The line carries ${number(it.throughput[0])} Mbit/s, ` +
      `${number(it.throughput[1])} % of what it can. ${dropped} of ${offered} packets dropped, ` +
      `${marked} marked.`;
  };
  const draw = () => {
    if (!last) return;
    told.replaceChildren(sentence(last), ...(kept && kept !== last
      ? [make("br"), make("span", { class: "pg-before" }, `Kept (grey): ${sentence(kept)}`)] : []));
    charts.replaceChildren(
      overTime("In the queue", "KiB", (it) => it.backlog_kib),
      cdf(),
      overTime("Sent by the line", "Mbit/s", (it) => it.throughput_mbit_per_s),
      overTime("Dropped or marked each 0.1 s", "packets",
        (it) => it.drops.map((drops, at) => drops + it.marks[at])));
    scenario.firstChild.textContent = last.scenario;
  };

  start().then((run) => {
    simulate = run;
    build();
    ask();
  }, (error) => { root.textContent = `The simulator does not start: ${error}`; });
})();

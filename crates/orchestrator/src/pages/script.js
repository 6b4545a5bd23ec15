// Enhances pages: shows values of charts, zooms, applies filters without a reload, and updates the
// page when results arrive. Without this script, pages have the same content.
"use strict";
(() => {
  const answer = document.getElementById("answer");
  const form = document.querySelector("form.filters");
  const svgNames = "http://www.w3.org/2000/svg";

  // --- Filters -------------------------------------------------------------------------------

  let asked = 0;

  /** Fetches and shows the page's content for an address. */
  async function show(address, pushes) {
    const mine = ++asked;
    const url = new URL(address, location.href);
    url.searchParams.set("fragment", "1");
    answer.classList.add("waiting");
    try {
      const response = await fetch(url, { credentials: "same-origin" });
      if (mine !== asked) return;
      if (response.status === 401) { location.reload(); return; }
      const text = await response.text();
      if (mine !== asked) return;
      if (response.ok) {
        const open = [...answer.querySelectorAll("details")].map((it) => it.open);
        answer.innerHTML = text;
        answer.querySelectorAll("details").forEach((it, at) => { it.open = open[at] || it.open; });
        prepare();
      } else {
        const page = new DOMParser().parseFromString(text, "text/html");
        answer.replaceChildren(...page.querySelector("main").childNodes);
      }
      if (pushes) history.pushState(null, "", address);
    } catch {
      // Offline: the page keeps its content, and the next filter or event retries.
    } finally {
      if (mine === asked) answer.classList.remove("waiting");
    }
  }

  /** Returns the address for the form's fields, without the empty ones. */
  function formAddress() {
    const said = new URLSearchParams();
    for (const [name, value] of new FormData(form)) if (value !== "") said.append(name, value);
    const query = said.toString();
    return form.getAttribute("action") + (query ? "?" + query : "");
  }

  /** Sets the form's fields from an address. */
  function fill(address) {
    const said = new URL(address, location.href).searchParams;
    for (const control of form.elements) {
      if (!control.name) continue;
      const value = said.get(control.name) ?? "";
      if (control.tagName === "SELECT" && ![...control.options].some((it) => it.value === value)) {
        control.selectedIndex = 0;
      } else {
        control.value = value;
      }
    }
  }

  if (form && answer) {
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      show(formAddress(), true);
    });
    form.addEventListener("change", () => {
      if (form.reportValidity()) show(formAddress(), true);
    });
    window.addEventListener("popstate", () => { fill(location.href); show(location.href, false); });
  }

  document.addEventListener("submit", (event) => {
    const sure = event.target.dataset.sure;
    if (sure && !confirm(sure)) event.preventDefault();
  });

  // --- Charts --------------------------------------------------------------------------------

  const numbers = new Intl.NumberFormat("en", { maximumSignificantDigits: 4, useGrouping: false });

  function place(scale, value) { return scale.kind === "log" ? Math.log10(value) : value; }

  /** Returns the value at a fraction of a scale's length. */
  function valueAt(scale, part) {
    const [from, to] = [place(scale, scale.from), place(scale, scale.to)];
    const value = from + (to - from) * part;
    return scale.kind === "log" ? 10 ** value : value;
  }

  function partOf(scale, value) {
    const [from, to] = [place(scale, scale.from), place(scale, scale.to)];
    return (place(scale, value) - from) / (to - from);
  }

  function words(scale, value) {
    if (scale.kind !== "days") return numbers.format(value);
    const text = new Date(value * 86400000).toISOString();
    return Number.isInteger(value) ? text.slice(0, 10) : text.slice(0, 16).replace("T", " ");
  }

  /** Splits an axis title such as `round-trip time, ms` into name and unit. */
  function named(scale) {
    const at = scale.name.lastIndexOf(", ");
    return at < 0 ? ["", scale.name] : [scale.name.slice(0, at), scale.name.slice(at + 2)];
  }

  function nearest(points, x) {
    let best = null;
    for (const point of points) {
      if (best === null || Math.abs(point[0] - x) < Math.abs(best[0] - x)) best = point;
    }
    return best;
  }

  class Chart {
    constructor(element) {
      this.element = element;
      this.svg = element.querySelector("svg");
      this.output = element.parentElement.querySelector("output.values");
      const data = JSON.parse(element.dataset.chart);
      this.panels = data.panels;
      this.zoom = data.zoom;
      this.xs = [...new Set(this.panels.flatMap((panel) =>
        panel.curves.flatMap((curve) => curve.points.map((point) => point[0]))))].sort((a, b) => a - b);
      this.at = -1;
      this.from = null;
      element.addEventListener("pointermove", (event) => this.moved(event));
      element.addEventListener("pointerleave", () => this.left());
      element.addEventListener("pointerdown", (event) => this.pressed(event));
      element.addEventListener("pointerup", (event) => this.released(event));
      element.addEventListener("dblclick", () => this.ask("", ""));
      element.addEventListener("keydown", (event) => this.key(event));
    }

    /** Returns the panel under the pointer, and the value there on the panel's horizontal scale. */
    value(event) {
      const box = this.svg.getBoundingClientRect();
      const view = this.svg.viewBox.baseVal;
      const x = (event.clientX - box.left) / box.width * view.width;
      const y = (event.clientY - box.top) / box.height * view.height;
      const panel = this.panels.find((it) => y <= it.rows[1] + 24) ?? this.panels[this.panels.length - 1];
      const [left, right] = panel.columns;
      const part = Math.min(1, Math.max(0, (x - left) / (right - left)));
      return valueAt(panel.x, part);
    }

    mark(name, shape, attributes) {
      for (const old of this.svg.querySelectorAll("." + name)) old.remove();
      for (const panel of attributes ? this.panels : []) {
        const mark = document.createElementNS(svgNames, shape);
        mark.setAttribute("class", name);
        for (const [key, value] of Object.entries(attributes(panel))) mark.setAttribute(key, value);
        this.svg.append(mark);
      }
    }

    column(panel, x) {
      const [left, right] = panel.columns;
      return left + (right - left) * Math.min(1, Math.max(0, partOf(panel.x, x)));
    }

    /** Shows the curves' values at a position, and draws a line there. */
    tell(x) {
      if (!this.xs.length) return;
      this.at = this.xs.indexOf(nearest(this.xs.map((it) => [it]), x)[0]);
      const at = this.xs[this.at];
      this.mark("cursor", "line", (panel) => {
        const column = this.column(panel, at);
        return { x1: column, x2: column, y1: panel.rows[0], y2: panel.rows[1] };
      });
      const [first] = this.panels;
      const unit = (scale) => scale.kind === "days" ? "" : " " + named(scale)[1];
      const parts = this.panels.flatMap((panel) => panel.curves.map((curve) => {
        const point = nearest(curve.points, at);
        if (point === null) return null;
        const note = point[2] ? " (" + point[2] + ")" : "";
        return curve.name + ": " + words(panel.y, point[1]) + unit(panel.y) + note;
      }));
      const head = document.createElement("b");
      head.textContent = words(first.x, at) + unit(first.x);
      const rest = parts.filter((part) => part !== null).join("; ");
      this.output.replaceChildren(head, document.createTextNode(" – " + rest));
    }

    moved(event) {
      const value = this.value(event);
      this.tell(value);
      if (this.from === null) return;
      const ends = [Math.min(this.from, value), Math.max(this.from, value)];
      this.mark("chosen", "rect", (panel) => {
        const [left, right] = ends.map((end) => this.column(panel, end));
        return { x: left, width: right - left, y: panel.rows[0], height: panel.rows[1] - panel.rows[0] };
      });
    }

    left() { this.from = null; this.mark("chosen"); this.mark("cursor"); }

    pressed(event) {
      if (event.pointerType === "mouse" && this.zoom[0] && form) {
        this.from = this.value(event);
        event.preventDefault();
        this.element.focus({ preventScroll: true });
      }
    }

    released(event) {
      if (this.from === null) return;
      const ends = [this.from, this.value(event)].sort((a, b) => a - b);
      this.left();
      const { x } = this.panels[0];
      if (partOf(x, ends[1]) - partOf(x, ends[0]) < 0.02) return;
      if (x.kind === "days") this.ask(...ends.map((day) => words(x, Math.round(day))));
      else this.ask(...ends.map((end) => String(Number(end.toPrecision(3)))));
    }

    /** Zooms to a range of the horizontal scale. */
    ask(low, high) {
      const [first, second] = this.zoom.map((name) => name && form?.elements[name]);
      if (!first || !second) return;
      first.value = low;
      second.value = high;
      show(formAddress(), true);
    }

    key(event) {
      const steps = { ArrowLeft: -1, ArrowRight: 1, PageDown: 10, PageUp: -10, Home: -Infinity, End: Infinity };
      if (event.key === "Escape") { this.left(); this.output.textContent = ""; return; }
      const step = steps[event.key];
      if (step === undefined) return;
      event.preventDefault();
      const at = Math.min(this.xs.length - 1, Math.max(0, this.at + step));
      this.tell(this.xs[at]);
    }
  }

  function prepare() {
    for (const element of document.querySelectorAll("[data-chart]")) new Chart(element);
  }
  prepare();

  // --- New results ---------------------------------------------------------------------------

  const QUIET_MS = 10000;
  let shown = Date.now();
  let waiting = null;

  /** Returns true if an update would disturb nobody: neither pointer nor focus is in the results. */
  function isFree() {
    return !document.hidden && !answer.matches(":hover") && !answer.contains(document.activeElement);
  }

  function refresh() {
    clearTimeout(waiting);
    const rest = shown + QUIET_MS - Date.now();
    if (rest > 0 || !isFree()) {
      waiting = setTimeout(refresh, Math.max(rest, 2000));
      return;
    }
    shown = Date.now();
    show(location.href, false);
  }

  if (answer && answer.hasAttribute("data-live") && "EventSource" in window) {
    let first = true;
    const events = new EventSource("/live");
    // The first event describes the present state, which the page already shows.
    events.addEventListener("change", () => { if (first) first = false; else refresh(); });
    window.addEventListener("pagehide", () => events.close());
  }
})();

// Sorts and filters tables, shows the values of curves under the pointer, hides curves. The page has
// every measured number without this script. Texts of runs are set as text, never as markup.
(() => {
  'use strict';

  const element = (name, className, text) => {
    const made = document.createElement(name);
    if (className) made.className = className;
    if (text !== undefined) made.textContent = text;
    return made;
  };

  // Tables: a click on a head sorts by that column, a second click reverses the order.

  const number = (text) => {
    const found = text.replace(/[\u202f\u00a0]/g, '').replace('\u2212', '-').match(/^-?[\d.]+/);
    return found ? Number.parseFloat(found[0]) : Number.NaN;
  };

  const compare = (a, b) => {
    const [x, y] = [number(a), number(b)];
    if (Number.isNaN(x) && Number.isNaN(y)) return a.localeCompare(b, 'en', { numeric: true });
    // Rows without a number sort last in both directions.
    if (Number.isNaN(x) || Number.isNaN(y)) return Number.isNaN(x) ? 1 : -1;
    return x - y;
  };

  const sortBy = (table, column, descends) => {
    const body = table.tBodies[0];
    const key = (row) => {
      const cell = row.cells[column];
      return cell ? (cell.dataset.sort ?? cell.textContent.trim()) : '';
    };
    const rows = [...body.rows].map((row, place) => ({ row, place, key: key(row) }));
    rows.sort((a, b) => {
      const isWord = Number.isNaN(number(a.key)) || Number.isNaN(number(b.key));
      const order = compare(a.key, b.key);
      const turned = descends && !(isWord && Number.isNaN(number(a.key)) !== Number.isNaN(number(b.key)));
      return (turned ? -order : order) || a.place - b.place;
    });
    body.append(...rows.map((entry) => entry.row));
  };

  const makeSortable = (table) => {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      const button = element('button', 'sort');
      button.type = 'button';
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener('click', () => {
        const descends = head.getAttribute('aria-sort') === 'ascending';
        heads.forEach((other) => other.removeAttribute('aria-sort'));
        head.setAttribute('aria-sort', descends ? 'descending' : 'ascending');
        sortBy(table, column, descends);
      });
    });
  };

  const makeFilterable = (table) => {
    const label = element('label', 'filter', 'Show variants with ');
    const input = element('input');
    input.type = 'search';
    input.placeholder = 'part of a name';
    label.append(input);
    const count = element('output', 'filter');
    count.setAttribute('aria-live', 'polite');
    const rows = [...table.tBodies[0].rows];
    const show = () => {
      const wanted = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      for (const row of rows) {
        const name = row.cells[0].textContent.toLowerCase();
        const isMeant = wanted.every((word) => name.includes(word));
        row.hidden = !isMeant;
        shown += isMeant ? 1 : 0;
      }
      count.textContent = wanted.length ? ` ${shown} of ${rows.length}` : '';
    };
    input.addEventListener('input', show);
    const line = element('p', 'filter');
    line.append(label, count);
    (table.closest('.scroll') ?? table).before(line);
  };

  for (const table of document.querySelectorAll('table.sortable')) {
    makeSortable(table);
    makeFilterable(table);
  }

  // Plots: the `metadata` element of a panel has the scale between its pixels and its values.

  const frameOf = (metadata) => {
    const [edges, values, logs, xName, yName, ...places] = metadata.textContent.split('\n');
    const numbers = (line) => line.split(' ').map(Number);
    const [left, right, top, bottom] = numbers(edges);
    const [x0, x1, y0, y1] = numbers(values);
    const [xLog, yLog] = numbers(logs);
    const named = places.map((line) => {
      const gap = line.indexOf(' ');
      return { at: Number(line.slice(0, gap)), name: line.slice(gap + 1) };
    });
    return {
      left, right, top, bottom, x0, x1, y0, y1, xLog, yLog, xName, yName, named, curves: [],
    };
  };

  const pointsOf = (polyline) => {
    const pairs = polyline.getAttribute('points').trim().split(/\s+/);
    return pairs.map((pair) => pair.split(',').map(Number));
  };

  const isCurve = (node) =>
    node.localName === 'polyline' && /^s-[ac]\d+$/.test(node.getAttribute('class') ?? '');

  // Returns the panels with their curves, and the names of the legend by the class of its swatch.
  const readPlot = (svg) => {
    const names = new Map();
    const frames = [];
    let swatch = null;
    let before = null;
    for (const node of svg.children) {
      const frame = frames.at(-1);
      if (node.localName === 'metadata') {
        frames.push(frameOf(node));
      } else if (!frame && isCurve(node)) {
        swatch = node.getAttribute('class');
      } else if (!frame && swatch && node.localName === 'text') {
        names.set(swatch, node.textContent);
        swatch = null;
      } else if (frame && isCurve(node)) {
        const points = pointsOf(node);
        // A short stroke without a name is a marker, not a curve.
        if (points.length > 2 || names.has(node.getAttribute('class'))) {
          const inks = [node];
          if (before?.localName === 'polygon') inks.push(before);
          const ink = node.getAttribute('class');
          frame.curves.push({ points, ink, name: names.get(ink) ?? '', inks });
        }
      } else if (frame && node.localName === 'circle') {
        frame.curves.at(-1)?.inks.push(node);
      }
      before = node;
    }
    return { svg, names, frames: frames.filter((frame) => frame.curves.length > 0) };
  };

  // Returns the vertical position of a curve in a column of pixels, or the end of the step there;
  // null outside the curve.
  const heightAt = (points, x) => {
    if (points.length === 0 || x < points[0][0] - 1 || x > points.at(-1)[0] + 1) return null;
    let [low, high] = [0, points.length - 1];
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (points[middle][0] <= x) low = middle;
      else high = middle;
    }
    const [[x0, y0], [x1, y1]] = [points[low], points[high]];
    if (x1 === x0) return y1;
    const share = Math.min(1, Math.max(0, (x - x0) / (x1 - x0)));
    return y0 + share * (y1 - y0);
  };

  const short = (value) => {
    if (!Number.isFinite(value)) return '\u2013';
    const size = Math.abs(value);
    if (size >= 100) return value.toFixed(0);
    return size === 0 ? '0' : String(Number(value.toPrecision(3)));
  };

  const value = (pixel, from, to, low, high, isLog) => {
    const at = low + ((pixel - from) / (to - from)) * (high - low);
    return isLog ? 10 ** at : at;
  };

  const tip = element('div', 'tip');
  tip.hidden = true;
  document.body.append(tip);
  const MOST_IN_TIP = 14;

  const rowsAt = (frame, x) => {
    const { top, bottom, y0, y1, yLog } = frame;
    const shown = frame.curves.filter((curve) => !curve.isOff);
    const heights = shown.map((curve) => ({ curve, y: heightAt(curve.points, x) }));
    const known = heights.filter((entry) => entry.y !== null).sort((a, b) => a.y - b.y);
    return known.map(({ curve, y }) => ({
      curve, text: `${short(value(y, bottom, top, y0, y1, yLog))}  ${curve.name}`,
    }));
  };

  const nearestPlace = (frame, x) => {
    const column = (place) =>
      frame.left + ((place.at - frame.x0) / (frame.x1 - frame.x0)) * (frame.right - frame.left);
    const by = frame.named.map((place) => ({ place, column: column(place) }));
    by.sort((a, b) => Math.abs(a.column - x) - Math.abs(b.column - x));
    return by[0];
  };

  const point = (plot, event, line) => {
    const matrix = plot.svg.getScreenCTM();
    if (!matrix) return;
    const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(matrix.inverse());
    const isInside = (frame) =>
      at.x >= frame.left && at.x <= frame.right && at.y >= frame.top && at.y <= frame.bottom;
    const frame = plot.frames.find(isInside);
    tip.hidden = !frame;
    line.setAttribute('visibility', frame ? 'visible' : 'hidden');
    if (!frame) return;
    const near = nearestPlace(frame, at.x);
    const x = near ? near.column : at.x;
    const place = near
      ? near.place.name
      : short(value(x, frame.left, frame.right, frame.x0, frame.x1, frame.xLog));
    for (const [name, set] of Object.entries({ x1: x, x2: x, y1: frame.top, y2: frame.bottom })) {
      line.setAttribute(name, set);
    }
    const rows = rowsAt(frame, x);
    tip.replaceChildren(element('b', '', `${place}  ${near ? '' : frame.xName}`));
    for (const { curve, text } of rows.slice(0, MOST_IN_TIP)) {
      const row = element('div', '');
      row.append(swatchOf(curve.ink), text);
      tip.append(row);
    }
    if (rows.length > MOST_IN_TIP) tip.append(element('div', '', `and ${rows.length - MOST_IN_TIP} more`));
    if (frame.yName) tip.append(element('div', 'unit', frame.yName));
    const width = document.documentElement.clientWidth;
    const isLeft = event.clientX > width / 2;
    tip.style.left = isLeft ? '' : `${event.clientX + 14}px`;
    tip.style.right = isLeft ? `${width - event.clientX + 14}px` : '';
    tip.style.top = `${Math.max(4, Math.min(event.clientY + 12, innerHeight - tip.offsetHeight - 4))}px`;
  };

  const SVG = 'http://www.w3.org/2000/svg';
  const drawn = (name, attributes) => {
    const made = document.createElementNS(SVG, name);
    for (const [key, set] of Object.entries(attributes)) made.setAttribute(key, set);
    return made;
  };

  const swatchOf = (ink) => {
    const swatch = drawn('svg', { class: 'swatch', viewBox: '0 0 24 9', 'aria-hidden': 'true' });
    swatch.append(drawn('line', { class: ink, x1: 0, y1: 4.5, x2: 24, y2: 4.5 }));
    return swatch;
  };

  const makePointable = (plot) => {
    const line = drawn('line', { class: 's-axis', visibility: 'hidden', 'stroke-width': 1 });
    plot.svg.append(line);
    plot.svg.addEventListener('pointermove', (event) => point(plot, event, line));
    plot.svg.addEventListener('pointerleave', () => {
      tip.hidden = true;
      line.setAttribute('visibility', 'hidden');
    });
  };

  // Adds a button for each named curve, folded below the plot.
  const makeSwitchable = (plot) => {
    const curves = plot.frames.flatMap((frame) => frame.curves).filter((curve) => curve.name);
    if (curves.length < 2) return;
    const box = element('div', 'curves');
    box.setAttribute('role', 'group');
    box.setAttribute('aria-label', 'Curves');
    const set = (entry, isOn) => {
      entry.curve.isOff = !isOn;
      entry.button.setAttribute('aria-pressed', String(isOn));
      for (const ink of entry.curve.inks) ink.style.display = isOn ? '' : 'none';
    };
    const entries = curves.map((curve) => {
      const button = element('button', 'curve');
      button.type = 'button';
      button.setAttribute('aria-pressed', 'true');
      button.append(swatchOf(curve.ink), curve.name);
      return { curve, button };
    });
    for (const entry of entries) {
      entry.button.addEventListener('click', () => set(entry, Boolean(entry.curve.isOff)));
      box.append(entry.button);
    }
    for (const [words, isOn] of [['All', true], ['None', false]]) {
      const button = element('button', 'curve all', words);
      button.type = 'button';
      button.addEventListener('click', () => entries.forEach((entry) => set(entry, isOn)));
      box.append(button);
    }
    const place = element('details', 'switches');
    place.append(element('summary', '', `Switch ${entries.length} curves on and off`), box);
    const caption = plot.svg.parentElement?.querySelector('figcaption');
    if (caption) caption.prepend(place);
    else plot.svg.after(place);
  };

  for (const svg of document.querySelectorAll('svg.plot')) {
    const plot = readPlot(svg);
    if (plot.frames.length === 0) continue;
    makePointable(plot);
    makeSwitchable(plot);
  }

  // Opens the folded sections around the target of a link.
  const unfold = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    for (let at = target?.closest('details'); at; at = at.parentElement?.closest('details')) {
      at.open = true;
    }
    target?.querySelector(':scope > details')?.setAttribute('open', '');
  };
  addEventListener('hashchange', unfold);
  unfold();
})();

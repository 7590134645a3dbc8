"use strict";
// Curves and histograms of the live page: what is drawn, and what moves it.

// --- canvases

/// The canvas at the size that it has on the screen, cleared.
function canvasOf(canvas, height) {
  const scale = devicePixelRatio || 1, width = canvas.clientWidth || 300;
  if (height) canvas.style.height = `${height}px`;
  const tall = height || canvas.clientHeight || 150;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(tall * scale);
  const to = canvas.getContext("2d");
  to.scale(scale, scale);
  to.font = "11px system-ui, sans-serif";
  return { to, width, height: tall };
}

/// Round numbers between two values.
function ticks(low, high, most) {
  const rough = (high - low) / most || 1, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((f) => f * power).find((s) => s >= rough) || rough;
  const out = [];
  for (let t = Math.ceil(low / step) * step; t <= high && out.length < 50; t += step)
    out.push(Math.abs(t) < step / 1e6 ? 0 : t);
  return out;
}

/// The same of moments, in seconds since 1970, or since a run's start.
function timeTicks(low, high, most) {
  const steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 86400];
  const step = steps.find((s) => s >= (high - low) / most);
  if (high - low < most || !step) return ticks(low, high, most);
  const zone = isMoment(low) ? new Date(low * 1000).getTimezoneOffset() * 60 : 0;
  const out = [];
  for (let t = Math.ceil((low - zone) / step) * step + zone; t <= high; t += step) out.push(t);
  return out;
}
const isMoment = (t) => t > 1e8;
function timeText(t, exactly) {
  if (!isMoment(t)) return t < 60 ? `${number(+t.toPrecision(6))} s` : duration(t);
  const date = new Date(t * 1000), text = date.toTimeString().slice(0, 8);
  return exactly ? `${text}.${String(date.getMilliseconds()).padStart(3, "0")}` : text;
}

// --- axes: of a point, [step, mean, least, greatest, rms, norm, time], which numbers are drawn

const overTime = () => state.axis === "time";
const xOf = (p) => (overTime() ? p[6] : p[0]);
const valueOf = (p) => p[{ mean: 1, rms: 4, norm: 5 }[state.what]] ?? null;
const smallest = () => (overTime() ? 0.01 : 1);  // between two ends
const xText = (x) => (overTime() ? timeText(x, true) : `step ${x}`);

/// Names and ticks below and left of an area: `xs` from, to, and where they are; `ys` likewise.
function drawAxes(to, xs, ys, yName, yText = number) {
  const [first, last, left, right] = xs, [bottom, top, down, up] = ys;
  to.strokeStyle = style("--rule");
  to.fillStyle = style("--soft");
  to.textAlign = "right";
  to.textBaseline = "middle";
  for (const t of ticks(bottom, top, 4)) {
    const at = down - ((t - bottom) / (top - bottom)) * (down - up);
    to.beginPath(); to.moveTo(left, at); to.lineTo(right, at); to.stroke();
    to.fillText(yText(t), left - 5, at);
  }
  to.textAlign = "center";
  to.textBaseline = "top";
  const most = Math.max((right - left) / 90, 2), span = last - first;
  const marks = overTime() ? timeTicks(first, last, most) : ticks(first, last, most);
  for (const t of marks) {
    const at = left + ((t - first) / span) * (right - left);
    to.fillText(overTime() ? timeText(t, span < most) : number(t),
      Math.min(at, right - 18), down + 4);
  }
  to.fillText(overTime() ? "time" : "step", (left + right) / 2, down + 18);
  to.save();
  to.translate(2, (up + down) / 2);
  to.rotate(-Math.PI / 2);
  to.fillText(yName, 0, 0);
  to.restore();
}
const axisLeft = 68, axisBelow = 33;

// --- curves

class Chart {
  constructor(title) {
    this.lines = [];
    this.entries = [];
    this.zoom = null;
    this.dirty = true;
    this.at = null;
    this.figure = make("figure", $("curves"));
    const tools = make("span", this.figure, "", "tools");
    const tool = (text, label, act) => {
      const b = make("button", tools, text);
      b.setAttribute("aria-label", `${label}: ${title}`);
      b.title = label;
      b.onclick = act;
    };
    tool("+", "Zoom in", () => this.scale(0.5));
    tool("−", "Zoom out", () => this.scale(2));
    tool("↔", "Show all", () => this.show(null));
    this.heading = make("h3", this.figure, title);
    this.canvas = make("canvas", this.figure);
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "img");
    this.caption = make("figcaption", this.figure);
    this.title = title;
    this.listen();
  }
  add(line) {
    line.number = this.lines.length;
    this.lines.push(line);
  }
  show(zoom) {
    this.zoom = zoom;
    this.dirty = true;
  }
  extent() {
    let from = Infinity, to = -Infinity;
    for (const { points } of drawnIn(this))
      if (points.length) {
        from = Math.min(from, xOf(points[0]));
        to = Math.max(to, xOf(points[points.length - 1]));
      }
    return from > to ? [0, 1] : [from, Math.max(to, from + smallest())];
  }
  scale(by, middle) {
    const [from, to] = this.zoom || this.extent(), [first, last] = this.extent();
    const center = middle ?? (from + to) / 2, half = Math.max(((to - from) * by) / 2, smallest());
    const left = Math.max(center - half, first), right = Math.min(center + half, last);
    this.show(left <= first && right >= last ? null : [left, right]);
  }
  move(part) {
    if (!this.zoom) return;
    const [from, to] = this.zoom, [first, last] = this.extent();
    const by = Math.min(Math.max((to - from) * part, first - from), last - to);
    this.show([from + by, to + by]);
  }
  listen() {
    const c = this.canvas;
    const value = (e) => {
      const x = e.clientX - c.getBoundingClientRect().left;
      return this.area ? this.area.value(x) : 0;
    };
    c.onpointerdown = (e) => { this.from = value(e); this.to = this.from; };
    c.onpointermove = (e) => {
      this.at = value(e);
      if (this.from !== undefined) this.to = this.at;
      this.dirty = true;
    };
    c.onpointerup = () => {
      if (this.from !== undefined && Math.abs(this.to - this.from) >= smallest())
        this.show([Math.min(this.from, this.to), Math.max(this.from, this.to)]);
      this.from = undefined;
    };
    c.onpointerleave = () => { this.at = null; this.from = undefined; this.dirty = true; };
    c.ondblclick = () => this.show(null);
    c.onkeydown = (e) => {
      const act = { "+": () => this.scale(0.5), "=": () => this.scale(0.5),
        "-": () => this.scale(2), "0": () => this.show(null),
        ArrowLeft: () => this.move(-0.25), ArrowRight: () => this.move(0.25) }[e.key];
      if (!act) return;
      e.preventDefault();
      e.stopPropagation();
      act();
    };
  }
  /// The points in view, smoothed: [where, value, min, max].
  inView(all) {
    const [from, to] = this.zoom || [-Infinity, Infinity];
    let average = null;
    const out = [];
    for (const p of all) {
      let value = valueOf(p);
      const x = xOf(p);
      if (value !== null && state.smooth > 0) {
        average = average === null ? value : state.smooth * average + (1 - state.smooth) * value;
        value = average;
      }
      if (x >= from && x <= to) out.push([x, value, p[2], p[3]]);
    }
    return out;
  }
  draw() {
    this.dirty = false;
    const { to, width, height } = canvasOf(this.canvas);
    const drawn = drawnIn(this);
    const views = drawn.map((l) => this.inView(l.points));
    const usable = (y) => y !== null && isFinite(y) && (!state.log || y > 0);
    const band = state.band && state.what === "mean";
    let low = Infinity, high = -Infinity;
    for (const v of views)
      for (const p of v)
        for (const y of band ? p.slice(1) : [p[1]])
          if (usable(y)) { low = Math.min(low, y); high = Math.max(high, y); }
    const place = state.log ? Math.log10 : (y) => y;
    const back = state.log ? (y) => 10 ** y : (y) => y;
    let bottom = low > high ? 0 : place(low), top = low > high ? 1 : place(high);
    if (bottom === top) { const room = Math.abs(top) * 0.1 || 0.5; bottom -= room; top += room; }
    const [first, last] = this.zoom || this.extent();
    const left = axisLeft, right = width - 6, up = 8, down = height - axisBelow;
    const x = (f) => left + ((f - first) / (last - first)) * (right - left);
    const y = (v) => down - ((place(v) - bottom) / (top - bottom)) * (down - up);
    this.area = { value: (px) => first + ((px - left) / (right - left)) * (last - first) };
    drawAxes(to, [first, last, left, right], [bottom, top, down, up],
      state.log ? `${state.what}, log` : state.what, (t) => number(back(t)));
    to.save();
    to.beginPath(); to.rect(left, up - 4, right - left, down - up + 8); to.clip();
    views.forEach((points, i) => this.drawLine(to, points, drawn[i], x, y, usable, band));
    if (this.from !== undefined && this.to !== undefined) {
      to.fillStyle = `${style("--focus")}33`;
      to.fillRect(x(this.from), up, x(this.to) - x(this.from), down - up);
    }
    if (this.at !== null && this.at !== undefined) {
      to.strokeStyle = style("--soft");
      to.setLineDash([2, 2]);
      to.beginPath(); to.moveTo(x(this.at), up); to.lineTo(x(this.at), down); to.stroke();
    }
    to.restore();
    this.describe(drawn, views);
  }
  drawLine(to, points, line, x, y, usable, band) {
    const color = style(`--c${line.number % 6}`);
    to.globalAlpha = line.faint ? 0.45 : 1;
    if (band && !line.faint && points.some((p) => p[2] !== p[3])) {
      const inside = points.filter((p) => usable(p[2]) && usable(p[3]));
      to.beginPath();
      inside.forEach((p) => to.lineTo(x(p[0]), y(p[3])));
      inside.reverse().forEach((p) => to.lineTo(x(p[0]), y(p[2])));
      to.fillStyle = `${color}2b`;
      to.fill();
    }
    to.strokeStyle = color;
    to.lineWidth = 1.7;
    to.lineJoin = "round";
    to.setLineDash(dashes[line.number % dashes.length]);
    to.beginPath();
    let open = false;
    for (const p of points) {
      if (!usable(p[1])) { open = false; continue; }
      if (open) to.lineTo(x(p[0]), y(p[1])); else to.moveTo(x(p[0]), y(p[1]));
      open = true;
    }
    to.stroke();
    to.setLineDash([]);
    to.lineWidth = 1;
    to.globalAlpha = 1;
    if (points.length === 1 && usable(points[0][1])) {
      to.fillStyle = color;
      to.fillRect(x(points[0][0]) - 2, y(points[0][1]) - 2, 4, 4);
    }
  }
  /// Keys of what is drawn: entries of the caption are made and taken away as there are more or
  /// less.
  describe(drawn, views) {
    while (this.entries.length > drawn.length) this.entries.pop().entry.remove();
    while (this.entries.length < drawn.length) {
      const entry = make("span", this.caption);
      this.entries.push({ entry, key: make("canvas", entry), text: make("span", entry) });
    }
    drawn.forEach((line, i) => {
      const { key, text } = this.entries[i];
      const { to, width, height } = canvasOf(key);
      to.strokeStyle = style(`--c${line.number % 6}`);
      to.lineWidth = 2;
      to.setLineDash(dashes[line.number % dashes.length]);
      to.beginPath(); to.moveTo(0, height / 2); to.lineTo(width, height / 2); to.stroke();
      const points = line.points;
      let shown = line.last ? line.last[state.what]
        : points.length ? valueOf(points[points.length - 1]) : null;
      let when = "";
      if (this.at !== null && views[i].length) {
        const near = views[i].reduce((a, b) =>
          Math.abs(b[0] - this.at) < Math.abs(a[0] - this.at) ? b : a);
        shown = near[1];
        when = ` at ${xText(near[0])}`;
      }
      text.textContent = `${number(shown)}${when}${line.label ? ` · ${line.label}` : ""}`;
    });
    const first = this.lines[0];
    this.canvas.setAttribute("aria-label",
      `${this.title}: last ${number(first.last.mean)} after ${first.firings} firings`);
  }
}

function seriesNews(s) {
  let line = state.series.get(s.id);
  if (!line) {
    const title = `${s.name}${s.path}` || "(no name)";
    line = { points: [], about: s };
    line.label = [s.place, s.transforms, s.device > 0 ? `device ${s.device}` : ""]
      .filter(Boolean).join(", ");
    state.series.set(s.id, line);
    if (!state.charts.has(title)) state.charts.set(title, new Chart(title));
    line.chart = state.charts.get(title);
    line.last = s.last;
    line.chart.add(line);
    line.row = make("tr", $("values").tBodies[0]);
    for (let i = 0; i < 10; ++i) make("td", line.row);
    line.row.id = `series-${s.id}`;
  }
  Object.assign(line, { last: s.last, all: s.all, firings: s.firings });
  if (s.runs) line.runs = s.runs;
  for (const [, run] of s.runs || []) state.run = Math.max(state.run, run);
  const seen = line.points.length ? line.points[line.points.length - 1][0] : -1;
  for (const p of s.points) if (p[0] > seen) line.points.push(p);
  if (line.points.length > mostPoints) line.points = line.points.filter((p, i) => i % 2 === 0);
  line.chart.dirty = true;
  const cells = [`${line.about.name}${line.about.path}`, s.firings, number(s.last.mean),
    number(s.last.rms), number(s.last.norm), number(s.all.min), number(s.all.max), s.all.nan,
    s.all.inf, line.about.place];
  cells.forEach((text, i) => {
    const cell = line.row.cells[i];
    cell.textContent = text;
    if (i === 7 || i === 8) cell.className = text > 0 ? "bad" : "";
  });
  line.row.dataset.mean = JSON.stringify(s.last.mean);
}

// --- histograms: a column of the map for what came from one moment that was kept to the next

function histogramNews(h) {
  let known = state.histograms.get(h.id);
  if (!known) {
    known = { history: [] };
    known.figure = make("figure", $("histograms"));
    known.now = make("span", known.figure, "", "now");
    known.heading = make("h3", known.figure, `${h.name}${h.path}`);
    known.canvas = make("canvas", known.figure);
    known.canvas.setAttribute("role", "img");
    make("figcaption", known.figure,
      "Left: what came when, the stronger the more. Right: all so far.");
    state.histograms.set(h.id, known);
  }
  for (const [end, from, to, bins, time] of h.history)
    known.history.push({ end, from, to, bins, time });
  if (known.history.length > mostColumns)
    known.history = known.history.filter((then, i) => i % 2 === 1);
  Object.assign(known,
    { from: h.from, to: h.to, bins: h.bins, end: h.firings, dirty: true });
  const bad = h.nan + h.inf;
  known.now.textContent = bad ? `${h.nan} nan, ${h.inf} inf` : "";
}

/// Counts of one range in the bins of another, which is as large or larger.
function rebinned(h, from, to, count) {
  const out = new Array(count).fill(0), width = (h.to - h.from) / h.bins.length;
  h.bins.forEach((n, i) => {
    const at = Math.floor((((h.from + (i + 0.5) * width) - from) / (to - from)) * count);
    if (n) out[Math.min(Math.max(at, 0), count - 1)] += n;
  });
  return out;
}

/// The columns of the map: where they begin and end, and what came in between.
function columnsOf(h) {
  const at = (then) => (overTime() ? then.time : then.end), all = [...h.history];
  if (!overTime() && (!all.length || all[all.length - 1].end < h.end)) all.push(h);
  let before = null, begin = overTime() && all.length > 1 ? 2 * at(all[0]) - at(all[1]) : 0;
  if (overTime() && all.length === 1) begin = at(all[0]) - 1;
  return all.map((then) => {
    const had = before ? rebinned(before, h.from, h.to, h.bins.length) : h.bins.map(() => 0);
    const bins = rebinned(then, h.from, h.to, h.bins.length).map((n, i) => Math.max(n - had[i], 0));
    const column = { begin, end: at(then), bins };
    before = then;
    begin = at(then);
    return column;
  });
}

/// The bins that count something, from the first to the last, and their ends.
function rangeInUse(h) {
  const first = Math.max(h.bins.findIndex((n) => n > 0), 0);
  let last = h.bins.length - 1;
  while (last > first && h.bins[last] === 0) --last;
  const width = (h.to - h.from) / h.bins.length;
  return [first, last, h.from + first * width, h.from + (last + 1) * width];
}

function drawHistogram(h) {
  h.dirty = false;
  if (!h.bins.length) return;
  const { to, width, height } = canvasOf(h.canvas);
  const [first, last, low, high] = rangeInUse(h), bins = last - first + 1;
  const left = axisLeft, split = width * 0.72, right = split - 4, up = 6, down = height - axisBelow;
  const tall = (down - up) / bins, color = style("--c0"), columns = columnsOf(h);
  const begin = columns.length ? columns[0].begin : 0;
  const end = columns.length ? columns[columns.length - 1].end : 1;
  drawAxes(to, [begin, end, left, right], [low, high, down, up], "value");
  const x = (t) => left + ((t - begin) / (end - begin)) * (right - left);
  columns.forEach((c) => {
    const counts = c.bins.slice(first, last + 1), most = Math.max(...counts, 1);
    counts.forEach((n, i) => {
      if (!n) return;
      to.globalAlpha = 0.12 + 0.88 * Math.sqrt(n / most);
      to.fillStyle = color;
      const [from, top] = [x(c.begin), down - (i + 1) * tall].map(Math.round);  // no seams
      to.fillRect(from, top, Math.max(Math.round(x(c.end)) - from, 1),
        Math.max(Math.round(down - i * tall) - top, 1));
    });
  });
  to.globalAlpha = 1;
  const most = Math.max(...h.bins, 1);
  to.fillStyle = style("--c1");
  h.bins.slice(first, last + 1).forEach((n, i) =>
    to.fillRect(split, down - (i + 1) * tall, (n / most) * (width - split - 4),
      Math.max(tall - 0.5, 0.5)));
  to.strokeStyle = style("--rule");
  to.strokeRect(left, up, right - left, down - up);
  h.canvas.setAttribute("aria-label",
    `${h.heading.textContent}: values from ${number(low)} to ${number(high)}`);
}


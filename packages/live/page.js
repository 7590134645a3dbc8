"use strict";
// The live page: keeps what the process tells by server-sent events, and draws what has changed.

const $ = (id) => document.getElementById(id);
const make = (tag, parent, text = "", className = "") => {
  const e = document.createElement(tag);
  if (text !== "") e.textContent = text;
  if (className) e.className = className;
  if (parent) parent.append(e);
  return e;
};
const asked = new URLSearchParams(location.search);
const token = asked.get("token") || "";
const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const dashes = [[], [6, 3], [2, 3], [9, 3, 2, 3], [12, 4], [4, 2, 1, 2]];
const number = (x) => {
  if (x === null || x === undefined) return "–";
  const size = Math.abs(x);
  if (Number.isInteger(x) && size < 1e7) return String(x);
  return size >= 1e5 || (size < 1e-3 && size > 0) ? x.toExponential(3) : String(+x.toPrecision(5));
};
const bytes = (n) => {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  for (; n >= 1024 && i < units.length - 1; ++i) n /= 1024;
  return `${number(+n.toPrecision(3))} ${units[i]}`;
};
const count = (n, what) => `${n} ${what}${n === 1 ? "" : "s"}`;
const duration = (s) => {
  if (s === null || !isFinite(s)) return "–";
  if (s < 60) return `${s.toFixed(1)} s`;
  const m = Math.floor(s / 60);
  return m < 60 ? `${m} min ${Math.round(s % 60)} s` : `${Math.floor(m / 60)} h ${m % 60} min`;
};

const state = {
  series: new Map(), charts: new Map(), histograms: new Map(), bars: new Map(), hooks: new Map(),
  images: new Map(), texts: 0, programs: new Map(), run: 0,
  files: [], compare: "", lastLine: 0, events: [], seconds: 0, smooth: 0, log: false, band: true,
  what: "mean", axis: "steps", paused: false,
};
const mostPoints = 4096, mostLines = 500, mostColumns = 256, timelineSeconds = 10;

// --- the rest

function progressNews(p) {
  let bar = state.bars.get(p.id);
  if (!bar) {
    const box = make("div", $("progress"), "", "bar");
    bar = { text: make("p", box), bar: make("progress", box) };
    bar.bar.setAttribute("aria-label", p.label || "Progress");
    state.bars.set(p.id, bar);
  }
  Object.assign(bar, { done: p.done, total: p.total });
  bar.bar.max = p.total;
  bar.bar.value = p.done;
  const left = p.done < p.total ? `, ${duration(p.left)} left` : "";
  bar.text.textContent = `${p.label ? `${p.label}: ` : ""}${p.done} of ${p.total}, `
    + `${duration(p.seconds)}${left}${p.numbers ? ` · ${p.numbers.trim()}` : ""}`;
}

function linesNews(lines, own = false) {
  const box = $("lines"), follows = box.scrollTop + box.clientHeight >= box.scrollHeight - 20;
  for (const line of lines) {
    if (line.number <= state.lastLine && !own) continue;
    state.lastLine = line.number;
    make("div", box, line.text, line.from);
  }
  while (box.childElementCount > mostLines) box.firstElementChild.remove();
  if (follows) box.scrollTop = box.scrollHeight;
}

const kinds = ["execute", "call", "tap", "delivery", "wait", "compile"];  // and the others
const kindColor = (kind) => (kinds.includes(kind) ? `--c${kinds.indexOf(kind)}` : "--soft");
function drawTimeline() {
  const threads = [...new Set(state.events.map((e) => e[4]))].sort((a, b) => a - b);
  const { to, width } = canvasOf($("timeline"), threads.length * 22 + 22);
  const end = state.seconds, begin = end - timelineSeconds, left = 58;
  const x = (s) => left + ((s - begin) / timelineSeconds) * (width - left - 6);
  to.fillStyle = style("--soft");
  to.textBaseline = "middle";
  threads.forEach((t, i) => to.fillText(`thread ${t}`, 2, i * 22 + 11));
  for (const t of ticks(begin, end, 6))
    to.fillText(`${number(t)} s`, x(t), threads.length * 22 + 10);
  for (const [kind, name, start, took, thread] of state.events) {
    if (start + took < begin) continue;
    const from = Math.max(x(start), left), row = threads.indexOf(thread) * 22;
    to.fillStyle = style(kindColor(kind));
    to.fillRect(from, row + 3, Math.max(x(start + took) - from, 1), 16);
  }
}

function programNews(p) {
  const details = make("details", $("programs"));
  const summary = make("summary", details, `${p.name} `);
  make("span", summary, `${count(p.operations, "operation")}, ${count(p.sites.length, "site")}`,
    "soft");
  state.programs.set(p.number, details);
  const list = make("ul", details);
  for (const s of p.sites) make("li", list, `${s.kind} ${s.name} at ${s.place}`);
  const text = make("pre", details);
  details.ontoggle = async () => {
    if (!details.open || text.textContent) return;
    text.textContent = "…";
    const answer = await fetch(`/program?number=${p.number}&token=${token}`).catch(() => null);
    text.textContent = answer && answer.ok ? await answer.text() : "The program is gone.";
  };
}

function goneNews(numbers) {
  for (const number of numbers) {
    const details = state.programs.get(number);
    if (!details || details.className) continue;
    details.className = "gone";
    make("span", details.querySelector("summary"), ", gone", "soft");
  }
}

function compilingNews(all) {
  $("compiling").hidden = all.length === 0;
  $("compiling").textContent = `Compiling ${all.map(
    (c) => `${c.name} for ${duration(c.seconds)}`).join(", ")}`;
}

function imageNews(i) {
  let known = state.images.get(i.id);
  if (!known) {
    const figure = make("figure", $("images"));
    known = { heading: make("h3", figure, `${i.name}${i.path}`), box: make("div", figure), figure };
    known.caption = make("figcaption", figure);
    state.images.set(i.id, known);
  }
  known.box.replaceChildren();
  i.urls.forEach((url, k) => {
    const image = make("img", known.box);
    image.src = url;
    image.alt = `${i.name}${i.path}${i.urls.length > 1 ? ` ${k}` : ""}, step ${i.firings - 1}`;
  });
  known.caption.textContent = `step ${i.firings - 1}, ${i.place}${
    i.urls.length ? "" : ", too large to be shown"}`;
}

function textsNews(texts) {
  $("texts").replaceChildren();
  for (const t of texts) {
    const figure = make("figure", $("texts"));
    make("h3", figure, t.name);
    make("pre", figure, t.text);
  }
  state.texts = texts.length;
}

function devicesNews(devices) {
  const body = $("devices").tBodies[0];
  body.replaceChildren();
  for (const d of devices) {
    const row = make("tr", body);
    for (const text of [`${d.kind} ${d.ordinal}`, d.delivered, d.pending, d.dropped, bytes(d.bytes),
      bytes(d.peak), bytes(d.limit)]) make("td", row, String(text));
  }
}

function processNews(p) {
  const parts = [`process ${p.pid} on ${p.host}`, `up ${duration(p.seconds)}`,
    `${bytes(p.memory)} of memory`, `${p.threads} threads`];
  if (p.ranks > 1) parts.splice(1, 0, `rank ${p.rank} of ${p.ranks}`);
  if (p.arguments) parts.push(`arguments: ${p.arguments}`);
  parts.push(`Postern ${p.version}`);
  $("process").textContent = parts.join(" · ");
  $("program").textContent = p.program || "Postern";
  state.host = `on ${p.host}${p.ranks > 1 ? `, rank ${p.rank}` : ""}`;
}

/// Which program, where, in which run: also in the window's title.
function nameAll() {
  const run = state.run % 2 ** 48;  // another XLA's begin there
  const where = [state.host, run && `run ${run}`].filter(Boolean).join(", ");
  $("where").textContent = where;
  document.title = `${$("program").textContent} ${where}`.trim();
}

function take(news) {
  state.seconds = news.seconds ?? state.seconds;
  (news.series || []).forEach(seriesNews);
  (news.histograms || []).forEach(histogramNews);
  (news.progress || []).forEach(progressNews);
  (news.programs || []).forEach(programNews);
  goneNews(news.gone || []);
  (news.images || []).forEach(imageNews);
  if (news.texts) textsNews(news.texts);
  if (news.compiling) compilingNews(news.compiling);
  if (news.devices) devicesNews(news.devices);
  if (news.process) processNews(news.process);
  if (news.hooks) hooksNews(news.hooks);
  nameAll();
  const begin = state.seconds - timelineSeconds;
  state.events = state.events.concat(news.events || []).filter((e) => e[2] + e[3] > begin);
  const filled = { curves: state.series.size, values: state.series.size,
    histograms: state.histograms.size, hooks: state.hooks.size,
    images: state.images.size, texts: state.texts,
    lines: state.lastLine || news.lines, timeline: 1, process: $("process").textContent,
    programs: $("programs").childElementCount, devices: $("devices").tBodies[0].rows.length };
  for (const [id, has] of Object.entries(filled))
    $(id).closest("section").classList.toggle("filled", Boolean(has));
  linesNews(news.lines || []);
  const maps = [state.hooks, state.series, state.histograms, state.bars, state.images];
  $("empty").hidden = state.texts > 0 || maps.some((map) => map.size > 0);
  $("timeline").hidden = state.events.length === 0;
}

function reset() {
  for (const id of ["curves", "histograms", "progress", "lines", "programs", "images", "texts"])
    $(id).replaceChildren();
  $("values").tBodies[0].replaceChildren();
  for (const map of [state.series, state.charts, state.histograms, state.bars, state.images,
    state.programs]) map.clear();
  compilingNews([]);
  state.texts = 0;
  state.lastLine = 0;
  state.events = [];
}

function allDirty() {
  state.charts.forEach((c) => { c.dirty = true; });
  state.histograms.forEach((h) => { h.dirty = true; });
}

function showAll() {
  state.charts.forEach((c) => c.show(null));
  redraw();
}

function find() {
  const wanted = $("find").value.toLowerCase();
  const hide = (e, text) => { e.hidden = !text.toLowerCase().includes(wanted); };
  state.charts.forEach((c) => hide(c.figure, c.title));
  for (const map of [state.histograms, state.images])
    map.forEach((h) => hide(h.figure, h.heading.textContent));
  state.series.forEach((s) => hide(s.row, s.chart.title));
}

let held = [];  // while paused, or while nobody looks
const mostHeld = 600;  // a minute
function takeHeld() {
  for (const { news, whole } of held.splice(0)) {
    if (whole) reset();
    take(news);
  }
  if ($("find").value) find();
}
function frame() {
  if (!state.paused) takeHeld();
  state.charts.forEach((c) => { if (c.dirty && !c.figure.hidden) c.draw(); });
  state.histograms.forEach((h) => { if (h.dirty && !h.figure.hidden) drawHistogram(h); });
  if (state.events.length && !state.paused) drawTimeline();
}
let waiting = false;
function redraw() {
  if (waiting || document.hidden) return;
  waiting = true;
  requestAnimationFrame(() => { waiting = false; frame(); });
}

let source = null, updatesLeft = Number(asked.get("updates")) || Infinity;
function connect() {
  if (source) source.close();
  const timeline = $("record").checked ? "&timeline=1" : "";
  source = new EventSource(
    `/events?token=${encodeURIComponent(token)}&client=${client}${timeline}`);
  const status = (text, className) => {
    $("status").textContent = text;
    $("status").className = className;
  };
  const count = () => {
    if (--updatesLeft > 0) return;
    source.close();
    frame();  // now: who waits for these words reads the page at once
    status("as it was", "on");
  };
  source.onopen = () => status("live", "on");
  source.onerror = () => status("not connected; the program may have ended", "off");
  source.addEventListener("whole", (e) => {
    const news = JSON.parse(e.data);
    held = Object.keys(news).length ? [{ news, whole: true }] : [];
    redraw();
    count();
  });
  source.addEventListener("news", (e) => {
    held.push({ news: JSON.parse(e.data) });
    if (held.length > mostHeld) {
      pause(false);
      takeHeld();
    }
    redraw();
    count();
  });
}

$("smooth").oninput = (e) => { state.smooth = +e.target.value; allDirty(); redraw(); };
$("log").onchange = (e) => { state.log = e.target.checked; allDirty(); redraw(); };
$("band").onchange = (e) => { state.band = e.target.checked; allDirty(); redraw(); };
$("what").onchange = (e) => { state.what = e.target.value; allDirty(); redraw(); };
$("axis").onchange = (e) => { state.axis = e.target.value; showAll(); };
$("compare").onchange = (e) => { state.compare = e.target.value; showAll(); };
$("save").onclick = saveCurves;
$("open").onchange = (e) => openFiles(e.target.files);
$("open").parentElement.onkeydown = (e) => { if (e.key === "Enter") $("open").click(); };
$("find").oninput = () => { find(); redraw(); };
$("record").onchange = connect;
function pause(on) {
  state.paused = on;
  $("pause").setAttribute("aria-pressed", on);
  redraw();
}
function choose(id, value) {
  $(id).value = value;
  $(id).onchange({ target: $(id) });
}
$("pause").onclick = () => pause(!state.paused);
$("keys").onclick = () => {
  $("help").hidden = !$("help").hidden;
  $("keys").setAttribute("aria-expanded", !$("help").hidden);
};
document.onkeydown = (e) => {
  const own = ["INPUT", "BUTTON", "SUMMARY", "SELECT", "LABEL"];  // they have keys of their own
  if (own.includes(e.target.tagName) || e.ctrlKey || e.metaKey) return;
  const act = { " ": () => $("pause").click(), "/": () => $("find").focus(),
    l: () => $("log").click(),
    t: () => choose("axis", state.axis === "time" ? "steps" : "time"),
    r: () => choose("compare", state.compare ? "" : "runs") }[e.key];
  if (act) { e.preventDefault(); act(); }
};
document.onpointermove = redraw;
document.onpointerup = redraw;
document.addEventListener("keyup", redraw);
document.addEventListener("click", redraw);
document.addEventListener("dblclick", redraw);
document.addEventListener("visibilitychange", () => { allDirty(); redraw(); });
addEventListener("resize", () => { allDirty(); redraw(); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  allDirty();
  redraw();
});
for (const kind of [...kinds, "transfer"]) {
  make("i", $("kinds")).style.background = `var(${kindColor(kind)})`;
  $("kinds").append(kind);
}
connect();

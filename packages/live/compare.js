"use strict";
// Comparing runs: those of the program, each from its own start, and those of files.

const mostRuns = 6;

/// What a chart draws: its lines, or the last runs of each; and from files lines of its title,
/// which may have the transformations of its own lines behind it.
function drawnIn(chart) {
  const parts = state.compare === "runs" ? runsOf : (line) => [line];
  const own = chart.lines.flatMap(parts);
  const behind = new Set(["", ...chart.lines.map((line) => ` (${line.about.transforms})`)]);
  const others = state.files.flatMap(({ name, curves }) => [...behind].flatMap((end) => {
    const curve = curves.get(chart.title + end);
    return curve ? parts({ ...curve, label: name + end }) : [];
  })).map((line) => ({ ...line, points: line.points.filter((p) => xOf(p) !== undefined),
    faint: true }));
  others.forEach((line, i) => { line.number = own.length + i; });
  return own.concat(others);
}

/// The newest run in the line's color, older ones faint.
function runsOf(line) {
  const runs = (line.runs || []).slice(-mostRuns);
  if (runs.length < 2) return [line];
  return runs.map(([first, number], i) => {
    const end = i + 1 < runs.length ? runs[i + 1][0] : Infinity;
    const points = line.points.filter((p) => p[0] >= first && p[0] < end)
      .map((p) => [p[0] - first, ...p.slice(1)]);
    const start = points.length ? points[0][6] : 0;
    for (const p of points) if (p.length > 6) p[6] -= start;
    return { points, number: line.number + i, faint: i + 1 < runs.length,
      label: `run ${number}${line.label ? `, ${line.label}` : ""}` };
  });
}

function saveCurves() {
  const curves = [...state.series.values()].map((line) =>
    ({ title: line.chart.title, points: line.points, runs: line.runs }));
  const link = make("a", null);
  link.href = URL.createObjectURL(
    new Blob([JSON.stringify({ postern: 1, curves })], { type: "application/json" }));
  link.download = `curves-${new Date().toISOString().slice(0, 19).replace(/[:T]/g, "-")}.json`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

/// The fields of a table's line, of which some are in quotes.
function fieldsOf(line) {
  return [...line.matchAll(/(?:^|,)(?:"((?:[^"]|"")*)"|([^,]*))/g)]
    .map(([, quoted, plain]) => (quoted === undefined ? plain : quoted.replaceAll('""', '"')));
}

/// A curve of each column, and of three that are the least, the mean and the greatest of an array.
function curvesOfTable(text, add) {
  const [head, ...rows] = text.split(/\r?\n/).filter(Boolean).map(fieldsOf);
  const ends = [".min", ".mean", ".max"];
  head.forEach((name, i) => {
    if (["step", "time", "device"].includes(name)) return;
    for (const row of rows) add(name, +row[0], +row[i]);
    const array = name.slice(0, -".min".length);
    if (ends.every((end, k) => head[i + k] === array + end))
      for (const row of rows) add(array, +row[0], +row[i + 1], +row[i], +row[i + 2]);
  });
}

/// Titles of a file, and for each its points, and runs if it has any: what Save wrote, JSON Lines,
/// or a table.
function curvesIn(text) {
  const out = new Map();
  const add = (name, step, mean, min = mean, max = mean, ...more) => {
    const title = name || "(no name)";
    if (typeof step !== "number" || typeof mean !== "number" || !isFinite(mean)) return;
    if (!out.has(title)) out.set(title, { points: [] });
    out.get(title).points.push([step, mean, min, max, ...more.slice(0, 3)]);
  };
  if (text.startsWith("{\"postern\":1,")) {
    for (const { title, points, runs } of JSON.parse(text).curves) {
      for (const p of points) add(String(title), ...p);
      if (out.has(title)) out.get(title).runs = runs;
    }
  } else if (text.startsWith("{")) {
    for (const line of text.split("\n").filter(Boolean)) {
      const row = JSON.parse(line);
      for (const [name, v] of Object.entries(row.values)) {
        if (v !== null && typeof v === "object") add(name, row.step, v.mean, v.min, v.max);
        else add(name, row.step, v);
      }
    }
  } else {
    curvesOfTable(text, add);
  }
  if (!out.size) throw new Error("no curves are in it");
  return out;
}

async function openFiles(files) {
  for (const file of files) {
    try {
      state.files.push({ name: file.name, curves: curvesIn(await file.text()) });
    } catch (e) {
      const text = `${file.name}: ${e.message}`;
      linesNews([{ number: state.lastLine, from: "log", text }], true);
    }
  }
  allDirty();
  redraw();
}

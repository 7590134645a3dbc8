"use strict";
// Comparing runs: those of the program, each from its own start, and those of files.

const mostRuns = 6;

/// What a chart draws: its lines, or the last runs of each; and lines of its title from files.
function drawnIn(chart) {
  const parts = state.compare === "runs" ? runsOf : (line) => [line];
  const own = chart.lines.flatMap(parts);
  const others = state.files.flatMap(({ name, curves }) => {
    const curve = curves.get(chart.title);
    return curve ? parts({ ...curve, label: name }) : [];
  }).map((line) => ({ ...line, faint: true }));
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

/// Titles of a file, and for each its points, and runs if it has any: what Save wrote, JSON Lines, or a table.
function curvesIn(text) {
  const out = new Map();
  const add = (title, step, mean, min = mean, max = mean) => {
    if (typeof step !== "number" || typeof mean !== "number" || !isFinite(mean)) return;
    if (!out.has(title)) out.set(title, { points: [] });
    out.get(title).points.push([step, mean, min, max]);
  };
  if (text.startsWith("{\"postern\":1,")) {
    for (const { title, points, runs } of JSON.parse(text).curves) {
      for (const p of points) add(String(title), p[0], p[1], p[2], p[3]);
      if (out.has(title)) out.get(title).runs = runs;
    }
  } else if (text.startsWith("{")) {
    for (const line of text.split("\n").filter(Boolean)) {
      const row = JSON.parse(line);
      for (const [path, v] of Object.entries(row.values)) {
        const title = path === row.tap || !path ? row.tap : `${row.tap}${path}`;
        if (v !== null && typeof v === "object") add(title, row.step, v.mean, v.min, v.max);
        else add(title, row.step, v);
      }
    }
  } else {
    const [head, ...rows] = text.split(/\r?\n/).filter(Boolean).map((l) => l.split(","));
    for (const row of rows)
      head.forEach((name, i) => {
        if (!["step", "time", "device"].includes(name)) add(name, +row[0], +row[i]);
      });
  }
  if (!out.size) throw new Error("no curves are in it");
  return out;
}

async function openFiles(files) {
  for (const file of files) {
    try {
      state.files.push({ name: file.name, curves: curvesIn(await file.text()) });
    } catch (e) {
      linesNews([{ number: state.lastLine, from: "log", text: `${file.name}: ${e.message}` }], true);
    }
  }
  allDirty();
  redraw();
}

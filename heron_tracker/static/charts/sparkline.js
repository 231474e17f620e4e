// A small line chart over time. A point without a value is a gap, never a 0.

import { s } from "../lib/dom.js";

const WIDTH = 132, HEIGHT = 26, PAD = 2;

// `values` and optional `minima`, oldest first; `text` describes the line.
export function spark(values, minima, text) {
  const known = [...values, ...(minima || [])].filter((v) => v !== null);
  if (!known.length) return null;
  const low = Math.min(0, ...known), high = Math.max(...known, low + 1e-9);
  const first = values.findIndex((v) => v !== null), span = Math.max(1, values.length - 1 - first);
  const x = (n) => PAD + ((WIDTH - 2 * PAD) * (n - first)) / span;
  const y = (v) => HEIGHT - PAD - ((HEIGHT - 2 * PAD) * (v - low)) / (high - low);
  const line = [], band = [];
  for (const run of runs(values)) {
    const points = run.map((n) => `${x(n).toFixed(1)} ${y(values[n]).toFixed(1)}`);
    line.push(run.length > 1 ? `M${points.join("L")}` : `M${points[0]}h.1`);
    if (minima && run.length > 1) {
      const below = run.map((n) => `${x(n).toFixed(1)} ${y(minima[n] ?? values[n]).toFixed(1)}`).reverse();
      band.push(`M${points.join("L")}L${below.join("L")}z`);
    }
  }
  return s("svg", { class: "spark", width: WIDTH, height: HEIGHT, viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": text },
    s("title", {}, text),
    band.length ? s("path", { class: "band", d: band.join("") }) : null,
    s("path", { class: "line", d: line.join("") }));
}

// Runs of indices with gaps of at most one point, because two reports may fall into one point.
function runs(values) {
  const found = [];
  let last = -9;
  values.forEach((value, n) => {
    if (value === null) return;
    if (n - last > 2) found.push([]);
    found[found.length - 1].push(n);
    last = n;
  });
  return found;
}

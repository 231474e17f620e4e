// Format numbers and times.

export function count(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  for (const [unit, name] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e4, "k"]]) {
    if (size >= unit) return `${(value / (name === "k" ? 1e3 : unit)).toFixed(size >= 100 * unit ? 0 : 1)} ${name}`;
  }
  return Number.isInteger(value) || size >= 1000 ? Math.round(value).toLocaleString("en") : value.toFixed(size < 10 ? 2 : 1);
}

export const rate = (value) => (value === null || value === undefined ? "–" : `${count(value)}/s`);

export function millis(value) {
  if (value === null || value === undefined) return "–";
  if (value >= 10_000) return `${(value / 1000).toFixed(1)} s`;
  return `${value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2)} ms`;
}

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  for (const [unit, name] of [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]]) {
    if (value >= unit) return `${(value / unit).toFixed(value >= 100 * unit ? 0 : 1)} ${name}`;
  }
  return `${Math.round(value)} B`;
}

export function age(since) {
  if (!since) return "–";
  const seconds = Math.max(0, Date.now() / 1000 - since);
  for (const [unit, name] of [[86_400, "d"], [3600, "h"], [60, "min"]]) {
    if (seconds >= unit) return `${Math.floor(seconds / unit)} ${name}`;
  }
  return `${Math.floor(seconds)} s`;
}

export const share = (value) => (value === null || value === undefined ? "–" : `${(100 * value).toFixed(0)} %`);
export const cores = (value) => (value === null || value === undefined ? "–" : value.toFixed(2));

// A value of a metric; `row` has its unit and scale.
export function quantity(value, row) {
  if (value === null || value === undefined) return "–";
  if (row.unit === "bytes") return bytes(value * row.scale);
  if (row.unit === "seconds") return value === 0 ? "0" : duration(value * row.scale);
  return count(value);
}

function duration(seconds) {
  for (const [unit, name] of [[86_400, "d"], [3600, "h"], [60, "min"]]) {
    if (seconds >= 2 * unit) return `${(seconds / unit).toFixed(1)} ${name}`;
  }
  return millis(1000 * seconds);
}

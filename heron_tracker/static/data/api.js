// All requests to the tracker, and live changes.

class ApiError extends Error {
  constructor(status, message) { super(message); this.status = status; }
}

async function get(path, parameters, signal) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== undefined && one !== null && one !== "") query.append(name, String(one));
    }
  }
  let response;
  try {
    response = await fetch(`${path}?${query}`, { signal, headers: { accept: "application/json" } });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "the tracker does not answer");
  }
  const body = await response.json().catch(() => null);
  if (!response.ok || !body || body.status !== "success") {
    throw new ApiError(response.status, body && body.message ? body.message : `HTTP ${response.status}`);
  }
  return body.result;
}

const names = (t) => ({ cluster: t.cluster, role: t.role, environ: t.environ, topology: t.topology });

export const topologies = (cursor, signal) => get("/api/v1/topologies", { cursor, limit: 200 }, signal);
export const topology = (t, signal) => get("/api/v1/topology", names(t), signal);
export const metrics = (t, component, instance, signal) =>
  get("/api/v1/topology/metrics", { ...names(t), component, instance }, signal);
export const timeline = (t, component, instance, metricname, interval, signal) =>
  get("/api/v1/topology/timeline", { ...names(t), component, instance, metricname, interval }, signal);
export const exceptions = (t, component, instance, signal) =>
  get("/api/v1/topology/exceptions", { ...names(t), component, instance }, signal);
export const runs = (signal) => get("/pipeline/runs", {}, signal);
export const kept = (signal) => get("/topologies/history", { limit: 200 }, signal);
export const history = (t, metricname, signal) =>
  get("/topologies/history/metrics", { ...names(t), id: t.id, metricname }, signal);
export const historyEvents = (t, kind, offset, limit, signal) =>
  get("/topologies/history/events", { ...names(t), id: t.id, kind, offset, limit }, signal);
export const log = (t, container, path, offset, length, signal) =>
  get("/topologies/container/filedata", { ...names(t), container, path, offset, length }, signal);
export const stacks = (t, instance, signal) => get("/topologies/jstack", { ...names(t), instance }, signal);
export const config = (t, signal) => get("/topologies/config", names(t), signal);
export const download = (t, container, path) =>
  `/topologies/container/filedownload?${new URLSearchParams({ ...names(t), container, path })}`;

// Call `changed(change)` for changes in the state stores and `connected(yes)`; return a function that ends this.
export function follow(changed, connected) {
  const source = new EventSource("/events");
  source.onopen = () => connected(true);
  source.onerror = () => connected(false);
  for (const kind of ["topology", "cluster", "everything"]) {
    source.addEventListener(kind, (event) => changed({ kind, ...JSON.parse(event.data) }));
  }
  return () => source.close();
}

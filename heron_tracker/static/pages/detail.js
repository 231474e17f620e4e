// Details of the selected component or process: metrics, exceptions, log, stacks, configuration.

import { spark } from "../charts/sparkline.js";
import * as api from "../data/api.js";
import { LatestRequest, fill, h } from "../lib/dom.js";
import { age, count, millis, quantity } from "../lib/format.js";
import { table } from "../lib/table.js";
import { LogView } from "./log.js";

const TABS = [["counters", "Counters"], ["exceptions", "Exceptions"], ["log", "Log"], ["stacks", "Stacks"],
  ["config", "Config"]];
const TREND_SECONDS = 3600;
const WINDOW_NAMES = { 600: "10 min", 3600: "1 h", 10800: "3 h", "-1": "all time" };

// Cut off the time before the topology began, and the unfinished last point of a counter.
function since(line, trend, began) {
  const from = Math.max(0, Math.floor((began - trend.starttime) / trend.step) + 1);
  const to = line.kind === "counter" ? -1 : undefined;
  return { ...line, values: line.values.slice(from, to), minima: line.minima && line.minima.slice(from, to) };
}

export class DetailView {
  constructor(t, go) {
    this.t = t;
    this.go = go;
    this.selection = {};
    this.request = new LatestRequest();
    this.shown = "";
    this.windows = null;
    this.heading = h("h2", {}, "Details");
    this.tabs = h("div", { class: "tabs", role: "tablist" });
    this.body = h("div", { id: "detail-body" });
    this.log = null;
    this.element = h("section", { class: "card", id: "detail", "aria-label": "Details" }, this.heading, this.tabs, this.body);
  }

  close() { this.request.stop(); this.closeLog(); }

  closeLog() { if (this.log) { this.log.close(); this.log = null; } }

  show(selection, data) {
    this.selection = selection;
    this.data = data;
    const { component, instance } = selection;
    this.tab = TABS.some(([key]) => key === selection.tab) ? selection.tab : "counters";
    this.heading.textContent = instance || (component ? `Component ${component}` : "All components");
    fill(this.tabs, TABS.map(([key, title]) => h("button", { type: "button", role: "tab", "data-key": `tab-${key}`,
      "aria-selected": key === this.tab ? "true" : "false", onclick: () => this.go({ ...this.selection, tab: key }) }, title)));
    const key = JSON.stringify([component, instance, this.tab]);
    if (key !== this.shown && data) {
      this.shown = key;
      this.closeLog();
      this.loaded = false;
      this.opened = new Set();
      fill(this.body, h("p", { class: "empty" }, "Loading…"));
      this.refresh();
    }
  }

  // Return the component under which a process reports its metrics.
  metricsComponent() {
    const { component, instance } = this.selection;
    if (component) return component;
    const kinds = { topology_master: "__tmanager__", stream_manager: "__stmgr__", metrics_manager: "__metricsmgr__",
      heron_container: "__container__", heron_scheduler: "__scheduler__" };
    return kinds[(instance || "").split("-")[0]] || "";
  }

  async refresh() {
    if (!this.data || (["stacks", "config"].includes(this.tab) && this.loaded)) return;
    if (this.tab === "log") return this.openLog();
    await this.request.show((signal) => this[`load_${this.tab}`](signal), (drawn) => {
      this.loaded = true;
      fill(this.body, drawn);
    }, (error) => fill(this.body, h("p", { class: "empty" }, error.message)));
  }

  async load_counters(signal) {
    const source = this.metricsComponent();
    if (!source) return h("p", { class: "empty" }, "Select a component in the graph or a process in a container.");
    const [answer, trend] = await Promise.all([
      api.metrics(this.t, source, this.selection.instance, signal),
      api.timeline(this.t, source, this.selection.instance, [], TREND_SECONDS, signal),
    ]);
    const lines = new Map(trend.series.map((line) => [line.name, since(line, trend, this.data.submitted_at)]));
    const counters = new Map(), latencies = new Map(), gauges = new Map();
    answer.windows.forEach((window, n) => {
      for (const m of window.metrics) {
        const into = m.kind === "latency" ? latencies : m.kind === "gauge" ? gauges : counters;
        if (!into.has(m.name)) into.set(m.name, []);
        into.get(m.name)[n] = m;
      }
    });
    const names = answer.windows.map((w) => WINDOW_NAMES[w.interval]);
    if (!counters.size && !latencies.size && !gauges.size) return h("p", { class: "empty" }, "No metrics reported yet.");
    return [
      this.table("Counters", names, counters, (m) => [this.amount(m), h("div", { class: "soft small" }, `${this.amount(m, m.rate)}/s`)], lines),
      this.table("Latencies, median", names, latencies, (m) => (m.latency ? [millis(m.latency.p50),
        h("div", { class: "soft small" }, `p99 ${millis(m.latency.p99)}`),
        h("div", { class: "soft small" }, `mean ${millis(m.latency.mean)}`)] : "–"), lines),
      this.table("Gauges", ["Now", ...names.slice(0, 3)], this.gaugeRows(gauges), (m) => m, lines),
    ];
  }

  // Totals of bytes have a unit, all others are numbers.
  amount(m, value = m.total) { return m.unit === "bytes" ? quantity(value, m) : count(value); }

  // Current range over all instances with the sum, and the ranges of the windows.
  gaugeRows(gauges) {
    const rows = new Map();
    for (const [name, found] of gauges) {
      const row = [];
      row.meaning = found.find(Boolean).help;
      const first = found.find(Boolean), { min, max } = first.now;
      row.push(min === max && first.total === max ? quantity(max, first) : [`≤ ${quantity(max, first)}`,
        h("div", { class: "soft small" }, `≥ ${quantity(min, first)}, sum ${quantity(first.total, first)}`)]);
      for (const m of found.slice(0, 3)) {
        row.push(m ? [`≤ ${quantity(m.range.max, m)}`, h("div", { class: "soft small" }, `≥ ${quantity(m.range.min, m)}`)] : null);
      }
      rows.set(name, row);
    }
    return rows;
  }

  table(title, columns, metrics, cell, lines) {
    if (!metrics.size) return null;
    const meaning = (values) => values.meaning || (values.find(Boolean) || {}).help || "";
    const trend = (name) => {
      const line = lines.get(name);
      return line ? spark(line.values, line.minima, `${name}, last hour`) : null;
    };
    return [h("h3", {}, title), table(["Metric", ...columns.map((name) => [name, true])], [...metrics].map(([name, values]) => h("tr", {},
      h("td", { class: "name mono", title: meaning(values) }, name, h("div", {}, trend(name))),
      columns.map((_, n) => h("td", { class: "number" }, values[n] ? cell(values[n]) : "–")))), { class: "metrics" })];
  }

  async load_exceptions(signal) {
    const { component, instance } = this.selection;
    const found = await api.exceptions(this.t, component, component ? instance : "", signal);
    if (!found.length) return h("p", { class: "empty" }, "No exceptions.");
    return found.map((e) => {
      const key = `${e.instance} ${e.class_name} ${e.traceback}`;
      return h("details", { open: this.opened.has(key), ontoggle: (event) => {
        if (event.target.open) this.opened.add(key); else this.opened.delete(key);
      } },
      h("summary", { "data-key": key }, h("b", {}, e.class_name), `: ${e.message} `, h("span", { class: "soft" },
        `${count(e.count)} times in ${e.instance}, last ${age(e.last_time)} ago, first ${age(e.first_time)} ago`)),
      h("pre", {}, e.traceback));
    });
  }

  async load_stacks(signal) {
    const { component, instance } = this.selection;
    if (!instance || !component) return h("p", { class: "empty" }, "Select an instance in a container.");
    const answer = await api.stacks(this.t, instance, signal);
    const again = () => { this.loaded = false; this.refresh(); };
    return [h("p", {}, h("button", { type: "button", onclick: again, "data-key": "again" }, "Refresh")),
      h("pre", { class: "log", tabindex: 0 }, answer.stdout)];
  }

  async load_config(signal) {
    const found = await api.config(this.t, signal);
    const shown = (value) => (typeof value === "string" ? value : JSON.stringify(value));
    return h("table", {}, h("tbody", {}, Object.entries(found).map(([key, value]) =>
      h("tr", {}, h("td", { class: "name mono" }, key), h("td", { class: "name mono" }, shown(value))))));
  }

  openLog() {
    if (this.log) return;
    const { component, instance } = this.selection;
    const logs = [];
    for (const container of this.data.container_list) {
      for (const p of container.processes) {
        if (instance ? p.name === instance : !component || p.component === component) logs.push([container.id, p.name]);
      }
    }
    if (!logs.length) { fill(this.body, h("p", { class: "empty" }, "No process selected.")); return; }
    this.log = new LogView(this.t, logs);
    fill(this.body, this.log.element);
    this.log.start();
  }
}

// History of a submission: metrics over time, and events.

import { spark } from "../charts/sparkline.js";
import * as api from "../data/api.js";
import { LatestRequest, fill, h } from "../lib/dom.js";
import { count, millis } from "../lib/format.js";
import { table } from "../lib/table.js";

const SHOWN = ["__emit-count", "__execute-count", "__fail-count", "__complete-latency", "__execute-latency"];

const KINDS = ["exception", "plan", "pressure", "checkpoint", "restore", "audit"];
const PAGE = 50;  // events


export class HistoryPage {
  constructor(parent, t, notice) {
    this.t = t;
    this.notice = notice;
    this.request = new LatestRequest();
    this.series = h("div", { class: "card", id: "history" });
    this.events = h("div", { class: "card", id: "events" });
    this.offset = 0;
    this.eventsRequest = new LatestRequest();
    this.kind = h("select", { "aria-label": "Kind of events", "data-key": "kind",
      onchange: () => { this.offset = 0; this.turn(); } },
    h("option", { value: "" }, "all"), KINDS.map((kind) => h("option", { value: kind }, kind)));
    this.newer = h("button", { type: "button", onclick: () => { this.offset -= PAGE; this.turn(); } }, "Newer");
    this.older = h("button", { type: "button", onclick: () => { this.offset += PAGE; this.turn(); } }, "Older");
    parent.append(h("h1", {}, t.topology), this.series, h("h2", {}, "Events"),
      h("p", { class: "row" }, this.kind, this.newer, this.older), this.events);
  }

  select() {}

  close() { this.request.stop(); this.eventsRequest.stop(); }

  refresh() {
    if (this.drawn) return undefined;
    return this.request.show(
      async (signal) => [await api.history(this.t, SHOWN, signal), await this.load(signal)],
      ([answer, events]) => { this.drawn = true; this.notice(""); this.draw(answer); this.list(events); },
      (error) => this.notice(`Cannot read the history: ${error.message}`));
  }

  // One more than is shown, to know whether older ones exist.
  load(signal) { return api.historyEvents(this.t, this.kind.value, this.offset, PAGE + 1, signal); }

  turn() {
    return this.eventsRequest.show((signal) => this.load(signal), (events) => { this.notice(""); this.list(events); },
      (error) => this.notice(`Cannot read the events: ${error.message}`));
  }

  draw({ series, step, starttime, endtime }) {
    const times = [];
    for (let time = starttime - (starttime % step); time < endtime; time += step) times.push(time);
    const head = ["Component", "Metric", "Total", "Maximum", `Points of ${step} s`];
    fill(this.series, series.length ? table(head, series.map((each) => line(each, times, step))) : h("p", { class: "empty" }, "No metrics."));
  }

  list(events) {
    this.newer.disabled = this.offset === 0;
    this.older.disabled = events.length <= PAGE;
    fill(this.events, events.length ? h("ul", {}, events.slice(0, PAGE).map((e) =>
      h("li", {}, `${new Date(1000 * e.time).toISOString()} ${e.kind} ${e.component || ""} `, h("b", {}, e.text),
        e.count > 1 ? ` × ${e.count}` : "")))
      : h("p", { class: "empty" }, "None."));
  }
}

function line(each, times, step) {
  const at = new Map(each.points.map((p) => [p.time, p]));
  const isLatency = each.kind === "latency";
  const value = (p) => (p === undefined ? null : isLatency ? p.p99 : p.total / step);
  const values = times.map((time) => value(at.get(time)));
  const all = each.points.reduce((sum, p) => sum + (isLatency ? p.count : p.total), 0);
  const most = Math.max(...each.points.map(value));
  const text = isLatency ? `p99 ${millis(most)}` : `${count(most)}/s`;
  return h("tr", {},
    h("td", { class: "name" }, each.component), h("td", { class: "name soft" }, each.metric),
    h("td", { class: "number" }, count(all)), h("td", { class: "number" }, text),
    h("td", {}, spark(values, null, `${each.metric} of ${each.component}, at most ${text}`)));
}

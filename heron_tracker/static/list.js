// The list of all topologies.

import * as api from "./api.js";
import { Newest, fill, h, pressure, state } from "./dom.js";
import { age, count, millis, rate } from "./format.js";
import { ended } from "./history.js";
import { streaming } from "./runs.js";

const COLUMNS = [
  ["Topology", "topology", (t) => t.topology],
  ["State", "state", (t) => t.state],
  ["Place", "place", (t) => `${t.cluster}/${t.role}/${t.environ}`],
  ["Containers", "containers", (t) => t.containers, true],
  ["Tasks", "tasks", (t) => t.tasks, true],
  ["Emitted", "emit", (t) => (t.flow ? t.flow.emit_rate : -1), true],
  ["Complete latency p50", "p50", (t) => (t.flow && t.flow.complete_latency ? t.flow.complete_latency.p50 : -1), true],
  ["p99", "p99", (t) => (t.flow && t.flow.complete_latency ? t.flow.complete_latency.p99 : -1), true],
  ["Failed, last min", "failed", (t) => (t.flow ? t.flow.failed : -1), true],
  ["Backpressure", "pressure", (t) => t.pressure.length],
  ["Submitted", "submitted", (t) => -t.submitted_at, true],
];

export const link = (t) =>
  `#/topology/${[t.cluster, t.role, t.environ, t.topology].map(encodeURIComponent).join("/")}`;

export class ListView {
  constructor(parent, notice) {
    this.notice = notice;
    this.sorted = ["topology", 1];
    this.text = "";
    this.rows = [];
    this.why = "The tracker has not answered yet."; // why this.rows may lack topologies; "" once all of them are known
    this.newest = new Newest();
    this.filter = h("input", { type: "search", placeholder: "Filter by name or place", "aria-label": "Filter",
      oninput: (event) => { this.text = event.target.value.toLowerCase(); this.draw(); } });
    this.table = h("div", { class: "card", id: "topologies" });
    this.summary = h("span", { class: "soft", role: "status" });
    this.streaming = h("div", { class: "card", id: "streaming", hidden: true });
    this.ended = h("div", { class: "card", id: "ended", hidden: true });
    parent.append(h("h1", {}, "Topologies"), h("p", { class: "row" }, this.filter, this.summary), this.table,
      this.streaming, this.ended);
  }

  pick() {}

  close() { this.newest.stop(); }

  refresh() {
    return this.newest.show((signal) => this.load(signal), ({ rows, total, clusters, kept, runs }) => {
      this.rows = rows;
      this.total = total;
      const stale = clusters.filter((c) => c.stale);
      this.why = stale.length ? "No topology is known: the state store does not answer." : "";
      this.notice(stale.map((c) => `The state store of ${c.name} does not answer; its last known state is shown.`).join(" "));
      this.draw();
      fill(this.streaming, streaming(runs));
      this.streaming.hidden = !this.streaming.hasChildNodes();
      fill(this.ended, ended(kept));
      this.ended.hidden = !this.ended.hasChildNodes();
    }, (error) => {
      this.notice(`Cannot refresh: ${error.message}`);
      if (!this.rows.length) {
        this.why = "No topology is known: the tracker cannot be reached.";
        this.draw();
      }
    });
  }

  async load(signal) {
    const rows = [];
    let answer, cursor = null;
    do {
      answer = await api.topologies(cursor, signal);
      rows.push(...answer.topologies);
      cursor = answer.next;
    } while (cursor && rows.length < 2000);
    // Without DuckDB or a history there is no such list; that is no fault of this page.
    const kept = await api.kept(signal).catch((error) => { if (error.name === "AbortError") throw error; return []; });
    return { ...answer, rows, kept, runs: await api.runs(signal) };
  }

  draw() {
    const shown = this.rows.filter((t) => `${t.topology} ${t.cluster}/${t.role}/${t.environ}`.toLowerCase().includes(this.text));
    const [key, direction] = this.sorted;
    const value = COLUMNS.find((c) => c[1] === key)[2];
    shown.sort((a, b) => (value(a) < value(b) ? -1 : value(a) > value(b) ? 1 : 0) * direction);
    this.summary.textContent = this.rows.length ? `${shown.length} of ${this.total ?? this.rows.length}` : "";
    if (!this.rows.length && this.why) {
      fill(this.table, h("p", { class: "empty" }, this.why));
      return;
    }
    if (!this.rows.length) {
      fill(this.table, h("p", { class: "empty" }, "No topology runs. Submit one: ",
        h("code", {}, "heron submit local examples/word_count.py WordCount")));
      return;
    }
    fill(this.table, h("table", {}, h("thead", {}, h("tr", {}, COLUMNS.map((c) => this.head(c)))),
      h("tbody", {}, shown.map((t) => this.row(t)))));
  }

  head([title, key, , numeric]) {
    const [now, direction] = this.sorted;
    const sort = now === key ? (direction > 0 ? "ascending" : "descending") : "none";
    const press = () => { this.sorted = [key, now === key ? -direction : 1]; this.draw(); };
    return h("th", { class: numeric ? "number" : "", "aria-sort": sort, scope: "col" },
      h("button", { type: "button", onclick: press, "data-key": `sort-${key}` }, title,
        now === key ? (direction > 0 ? " ▲" : " ▼") : ""));
  }

  row(t) {
    const flow = t.flow, latency = flow && flow.complete_latency;
    const failed = flow ? flow.failed : null;
    return h("tr", {},
      h("td", { class: "name" }, h("a", { href: link(t), "data-key": link(t) }, t.topology)),
      h("td", {}, state(t.state)),
      h("td", { class: "name soft" }, `${t.cluster}/${t.role}/${t.environ}`),
      h("td", { class: "number" }, t.containers),
      h("td", { class: "number" }, t.tasks),
      h("td", { class: "number" }, rate(flow ? flow.emit_rate : null)),
      h("td", { class: "number" }, millis(latency ? latency.p50 : null)),
      h("td", { class: "number" }, millis(latency ? latency.p99 : null)),
      h("td", { class: "number" }, failed ? h("span", { class: "state bad" }, `▲ ${count(failed)}`) : count(failed)),
      h("td", {}, t.pressure.length ? pressure([...new Set(t.pressure.map((p) => p.component || "link"))].join(", ")) : "none"),
      h("td", { class: "number" }, `${age(t.submitted_at)} ago`));
  }
}

// The list of all topologies, of Spark runs and of ended topologies.

import * as api from "../data/api.js";
import { LatestRequest, fill, h } from "../lib/dom.js";
import { age, bytes, count, millis, rate } from "../lib/format.js";
import { table } from "../lib/table.js";
import { pressure, state } from "../lib/widgets.js";
import { historyLink, topologyLink } from "../router.js";

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

export class TopologiesPage {
  constructor(parent, notice) {
    this.notice = notice;
    this.sorted = ["topology", 1];
    this.text = "";
    this.rows = [];
    this.why = "Loading…"; // why topologies may be missing, "" once all are known
    this.request = new LatestRequest();
    this.filter = h("input", { type: "search", placeholder: "Filter by name or place", "aria-label": "Filter",
      oninput: (event) => { this.text = event.target.value.toLowerCase(); this.draw(); } });
    this.table = h("div", { class: "card", id: "topologies" });
    this.summary = h("span", { class: "soft", role: "status" });
    this.streaming = h("div", { class: "card", id: "streaming", hidden: true });
    this.ended = h("div", { class: "card", id: "ended", hidden: true });
    parent.append(h("h1", {}, "Topologies"), h("p", { class: "row" }, this.filter, this.summary), this.table,
      this.streaming, this.ended);
  }

  select() {}

  close() { this.request.stop(); }

  refresh() {
    return this.request.show((signal) => this.load(signal), ({ rows, total, clusters, kept, runs }) => {
      this.rows = rows;
      this.total = total;
      const stale = clusters.filter((c) => c.stale);
      this.why = stale.length ? "The state store does not answer. Retrying." : "";
      this.notice(stale.map((c) => `The state store of ${c.name} does not answer; its last known state is shown.`).join(" "));
      this.draw();
      fill(this.streaming, drawSparkRuns(runs));
      this.streaming.hidden = !this.streaming.hasChildNodes();
      fill(this.ended, drawEndedTopologies(kept));
      this.ended.hidden = !this.ended.hasChildNodes();
    }, (error) => {
      this.notice(`Cannot refresh: ${error.message}`);
      if (!this.rows.length) {
        this.why = "The tracker is unreachable. Retrying.";
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
    // The list of histories requires DuckDB; without it the page works as usual.
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
      fill(this.table, h("p", { class: "empty" }, "No topology is running. Submit one: ",
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
      h("td", { class: "name" }, h("a", { href: topologyLink(t), "data-key": topologyLink(t) }, t.topology)),
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

const RUN_COLUMNS = ["Run", "State", ["Micro-batch", true], ["Files", true], ["Rows", true], ["Input", true],
  ["Duration", true], ["State size", true], ["State rows", true], ["Updated", true], "Spark"];

function drawSparkRuns(rows) {
  if (!rows.length) return [];
  const read = (run, shown) => (run.micro_batch < 0 ? "–" : shown);
  return [h("h2", {}, "Streaming on Spark"), table(RUN_COLUMNS, rows.map((run) => h("tr", {},
      h("td", { class: "name", title: run.file }, run.name),
      h("td", {}, run.state),
      h("td", { class: "number" }, read(run, run.micro_batch)),
      h("td", { class: "number" }, read(run, count(run.files))),
      h("td", { class: "number" }, read(run, count(run.rows))),
      h("td", { class: "number" }, read(run, rate(run.input_rate))),
      h("td", { class: "number" }, read(run, millis(1000 * run.batch_seconds))),
      h("td", { class: "number" }, bytes(run.state_bytes)),
      h("td", { class: "number" }, count(run.state_rows)),
      h("td", { class: "number" }, `${age(run.updated)} ago`),
      // Only web addresses become links.
      h("td", {}, /^https?:/.test(run.ui) ? h("a", { href: run.ui, rel: "noreferrer" }, "page") : "–"))))];
}

function drawEndedTopologies(rows) {
  const found = rows.filter((t) => !t.running);
  if (!found.length) return [];
  return [h("h2", {}, "Ended, with a history"), table(["Topology", "Place", "Tasks", "Submitted"], found.map((t) => h("tr", {},
      h("td", { class: "name" }, h("a", { href: historyLink(t), "data-key": historyLink(t) }, t.topology)),
      h("td", { class: "name soft" }, `${t.cluster}/${t.role}/${t.environ}`),
      h("td", { class: "number" }, Object.values(t.components).reduce((sum, n) => sum + n, 0)),
      h("td", { class: "number" }, `${age(t.submitted_at)} ago`))))];
}

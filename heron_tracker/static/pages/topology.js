// One topology: figures, health, state, graph, containers with processes, and details of the selection.

import { drawGraph } from "../charts/logical_plan.js";
import * as api from "../data/api.js";
import { LatestRequest, breakable, fill, h } from "../lib/dom.js";
import { age, bytes, cores, count, millis, rate, share } from "../lib/format.js";
import { table } from "../lib/table.js";
import { figure, icon, meter, pressure, state } from "../lib/widgets.js";
import { topologyLink } from "../router.js";
import { DetailView } from "./detail.js";

const NAMED_TASKS = 5;
const REASONS = { exception: "exception", failed: "failed by the bolt", timeout: "timed out", moved: "task moved",
  stream_manager_lost: "stream manager lost" };
const PROCESS_COLUMNS = ["Process", "State", ["PID", true], ["CPU", true], ["Memory", true], ["In", true], ["Out", true],
  ["Restarts", true]];

export class TopologyPage {
  constructor(parent, t, notice) {
    this.t = t;
    this.notice = notice;
    this.selection = {};
    this.data = null;
    this.request = new LatestRequest();
    this.title = h("h1", {}, t.topology);
    this.figures = h("section", { class: "card", "aria-label": "Figures", id: "figures" });
    this.health = h("section", { class: "card", "aria-label": "Health", id: "health" });
    this.kept = h("section", { class: "card", "aria-label": "State", id: "kept", hidden: true });
    this.graph = h("div", { class: "graph" });
    this.containers = h("section", { class: "card", id: "containers", "aria-label": "Containers" });
    this.detail = new DetailView(t, (selection) => this.go(selection));
    parent.append(this.title, this.figures, this.health, this.kept,
      h("section", { class: "card", id: "graph", "aria-label": "Logical plan" }, h("h2", {}, "Logical plan"), this.graph),
      h("div", { class: "split" }, this.containers, this.detail.element));
  }

  close() { this.request.stop(); this.detail.close(); }

  // The address contains the selection, so that it can be linked to and the back button works.
  go(selection) {
    const query = new URLSearchParams(Object.entries(selection).filter(([, value]) => value)).toString();
    this.select(selection);
    location.hash = topologyLink(this.t).slice(1) + (query ? `?${query}` : "");
  }

  select(selection) {
    this.selection = selection;
    if (this.data) this.draw();
    this.detail.show(selection, this.data);
  }

  refresh() {
    return this.request.show((signal) => api.topology(this.t, signal), (data) => {
      this.data = data;
      const why = [];
      if (data.stale) why.push("The state store does not answer; the last known state is shown.");
      if (!data.master_answers) why.push("The topology master does not answer; metrics are unavailable.");
      const shown = data.tasks_state && data.tasks_state.trouble;
      if (data.cause && data.cause !== shown) why.push(`It is ${data.state}: ${data.cause}.`);
      this.notice(why.join(" "));
      this.draw();
      this.detail.show(this.selection, data);
      this.detail.refresh();
    }, (error) => this.notice(error.status === 404 ? `${this.t.topology} does not exist (any more).` : `Cannot refresh: ${error.message}`));
  }

  draw() {
    const d = this.data;
    fill(this.title, d.topology, " ", h("small", {}, state(d.state)));
    fill(this.figures, this.drawFigures(d));
    fill(this.health, drawHealth(d));
    this.kept.hidden = !d.tasks_state;
    if (d.tasks_state) fill(this.kept, drawTasksState(d.tasks_state));
    fill(this.graph, drawGraph(d.graph, this.selection.component, (name) =>
      this.go(this.selection.component === name && !this.selection.instance ? {} : { component: name, tab: this.selection.tab })));
    fill(this.containers, h("h2", {}, "Containers"), this.drawContainers(d));
  }

  drawFigures(d) {
    const flow = d.flow, latency = flow && flow.complete_latency;
    return [
      h("dl", { class: "figures" },
        figure("Emitted by spouts", rate(flow ? flow.spout_emit_rate : null)),
        figure("Emitted in all", rate(flow ? flow.emit_rate : null)),
        figure("Complete p50", millis(latency ? latency.p50 : null)),
        figure("p99", millis(latency ? latency.p99 : null)),
        figure("Acked, last min", count(flow ? flow.acked : null)),
        figure("Failed, last min", count(flow ? flow.failed : null)),
        figure("Guarantee", d.mode === "ATMOST_ONCE" ? "ATMOST_ONCE: a tuple may be lost" : d.mode),
        d.put_aside ? figure("Put aside", count(d.put_aside)) : null,
        d.late ? figure("Late records", count(d.late)) : null,
        figure("Containers", d.containers),
        figure("Tasks", d.tasks),
        figure("Submitted", `${age(d.submitted_at)} ago by ${d.submission_user || "?"}`)),
      d.pressure.length ? h("p", { class: "row", id: "pressure" }, pressure("Backpressure: spouts wait for"),
        d.pressure.map((p) => p.text).join("; ")) : null,
    ];
  }

  drawContainers(d) {
    const rows = [];
    for (const container of d.container_list) {
      rows.push(h("tr", { class: "group" }, h("td", { colspan: PROCESS_COLUMNS.length }, `Container ${container.label} `,
        h("span", { class: "soft" }, container.host ? `on ${container.host} ` : ""), state(container.state))));
      for (const process of container.processes) rows.push(this.drawProcess(process));
    }
    return table(PROCESS_COLUMNS, rows);
  }

  drawProcess(p) {
    const flow = p.flow;
    const choose = () => this.go({ component: p.component || "", instance: p.name, tab: this.selection.tab });
    const isPicked = this.selection.instance === p.name || (!this.selection.instance && p.component && p.component === this.selection.component);
    return h("tr", { class: isPicked ? "picked" : "" },
      h("td", { class: "name" }, h("button", { type: "button", class: "link", onclick: choose, "data-key": `p-${p.name}` }, breakable(p.name)),
        p.last_error ? h("div", { class: "small soft" }, p.last_error.split("\n").pop().slice(0, 160)) : null,
        p.doing ? h("div", { class: "small" }, p.doing) : null),
      h("td", {}, state(p.state)),
      h("td", { class: "number" }, p.pid ?? "–"),
      h("td", { class: "number" }, cores(p.cpu)),
      h("td", { class: "number" }, bytes(p.memory)),
      h("td", { class: "number" }, flow ? rate(flow.execute_rate) : "–"),
      h("td", { class: "number" }, flow ? rate(flow.emit_rate) : "–"),
      h("td", { class: "number" }, p.restarts));
  }
}

// Lag, failures by reason, time held back, deaths, losses, CPU and memory.
function drawHealth(d) {
  const found = d.health;
  if (!found) return h("p", { class: "empty" }, "Health is unknown: the topology master does not answer.");
  const held = d.flow && d.flow.spout_time_share ? d.flow.spout_time_share.backpressured : null;
  return [
    h("dl", { class: "figures" },
      figure("Lag, oldest tree in flight", millis(found.lag_ms), found.lag_max_ms === null ? "requires acks" : `most in 3 h ${millis(found.lag_max_ms)}`),
      figure("Spouts held back, last min", share(held), `${millis(found.paused_ms)} since the start`, held > 0.05 ? "press" : ""),
      figure("Stream manager deaths", count(found.stream_manager_deaths), "", found.stream_manager_deaths ? "warn" : ""),
      figure("Tuples lost with a link", count(found.lost_tuples), "", found.lost_tuples ? "warn" : ""),
      meter("CPU, used of reserved", found.cpu, (v) => cores(v), "cores"),
      meter("Memory, used of reserved", found.memory, bytes, "")),
    drawReasons(found.failed_by_reason),
  ];
}

function drawReasons(found) {
  if (!found.length) return null;
  return h("p", { class: "row small", id: "reasons" }, h("span", { class: "soft" }, "Failed since the start:"),
    found.map((r) => h("span", { class: "chip" }, h("b", {}, count(r.count)), ` ${REASONS[r.reason] || r.reason}`,
      r.component ? ` in ${r.component}` : "")));
}

// Generation and checkpoints of a topology that keeps state.
function drawTasksState(found) {
  const last = found.last, under = found.under_way;
  const kind = found.phase === "failed" ? "bad" : found.trouble ? "warn" : "good";
  return [
    h("h2", {}, "State"),
    h("dl", { class: "figures" },
      figure("Generation", `${found.generation}, ${found.phase}`, found.phase_seconds === null ? "" : `for ${seconds(found.phase_seconds)}`, kind),
      figure("Last complete checkpoint", last ? last.number : "none yet",
        last && last.completed_at ? `${age(Date.parse(last.completed_at) / 1000)} ago` : ""),
      figure("Took", millis(last && last.duration_ms), last && last.last_aligned ? `waited most for ${last.last_aligned}` : ""),
      figure("Bubble", millis(last && last.bubble_ms), "spouts silent"),
      figure("Size", bytes(last && last.bytes)),
      figure("Restores", count(found.restores), found.cause && !found.trouble ? `the last after ${found.cause}` : "", found.restores ? "warn" : ""),
      figure("Checkpoints cancelled", count(found.cancelled), found.cancelled_why || "", found.cancelled ? "warn" : "")),
    found.trouble ? h("p", { class: "row", id: "trouble" }, h("span", { class: `state ${kind}` }, icon(kind), found.trouble)) : null,
    under ? h("p", { class: "row small", id: "under-way" }, h("span", { class: "soft" }, `Checkpoint ${under.number} is under way for ${seconds(under.seconds)}:`),
      under.waits_for.length ? `waits for ${few(under.waits_for)} to ${under.writing ? "write" : "align"}` : "it is being completed") : null,
    found.told ? null : h("p", { class: "small soft" }, "The topology master does not answer; this is the state of its last plan."),
  ];
}

const seconds = (value) => (value < 120 ? `${value.toFixed(value < 10 ? 1 : 0)} s` : age(Date.now() / 1000 - value));
const few = (names) => names.slice(0, NAMED_TASKS).join(", ") + (names.length > NAMED_TASKS ? ` and ${names.length - NAMED_TASKS} more` : "");

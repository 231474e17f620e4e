// One topology: figures, graph, containers with processes, and what is picked.

import * as api from "./api.js";
import { DetailView } from "./detail.js";
import { Newest, breakable, fill, h, pressure, state } from "./dom.js";
import { age, bytes, cores, count, millis, rate } from "./format.js";
import { drawGraph } from "./graph.js";
import { drawHealth } from "./health.js";
import { drawKept } from "./kept.js";
import { link } from "./list.js";

export class TopologyView {
  constructor(parent, t, notice) {
    this.t = t;
    this.notice = notice;
    this.picked = {};
    this.data = null;
    this.newest = new Newest();
    this.title = h("h1", {}, t.topology);
    this.figures = h("section", { class: "card", "aria-label": "Figures", id: "figures" });
    this.health = h("section", { class: "card", "aria-label": "Health", id: "health" });
    this.kept = h("section", { class: "card", "aria-label": "State", id: "kept", hidden: true });
    this.graph = h("div", { class: "graph" });
    this.containers = h("section", { class: "card", id: "containers", "aria-label": "Containers" });
    this.detail = new DetailView(t, (picked) => this.go(picked));
    parent.append(this.title, this.figures, this.health, this.kept,
      h("section", { class: "card", id: "graph", "aria-label": "Logical plan" }, h("h2", {}, "Logical plan"), this.graph),
      h("div", { class: "split" }, this.containers, this.detail.element));
  }

  close() { this.newest.stop(); this.detail.close(); }

  // What is picked stands in the address, so that it can be linked to and the back button works.
  go(picked) {
    const query = new URLSearchParams(Object.entries(picked).filter(([, value]) => value)).toString();
    this.pick(picked);
    location.hash = link(this.t).slice(1) + (query ? `?${query}` : "");
  }

  pick(picked) {
    this.picked = picked;
    if (this.data) this.draw();
    this.detail.show(picked, this.data);
  }

  refresh() {
    return this.newest.show((signal) => api.topology(this.t, signal), (data) => {
      this.data = data;
      const why = [];
      if (data.stale) why.push("The state store does not answer; the last known state is shown.");
      if (!data.master_answers) why.push("The topology master does not answer; there are no metrics at this moment.");
      const shown = data.tasks_state && data.tasks_state.trouble;
      if (data.cause && data.cause !== shown) why.push(`It is ${data.state}: ${data.cause}.`);
      this.notice(why.join(" "));
      this.draw();
      this.detail.show(this.picked, data);
      this.detail.refresh();
    }, (error) => this.notice(error.status === 404 ? `${this.t.topology} is not there (any more).` : `Cannot refresh: ${error.message}`));
  }

  draw() {
    const d = this.data;
    fill(this.title, d.topology, " ", h("small", {}, state(d.state)));
    fill(this.figures, this.drawFigures(d));
    fill(this.health, drawHealth(d));
    this.kept.hidden = !d.tasks_state;
    if (d.tasks_state) fill(this.kept, drawKept(d.tasks_state));
    fill(this.graph, drawGraph(d.graph, this.picked.component, (name) =>
      this.go(this.picked.component === name && !this.picked.instance ? {} : { component: name, tab: this.picked.tab })));
    fill(this.containers, h("h2", {}, "Containers"), this.drawContainers(d));
  }

  drawFigures(d) {
    const flow = d.flow, latency = flow && flow.complete_latency;
    const figure = (name, value) => h("div", {}, h("dt", {}, name), h("dd", {}, value));
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
        figure("Containers", d.containers),
        figure("Tasks", d.tasks),
        figure("Submitted", `${age(d.submitted_at)} ago by ${d.submission_user || "?"}`)),
      d.pressure.length ? h("p", { class: "row", id: "pressure" }, pressure("Backpressure: spouts wait for"),
        d.pressure.map((p) => p.text).join("; ")) : null,
    ];
  }

  drawContainers(d) {
    const heads = ["Process", "State", "PID", "CPU", "Memory", "In", "Out", "Restarts"];
    const numeric = new Set(["PID", "CPU", "Memory", "In", "Out", "Restarts"]);
    const rows = [];
    for (const container of d.container_list) {
      rows.push(h("tr", { class: "group" }, h("td", { colspan: heads.length }, `Container ${container.label} `,
        h("span", { class: "soft" }, container.host ? `on ${container.host} ` : ""), state(container.state))));
      for (const process of container.processes) rows.push(this.drawProcess(process, container.id));
    }
    return h("table", {}, h("thead", {}, h("tr", {}, heads.map((name) =>
      h("th", { scope: "col", class: numeric.has(name) ? "number" : "" }, name)))), h("tbody", {}, rows));
  }

  drawProcess(p, container) {
    const flow = p.flow;
    const choose = () => this.go({ component: p.component || "", instance: p.name, container, tab: this.picked.tab });
    const isPicked = this.picked.instance === p.name || (!this.picked.instance && p.component && p.component === this.picked.component);
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

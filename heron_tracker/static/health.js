// How a topology is: lag, fails by reason, time held back, deaths, losses, CPU and memory against what is reserved.

import { figure, h, icon, s } from "./dom.js";
import { bytes, cores, count, millis, share } from "./format.js";

const METER = 150;
const REASONS = { exception: "exception", failed: "failed by the bolt", timeout: "timed out", moved: "task moved",
  stream_manager_lost: "stream manager lost" };

export function drawHealth(d) {
  const found = d.health;
  if (!found) return h("p", { class: "empty" }, "No figures of health: the topology master does not answer.");
  const held = d.flow && d.flow.spout_time_share ? d.flow.spout_time_share.backpressured : null;
  return [
    h("dl", { class: "figures" },
      figure("Lag, oldest tree in flight", millis(found.lag_ms), found.lag_max_ms === null ? "known only with acks" : `most in 3 h ${millis(found.lag_max_ms)}`),
      figure("Spouts held back, last min", share(held), `${millis(found.paused_ms)} since the start`, held > 0.05 ? "press" : ""),
      figure("Stream manager deaths", count(found.stream_manager_deaths), "", found.stream_manager_deaths ? "warn" : ""),
      figure("Tuples lost with a link", count(found.lost_tuples), "", found.lost_tuples ? "warn" : ""),
      meter("CPU, used of reserved", found.cpu, (v) => cores(v), "cores"),
      meter("Memory, used of reserved", found.memory, bytes, "")),
    reasons(found.failed_by_reason),
  ];
}

// A bar beside the numbers; over the whole it turns to a warning.
function meter(name, of, text, unit) {
  if (!of) return figure(name, "–");
  const part = of.reserved > 0 ? of.used / of.reserved : null;
  const over = part !== null && part > 1;
  return h("div", {}, h("dt", {}, name),
    h("dd", { class: over ? "state warn" : "" }, over ? icon("warn") : null, `${text(of.used)} / ${text(of.reserved)} ${unit}`),
    part === null ? null : s("svg", { class: over ? "meter over" : "meter", width: METER, height: 7, role: "img", "aria-label": share(part) },
      s("title", {}, share(part)),
      s("rect", { class: "whole", width: METER, height: 7, rx: 3 }),
      s("rect", { class: "part", width: (METER * Math.min(1, part)).toFixed(1), height: 7, rx: 3 })));
}

function reasons(found) {
  if (!found.length) return null;
  return h("p", { class: "row small", id: "reasons" }, h("span", { class: "soft" }, "Failed since the start:"),
    found.map((r) => h("span", { class: "chip" }, h("b", {}, count(r.count)), ` ${REASONS[r.reason] || r.reason}`,
      r.component ? ` in ${r.component}` : "")));
}

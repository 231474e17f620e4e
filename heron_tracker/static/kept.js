// Of a topology that keeps state: its generation, its checkpoints, who is waited for.

import { figure, h, icon } from "./dom.js";
import { age, bytes, count, millis } from "./format.js";

const NAMED = 5;

export function drawKept(found) {
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
      under.waits_for.length ? `waits for ${few(under.waits_for)} to ${under.writing ? "write" : "align"}` : "it is made the last complete one") : null,
    found.told ? null : h("p", { class: "small soft" }, "The topology master does not answer; this is what its last plan says."),
  ];
}

const seconds = (value) => (value < 120 ? `${value.toFixed(value < 10 ? 1 : 0)} s` : age(Date.now() / 1000 - value));
const few = (names) => names.slice(0, NAMED).join(", ") + (names.length > NAMED ? ` and ${names.length - NAMED} more` : "");

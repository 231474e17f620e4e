// Icons, badges, figures and meters.

import { h, s } from "./dom.js";
import { share } from "./format.js";

const METER = 150;

// Every colour has an icon, so that no information depends on colour alone.
export const ICONS = {
  good: "M8 1a7 7 0 1 0 0 14A7 7 0 0 0 8 1zM7 11 4 8l1.200-1.200L7 8.600l4-4L12.200 6z",
  warn: "M8 1 .500 14.500h15zM7.200 6h1.600v4.500H7.200zm0 5.700h1.600v1.600H7.200z",
  bad: "M8 1a7 7 0 1 0 0 14A7 7 0 0 0 8 1zM5.600 4.400 8 6.800l2.400-2.400 1.200 1.200L9.200 8l2.400 2.400-1.200 1.200L8 9.200l-2.400 2.400-1.200-1.200L6.800 8 4.400 5.600z",
  calm: "M8 1a7 7 0 1 0 0 14A7 7 0 0 0 8 1zM5.500 5h1.700v6H5.500zm3.300 0h1.700v6H8.800z",
  press: "M1 2h14L10 8l5 6H1l5-6z",
};
export function icon(kind) {
  return s("svg", { viewBox: "0 0 16 16", "aria-hidden": "true" },
    s("path", { d: ICONS[kind], fill: "currentColor", "fill-rule": "evenodd" }));
}

const KINDS = {
  running: "good", paused: "calm", finished: "calm", starting: "warn", restarting: "warn", stopped: "calm", degraded: "warn", restoring: "warn",
  failing: "bad", dead: "bad", killed: "calm",
};
export const state = (name) => h("span", { class: `state ${KINDS[name] || "warn"}` }, icon(KINDS[name] || "warn"), name);
export const pressure = (text) => h("span", { class: "state press" }, icon("press"), text);

// A name with its value and an optional remark; `kind` selects an icon.
export function figure(name, value, below, kind) {
  return h("div", {}, h("dt", {}, name),
    h("dd", { class: kind ? `state ${kind}` : "" }, kind ? icon(kind) : null, value),
    below ? h("div", { class: "soft small" }, below) : null);
}

// A bar of used and reserved amounts, shown as a warning above 100 %.
export function meter(name, of, text, unit) {
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

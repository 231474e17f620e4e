// The logical plan as SVG. The tracker computes the layout.

import { s } from "../lib/dom.js";
import { millis, rate } from "../lib/format.js";
import { ICONS } from "../lib/widgets.js";

const cut = (text, length) => (text.length > length ? `${text.slice(0, length - 1)}…` : text);

export function drawGraph(graph, picked, choose) {
  const pressed = new Set(graph.nodes.filter((n) => n.pressed).map((n) => n.name));
  return s("svg", { width: graph.width, height: graph.height, viewBox: `0 0 ${graph.width} ${graph.height}`,
    role: "group", "aria-label": "Logical plan" },
    graph.edges.map((edge) => drawEdge(edge, pressed)),
    graph.nodes.map((node) => drawNode(node, picked === node.name, choose)));
}

function drawEdge(edge, pressed) {
  const points = edge.points;
  let path = `M${points[0][0]} ${points[0][1]}`;
  for (let n = 1; n < points.length; n++) {
    const [x0, y0] = points[n - 1], [x, y] = points[n], middle = (x0 + x) / 2;
    path += y0 === y ? `L${x} ${y}` : `C${middle} ${y0} ${middle} ${y} ${x} ${y}`;
  }
  const [x, y] = points[points.length - 1];
  const text = edge.streams.map((e) => `${e.stream}: ${e.grouping.toLowerCase()}`).join("\n");
  return s("g", { class: pressed.has(edge.destination) ? "edge pressed" : "edge" },
    s("title", {}, `${edge.source} → ${edge.destination}\n${text}`),
    s("path", { d: path }),
    s("path", { class: "tip", d: `M${x} ${y}l-9 -4.500v9z` }));
}

function drawNode(node, isPicked, choose) {
  const flow = node.flow, spout = node.kind === "spout";
  const failing = flow && flow.fail_rate > 0;
  const classes = ["node", node.kind, node.pressed ? "pressed" : "", failing ? "failing" : "", isPicked ? "picked" : ""];
  const speed = flow ? `${spout ? "out" : "in"} ${rate(spout ? flow.emit_rate : flow.execute_rate)}` : "no metrics";
  const latency = !flow ? "" : flow.wait && flow.execute
    ? `p99 wait ${millis(flow.wait.p99)}, code ${millis(flow.execute.p99)}`
    : flow.latency ? `p99 ${millis(flow.latency.p99)}` : "";
  const label = `${node.kind} ${node.name}, ${node.parallelism} tasks, ${speed}${node.pressed ? ", under backpressure" : ""}`;
  const act = () => choose(node.name);
  return s("g", { class: classes.join(" "), transform: `translate(${node.x} ${node.y})`, tabindex: 0, role: "button",
    "aria-label": label, "aria-pressed": isPicked ? "true" : "false", "data-key": `node-${node.name}`, onclick: act,
    onkeydown: (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); act(); } } },
    s("title", {}, node.name),
    s("rect", { class: "box", width: node.width, height: node.height, rx: 8 }),
    s("rect", { class: "stripe", x: 0, y: 10, width: 5, height: node.height - 20, rx: 2 }),
    s("text", { class: "title", x: 16, y: 23 }, cut(node.name, node.pressed ? 17 : 20)),
    s("text", { class: "faint", x: 16, y: 40 }, `${node.kind} × ${node.parallelism}`),
    s("text", { x: 16, y: 58 }, speed),
    s("text", { class: "faint", x: 16, y: 74 }, failing ? `✕ ${rate(flow.fail_rate)} failed` : latency),
    node.pressed ? s("path", { class: "press-icon", transform: `translate(${node.width - 27} 9)`,
      d: ICONS.press }) : null,
    busyBar(node));
}

// The share of time that the tasks were busy or held back.
function busyBar(node) {
  const share = node.flow && node.flow.time_share;
  if (!share) return null;
  const whole = node.width - 112, busy = whole * share.busy, held = whole * share.backpressured;
  return s("g", { transform: `translate(98 31)`, class: "bar" },
    s("title", {}, `busy ${(100 * share.busy).toFixed(0)} %, held back ${(100 * share.backpressured).toFixed(0)} %`),
    s("rect", { width: whole, height: 6, rx: 3, fill: "var(--line)" }),
    s("rect", { class: "busy", width: busy, height: 6, rx: 3 }),
    s("rect", { class: "pressed", x: busy, width: held, height: 6 }));
}

// Elements from plain values. Text of users only ever becomes a text node or an attribute value, never markup.

const SVG = "http://www.w3.org/2000/svg";

function build(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child === undefined || child === null || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return element;
}

export const h = (tag, attributes, ...children) => build(document.createElement(tag), attributes, children);
export const s = (tag, attributes, ...children) => build(document.createElementNS(SVG, tag), attributes, children);

// Resolves once no button of the mouse is down: what is being clicked must not be replaced before it is let go.
let pressed = false;
const waiting = [];
document.addEventListener("pointerdown", () => { pressed = true; }, true);
for (const name of ["pointerup", "pointercancel"]) {
  document.addEventListener(name, () => {
    pressed = false;
    setTimeout(() => waiting.splice(0).forEach((resume) => resume()), 0);
  }, true);
}
const calm = () => (pressed ? new Promise((resume) => waiting.push(resume)) : Promise.resolve());

// Of several questions only the newest is drawn: `ask(signal)`, then `draw(answer)`, or `failed(error)`.
export class Newest {
  stop() { if (this.control) this.control.abort(); }

  async show(ask, draw, failed) {
    this.stop();
    const { signal } = (this.control = new AbortController());
    try {
      const answer = await ask(signal);
      await calm();
      if (!signal.aborted) draw(answer);
    } catch (error) {
      if (error.name !== "AbortError") failed(error);
    }
  }
}

// A name that may be broken after its underscores and hyphens.
export const breakable = (name) => name.split(/(?<=[_-])/).flatMap((part) => [document.createElement("wbr"), part]).slice(1);

// Replace the children, but keep focus on the element with the same data-key.
export function fill(parent, ...children) {
  const active = document.activeElement;
  const key = active && parent.contains(active) ? active.getAttribute("data-key") : null;
  parent.replaceChildren(...children.flat(Infinity).filter((c) => c !== null && c !== undefined && c !== false));
  if (key !== null) {
    for (const element of parent.querySelectorAll("[data-key]")) {
      if (element.getAttribute("data-key") === key) { element.focus({ preventScroll: true }); break; }
    }
  }
}

// One of the icons that go with every colour, so that colour alone says nothing.
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

// A name with its value, and what is to be said below it; `kind` is an icon's.
export function figure(name, value, below, kind) {
  return h("div", {}, h("dt", {}, name),
    h("dd", { class: kind ? `state ${kind}` : "" }, kind ? icon(kind) : null, value),
    below ? h("div", { class: "soft small" }, below) : null);
}

// Elements from plain values. Text from users becomes text nodes and attribute values, never markup.

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

// Resolves when no mouse button is pressed, so that an element is not replaced while it is being clicked.
let pressed = false;
const waiting = [];
document.addEventListener("pointerdown", () => { pressed = true; }, true);
for (const name of ["pointerup", "pointercancel"]) {
  document.addEventListener(name, () => {
    pressed = false;
    setTimeout(() => waiting.splice(0).forEach((resume) => resume()), 0);
  }, true);
}
const pointerReleased = () => (pressed ? new Promise((resume) => waiting.push(resume)) : Promise.resolve());

// Draws only the latest of several requests: `ask(signal)`, then `draw(answer)` or `failed(error)`.
export class LatestRequest {
  stop() { if (this.control) this.control.abort(); }

  async show(ask, draw, failed) {
    this.stop();
    const { signal } = (this.control = new AbortController());
    try {
      const answer = await ask(signal);
      await pointerReleased();
      if (!signal.aborted) draw(answer);
    } catch (error) {
      if (error.name !== "AbortError") failed(error);
    }
  }
}

// Allow line breaks after underscores and hyphens of a name.
export const breakable = (name) => name.split(/(?<=[_-])/).flatMap((part) => [document.createElement("wbr"), part]).slice(1);

// Replace the children and keep the focus on the element with the same data-key.
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

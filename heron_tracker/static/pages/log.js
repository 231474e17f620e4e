// Log of a process: its end, and new lines.

import * as api from "../data/api.js";
import { h } from "../lib/dom.js";

const FIRST_BYTES = 64 * 1024;
const PART_BYTES = 256 * 1024;
const KEEP_CHARACTERS = 512 * 1024;
const FOLLOW_MS = 1000;

export class LogView {
  constructor(t, logs) {
    this.t = t;
    this.logs = logs;
    this.chosen = logs[0];
    this.offset = null;
    this.timer = 0;
    this.control = new AbortController();
    this.text = h("pre", { class: "log", tabindex: 0, "aria-label": "Log", id: "log" });
    this.follow = h("input", { type: "checkbox", id: "follow", checked: true });
    this.remark = h("span", { class: "soft small", role: "status" });
    this.save = h("a", { class: "small", download: "" }, "Download");
    this.select = h("select", { "aria-label": "Process", onchange: () => {
      this.chosen = this.logs[this.select.selectedIndex];
      this.restart();
    } }, logs.map(([, name]) => h("option", {}, name)));
    this.element = h("div", {}, h("p", { class: "row" }, this.select,
      h("label", {}, this.follow, " Follow"), this.save, this.remark), this.text);
  }

  get path() { return `${this.chosen[1]}.log`; }

  start() {
    this.save.href = api.download(this.t, this.chosen[0], this.path);
    this.offset = null;
    this.read();
  }

  restart() {
    this.control.abort();
    this.control = new AbortController();
    clearTimeout(this.timer);
    this.text.replaceChildren();
    this.start();
  }

  close() { this.control.abort(); clearTimeout(this.timer); }

  async read() {
    const { signal } = this.control;
    try {
      if (this.offset === null || this.follow.checked) await this.readMore(signal);
      this.remark.textContent = "";
    } catch (error) {
      if (error.name === "AbortError") return;
      this.remark.textContent = error.message;
    }
    if (!signal.aborted) this.timer = setTimeout(() => this.read(), FOLLOW_MS);
  }

  async readMore(signal) {
    const first = this.offset === null;
    const [container] = this.chosen;
    let part = await api.log(this.t, container, this.path, first ? -FIRST_BYTES : this.offset, first ? FIRST_BYTES : PART_BYTES, signal);
    if (!first && part.size < this.offset) {  // rotated: continue with the new file
      part = await api.log(this.t, container, this.path, 0, PART_BYTES, signal);
    }
    this.offset = part.offset + part.length;
    if (!part.data) return;
    const atEnd = this.text.scrollTop + this.text.clientHeight >= this.text.scrollHeight - 8;
    let text = part.data;
    if (first && part.offset > 0) text = text.slice(text.indexOf("\n") + 1);
    this.text.append(document.createTextNode(text));
    while (this.text.textContent.length > KEEP_CHARACTERS && this.text.childNodes.length > 1) this.text.firstChild.remove();
    if (first || (this.follow.checked && atEnd)) this.text.scrollTop = this.text.scrollHeight;
  }
}

// Streaming runs on Spark, below the topologies.

import { h } from "./dom.js";
import { age, bytes, count, millis, rate } from "./format.js";

const HEAD = [["Run"], ["State"], ["Micro-batch", true], ["Files", true], ["Rows", true], ["Input", true],
  ["Took", true], ["Kept", true], ["Kept rows", true], ["Heard", true], ["Spark"]];

export function streaming(rows) {
  if (!rows.length) return [];
  const read = (run, shown) => (run.micro_batch < 0 ? "–" : shown);
  return [h("h2", {}, "Streaming on Spark"), h("table", {},
    h("thead", {}, h("tr", {}, HEAD.map(([name, number]) => h("th", { scope: "col", class: number ? "number" : "" }, name)))),
    h("tbody", {}, rows.map((run) => h("tr", {},
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
      // Only what this page can lead to: an address on the web.
      h("td", {}, /^https?:/.test(run.ui) ? h("a", { href: run.ui, rel: "noreferrer" }, "page") : "–")))))];
}

// Tables with a head row.

import { h } from "./dom.js";

// `head`: names of the columns, or [name, true] for numbers; `rows`: elements for the body.
export function table(head, rows, attributes) {
  const columns = head.map((column) => (Array.isArray(column) ? column : [column, false]));
  return h("table", attributes || {},
    h("thead", {}, h("tr", {}, columns.map(([name, numeric]) => h("th", { scope: "col", class: numeric ? "number" : "" }, name)))),
    h("tbody", {}, rows));
}

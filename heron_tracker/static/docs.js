// The documentation of the REST interface, from /openapi.json.

import { h } from "./dom.js";

const content = document.getElementById("content");

function parameter(p) {
  const schema = p.schema || {};
  const type = schema.type || (schema.anyOf || []).map((s) => s.type).join(" or ");
  const fallback = schema.default === undefined ? "" : `, default ${JSON.stringify(schema.default)}`;
  return h("tr", {}, h("td", { class: "mono" }, p.name), h("td", {}, `${type}${fallback}`),
    h("td", {}, p.required ? "required" : ""), h("td", {}, p.description || schema.description || ""));
}

function operation(path, method, o) {
  const parameters = o.parameters || [];
  return h("details", {},
    h("summary", {}, h("span", { class: "mono" }, `${method.toUpperCase()} ${path}`), " ",
      h("span", { class: "soft" }, (o.deprecated ? "(older path) " : "") + (o.summary || ""))),
    h("p", {}, o.description || ""),
    parameters.length ? h("table", {}, h("tbody", {}, parameters.map(parameter))) : null,
    h("p", { class: "soft small" }, "Answers: ", Object.entries(o.responses).map(([code, r]) => `${code} ${r.description || ""}`).join(" · ")));
}

const schema = await (await fetch("/openapi.json")).json();
const groups = new Map();
for (const [path, methods] of Object.entries(schema.paths)) {
  for (const [method, o] of Object.entries(methods)) {
    const tag = (o.tags || ["other"])[0];
    if (!groups.has(tag)) groups.set(tag, []);
    groups.get(tag).push(operation(path, method, o));
  }
}
content.append(h("h1", {}, `${schema.info.title} ${schema.info.version}`), h("p", {}, schema.info.description),
  ...[...groups].map(([tag, operations]) => h("section", { class: "card" }, h("h2", {}, tag), operations)));

// Which view is shown, by the part of the address behind '#'; when it is drawn again.
//   #/                                          all topologies
//   #/topology/CLUSTER/ROLE/ENVIRON/NAME        one topology
//        ?component=C&instance=I&tab=T           and what is picked in it
//   #/history/CLUSTER/ROLE/ENVIRON/NAME/ID      what is kept of one that has ended

import * as api from "./api.js";
import { fill, h } from "./dom.js";
import { HistoryView } from "./history.js";
import { ListView } from "./list.js";
import { TopologyView } from "./topology.js";

const REFRESH_MS = 4000;
const content = document.getElementById("content");
let view = null;
let opened = "";

function address() {
  const [path, query] = location.hash.replace(/^#/, "").split("?");
  const parts = path.split("/").filter(Boolean).map(decodeURIComponent);
  return { parts, picked: Object.fromEntries(new URLSearchParams(query || "")) };
}

function route() {
  let where;
  try { where = address(); } catch { where = { parts: [], picked: {} }; }
  const [kind, cluster, role, environ, topology, id] = where.parts;
  const isHistory = kind === "history" && id !== undefined;
  const isTopology = isHistory || (kind === "topology" && topology !== undefined);
  const key = isTopology ? JSON.stringify([kind, cluster, role, environ, topology, id]) : "list";
  if (key !== opened || view === null) {
    if (view) view.close();
    opened = key;
    content.replaceChildren();
    const t = { cluster, role, environ, topology, id };
    view = isHistory ? new HistoryView(content, t, notice)
      : isTopology ? new TopologyView(content, t, notice) : new ListView(content, notice);
    document.title = isTopology ? `${topology} – Heron` : "Heron";
    const crumbs = isTopology ? [h("span", {}, `${cluster} / ${role} / ${environ} / `), h("b", {}, topology)] : [];
    fill(document.getElementById("crumbs"), crumbs);
  }
  view.pick(where.picked);
  view.refresh();
}

// A remark above the content: the tracker or a store does not answer. Empty: none.
function notice(text) {
  const box = document.getElementById("notice");
  box.hidden = !text;
  if (box.textContent !== text) box.textContent = text;
}

let soon = 0;
function refreshSoon() {
  clearTimeout(soon);
  soon = setTimeout(() => view.refresh(), 150);
}

window.addEventListener("hashchange", route);
document.addEventListener("visibilitychange", () => { if (!document.hidden) view.refresh(); });
setInterval(() => { if (!document.hidden) view.refresh(); }, REFRESH_MS);
document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); content.focus(); });
route();
const live = document.getElementById("live");
const undo = api.follow(refreshSoon, (yes) => { live.textContent = yes ? "● live" : "○ reconnecting"; });
window.addEventListener("pagehide", undo);

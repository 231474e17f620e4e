// Start of the page: open the page of the address, refresh it, and show notices.

import * as api from "./data/api.js";
import { fill, h } from "./lib/dom.js";
import { HistoryPage } from "./pages/history.js";
import { TopologiesPage } from "./pages/topologies.js";
import { TopologyPage } from "./pages/topology.js";
import { parseAddress } from "./router.js";

const REFRESH_MS = 4000;
const content = document.getElementById("content");
let view = null;
let opened = "";

function route() {
  const { page, t, selection, key } = parseAddress(location.hash);
  if (key !== opened || view === null) {
    if (view) view.close();
    opened = key;
    content.replaceChildren();
    const isTopology = page !== "topologies";
    view = page === "history" ? new HistoryPage(content, t, notice)
      : page === "topology" ? new TopologyPage(content, t, notice) : new TopologiesPage(content, notice);
    document.title = isTopology ? `${t.topology} – Heron` : "Heron";
    const crumbs = isTopology ? [h("span", {}, `${t.cluster} / ${t.role} / ${t.environ} / `), h("b", {}, t.topology)] : [];
    fill(document.getElementById("crumbs"), crumbs);
  }
  view.select(selection);
  view.refresh();
}

// Show a notice above the content, such as that the tracker does not answer. Empty: hide it.
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

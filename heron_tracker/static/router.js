// Addresses of the page: parse the part after '#', and build links.
//   #/                                          all topologies
//   #/topology/CLUSTER/ROLE/ENVIRON/NAME        one topology
//        ?component=C&instance=I&tab=T           and the selection in it
//   #/history/CLUSTER/ROLE/ENVIRON/NAME/ID      history of a submission

const path = (...parts) => parts.map(encodeURIComponent).join("/");

export const topologyLink = (t) => `#/topology/${path(t.cluster, t.role, t.environ, t.topology)}`;
export const historyLink = (t) => `#/history/${path(t.cluster, t.role, t.environ, t.topology, t.id)}`;

// Return { page, t, selection, key }; `key` is equal while the same page is shown.
export function parseAddress(hash) {
  const [text, query] = hash.replace(/^#/, "").split("?");
  let parts;
  try { parts = text.split("/").filter(Boolean).map(decodeURIComponent); } catch { parts = []; }
  const [kind, cluster, role, environ, topology, id] = parts;
  const t = { cluster, role, environ, topology, id };
  const selection = Object.fromEntries(new URLSearchParams(query || ""));
  const page = kind === "history" && id !== undefined ? "history"
    : kind === "topology" && topology !== undefined ? "topology" : "topologies";
  const key = page === "topologies" ? page : JSON.stringify([page, cluster, role, environ, topology, id]);
  return { page, t, selection, key };
}

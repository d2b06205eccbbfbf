// A heat map of the zones: each node as a square, the darker the more pods it has, and how many pods each zone has too many.

import { h, renew } from "./dom.js";
import { whileOpen } from "./live.js";
import { counted, number, shortKey } from "./words.js";

const MOST_SQUARES = 300;

/** Make the heat map, which reads the nodes once it is opened, and return what draws it again. */
export function zonesIn(element, store, isOpen) {
  let nodes = null;
  const drawAll = () => {
    const key = store.overview.keys.find((each) => each.domains?.length > 1 && shortKey(each.topologyKey) !== "hostname");
    element.hidden = !key;
    if (!key) return;
    const tooMany = excessOf(store.overview.rows, key.topologyKey);
    const worst = [...tooMany].sort((a, b) => b[1] - a[1])[0];
    renew(element, [key, [...tooMany], nodes], () => [
      h("summary", {}, worst ? `${heading(key)}: ${worst[0]} has ${counted(worst[1], "pod")} too many` : `${heading(key)} (${number(key.domains.length)})`),
      h("div", { class: "zones" }, key.domains.map((domain) => zone(domain, nodes?.filter((each) => each.domains[key.topologyKey] === domain), tooMany.get(domain) ?? 0, nodes)))]);
  };
  const load = whileOpen(element, "nodes", isOpen, (read) => {
    nodes = read;
    drawAll();
  });
  return () => { drawAll(); load(); };
}

function heading(key) {
  const name = shortKey(key.topologyKey);
  return `${name[0].toUpperCase()}${name.slice(1)}s`;
}

/** How many pods each domain has above what constraints allow there, added up. */
export function excessOf(rows, topologyKey) {
  const found = new Map();
  for (const { group } of rows) {
    if (group.topologyKey !== topologyKey || !group.violated) continue;
    for (const [domain, pods] of Object.entries(group.counts)) {
      const over = pods - group.minimum - group.maxSkew;
      if (over > 0) found.set(domain, (found.get(domain) ?? 0) + over);
    }
  }
  return found;
}

function zone(domain, own, tooMany, all) {
  const most = Math.max(1, ...(all ?? []).map((each) => each.pods));
  return h("section", { class: "zone", "aria-label": domain },
    h("h3", {}, domain, tooMany ? h("span", { class: "over" }, ` ${counted(tooMany, "pod")} too many`) : null),
    own ? h("p", { class: "faint" }, `${counted(own.reduce((sum, each) => sum + each.pods, 0), "pod")} on ${counted(own.length, "node")}`) : null,
    own ? h("div", { class: "squares" }, own.slice(0, MOST_SQUARES).map((each) => square(each, most))) : null,
    own && own.length > MOST_SQUARES ? h("p", { class: "faint" }, `and ${counted(own.length - MOST_SQUARES, "more node")}`) : null);
}

function square(node, most) {
  const state = [node.cordoned ? "cordoned" : "", node.ready ? "" : "not Ready"].filter(Boolean).join(", ");
  const words = `${node.name}: ${counted(node.pods, "pod")}${state ? `, ${state}` : ""}`;
  return h("span", { class: state ? "square unfit" : "square", role: "img", title: words, "aria-label": words, vars: { heat: `${Math.round((100 * node.pods) / most)}%` } }, number(node.pods));
}

// How the pods of a spread group are spread: bars against what maxSkew allows.

import { h, svg } from "./dom.js";
import { allowedIn, counted, number, shortKey } from "./words.js";

const MOST_COLUMNS = 160;

/** A bar for one domain: pods within what is allowed, pods above it, and a mark where that ends. */
export function domainBar(pods, allowed, most, { before = null } = {}) {
  const scale = Math.max(most, allowed, 1);
  const over = Math.max(0, pods - allowed);
  const part = (value) => `${(100 * value) / scale}%`;
  return h("span", { class: "bar", "aria-hidden": "true" },
    h("span", { class: "bar-within", vars: { size: part(Math.min(pods, allowed)) } }),
    over ? h("span", { class: "bar-over", vars: { from: part(allowed), size: part(over) } }) : null,
    h("span", { class: "bar-allowed", vars: { from: part(allowed) } }),
    before === null || before === pods ? null : h("span", { class: "bar-before", vars: { from: part(before) } }),
  );
}

/** A domain's number and bar, for a table's cell. */
export function domainCell(pods, group, most) {
  if (pods === undefined) return [h("span", { class: "uncounted", title: "This domain does not count for the constraint." }, "–")];
  const allowed = allowedIn(group);
  const over = pods > allowed;
  return [
    h("span", { class: over ? "pods over" : "pods" }, number(pods), over ? h("span", { class: "hidden-text" }, ` pods, ${allowed} allowed`) : null),
    domainBar(pods, allowed, most),
  ];
}

/** All domains of a group side by side, sorted by pods, for keys with many domains. */
export function distribution(group, counts = group.counts) {
  const allowed = allowedIn(group);
  const values = Object.values(counts).sort((a, b) => b - a);
  const empty = Math.max(0, group.domains - values.length);
  const drawn = sample([...values, ...Array(Math.min(empty, MOST_COLUMNS)).fill(0)], MOST_COLUMNS);
  const most = Math.max(allowed, drawn[0] ?? 0, 1);
  const over = values.filter((value) => value > allowed).length;
  const picture = svg("svg", { class: "distribution", viewBox: `0 0 ${drawn.length * 3} 24`, preserveAspectRatio: "none", "aria-hidden": "true" },
    svg("path", { class: "column", d: columns(drawn, most, (value) => value <= allowed) }),
    svg("path", { class: "column over", d: columns(drawn, most, (value) => value > allowed) }),
    svg("line", { x1: 0, x2: drawn.length * 3, y1: 24 - (24 * allowed) / most, y2: 24 - (24 * allowed) / most, class: "allowed-line" }),
  );
  const least = empty ? 0 : values.at(-1) ?? 0;
  const range = least === values[0] ? `${values[0]}` : `${least} to ${values[0] ?? 0}`;
  const said = `${range} in ${counted(group.domains, "domain")}${over ? `; ${number(over)} above ${allowed}` : ""}`;
  return [picture, h("span", { class: "said" }, group.domains ? said : "no eligible domain")];
}

/** Return the path of the columns of some values, which is far less to draw than an element each. */
function columns(values, most, isMeant) {
  return values.map((value, at) => (value && isMeant(value) ? `M${at * 3} 24v${((-24 * value) / most).toFixed(2)}h2.4V24z` : "")).join("");
}

function sample(values, most) {
  if (values.length <= most) return values;
  return Array.from({ length: most }, (_, at) => values[Math.floor((at * values.length) / most)]);
}

/** The key, kind and maxSkew of a constraint in words. */
export function constraintWords(group) {
  const least = group.minDomains > 1 ? `, minDomains ${group.minDomains}` : "";
  return `${shortKey(group.topologyKey)}, maxSkew ${group.maxSkew}${least}, ${group.whenUnsatisfiable}`;
}

/** The same domains before and after, one under the other. */
export function beforeAndAfter(group, after) {
  const domains = Object.keys({ ...group.counts, ...after }).sort();
  if (domains.length > 12) {
    return h("div", { class: "before-after many" },
      h("div", {}, h("b", {}, "now "), distribution(group)),
      h("div", {}, h("b", {}, "then "), distribution(group, after)));
  }
  const minimum = Math.min(...Object.values(after), Infinity);
  const allowed = (Object.keys(after).length < group.minDomains ? 0 : Number.isFinite(minimum) ? minimum : 0) + group.maxSkew;
  const most = Math.max(0, ...Object.values(group.counts), ...Object.values(after));
  return h("table", { class: "before-after" },
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, shortKey(group.topologyKey)), h("th", { scope: "col" }, "now"), h("th", { scope: "col" }, "then"), h("th", {}, h("span", { class: "hidden-text" }, "bar")))),
    h("tbody", {}, domains.map((domain) => {
      const now = group.counts[domain];
      const then = after[domain];
      return h("tr", {},
        h("th", { scope: "row" }, domain),
        h("td", {}, now === undefined ? "–" : number(now)),
        h("td", { class: then > allowed ? "over" : null }, then === undefined ? "gone" : number(then)),
        h("td", { class: "wide" }, then === undefined ? null : domainBar(then, allowed, most, { before: now ?? 0 })));
    })));
}

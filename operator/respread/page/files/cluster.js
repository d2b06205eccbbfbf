// The cluster view: a row for each spread group, worst first, with the pods of each domain.

import { constraintWords, distribution, domainCell } from "./bars.js";
import { sparkline } from "./charts.js";
import { fill, h } from "./dom.js";
import { allowedIn, clock, counted, dateAndTime, listed, number, shortKey, STATES, workloadName, workloadsOf } from "./words.js";

const ROW_PIXELS = 48;
const NARROW_ROW_PIXELS = 108;
const SPARE_ROWS = 8;

/** Choices of the person who looks, kept while the page is open. */
export const choices = { search: "", namespace: "", policy: "", states: new Set(), key: null };

/** Show the cluster, and return what draws it again. */
export function clusterView(main, store) {
  const summary = h("section", { class: "summary", "aria-label": "Summary" });
  const tools = h("section", { class: "tools", "aria-label": "Filters" });
  const said = h("p", { class: "found", role: "status" });
  const body = h("div", { class: "rows", role: "rowgroup" });
  const head = h("div", { class: "heads", role: "rowgroup" });
  const table = h("div", { class: "groups", role: "table", "aria-label": "Topology spread constraints, worst first" }, head, body);
  const course = h("section", { class: "course", "aria-label": "Since this page was opened" });
  fill(main, summary, tools, h("div", { class: "split" }, h("div", { class: "found-groups" }, said, table), course));
  const view = { shown: [], columns: null, first: -1, last: -1 };

  const draw = (what = {}) => {
    drawSummary(summary, store);
    if (what.all !== false) drawTools(tools, store, () => draw({ all: true }));
    drawCourse(course, store);
    const key = chosenKey(store);
    view.key = key;
    view.columns = key?.domains ?? null;
    view.shown = store.overview.rows.filter((row) => isWanted(row, key));
    said.textContent = view.shown.length === store.overview.rows.length
      ? `${counted(view.shown.length, "constraint")}, worst first.`
      : `${number(view.shown.length)} of ${counted(store.overview.rows.length, "constraint")}, worst first.`;
    table.setAttribute("aria-rowcount", view.shown.length + 1);
    drawHead(head, table, view);
    view.first = -1;
    drawRows(body, view, store, what.rows ? store.changedRows : new Map());
  };
  const scrolled = () => drawRows(body, view, store, new Map());
  addEventListener("scroll", scrolled, { passive: true });
  addEventListener("resize", scrolled, { passive: true });
  draw({ all: true });
  return {
    update: draw,
    close: () => { removeEventListener("scroll", scrolled); removeEventListener("resize", scrolled); },
  };
}

function chosenKey(store) {
  const keys = store.overview.keys;
  if (choices.key === "") return null;
  return keys.find((key) => key.topologyKey === choices.key) ?? keys[0] ?? null;
}

function isWanted(row, key) {
  const group = row.group;
  if (key && group.topologyKey !== key.topologyKey) return false;
  if (choices.namespace && group.namespace !== choices.namespace) return false;
  if (choices.policy && (row.policy ?? "") !== choices.policy) return false;
  if (choices.states.size && !choices.states.has(row.state)) return false;
  const words = choices.search.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return true;
  const text = `${group.namespace} ${group.workloads.map(workloadName).join(" ")} ${group.selector} ${row.reason ?? ""}`.toLowerCase();
  return words.every((word) => text.includes(word));
}

function drawSummary(element, store) {
  const overview = store.overview;
  const tone = overview.hardViolated ? "bad" : overview.violated ? "warn" : "good";
  const mark = { bad: "✗", warn: "!", good: "✓" }[tone];
  const notes = overview.notes;
  fill(element,
    h("h1", { class: tone }, h("span", { class: "mark", "aria-hidden": "true" }, mark), " ", overview.summary),
    h("p", { class: "facts" },
      `${counted(overview.pods, "pod")} on ${counted(overview.nodes, "node")}`,
      overview.waitingPods ? `, ${number(overview.waitingPods)} without a node` : "",
      ". ", policiesWords(overview)),
    notes.length ? h("details", { class: "notes", id: "notes" }, h("summary", {}, counted(notes.length, "note")), h("ul", {}, notes.map((note) => h("li", {}, note)))) : null);
}

function policiesWords(overview) {
  if (overview.defaultPolicy) return "There is no policy; this is what one with an empty spec would do.";
  return `Policies: ${listed(overview.policies.map((policy) => `${policy.name} (${policy.wrong.length ? "invalid" : policy.mode})`))}.`;
}

function drawTools(element, store, changed) {
  const rows = store.overview.rows;
  const key = chosenKey(store);
  const namespaces = [...new Set(rows.map((row) => row.group.namespace))].sort();
  const policies = [...new Set(rows.map((row) => row.policy).filter(Boolean))].sort();
  const ofKey = rows.filter((row) => !key || row.group.topologyKey === key.topologyKey);
  const tab = (value, name, groups, violated) => h("button", {
    type: "button", id: `key-${name}`, class: "tab", title: value || null, "aria-pressed": String((key?.topologyKey ?? "") === value),
    on: { click: () => { choices.key = value; changed(); } },
  }, name, h("span", { class: violated ? "count over" : "count" }, violated ? `${number(violated)} of ${number(groups)} violated` : number(groups)));
  fill(element,
    h("div", { class: "tabs", role: "group", "aria-label": "Topology key" },
      store.overview.keys.map((each) => tab(each.topologyKey, shortKey(each.topologyKey), each.groups, each.violated)),
      store.overview.keys.length > 1 ? tab("", "all keys", rows.length, store.overview.violated) : null),
    h("div", { class: "filters" },
      h("input", {
        type: "search", id: "search", placeholder: "Search workloads", "aria-label": "Search workloads, selectors and reasons", value: choices.search, autocomplete: "off",
        on: { input: (event) => { choices.search = event.target.value; changed(); } },
      }),
      select("namespace", "All namespaces", namespaces, changed),
      policies.length > 1 ? select("policy", "All policies", policies, changed) : null,
      h("div", { class: "states", role: "group", "aria-label": "States" }, Object.entries(STATES).map(([state, words]) => {
        const count = ofKey.filter((row) => row.state === state).length;
        return h("button", {
          type: "button", id: `state-${state}`, class: `chip state-${state}`, title: words.text, "aria-pressed": String(choices.states.has(state)), disabled: !count && !choices.states.has(state),
          on: { click: () => { choices.states.has(state) ? choices.states.delete(state) : choices.states.add(state); changed(); } },
        }, h("span", { class: "mark", "aria-hidden": "true" }, words.mark), ` ${words.word} ${number(count)}`);
      }))));
}

function select(name, all, values, changed) {
  return h("select", { id: name, "aria-label": name, value: choices[name], on: { change: (event) => { choices[name] = event.target.value; changed(); } } },
    h("option", { value: "" }, all), values.map((value) => h("option", { value, selected: value === choices[name] }, value)));
}

function drawHead(element, table, view) {
  const columns = view.columns;
  table.style.setProperty("--domains", columns ? String(columns.length) : "1");
  table.classList.toggle("with-domains", Boolean(columns));
  const cell = (text, name) => h("div", { role: "columnheader", class: name }, text);
  fill(element, h("div", { class: "group head", role: "row", "aria-rowindex": "1" },
    cell("State", "state"), cell("Workload", "workload"), cell("Skew", "skew"),
    columns ? columns.map((domain) => cell(domain, "domain")) : cell("Pods per domain, most first", "domain"),
    cell("What happens", "happens")));
}

function drawRows(body, view, store, changed) {
  const height = matchMedia("(max-width: 760px)").matches ? NARROW_ROW_PIXELS : ROW_PIXELS;
  const top = body.getBoundingClientRect().top;
  const first = Math.max(0, Math.floor(-top / height) - SPARE_ROWS);
  const last = Math.min(view.shown.length, Math.ceil((innerHeight - top) / height) + SPARE_ROWS);
  if (first === view.first && last === view.last && body.childElementCount) return;
  view.first = first;
  view.last = last;
  body.style.setProperty("height", `${Math.max(1, view.shown.length) * height}px`);
  if (!view.shown.length) {
    fill(body, h("p", { class: "nothing" }, store.overview.rows.length ? "No constraint matches the filters." : "No pod has a topology spread constraint."));
    return;
  }
  fill(body, view.shown.slice(first, last).map((row, at) => groupRow(row, first + at, height, view, changed)));
}

function groupRow(row, at, height, view, changed) {
  const { group } = row;
  const words = STATES[row.state];
  const before = changed.get(row.id);
  const cells = view.columns ? domainCells(group, view.columns, before) : h("div", { role: "cell", class: "domain spread" }, distribution(group));
  return h("div", {
    class: `group state-${row.state}${changed.has(row.id) ? " changed" : ""}`, role: "row", "aria-rowindex": String(at + 2), vars: { top: `${at * height}px` },
  },
    h("div", { role: "cell", class: "state", title: words.text }, h("span", { class: "mark", "aria-hidden": "true" }, words.mark), h("span", { class: "word" }, words.word)),
    h("div", { role: "cell", class: "workload" },
      h("a", { href: workloadLink(group), id: `row-${row.id}` }, workloadsOf(group)),
      h("span", { class: "faint" }, view.key ? group.namespace : `${group.namespace} · ${shortKey(group.topologyKey)}`)),
    h("div", { role: "cell", class: "skew", title: constraintWords(group) }, h("b", {}, number(group.skew)), h("span", { class: "faint" }, `/${number(group.maxSkew)}`), group.whenUnsatisfiable === "ScheduleAnyway" ? h("span", { class: "soft" }, "soft") : null),
    cells,
    h("div", { role: "cell", class: "happens" }, happens(row)));
}

function domainCells(group, columns, before) {
  const most = Math.max(0, ...Object.values(group.counts));
  return columns.map((domain) => {
    const pods = group.counts[domain];
    const known = before?.[domain];
    const step = known === undefined || pods === undefined ? 0 : pods - known;
    return h("div", { role: "cell", class: `domain${step ? " moved" : ""}`, "data-domain": domain },
      domainCell(pods, group, most),
      step ? h("span", { class: step > 0 ? "step more" : "step less", "aria-hidden": "true" }, step > 0 ? `+${step}` : String(step)) : null);
  });
}

/** What is done about a group, in a line. */
function happens(row) {
  const parts = [];
  const restores = row.skewAfter <= row.group.maxSkew;
  if (row.inFlight) parts.push(h("span", {}, `${counted(row.inFlight, "eviction")} under way`));
  if (row.group.violated && row.evictions) parts.push(h("span", {}, `${counted(row.evictions, "eviction")} ${restores ? "restore" : "improve"}${row.evictions === 1 ? "s" : ""} it`));
  if (row.reason) parts.push(h("span", { class: "reason", title: row.message }, row.reason));
  if (row.state === "NotSelected") parts.push(h("span", {}, "no policy restores it"));
  const shielded = row.protections.filter((each) => each.protected).length;
  if (shielded && shielded === row.protections.length) parts.push(h("span", { class: "shield", title: row.protections[0].message }, "⛨ scale-downs keep it"));
  return parts.length ? parts : [h("span", { class: "faint" }, row.group.skew ? `${allowedIn(row.group)} allowed` : "even")];
}

export function workloadLink(group) {
  const workload = group.workloads[0];
  return workload ? `#/workload/${encodeURIComponent(group.namespace)}/${encodeURIComponent(workloadName(workload))}` : "#/";
}

function drawCourse(element, store) {
  if (!store.live) {
    fill(element, h("h2", {}, "A snapshot"), h("p", {}, `The cluster as it was on ${dateAndTime(store.overview.time)}. It does not change; without --snapshot, this page follows the cluster.`));
    return;
  }
  const newest = store.happenings.slice(-30).reverse();
  fill(element,
    h("h2", {}, "Since this page was opened"),
    sparkline(store.points, "violated", "Violated constraints"),
    sparkline(store.points, "inFlight", "Evictions under way"),
    newest.length
      ? h("ol", { class: "happenings" }, newest.map((each) => h("li", { class: each.kind },
        h("time", { datetime: each.time }, clock(each.time)), " ",
        each.workload ? h("a", { href: `#/workload/${encodeURIComponent(each.namespace)}/${encodeURIComponent(each.workload)}` }, each.text) : each.text,
        each.namespace ? h("span", { class: "faint" }, ` in ${each.namespace}`) : null)))
      : h("p", { class: "faint" }, "Nothing has changed yet. Evictions, and constraints that become violated or hold again, appear here."));
}

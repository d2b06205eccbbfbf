// The cluster view: a row for each spread group, worst first, with the pods of each domain.

import { constraintWords, distribution, domainCell } from "./bars.js";
import { sparkline } from "./charts.js";
import { arrange, fill, h, renew } from "./dom.js";
import { ask, aWhileLater, oneAtATime } from "./live.js";
import { atOnce, inSlices } from "./slices.js";
import { allowedIn, clock, counted, dateAndTime, listed, number, sentence, shortKey, STATES, workloadLink, workloadName, workloadsOf } from "./words.js";
import { pendingIn } from "./pending.js";
import { zonesIn } from "./zones.js";

const ROW_PIXELS = 56;
const NARROW_ROW_PIXELS = 124;
const SPARE_ROWS = 8;
const MOST_MOVING = 12; // If more of the rows in view change at once, they are drawn without a movement.
const MOST_HAPPENINGS = 30;
const MOST_TEAMS = 50;
const EVENTS_MILLISECONDS = 10000; // Between two readings of Events while the cluster changes.
const WRITTEN_MILLISECONDS = 2000; // From a change until its Event is written.
const NOTHING_MOVES = new Map();

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
  const course = h("section", { class: "course", "aria-label": "What has happened" });
  const teams = h("details", { class: "teams", id: "teams", hidden: true });
  const zones = h("details", { class: "teams", id: "zones", hidden: true });
  const pending = h("details", { class: "teams", id: "pending", hidden: true });
  fill(main, summary, pending, teams, zones, tools, h("div", { class: "split" }, h("div", { class: "found-groups" }, h("div", { class: "above" }, said, barLegend()), table), course));
  const view = { shown: [], key: null, columns: null, drawn: new Map() };
  let open = true;
  const drawTools = toolsIn(tools, store, () => atOnce(drawTable()));
  const drawTeams = teamsIn(teams, store, () => atOnce(draw({})));
  const drawZones = zonesIn(zones, store, () => open);
  const drawPending = pendingIn(pending, store, () => open);
  const drawCourse = courseIn(course, store, () => open);

  function* drawTable(changed = NOTHING_MOVES) {
    drawTools(chosenKey(store));
    yield;
    const key = chosenKey(store); // Somebody may have chosen another one meanwhile.
    view.key = key;
    view.columns = key?.domains ?? null;
    view.shown = store.overview.rows.filter(wantedBy(key));
    const found = view.shown.length === store.overview.rows.length
      ? `${counted(view.shown.length, "constraint")}, worst first.`
      : `${number(view.shown.length)} of ${counted(store.overview.rows.length, "constraint")}, worst first.`;
    if (said.textContent !== found) said.textContent = found;
    table.setAttribute("aria-rowcount", view.shown.length + 1);
    renew(head, [view.columns], () => headRow(table, view.columns));
    yield;
    yield* drawRows(body, view, store, changed);
  }
  function* draw(what) {
    drawSummary(summary, store, () => { pending.open = true; pending.scrollIntoView(); });
    drawPending();
    yield;
    drawTeams();
    drawZones();
    yield;
    yield* drawCourse();
    yield;
    yield* drawTable(what.rows ? store.changedRows : NOTHING_MOVES);
  }
  const scrolled = () => atOnce(drawRows(body, view, store, NOTHING_MOVES));
  addEventListener("scroll", scrolled, { passive: true });
  addEventListener("resize", scrolled, { passive: true });
  atOnce(draw({}));
  return {
    update: (what) => inSlices(draw(what), () => open),
    close: () => { open = false; removeEventListener("scroll", scrolled); removeEventListener("resize", scrolled); },
  };
}

function barLegend() {
  return h("p", { class: "bar-legend" },
    [["within", "pods of a domain"], ["allowed", "the most that are allowed"], ["over", "pods above that"]].map(([looks, words]) => h("span", { class: "legend-entry" }, h("span", { class: `sample ${looks}` }), ` ${words}`)),
    h("span", { class: "skew-legend" }, "4/1: the fullest domain has 4 pods more than the emptiest (skew), and 1 is allowed (maxSkew)"));
}

function chosenKey(store) {
  const keys = store.overview.keys;
  if (choices.key === "") return null;
  return keys.find((key) => key.topologyKey === choices.key) ?? keys[0] ?? null;
}

function wantedBy(key) {
  const words = choices.search.toLowerCase().split(/\s+/).filter(Boolean);
  return (row) => {
    const group = row.group;
    if (key && group.topologyKey !== key.topologyKey) return false;
    if (choices.namespace && group.namespace !== choices.namespace) return false;
    if (choices.policy && (row.policy ?? "") !== choices.policy) return false;
    if (choices.states.size && !choices.states.has(row.state)) return false;
    if (!words.length) return true;
    const text = textOf(row);
    return words.every((word) => text.includes(word));
  };
}

const texts = new WeakMap();

/** What a search looks at. */
function textOf(row) {
  let text = texts.get(row);
  if (text === undefined) {
    const { group } = row;
    text = `${group.namespace} ${group.workloads.map(workloadName).join(" ")} ${group.selector} ${row.reason ?? ""}`.toLowerCase();
    texts.set(row, text);
  }
  return text;
}

function drawSummary(element, { overview }, showPending) {
  const { summary, notes, violated, hardViolated, unsatisfiable, ineffective, pods, nodes, waitingPods } = overview;
  const tone = hardViolated || unsatisfiable ? "bad" : violated || ineffective ? "warn" : "good";
  const mark = { bad: "✗", warn: "!", good: "✓" }[tone];
  const policies = policiesWords(overview);
  renew(element, [summary, tone, pods, nodes, waitingPods, policies, notes], () => [
    h("h1", { class: tone }, h("span", { class: "mark", "aria-hidden": "true" }, mark), " ", summary),
    h("p", { class: "facts" },
      `${counted(pods, "pod")} on ${counted(nodes, "node")}`, waitingPods ? [", ", h("button", { type: "button", id: "show-pending", class: "plain-link", on: { click: showPending } }, `${number(waitingPods)} without a node`)] : "", ". ", policies),
    notes.length ? h("details", { class: "notes", id: "notes" }, h("summary", {}, counted(notes.length, "note")), h("ul", {}, notes.map((note) => h("li", {}, note)))) : null,
  ]);
}

/** Make the table of namespaces, the worst first, and return what draws it. */
function teamsIn(element, store, changed) {
  const choose = (namespace) => () => { choices.namespace = choices.namespace === namespace ? "" : namespace; changed(); };
  return () => {
    const teams = namespacesOf(store.overview.rows);
    element.hidden = teams.length < 2;
    const worst = teams[0];
    renew(element, [teams, choices.namespace], () => [
      h("summary", {}, worst?.violated ? `Namespaces: ${worst.namespace} is worst, with ${number(worst.violated)} of ${counted(worst.groups, "constraint")} violated` : `Namespaces (${number(teams.length)})`),
      h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Namespaces" }, h("table", { class: "plain" },
        h("thead", {}, h("tr", {}, ["Namespace", "Violated", "Blocked", "Constraints", "Pods too many", "Worst skew above maxSkew", "Evictions planned"].map((text) => h("th", { scope: "col" }, text)))),
        h("tbody", {}, teams.slice(0, MOST_TEAMS).map((each) => h("tr", {},
          h("th", { scope: "row" }, h("button", { type: "button", id: `team-${each.namespace}`, class: "plain-link", "aria-pressed": String(choices.namespace === each.namespace), on: { click: choose(each.namespace) } }, each.namespace)),
          h("td", { class: each.violated ? "over" : null }, number(each.violated)), h("td", {}, number(each.blocked)), h("td", {}, number(each.groups)),
          h("td", {}, number(each.excess)), h("td", {}, number(each.above)), h("td", {}, number(each.evictions))))))),
      teams.length > MOST_TEAMS ? h("p", { class: "faint" }, `and ${counted(teams.length - MOST_TEAMS, "more namespace")}`) : null]);
  };
}

/** What rows come to in each namespace, the worst first: more violated constraints, then more pods too many. */
export function namespacesOf(rows) {
  const found = new Map();
  for (const { group, state, evictions } of rows) {
    const namespace = group.namespace;
    const sum = found.get(namespace) ?? { namespace, groups: 0, violated: 0, blocked: 0, excess: 0, above: 0, evictions: 0 };
    found.set(namespace, sum);
    sum.groups += 1;
    sum.evictions += evictions;
    if (!group.violated) continue;
    sum.violated += 1;
    sum.blocked += state === "Blocked";
    sum.excess += group.excess;
    sum.above = Math.max(sum.above, group.skew - group.maxSkew);
  }
  return [...found.values()].sort((a, b) => b.violated - a.violated || b.excess - a.excess || b.above - a.above || (a.namespace < b.namespace ? -1 : 1));
}

function policiesWords(overview) {
  if (overview.defaultPolicy) return "There is no policy; this is what one with an empty spec would do.";
  return `Policies: ${listed(overview.policies.map((policy) => `${policy.name} (${policy.wrong.length ? "invalid" : policy.mode})`))}.`;
}

/** Make the filters, and return what draws them for a key. The field that somebody types into is never made again. */
function toolsIn(element, store, changed) {
  const tabs = h("div", { class: "tabs", role: "group", "aria-label": "Topology key" });
  const namespaces = h("span", { class: "contents" });
  const policies = h("span", { class: "contents" });
  const states = h("div", { class: "states", role: "group", "aria-label": "States" });
  const search = h("input", {
    type: "search", id: "search", placeholder: "Search workloads", "aria-label": "Search workloads, selectors and reasons", value: choices.search, autocomplete: "off",
    on: { input: (event) => { choices.search = event.target.value; changed(); } },
  });
  fill(element, tabs, h("div", { class: "filters" }, search, namespaces, policies, states));
  return (key) => {
    const { keys, rows, violated } = store.overview;
    const found = { namespaces: new Set(), policies: new Set(), states: {} };
    for (const row of rows) {
      found.namespaces.add(row.group.namespace);
      if (row.policy) found.policies.add(row.policy);
      if (!key || row.group.topologyKey === key.topologyKey) found.states[row.state] = (found.states[row.state] ?? 0) + 1;
    }
    const chosen = key?.topologyKey ?? "";
    renew(tabs, [keys, rows.length, violated, chosen], () => [
      keys.map((each) => tab(each.topologyKey, shortKey(each.topologyKey), each.groups, each.violated, chosen, changed)),
      keys.length > 1 ? tab("", "all keys", rows.length, violated, chosen, changed) : null,
    ]);
    const named = [...found.namespaces].sort();
    renew(namespaces, [named, choices.namespace], () => select("namespace", "All namespaces", named, changed));
    const governing = [...found.policies].sort();
    renew(policies, [governing, choices.policy], () => (governing.length > 1 ? select("policy", "All policies", governing, changed) : null));
    renew(states, [found.states, [...choices.states]], () => Object.entries(STATES).map(([state, words]) => chip(state, words, found.states[state] ?? 0, changed)));
  };
}

function tab(value, name, groups, violated, chosen, changed) {
  return h("button", {
    type: "button", id: `key-${name}`, class: "tab", title: value || null, "aria-pressed": String(chosen === value),
    on: { click: () => { choices.key = value; changed(); } },
  }, name, h("span", { class: violated ? "count over" : "count" }, violated ? `${number(violated)} of ${number(groups)} violated` : number(groups)));
}

function chip(state, words, count, changed) {
  const on = choices.states.has(state);
  return h("button", {
    type: "button", id: `state-${state}`, class: `chip state-${state}`, title: words.text, "aria-pressed": String(on), disabled: !count && !on,
    on: { click: () => { if (on) choices.states.delete(state); else choices.states.add(state); changed(); } },
  }, h("span", { class: "mark", "aria-hidden": "true" }, words.mark), ` ${words.word} ${number(count)}`);
}

function select(name, all, values, changed) {
  return h("select", { id: name, "aria-label": name, on: { change: (event) => { choices[name] = event.target.value; changed(); } } },
    h("option", { value: "" }, all), values.map((value) => h("option", { value, selected: value === choices[name] }, value)));
}

function headRow(table, columns) {
  table.style.setProperty("--domains", columns ? String(columns.length) : "1");
  table.classList.toggle("with-domains", Boolean(columns));
  const cell = (text, name) => h("div", { role: "columnheader", class: name }, text);
  return h("div", { class: "group head", role: "row", "aria-rowindex": "1" },
    cell("State", "state"), cell("Workload", "workload"), cell("Skew/max", "skew"),
    columns ? columns.map((domain) => cell(domain, "domain")) : cell("Pods per domain, most first", "domain"),
    cell("What happens", "happens"));
}

/** Draw the rows in view. Of those, only rows that differ from what is drawn are made again, one after another. */
function* drawRows(body, view, store, changed) {
  const { rows } = inView(body, view);
  const shape = shapeOf(view);
  const moving = rows.filter((row) => changed.has(row.id)).length <= MOST_MOVING ? changed : NOTHING_MOVES;
  const made = new Map();
  for (const row of rows) {
    if (isOf(view.drawn.get(row.id), row, shape)) continue;
    made.set(row.id, { row, shape, element: groupRow(row, view, moving) });
    yield;
  }
  arrangeRows(body, view, store, made);
}

/** Put the rows in view into their places. Somebody may have scrolled or filtered while some of them were made. */
function arrangeRows(body, view, store, made) {
  const { rows, first, height } = inView(body, view);
  body.style.setProperty("height", `${Math.max(1, view.shown.length) * height}px`);
  if (!view.shown.length) {
    view.drawn = new Map();
    renew(body, store.overview.rows.length > 0, () => h("p", { class: "nothing" }, store.overview.rows.length ? "No constraint matches the filters." : "No pod has a topology spread constraint."));
    return;
  }
  const shape = shapeOf(view);
  const focused = body.contains(document.activeElement) ? document.activeElement.id : "";
  const drawn = new Map(rows.map((row) => {
    const known = [made.get(row.id), view.drawn.get(row.id)].find((each) => isOf(each, row, shape));
    return [row.id, known ?? { row, shape, element: groupRow(row, view, NOTHING_MOVES) }];
  }));
  rows.forEach((row, at) => place(drawn.get(row.id).element, first + at, height));
  view.drawn = drawn;
  body.madeFrom = null;
  arrange(body, [...drawn.values()].map(({ element }) => element));
  if (focused && document.activeElement === document.body) document.getElementById(focused)?.focus({ preventScroll: true });
}

/** The rows that can be seen, and some above and below them. */
function inView(body, view) {
  const height = matchMedia("(max-width: 960px)").matches ? NARROW_ROW_PIXELS : ROW_PIXELS;
  const { top } = body.getBoundingClientRect();
  const first = Math.max(0, Math.floor(-top / height) - SPARE_ROWS);
  return { rows: view.shown.slice(first, Math.ceil((innerHeight - top) / height) + SPARE_ROWS), first, height };
}

function shapeOf(view) {
  return JSON.stringify([view.columns, view.key?.topologyKey]);
}

/** Whether an element was made from a row as it is. */
function isOf(drawn, row, shape) {
  return drawn !== undefined && drawn.row === row && drawn.shape === shape;
}

function place(element, at, height) {
  const top = `${at * height}px`;
  if (element.style.getPropertyValue("--top") === top) return;
  element.style.setProperty("--top", top);
  element.setAttribute("aria-rowindex", String(at + 2));
}

function groupRow(row, view, changed) {
  const { group } = row;
  const words = STATES[row.state];
  const before = changed.get(row.id);
  const cells = view.columns ? domainCells(group, view.columns, before) : h("div", { role: "cell", class: "domain spread" }, distribution(group));
  return h("div", { class: `group state-${row.state}${changed.has(row.id) ? " changed" : ""}`, role: "row" },
    h("div", { role: "cell", class: "state", title: words.text }, h("span", { class: "mark", "aria-hidden": "true" }, words.mark), h("span", { class: "word" }, words.word)),
    h("div", { role: "cell", class: "workload" },
      h("a", { href: group.workloads.length ? workloadLink(group.namespace, group.workloads[0]) : "#/", id: `row-${row.id}` }, workloadsOf(group)),
      h("span", { class: "faint" }, view.key ? group.namespace : `${group.namespace} · ${shortKey(group.topologyKey)}`, row.pending ? h("span", { class: "over", title: "pods without a node" }, ` · ${number(row.pending)} Pending`) : null)),
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
  const [first, ...others] = row.group.findings;
  if (first) parts.push(h("span", { class: "because", title: row.group.findings.map((each) => `${each.rule}: ${each.message}. To cure it, ${each.cure}.`).join("\n") }, h("b", { class: "reason" }, first.rule), ` ${first.cure}${others.length ? ` (+${others.length})` : ""}`));
  if (row.reason) parts.push(h("span", { class: "because", title: sentence(row.message) }, h("b", { class: "reason" }, row.reason), ` ${row.remedy}`));
  if (row.state === "NotSelected") parts.push(h("span", {}, "no policy restores it: select it in one"));
  const shielded = row.protections.filter((each) => each.protected).length;
  if (shielded && shielded === row.protections.length) parts.push(h("span", { class: "shield", title: row.protections[0].message }, "scale-downs keep it"));
  return parts.length ? parts : [h("span", { class: "faint", title: `Nothing: up to ${counted(allowedIn(row.group), "pod")} per domain ${allowedIn(row.group) === 1 ? "is" : "are"} allowed.` }, "–")];
}

/** Make what has happened, and return what draws it. The operator's Events tell what it did before the page was opened. */
function courseIn(element, store, isOpen) {
  if (!store.live) {
    fill(element, h("h2", {}, "A snapshot"), h("p", {}, `The cluster as it was on ${dateAndTime(store.overview.time)}. It does not change; without --snapshot, this page follows the cluster.`));
    return function* unchanged() {};
  }
  const curves = h("div", { class: "curves" });
  const list = h("div", {});
  let read = { happenings: [], evictions: null, points: [], unreadable: null };
  fill(element, h("h2", {}, "What has happened"), curves, list);
  const drawList = () => {
    const newest = once(read.happenings, store.happenings).sort((a, b) => (a.time < b.time ? 1 : -1)).slice(0, MOST_HAPPENINGS);
    renew(list, [newest, read.evictions, read.unreadable], () => [
      read.evictions === null ? null : h("p", { class: "faint" }, `${counted(read.evictions, "eviction")} in the last hour, as the operator's records say.`),
      newest.length ? h("ol", { class: "happenings" }, newest.map(happening)) : h("p", { class: "faint" }, "Nothing has changed yet. Evictions, and constraints that become violated or hold again, appear here."),
      read.unreadable ? h("p", { class: "faint" }, read.unreadable) : null,
    ]);
  };
  const drawCurves = () => {
    const before = read.points.filter((point) => !store.points.length || point.time < store.points[0].time);
    const points = [...before, ...store.points];
    fill(curves, sparkline(points, "violated", "Violated constraints"), points.some((point) => point.inFlight) ? sparkline(points, "inFlight", "Evictions under way") : null);
  };
  const readEvents = oneAtATime(async () => {
    if (!isOpen()) return;
    read = await ask("history").catch(() => read);
    if (!isOpen()) return;
    drawCurves();
    drawList();
  }, EVENTS_MILLISECONDS);
  readEvents();
  const readEventsSoon = aWhileLater(readEvents, WRITTEN_MILLISECONDS);
  let drawn = store.version;
  return function* draw() {
    if (drawn !== store.version) readEventsSoon();
    drawn = store.version;
    drawCurves();
    yield;
    drawList();
  };
}

/** Return what happened before the page was opened and since, each eviction once. */
function once(before, since) {
  const told = new Set(before.filter((each) => each.kind === "evicted").map((each) => `${each.namespace} ${each.pod}`));
  return [...before, ...since.filter((each) => each.kind !== "evicted" || !told.has(`${each.namespace} ${each.pod}`))];
}

function happening(each) {
  return h("li", { class: each.kind },
    h("time", { datetime: each.time }, clock(each.time)), " ",
    each.workload ? h("a", { href: `#/workload/${encodeURIComponent(each.namespace)}/${encodeURIComponent(each.workload)}` }, each.text) : each.text,
    each.namespace ? h("span", { class: "faint" }, ` in ${each.namespace}`) : null);
}

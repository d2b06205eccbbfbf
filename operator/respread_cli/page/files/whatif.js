// What if: hypothetical changes by hand, their outcome, and the command line that says the same.

import { beforeAndAfter, constraintWords } from "./bars.js";
import { announce, copyButton, fill, h, renew } from "./dom.js";
import { ask, aWhileLater, oneAtATime } from "./live.js";
import { counted, number, sentence, shortKey, workloadName, workloadsOf } from "./words.js";

const WAIT_MILLISECONDS = 120;
const NODES_MILLISECONDS = 3000; // Between two readings of the nodes while the cluster changes.
const REFRESH_MILLISECONDS = 500; // After somebody was found at a control.
const MOST_SUGGESTIONS = 50;
const MOST_NODES = 60;
const MOST_GROUPS = 30;
const MOST_PODS = 100;
const IN_VIEW = 0.6; // Of the window's height: an outcome that begins below that is not in view.
const COSTS = [["asItIs", "as now"], ["withCosts", "with prevention"], ["withoutCosts", "without prevention"]];
const PODS = [["unplaced", "No node takes"], ["deleted", "Deleted by the scale-down"], ["placed", "Placed on another node"], ["lost", "Lost, because no controller recreates them"]];

/** The changes, kept while the page is open, with what was before for Undo. */
export const scenario = { now: nothing(), before: [], after: [] };

function nothing() {
  return { scale: {}, drain: [], cordon: [], removeDomain: [], addNodes: [] };
}

/** Show the controls and the outcome, and return what asks again when the cluster changes. */
export function whatIfView(main, store, parameters) {
  const controls = h("div", { class: "controls" });
  const outcome = h("div", { class: "outcome", "aria-live": "polite", "aria-busy": "false" });
  const back = h("button", { type: "button", class: "to-controls", on: { click: () => controls.scrollIntoView() } }, "↑ Change something else");
  const below = h("div", {}, back, outcome);
  const workload = parameters.get("workload") ?? Object.keys(scenario.now.scale)[0] ?? "";
  const view = { nodes: [], workload, typed: { workload: "", node: "", number: "1", like: "" }, hint: "", costs: "asItIs", answer: null, error: null };
  fill(main,
    h("h1", {}, "What if …"),
    h("p", { class: "faint" }, "Change things here and see what would come of it. Nothing is changed in the cluster."),
    h("div", { class: "what-if-split" }, controls, below));
  let closed = false;
  let timer = null;
  let asking = null; // The request on its way.
  let awaited = false; // Whether somebody has made a change and waits for its outcome.

  const redraw = () => drawControls(controls, store, view, { change, changed, redraw });
  const change = (edit, words) => {
    scenario.before.push(structuredClone(scenario.now));
    scenario.after = [];
    edit(scenario.now);
    announce(words);
    changed();
  };
  const changed = () => {
    awaited = true;
    asking?.abort();
    redraw();
    later();
  };
  const later = () => { clearTimeout(timer); timer = setTimeout(simulate, WAIT_MILLISECONDS); };
  const simulate = async () => {
    const own = asking = new AbortController();
    outcome.setAttribute("aria-busy", "true");
    const [answer, error] = await outcomeOf(scenario.now, own.signal);
    if (own.signal.aborted) return; // Another change was made, and its outcome is shown instead.
    asking = null;
    outcome.setAttribute("aria-busy", "false");
    Object.assign(view, { answer, error });
    drawOutcome(outcome, view, store);
    if (awaited && (answer || error)) bringIntoView(below);
    awaited = false;
  };
  const again = aWhileLater(() => { if (!closed) (asking ? again : later)(); }, NODES_MILLISECONDS);
  const refresh = () => {
    if (closed) return;
    // Controls that are made again would end what somebody does with one of them.
    if (controls.matches(":active") || (controls.contains(document.activeElement) && document.activeElement.type === "text")) refreshLater();
    else redraw();
  };
  const refreshLater = aWhileLater(refresh, REFRESH_MILLISECONDS);
  const loadNodes = oneAtATime(async () => {
    if (closed) return;
    const nodes = await ask("nodes").catch(() => null);
    if (closed || !nodes) return;
    view.nodes = nodes;
    refresh();
  }, NODES_MILLISECONDS);

  const replicas = Number(parameters.get("replicas"));
  if (workload && parameters.has("replicas") && Number.isInteger(replicas)) change((now) => { now.scale = { ...now.scale, [workload]: replicas }; }, "");
  else {
    redraw();
    later();
  }
  loadNodes();
  return {
    update: () => { loadNodes(); again(); },
    close: () => { closed = true; clearTimeout(timer); asking?.abort(); },
  };
}

/** Return the outcome of changes, or what is wrong with them; neither if there are none, or if the signal has ended it. */
async function outcomeOf(changes, signal) {
  const body = requestOf(changes);
  if (!Object.values(body).some((values) => values.length)) return [null, null];
  try {
    return [await ask("simulate", body, signal), null];
  } catch (error) {
    return [null, signal.aborted ? null : String(error.message ?? error)];
  }
}

/** Where the outcome is below the controls, scroll to it. */
function bringIntoView(element) {
  if (element.getBoundingClientRect().top < IN_VIEW * innerHeight) return;
  element.scrollIntoView({ behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
}

/** The arguments of `respread simulate`. */
function requestOf(now) {
  return {
    scale: Object.entries(now.scale).map(([workload, replicas]) => `${workload}=${replicas}`),
    drain: now.drain, cordon: now.cordon, removeDomain: now.removeDomain,
    addNodes: now.addNodes.map((each) => (each.like ? `${each.number},like=${each.like}` : String(each.number))),
  };
}

function drawControls(element, store, view, act) {
  const travel = (from, to) => () => { to.push(structuredClone(scenario.now)); scenario.now = from.pop(); announce("The outcome is shown."); act.changed(); };
  fill(element,
    h("div", { class: "history" },
      h("button", { type: "button", id: "undo", disabled: !scenario.before.length, on: { click: travel(scenario.before, scenario.after) } }, "↶ Undo"),
      h("button", { type: "button", id: "redo", disabled: !scenario.after.length, on: { click: travel(scenario.after, scenario.before) } }, "↷ Redo"),
      h("button", { type: "button", id: "reset", on: { click: () => act.change((each) => Object.assign(each, nothing()), "Nothing is changed any more.") } }, "Start again")),
    scaleControls(store, view, act),
    domainControls(store, act),
    nodeControls(view, act),
    addControls(view, act));
}

const workloadsOfRows = new WeakMap();

/** The workloads that can be scaled, sorted by name, with their numbers of pods. */
function workloadsIn({ overview: { rows } }) {
  let known = workloadsOfRows.get(rows);
  if (known) return known;
  const found = new Map();
  for (const { group } of rows) {
    for (const workload of group.workloads) {
      if (["DaemonSet", "Job", "Node", "Pod"].includes(workload.kind)) continue;
      const name = `${group.namespace}/${workloadName(workload)}`;
      if (!found.has(name) || group.workloads.length === 1) found.set(name, group.pods);
    }
  }
  known = new Map([...found].sort(([one], [other]) => (one < other ? -1 : 1)));
  workloadsOfRows.set(rows, known);
  return known;
}

/** A field for a name, with a list of those that match what is typed. What is typed stays when the field is made again. */
function nameField(view, field, names, props) {
  const list = h("datalist", { id: `${props.id}-names` });
  const suggest = () => {
    const shown = matching(names, view.typed[field]).slice(0, MOST_SUGGESTIONS);
    renew(list, shown, () => shown.map((name) => h("option", { value: name })));
  };
  suggest();
  const typed = (event) => { view.typed[field] = event.target.value; suggest(); };
  return [h("input", { type: "text", autocomplete: "off", ...props, list: list.id, value: view.typed[field], on: { ...props.on, input: typed } }), list];
}

function matching(names, typed) {
  const words = typed.trim().toLowerCase();
  return names.filter((name) => name.toLowerCase().includes(words));
}

function scaleControls(store, view, act) {
  const workloads = workloadsIn(store);
  const names = [...workloads.keys()];
  const scaled = [...new Set([...Object.keys(scenario.now.scale), view.workload].filter((name) => workloads.has(name)))];
  const choose = () => {
    const typed = view.typed.workload.trim();
    const found = names.includes(typed) ? [typed] : matching(names, typed);
    view.hint = !typed || found.length === 1 ? "" : found.length ? `${counted(found.length, "workload")} match: go on typing, or choose one of the list.` : "No workload with a constraint is called that.";
    if (typed && found.length === 1) [view.workload, view.typed.workload] = [found[0], ""];
    act.redraw();
    if (typed && found.length === 1) document.getElementById(`replicas-${view.workload}`)?.focus();
  };
  return h("section", { class: "card" },
    h("h2", {}, "Scale a workload"),
    nameField(view, "workload", names, { id: "workload", placeholder: "Find one, such as deploy/web", "aria-label": "Workload to scale", on: { change: choose } }),
    view.hint ? h("p", { role: "status", class: "faint" }, view.hint) : null,
    scaled.map((name) => {
      const pods = workloads.get(name);
      const replicas = scenario.now.scale[name] ?? pods;
      const most = Math.max(10, 2 * pods, replicas);
      const set = (value) => act.change((now) => {
        if (value === pods) delete now.scale[name];
        else now.scale[name] = value;
      }, `${name}: ${counted(value, "replica")}`);
      const said = h("output", { for: `replicas-${name}` }, `${number(pods)} → ${number(replicas)}`);
      return h("div", { class: "slider" },
        h("label", { for: `replicas-${name}` }, name), said,
        h("input", {
          type: "range", id: `replicas-${name}`, min: "0", max: String(most), step: "1", value: String(replicas),
          on: { input: (event) => { said.textContent = `${number(pods)} → ${number(Number(event.target.value))}`; }, change: (event) => set(Number(event.target.value)) },
        }));
    }));
}

function domainControls(store, act) {
  const keys = store.overview.keys.filter((key) => key.domains?.length && shortKey(key.topologyKey) !== "hostname");
  if (!keys.length) return null;
  return h("section", { class: "card" }, h("h2", {}, "Take a domain away"), keys.map((key) => h("div", { class: "choices", role: "group", "aria-label": key.topologyKey },
    h("span", { class: "faint" }, shortKey(key.topologyKey)),
    key.domains.map((domain) => toggle(`${key.topologyKey}=${domain}`, domain, "removeDomain", act, `${domain} away`)))));
}

function toggle(value, text, field, act, words) {
  const on = scenario.now[field].includes(value);
  return h("button", {
    type: "button", id: `${field}-${value}`, "aria-pressed": String(on),
    on: { click: () => act.change((now) => { now[field] = on ? now[field].filter((each) => each !== value) : [...now[field], value]; }, on ? `Not ${words}` : words) },
  }, text);
}

function nodeControls(view, act) {
  const picked = new Set([...scenario.now.drain, ...scenario.now.cordon]);
  const words = view.typed.node.toLowerCase();
  const found = view.nodes.filter((node) => picked.has(node.name) || node.name.toLowerCase().includes(words) || Object.values(node.domains).some((domain) => domain.toLowerCase().includes(words)));
  found.sort((a, b) => picked.has(b.name) - picked.has(a.name));
  return h("section", { class: "card" }, h("h2", {}, "Drain or cordon a node"),
    view.nodes.length > 8 ? h("input", { type: "search", id: "node-search", placeholder: "Search nodes and domains", "aria-label": "Search nodes", value: view.typed.node, autocomplete: "off", on: { input: (event) => { view.typed.node = event.target.value; act.redraw(); } } }) : null,
    h("ul", { class: "nodes" }, found.slice(0, MOST_NODES).map((node) => h("li", {},
      h("span", { class: "node-name" }, node.name, h("span", { class: "faint" }, ` ${counted(node.pods, "pod")}${node.cordoned ? ", cordoned" : ""}${node.ready ? "" : ", not Ready"}`)),
      toggle(node.name, "Drain", "drain", act, `drain ${node.name}`), toggle(node.name, "Cordon", "cordon", act, `cordon ${node.name}`)))),
    found.length > MOST_NODES ? h("p", { class: "faint" }, `and ${counted(found.length - MOST_NODES, "more node")}: search for them`) : null);
}

function addControls(view, act) {
  const add = () => {
    const added = { number: Math.max(1, Math.floor(Number(view.typed.number)) || 1), like: view.typed.like.trim() };
    Object.assign(view.typed, { number: "1", like: "" });
    act.change((now) => { now.addNodes = [...now.addNodes, added]; }, "Nodes added");
  };
  const count = h("input", { type: "number", id: "add-number", min: "1", max: "1000", value: view.typed.number, "aria-label": "How many nodes", on: { input: (event) => { view.typed.number = event.target.value; } } });
  return h("section", { class: "card" }, h("h2", {}, "Add nodes"),
    h("div", { class: "choices" }, count,
      nameField(view, "like", view.nodes.map((node) => node.name), { id: "add-like", placeholder: "like a node", title: "Empty: like one of each zone in turn", "aria-label": "Like this node" }),
      h("button", { type: "button", id: "add", on: { click: add } }, "Add")),
    scenario.now.addNodes.map((each, at) => h("p", {}, `${counted(each.number, "node")} like ${each.like || "one of each zone in turn"} `,
      h("button", { type: "button", id: `add-${at}`, on: { click: () => act.change((now) => { now.addNodes = now.addNodes.filter((_, other) => other !== at); }, "Not added") } }, "Remove"))));
}

function drawOutcome(element, view, store) {
  if (view.error) {
    fill(element, h("section", { class: "card" }, h("p", { role: "alert", class: "bad" }, sentence(view.error))));
    return;
  }
  if (!view.answer) {
    const { violated, evictions } = store.overview;
    fill(element, h("section", { class: "card" }, h("h2", {}, "Nothing is changed yet"),
      h("p", {}, `Now: ${counted(violated, "constraint")} violated, ${counted(evictions, "eviction")} planned. Scale a workload, drain a node, or take a domain away.`)));
    return;
  }
  drawSimulation(element, view.answer.report, view.answer.command, view.answer.totals, view);
}

/** Draw what `respread simulate` reports.
 * `totals` says of how many groups and pods a report is that has only the first; `view.costs` which costs somebody has chosen. */
export function drawSimulation(element, report, command, totals = totalsOf(report), view = { costs: "asItIs" }) {
  const possible = COSTS.filter(([field]) => report[field]);
  if (!report[view.costs]) view.costs = "asItIs";
  const result = report[view.costs];
  const after = (group) => group[view.costs] ?? group.asItIs;
  const lost = new Map(report.losses.map((each) => [`${each.namespace}/${workloadName(each.workload)}`, each.missing]));
  const missing = ({ group }) => Math.max(0, ...group.workloads.map((each) => lost.get(`${group.namespace}/${workloadName(each)}`) ?? 0));
  const isBad = (each) => after(each).violated || missing(each) > 0;
  const groups = [...report.groups].sort((a, b) => missing(b) - missing(a) || after(b).violated - after(a).violated || after(b).skew - after(a).skew || b.group.violated - a.group.violated);
  const card = (each) => h("section", { class: `card constraint${isBad(each) ? " violated" : ""}` },
    h("h3", {}, isBad(each) ? "✗ " : "✓ ", workloadsOf(each.group), h("span", { class: "faint" }, ` in ${each.group.namespace}, ${constraintWords(each.group)}`)),
    h("p", {}, `Skew ${each.group.skew} now, `, h("b", { class: after(each).violated ? "over" : null }, `${after(each).skew} then`), ` (${each.group.maxSkew} allowed).`),
    h("div", { class: "scroll" }, beforeAndAfter(each.group, after(each).counts)));
  const shown = groups.slice(0, MOST_GROUPS);
  const fine = shown.filter((each) => !isBad(each));
  const bad = result.violated || report.quotas.length || report.losses.some((each) => each.missing);
  const again = () => drawSimulation(element, report, command, totals, view);
  fill(element,
    h("section", { class: "card" },
      h("h2", { class: bad ? "bad" : "good" }, `${bad ? "✗" : "✓"} ${outcomeWords(report, result, totals, view.costs)}`),
      report.quotas.map((said) => h("p", { class: "quota over" }, sentence(said))),
      possible.length > 1 ? h("div", { class: "choices", role: "group", "aria-label": "Pod deletion costs" }, h("span", { class: "faint" }, "If the scale-down chooses pods"), possible.map(([field, words]) => h("button", {
        type: "button", id: `costs-${field}`, "aria-pressed": String(field === view.costs), on: { click: () => { view.costs = field; again(); } },
      }, words, h("span", { class: "faint" }, `: ${counted(report[field].evictions, "eviction")}`)))) : null,
      report.scaled.map((each) => h("p", {}, h("b", {}, `${workloadName(each.workload)} in ${each.namespace}`), `: ${number(each.pods)} to ${counted(each.replicas, "pod")}. `,
        each.protected ? "Protected" : `Not protected (${each.reason})`, `: ${sentence(each.message)}`)),
      report.losses.length && view.costs === "asItIs" ? [h("h3", {}, "What workloads lose, the worst first"), lossTable(report.losses)] : null,
      PODS.map(([field, title]) => podList(title, result[field], totals[view.costs][field], field === "unplaced" && !report.losses.length)),
      command ? [h("h3", {}, "The same on the command line"), copyButton(command, "command")] : null),
    shown.filter(isBad).map(card),
    fine.length ? (report.removedNodes.length ? h("details", { id: "constraints-that-hold" }, h("summary", {}, `${counted(fine.length, "constraint")} that would hold`), fine.map(card)) : fine.map(card)) : null,
    totals.groups > MOST_GROUPS ? h("p", { class: "faint" }, `and ${counted(totals.groups - MOST_GROUPS, "more constraint")} that change less`) : null);
}

/** How many groups and pods a whole report has. */
function totalsOf(report) {
  const totals = { groups: report.groups.length, violated: report.groups.filter((each) => each.group.violated).length };
  for (const [costs] of COSTS) {
    if (!report[costs]) continue;
    totals[costs] = Object.fromEntries(PODS.map(([field]) => [field, report[costs][field].length]));
    totals[costs].pendingBefore = report[costs].unplaced.filter((pod) => pod.wasPending).length;
  }
  return totals;
}

function outcomeWords(report, result, totals, costs) {
  const violated = result.violated ? `${number(result.violated)} of the constraints below would be violated` : "None of the constraints below would be violated";
  const evictions = result.evictions ? `${counted(result.evictions, "eviction")} would be planned` : "nothing would have to be evicted";
  const unplaced = totals[costs].unplaced;
  const pending = totals[costs].pendingBefore ?? 0;
  const missing = report.losses.reduce((sum, each) => sum + each.missing, 0);
  const harm = missing ? `${counted(report.losses.length, "workload")} would be harmed, ${counted(missing, "pod")} missing for good. ` : "";
  return `${harm}${violated} (${number(totals.violated)} now), and ${evictions}${unplaced - pending > 0 ? `; ${counted(unplaced - pending, "pod")} would find no node` : ""}${pending ? `; ${counted(pending, "pod")} had none before` : ""}.`;
}

const DAMAGES = { Gone: "no pod left", Outage: "none for a time", Missing: "fewer pods" };

/** Draw what workloads lose with their nodes. */
export function lossTable(losses) {
  if (!losses.length) return null;
  return h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "What workloads lose" }, h("table", { class: "plain" },
    h("thead", {}, h("tr", {}, ["Workload", "Namespace", "Damage", "Pods", "At once", "Then", "Why"].map((text) => h("th", { scope: "col" }, text)))),
    h("tbody", {}, losses.slice(0, MOST_GROUPS).map((each) => h("tr", {}, h("th", { scope: "row" }, workloadName(each.workload)), h("td", {}, each.namespace),
      h("td", { class: each.missing ? "over" : null }, DAMAGES[each.damage]), h("td", {}, number(each.pods)), h("td", {}, number(each.left)), h("td", {}, number(each.after)),
      h("td", {}, [each.message, ...each.budgets].filter(Boolean).map((text) => h("div", {}, sentence(text)))))),
      losses.length > MOST_GROUPS ? h("tr", {}, h("td", { colspan: "7" }, `and ${counted(losses.length - MOST_GROUPS, "more workload")}`)) : null)));
}

function podList(title, pods, total, open) {
  if (!total) return null;
  return h("details", { open, id: `pods-${title}` }, h("summary", {}, `${title}: ${counted(total, "pod")}`),
    h("ul", {}, pods.slice(0, MOST_PODS).map((pod) => h("li", {}, `${pod.pod} in ${pod.namespace}${pod.node ? `, ${pod.node}` : ""}${pod.certain ? "" : " (likely)"}${pod.message ? `: ${pod.message}` : ""}`))),
    total > MOST_PODS ? h("p", { class: "faint" }, `and ${number(total - MOST_PODS)} more`) : null);
}

// What if: hypothetical changes by hand, their outcome, and the command line that says the same.

import { beforeAndAfter, constraintWords } from "./bars.js";
import { announce, fill, h, renew } from "./dom.js";
import { ask, oneAtATime } from "./live.js";
import { counted, number, sentence, shortKey, workloadName, workloadsOf } from "./words.js";

const WAIT_MILLISECONDS = 120;
const NODES_MILLISECONDS = 3000; // Between two readings of the nodes while the cluster changes.
const MOST_SUGGESTIONS = 2000;
const MOST_NODES = 60;
const MOST_GROUPS = 30;
const COSTS = [["asItIs", "as it is now"], ["withCosts", "with prevention"], ["withoutCosts", "without prevention"]];

/** The changes, kept while the page is open, with what was before for Undo. */
export const scenario = { now: nothing(), before: [], after: [] };

function nothing() {
  return { scale: {}, drain: [], cordon: [], removeDomain: [], addNodes: [] };
}

/** Show the controls and the outcome, and return what asks again when the cluster changes. */
export function whatIfView(main, store, parameters) {
  const controls = h("div", { class: "controls" });
  const outcome = h("div", { class: "outcome", "aria-live": "polite", "aria-busy": "false" });
  const suggestions = { workloads: h("datalist", { id: "workloads" }), nodes: h("datalist", { id: "node-names" }) };
  const view = { nodes: [], search: "", zone: null, costs: "asItIs", workload: parameters.get("workload") ?? Object.keys(scenario.now.scale)[0] ?? "", answer: null, error: null, closed: false };
  fill(main,
    h("h1", {}, "What if …"),
    h("p", { class: "faint" }, "Change things here and see what would come of it. Nothing is changed in the cluster."),
    h("div", { class: "what-if-split" }, controls, outcome), suggestions.workloads, suggestions.nodes);
  let timer = null;

  const change = (edit, words) => {
    scenario.before.push(structuredClone(scenario.now));
    scenario.after = [];
    edit(scenario.now);
    announce(words);
    redraw();
  };
  const redraw = () => {
    suggest(suggestions.workloads, [...workloadsIn(store).keys()].sort());
    suggest(suggestions.nodes, view.nodes.map((node) => node.name));
    drawControls(controls, store, view, change, redraw);
    later();
  };
  const later = () => { clearTimeout(timer); timer = setTimeout(simulate, WAIT_MILLISECONDS); };
  const simulate = oneAtATime(async () => {
    if (view.closed) return;
    const body = requestOf(scenario.now);
    if (!Object.values(body).some((values) => values.length)) {
      view.answer = view.error = null;
      drawOutcome(outcome, view, store);
      return;
    }
    outcome.setAttribute("aria-busy", "true");
    try {
      const answer = await ask("simulate", body);
      [view.answer, view.error] = [answer, null];
    } catch (error) {
      [view.answer, view.error] = [null, String(error.message ?? error)];
    }
    if (view.closed) return;
    outcome.setAttribute("aria-busy", "false");
    drawOutcome(outcome, view, store);
  });

  const asked = Number(parameters.get("replicas"));
  if (view.workload && parameters.has("replicas") && Number.isInteger(asked)) change((now) => { now.scale = { ...now.scale, [view.workload]: asked }; }, "");
  const loadNodes = oneAtATime(async () => {
    if (view.closed) return;
    const nodes = await ask("nodes").catch(() => view.nodes);
    if (view.closed || nodes === view.nodes) return;
    view.nodes = nodes;
    if (controls.matches(":active")) later(); // Somebody moves a slider.
    else redraw();
  }, NODES_MILLISECONDS);
  loadNodes();
  redraw();
  return { update: () => { loadNodes(); }, close: () => { view.closed = true; clearTimeout(timer); } };
}

/** The arguments of `respread simulate`. */
function requestOf(now) {
  return {
    scale: Object.entries(now.scale).map(([workload, replicas]) => `${workload}=${replicas}`),
    drain: now.drain, cordon: now.cordon, removeDomain: now.removeDomain,
    addNodes: now.addNodes.map((each) => (each.like ? `${each.number},like=${each.like}` : String(each.number))),
  };
}

function suggest(list, names) {
  const shown = names.slice(0, MOST_SUGGESTIONS);
  renew(list, shown, () => shown.map((name) => h("option", { value: name })));
}

function drawControls(element, store, view, change, redraw) {
  const now = scenario.now;
  const travel = (from, to) => () => { to.push(structuredClone(scenario.now)); scenario.now = from.pop(); announce("The outcome is shown."); redraw(); };
  fill(element,
    h("div", { class: "history" },
      h("button", { type: "button", id: "undo", disabled: !scenario.before.length, on: { click: travel(scenario.before, scenario.after) } }, "↶ Undo"),
      h("button", { type: "button", id: "redo", disabled: !scenario.after.length, on: { click: travel(scenario.after, scenario.before) } }, "↷ Redo"),
      h("button", { type: "button", id: "reset", on: { click: () => change((each) => Object.assign(each, nothing()), "Nothing is changed any more.") } }, "Start again")),
    scaleControls(store, view, change, redraw),
    domainControls(store, view, change),
    nodeControls(view, change, redraw),
    addControls(view, change));
}

function workloadsIn(store) {
  const found = new Map();
  for (const { group } of store.overview.rows) {
    for (const workload of group.workloads) {
      if (["DaemonSet", "Job", "Node", "Pod"].includes(workload.kind)) continue;
      const name = `${group.namespace}/${workloadName(workload)}`;
      if (!found.has(name) || group.workloads.length === 1) found.set(name, group.pods);
    }
  }
  return found;
}

function scaleControls(store, view, change, redraw) {
  const workloads = workloadsIn(store);
  const scaled = [...new Set([...Object.keys(scenario.now.scale), view.workload].filter((name) => workloads.has(name)))];
  return h("section", { class: "card" },
    h("h2", {}, "Scale a workload"),
    h("input", {
      type: "text", list: "workloads", id: "workload", placeholder: "namespace/deploy/name", "aria-label": "Workload to scale", value: "", autocomplete: "off",
      on: { change: (event) => { if (workloads.has(event.target.value)) { view.workload = event.target.value; redraw(); document.getElementById(`replicas-${view.workload}`)?.focus(); } } },
    }),
    scaled.map((name) => {
      const pods = workloads.get(name);
      const replicas = scenario.now.scale[name] ?? pods;
      const most = Math.max(10, 2 * pods, replicas);
      const set = (value) => change((now) => {
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

function domainControls(store, view, change) {
  const keys = store.overview.keys.filter((key) => key.domains && shortKey(key.topologyKey) !== "hostname");
  if (!keys.length) return null;
  return h("section", { class: "card" }, h("h2", {}, "Take a domain away"), keys.map((key) => h("div", { class: "choices", role: "group", "aria-label": key.topologyKey },
    h("span", { class: "faint" }, shortKey(key.topologyKey)),
    key.domains.map((domain) => toggle(`${key.topologyKey}=${domain}`, domain, "removeDomain", change, `${domain} away`)))));
}

function toggle(value, text, field, change, words) {
  const on = scenario.now[field].includes(value);
  return h("button", {
    type: "button", id: `${field}-${value}`, "aria-pressed": String(on),
    on: { click: () => change((now) => { now[field] = on ? now[field].filter((each) => each !== value) : [...now[field], value]; }, on ? `Not ${words}` : words) },
  }, text);
}

function nodeControls(view, change, redraw) {
  const picked = new Set([...scenario.now.drain, ...scenario.now.cordon]);
  const words = view.search.toLowerCase();
  const found = view.nodes.filter((node) => picked.has(node.name) || node.name.toLowerCase().includes(words) || Object.values(node.domains).some((domain) => domain.toLowerCase().includes(words)));
  found.sort((a, b) => picked.has(b.name) - picked.has(a.name));
  return h("section", { class: "card" }, h("h2", {}, "Drain or cordon a node"),
    view.nodes.length > 8 ? h("input", { type: "search", id: "node-search", placeholder: "Search nodes and domains", "aria-label": "Search nodes", value: view.search, autocomplete: "off", on: { input: (event) => { view.search = event.target.value; redraw(); } } }) : null,
    h("ul", { class: "nodes" }, found.slice(0, MOST_NODES).map((node) => h("li", {},
      h("span", { class: "node-name" }, node.name, h("span", { class: "faint" }, ` ${counted(node.pods, "pod")}${node.cordoned ? ", cordoned" : ""}${node.ready ? "" : ", not Ready"}`)),
      toggle(node.name, "Drain", "drain", change, `drain ${node.name}`), toggle(node.name, "Cordon", "cordon", change, `cordon ${node.name}`)))),
    found.length > MOST_NODES ? h("p", { class: "faint" }, `and ${counted(found.length - MOST_NODES, "more node")}: search for them`) : null);
}

function addControls(view, change) {
  const count = h("input", { type: "number", id: "add-number", min: "1", max: "1000", value: "1", "aria-label": "How many nodes" });
  const like = h("input", { type: "text", id: "add-like", list: "node-names", placeholder: "like one of each zone in turn", "aria-label": "Like this node", autocomplete: "off" });
  return h("section", { class: "card" }, h("h2", {}, "Add nodes"),
    h("div", { class: "choices" }, count, like,
      h("button", { type: "button", id: "add", on: { click: () => change((now) => { now.addNodes = [...now.addNodes, { number: Math.max(1, Math.floor(Number(count.value)) || 1), like: like.value.trim() }]; }, "Nodes added") } }, "Add")),
    scenario.now.addNodes.map((each, at) => h("p", {}, `${counted(each.number, "node")} like ${each.like || "one of each zone in turn"} `,
      h("button", { type: "button", id: `add-${at}`, on: { click: () => change((now) => { now.addNodes = now.addNodes.filter((_, other) => other !== at); }, "Not added") } }, "Remove"))));
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
  drawSimulation(element, view.answer.report, view.answer.command, view);
}

/** Draw what `respread simulate` reports. */
export function drawSimulation(element, report, command, view = { costs: "asItIs" }) {
  const possible = COSTS.filter(([field]) => report[field]);
  if (!report[view.costs]) view.costs = "asItIs";
  const result = report[view.costs];
  const after = (group) => group[view.costs] ?? group.asItIs;
  const groups = [...report.groups].sort((a, b) => after(b).violated - after(a).violated || after(b).skew - after(a).skew || b.group.violated - a.group.violated);
  const before = report.groups.filter((each) => each.group.violated).length;
  const again = () => drawSimulation(element, report, command, view);
  fill(element,
    h("section", { class: "card" },
      h("h2", { class: result.violated || result.unplaced.length ? "bad" : "good" }, `${result.violated || result.unplaced.length ? "✗" : "✓"} ${outcomeWords(result, before)}`),
      possible.length > 1 ? h("div", { class: "choices", role: "group", "aria-label": "Pod deletion costs" }, h("span", { class: "faint" }, "Prevention"), possible.map(([field, words]) => h("button", {
        type: "button", id: `costs-${field}`, "aria-pressed": String(field === view.costs), on: { click: () => { view.costs = field; again(); } },
      }, words, h("span", { class: "faint" }, ` ${counted(report[field].evictions, "eviction")}`)))) : null,
      report.scaled.map((each) => h("p", {}, h("b", {}, `${workloadName(each.workload)} in ${each.namespace}`), `: ${number(each.pods)} to ${counted(each.replicas, "pod")}. `,
        each.protected ? "Protected" : `Not protected (${each.reason})`, `: ${sentence(each.message)}`)),
      podList("No node takes", result.unplaced, true), podList("Deleted by the scale-down", result.deleted), podList("Placed on another node", result.placed), podList("Lost, because no controller recreates them", result.lost),
      command ? [h("h3", {}, "The same on the command line"), h("pre", { class: "command", id: "command", tabindex: "0" }, command),
        h("button", { type: "button", id: "copy", on: { click: () => copy(command) } }, "Copy")] : null),
    groups.slice(0, MOST_GROUPS).map((each) => h("section", { class: `card constraint${after(each).violated ? " violated" : ""}` },
      h("h3", {}, after(each).violated ? "✗ " : "✓ ", workloadsOf(each.group), h("span", { class: "faint" }, ` in ${each.group.namespace}, ${constraintWords(each.group)}`)),
      h("p", {}, `Skew ${each.group.skew} now, `, h("b", { class: after(each).violated ? "over" : null }, `${after(each).skew} then`), ` (${each.group.maxSkew} allowed).`),
      h("div", { class: "scroll" }, beforeAndAfter(each.group, after(each).counts)))),
    groups.length > MOST_GROUPS ? h("p", { class: "faint" }, `and ${counted(groups.length - MOST_GROUPS, "more constraint")} that change less`) : null);
}

function outcomeWords(result, before) {
  const violated = result.violated ? `${number(result.violated)} of the constraints below would be violated` : "None of the constraints below would be violated";
  const evictions = result.evictions ? `${counted(result.evictions, "eviction")} would be planned` : "nothing would have to be evicted";
  const waiting = result.unplaced.length ? `; ${counted(result.unplaced.length, "pod")} would find no node` : "";
  return `${violated} (${number(before)} now), and ${evictions}${waiting}.`;
}

function podList(title, pods, open = false) {
  if (!pods.length) return null;
  return h("details", { open, id: `pods-${title}` }, h("summary", {}, `${title}: ${counted(pods.length, "pod")}`),
    h("ul", {}, pods.slice(0, 100).map((pod) => h("li", {}, `${pod.pod} in ${pod.namespace}${pod.node ? `, ${pod.node}` : ""}${pod.certain ? "" : " (likely)"}${pod.message ? `: ${pod.message}` : ""}`))),
    pods.length > 100 ? h("p", { class: "faint" }, `and ${number(pods.length - 100)} more`) : null);
}

function copy(text) {
  navigator.clipboard?.writeText(text).then(() => announce("Copied."), () => announce("The browser does not allow copying."));
}

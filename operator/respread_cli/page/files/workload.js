// The workload view: where its pods are, what its constraints allow, what moves and why, what a scale-down would leave.

import { constraintWords, distribution } from "./bars.js";
import { hasEvictions, scaleDownCurve } from "./charts.js";
import { copyButton, fill, h, renew, svg } from "./dom.js";
import { ask, aWhileLater, oneAtATime } from "./live.js";
import { age, counted, dateAndTime, listed, number, sentence, shortKey, stateOf, workloadName } from "./words.js";

const MOST_DOMAINS = 8;
const MOST_NODES = 12;
const PAUSE_MILLISECONDS = 400; // Between two drawings while the cluster changes.
const EVENTS_MILLISECONDS = 3000; // Between two readings of Events while the cluster changes.
const WRITTEN_MILLISECONDS = 2000; // From a change until its Event is written.

/** Show one workload of the live page, and return what draws it again. */
export function workloadView(main, store, namespace, workload) {
  let closed = false;
  const events = h("section", { class: "card", "aria-label": "Events of the operator", hidden: true });
  const loadEvents = oneAtATime(async () => {
    if (closed) return;
    const read = await ask(`events?${new URLSearchParams({ namespace, workload })}`).catch(() => null); // The view itself says what is wrong.
    if (!read || closed) return;
    events.hidden = !read.events.length && !read.unreadable;
    renew(events, read, () => eventsCard(read));
  }, EVENTS_MILLISECONDS);
  const loadEventsSoon = aWhileLater(loadEvents, WRITTEN_MILLISECONDS);
  const load = oneAtATime(async () => {
    if (closed) return;
    try {
      const page = await ask(`workload?${new URLSearchParams({ namespace, workload })}`);
      if (!closed) drawWorkload(main, page, { namespace, workload, link: true, events, options: store.kubectl });
    } catch (error) {
      if (!closed) fill(main, back(), h("h1", {}, workload), h("p", { role: "alert" }, sentence(String(error.message ?? error))));
    }
  }, PAUSE_MILLISECONDS);
  drawKnown(main, store, namespace, workload);
  load();
  loadEvents();
  return {
    update: (what) => {
      const concerned = what.all || (what.rows ?? []).some((row) => row.group.namespace === namespace);
      if (!concerned) return;
      load();
      loadEventsSoon();
    },
    close: () => { closed = true; removeEventListener("resize", redraw); },
  };
}

/** Draw what the page knows already, until the server has answered. */
function drawKnown(main, store, namespace, workload) {
  const known = store.overview.rows.filter((row) => row.group.namespace === namespace && row.group.workloads.some((each) => workloadName(each) === workload));
  fill(main, back(), h("h1", {}, `${workload} in ${namespace}`),
    known.map(({ group }) => h("section", { class: `card${group.violated ? " violated" : ""}` },
      h("h2", {}, `${stateOf(group).mark} `, constraintWords(group)), h("div", { class: "domain spread" }, distribution(group)))),
    h("p", { class: "loading" }, "Planning …"));
}

/** What the operator's Events say. */
function eventsCard({ events, unreadable }) {
  return [
    h("h2", {}, "Events of the operator"),
    events.length
      ? h("ol", { class: "happenings" }, events.map((each) => h("li", { class: each.warning ? "violated" : "evicted" },
        h("time", { datetime: each.time }, dateAndTime(each.time)), " ", h("b", {}, each.reason), `: ${sentence(each.note)}`,
        each.count > 1 ? h("span", { class: "faint" }, ` ${number(each.count)} times`) : null)))
      : null,
    unreadable ? h("p", { class: "faint" }, unreadable) : null,
  ];
}

let redraw = () => {};

function back() {
  return h("p", { class: "back" }, h("a", { href: "#/" }, "← Cluster"));
}

/** Draw what `respread explain` reports, and if they are known, pods, nodes and curves. */
export function drawWorkload(main, page, { namespace = "", workload = "", link = false, events = null, options = "" } = {}) {
  const report = page.explain;
  const states = new Map((page.pods ?? []).map((pod) => [pod.name, pod]));
  const constraints = report.constraints;
  const tone = toneOf(report);
  const opened = new Set([...main.querySelectorAll("details[open]")].map((each) => each.id));
  fill(main,
    link ? back() : null,
    h("h1", { class: tone.name }, h("span", { class: "mark", "aria-hidden": "true" }, tone.mark), ` ${listed(report.subjects)}`),
    h("p", { class: "verdict" }, verdict(report)),
    link ? h("p", {}, h("a", { class: "button", href: `#/what-if?${new URLSearchParams({ workload: `${namespace}/${workload}` })}` }, "What if it were scaled, or a node were drained?")) : null,
    constraints.map((each) => constraintCard(each, report, page, states)),
    constraints.length ? null : h("p", {}, "No topology spread constraint counts its pods."),
    scaleDowns(report, page, link),
    events,
    podsTable(report, states, options),
    policies(report),
    h("details", { class: "card", id: "command" }, h("summary", {}, "The same on the command line"), copyButton(`respread explain ${workload || report.subjects[0] || ""}${namespace ? ` -n ${namespace}` : ""}${options}`)));
  for (const id of opened) document.getElementById(id)?.setAttribute("open", "");
  removeEventListener("resize", redraw);
  redraw = () => main.querySelectorAll(".stage").forEach(drawArrows);
  addEventListener("resize", redraw, { passive: true });
  redraw();
}

/** In a few sentences: what is wrong, and what happens. */
function verdict(report) {
  const said = [];
  for (const each of report.constraints.filter((one) => one.group.violated).slice(0, 2)) {
    const { group } = each;
    const most = Math.max(...Object.values(group.counts));
    const full = Object.keys(group.counts).filter((domain) => group.counts[domain] === most);
    said.push(`${listed(full)} ${full.length === 1 ? "has" : "have"} ${counted(most, "pod")}, but only ${group.minimum + group.maxSkew} ${group.minimum + group.maxSkew === 1 ? "is" : "are"} allowed: the emptiest domain has ${group.minimum}, and maxSkew is ${group.maxSkew}.`);
    if (each.evictions && !each.violatedAfter) said.push(`${counted(each.evictions, "eviction")} would restore it.`);
    else if (each.reason) said.push(`It stays so (${each.reason}): ${each.remedy}.`);
  }
  const unworkable = report.constraints.flatMap((each) => each.group.findings.slice(0, 1));
  for (const each of unworkable) said.push(`It can't work (${each.rule}): ${each.cure}.`);
  if (said.length || !report.constraints.length) return said.join(" ");
  const waits = report.constraints.find((each) => each.operator);
  return `All its constraints hold${waits ? `, and the operator leaves it alone now (${waits.operator.reason})` : ""}.`;
}

/** The looks of a workload: those of its worst constraint. */
function toneOf(report) {
  const states = report.constraints.map((each) => each.group.state);
  if (report.violated || states.includes("Unsatisfiable")) return { name: "bad", mark: "✗" };
  return states.includes("Ineffective") ? { name: "warn", mark: "!" } : { name: "good", mark: "✓" };
}

function constraintCard(each, report, page, states) {
  const { group } = each;
  const allowed = group.minimum + group.maxSkew;
  const moves = report.pods.filter((pod) => pod.move).map((pod) => [pod, pod.move.constraints.find((one) => one.topologyKey === group.topologyKey && one.selector === group.selector)]).filter(([, helped]) => helped);
  const shown = each.domains.length <= MOST_DOMAINS ? each.domains : [...each.domains].sort((a, b) => b.pods - a.pods).slice(0, MOST_DOMAINS);
  const left = each.domains.length - shown.length;
  const closed = each.domains.filter((domain) => domain.closed);
  return h("section", { class: `card constraint${group.violated ? " violated" : ""}` },
    h("h2", {}, `${stateOf(group).mark} `, constraintWords(group)),
    findings(group),
    h("p", { class: "band" }, `Skew ${number(group.skew)}. The minimum is ${number(group.minimum)}, so that every domain may have up to ${counted(allowed, "pod")}.`,
      each.countsOwnPods ? null : " Its selector does not match the pods that have it, so it does not spread them."),
    h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Domains with their nodes and pods" }, h("div", { class: "stage", "data-moves": JSON.stringify(moves.map(([pod, helped]) => ({ pod: pod.pod, to: helped.toDomains, certain: pod.move.certain, wave: pod.move.wave }))) },
      shown.map((domain) => domainColumn(domain, group, allowed, report, page, states, each)),
      left > 0 ? h("p", { class: "faint" }, `and ${counted(left, "more domain")}`) : null)),
    podLegend(report.pods),
    moves.length ? h("p", { class: "legend-line" }, movesWords(moves)) : null,
    each.reason ? h("p", { class: group.violated ? "why" : null }, h("b", {}, each.reason), ": ", sentence(each.message)) : null,
    each.operator && each.operator.reason !== each.reason ? h("p", { class: group.violated ? "why" : null }, "The operator says ", h("b", {}, each.operator.reason), ": ", sentence(each.operator.message)) : null,
    closed.length ? h("details", { id: `closed-${each.group.topologyKey}` }, h("summary", {}, `${counted(closed.length, "domain")} would accept no replacement now`), h("ul", {}, closed.slice(0, 50).map((domain) => h("li", {}, `${domain.domain}: ${domain.closed}`)))) : null,
    each.ineligible.length ? h("details", { id: `ineligible-${each.group.topologyKey}` },
      h("summary", {}, `${counted(each.ineligible.reduce((sum, one) => sum + one.nodes, 0), "node")} not counted`),
      h("ul", {}, each.ineligible.map((one) => h("li", {}, `${one.domain ? `${one.domain}: ` : ""}${counted(one.nodes, "node")} (${listed(one.examples, 3)}) ${one.why}`)))) : null);
}

/** Why a constraint can't work, and what cures it. */
function findings(group) {
  return group.findings.map((each) => h("div", { class: "finding" },
    h("p", { class: "why" }, h("b", { class: stateOf(group).kind }, each.rule), ": ", sentence(each.message)),
    h("p", {}, `To cure it, ${each.cure}. `, h("a", { href: each.docs, rel: "noreferrer" }, "Kubernetes documentation")),
    each.command ? h("code", {}, each.command) : null));
}

const FATES = [["Moves", "1", "to be evicted"], ["MayMove", "", "could be evicted, but need not be"], ["Held", "⊘", "may not be evicted"], ["Stays", "", "stays"]];

/** What the looks of pods mean, of those that there are. */
function podLegend(pods) {
  const found = FATES.filter(([fate]) => pods.some((pod) => pod.node && pod.fate === fate));
  return found.length ? h("ul", { class: "pod-legend" }, found.map(([fate, sign, words]) => h("li", {}, h("span", { class: `pod-sample ${fate.toLowerCase()}`, "aria-hidden": "true" }, sign), ` ${words}`))) : null;
}

function movesWords(moves) {
  const certain = moves.filter(([pod]) => pod.move.certain).length;
  const waves = Math.max(...moves.map(([pod]) => pod.move.wave));
  const sure = certain === moves.length ? "wherever the scheduler puts the replacements" : `${certain} of ${moves.length} for certain, the others likely (dashed)`;
  return `Arrows: ${counted(moves.length, "pod")} to evict, and where ${moves.length === 1 ? "its replacement" : "replacements"} may land; it helps ${sure}.${waves > 1 ? ` In ${waves} waves: the number on a pod is its wave, which waits for those before it.` : ""}`;
}

function domainColumn(domain, group, allowed, report, page, states, each) {
  const here = report.pods.filter((pod) => pod.node && domainOf(page, pod.node, group) === domain.domain);
  const nodes = [...new Set(here.map((pod) => pod.node))].sort();
  const others = domain.nodes - nodes.length;
  const after = each.countsAfter[domain.domain];
  return h("div", { class: `column${domain.tooFull ? " full" : ""}`, "data-domain": domain.domain },
    h("h3", {}, domain.domain),
    h("p", { class: domain.tooFull ? "tally over" : "tally" }, counted(domain.pods, "pod"), h("span", { class: "faint" }, ` of ${allowed} allowed`),
      after !== undefined && after !== domain.pods ? h("span", { class: "then" }, ` → ${after}`) : null),
    nodes.slice(0, MOST_NODES).map((name) => nodeBox(name, here.filter((pod) => pod.node === name), page, states, report)),
    nodes.length > MOST_NODES ? h("p", { class: "faint" }, `${counted(nodes.length - MOST_NODES, "more node")} with its pods`) : null,
    others > 0 ? h("p", { class: "faint" }, `${counted(others, nodes.length ? "other node" : "node")}, none of its pods`) : null);
}

function domainOf(page, node, group) {
  return page.nodes?.find((each) => each.name === node)?.domains[group.topologyKey] ?? (shortKey(group.topologyKey) === "hostname" ? node : undefined);
}

function nodeBox(name, pods, page, states, report) {
  const node = page.nodes?.find((each) => each.name === name);
  const marks = [node?.cordoned ? "cordoned" : "", node && !node.ready ? "not Ready" : ""].filter(Boolean);
  return h("div", { class: `node${marks.length ? " leaving" : ""}` },
    h("span", { class: "node-name", title: node?.taints.length ? `Taints: ${node.taints.join(", ")}` : null }, name, marks.length ? h("span", { class: "warn" }, ` ${marks.join(", ")}`) : null),
    h("span", { class: "chips" }, pods.map((pod) => podChip(pod, states.get(pod.pod), report))));
}

function podChip(pod, state, report) {
  const words = podWords(pod, state, report);
  const sign = pod.move ? String(pod.move.wave) : pod.fate === "Held" ? "⊘" : state?.terminating ? "…" : state && !state.ready ? "?" : "";
  return h("button", { type: "button", class: `pod ${pod.fate.toLowerCase()}${state?.terminating ? " terminating" : ""}${state && !state.ready ? " unready" : ""}`, "data-pod": pod.pod, title: words, "aria-label": words, on: { click: () => showPod(pod.pod) } }, sign);
}

/** Show a pod in the table of all pods. */
function showPod(name) {
  document.getElementById("pods").open = true;
  const row = document.getElementById(`pod-${name}`);
  row?.scrollIntoView({ block: "center" });
  row?.focus({ preventScroll: true });
}

function podWords(pod, state, report) {
  const parts = [pod.pod];
  if (state) parts.push(state.terminating ? "terminating" : state.phase + (state.ready ? "" : ", not Ready"), `${age(state.created, report.time)} old`);
  const fate = { Moves: "to be evicted", Held: "held", MayMove: "may move", Stays: "stays" }[pod.fate];
  return `${parts.join(", ")}; ${fate}: ${pod.message}`;
}

/** Draw arrows from the pods that move to the domains where their replacements may land. */
function drawArrows(stage) {
  stage.querySelector("svg.arrows")?.remove();
  const moves = JSON.parse(stage.dataset.moves || "[]");
  if (!moves.length) return;
  const frame = stage.getBoundingClientRect();
  const picture = svg("svg", { class: "arrows", width: stage.scrollWidth, height: stage.scrollHeight, "aria-hidden": "true" },
    svg("defs", {}, svg("marker", { id: "tip", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" }, svg("path", { d: "M0 0L8 4L0 8Z", class: "tip" }))));
  moves.forEach((move, order) => {
    const chip = [...stage.querySelectorAll(".pod")].find((each) => each.dataset.pod === move.pod);
    if (!chip) return;
    const from = chip.getBoundingClientRect();
    for (const domain of move.to.slice(0, 4)) {
      const column = [...stage.querySelectorAll(".column")].find((each) => each.dataset.domain === domain);
      if (!column) continue;
      const to = column.getBoundingClientRect();
      const right = to.left > from.left;
      const x1 = (right ? from.right : from.left) - frame.left;
      const y1 = (from.top + from.bottom) / 2 - frame.top;
      const x2 = (right ? to.left + 3 : to.right - 3) - frame.left;
      const y2 = to.top + 78 + ((to.height - 90) * (order + 0.5)) / moves.length - frame.top;
      const bend = (x2 - x1) / 2;
      picture.append(svg("path", { class: move.certain ? "arrow" : "arrow likely", d: `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`, "marker-end": "url(#tip)" }));
    }
  });
  stage.append(picture);
}

function scaleDowns(report, page, link) {
  if (!report.scaleDowns.length) return null;
  return h("section", { class: "card" },
    h("h2", {}, "Scale-downs"),
    report.scaleDowns.map((each) => {
      const curve = page.curves?.find((one) => one.namespace === each.namespace && one.workload === workloadName(each.workload));
      const bad = each.violatingReplicas;
      return [
        report.scaleDowns.length > 1 ? h("h3", {}, workloadName(each.workload)) : null,
        h("p", {}, h("b", {}, each.protected ? "Protected" : `Not protected (${each.reason})`), ": ", sentence(each.message)),
        bad?.length ? h("p", {}, `A scale-down of its ${counted(each.replicas, "pod")} now to ${listed(bad.map(String), 12)} ${each.certain ? "would" : "would probably"} leave a constraint violated.`) : null,
        curve?.unknown ? h("p", { class: "faint" }, curve.unknown) : null,
        curve && hasEvictions(curve) ? scaleDownCurve(curve, link ? (replicas) => { location.hash = `#/what-if?${new URLSearchParams({ workload: `${each.namespace}/${workloadName(each.workload)}`, replicas })}`; } : null) : null,
      ];
    }));
}

/** What to type about a pod: to see it and its Events, and why it moves or stays. */
function commandsOf(pod, options) {
  return [`kubectl describe pod ${pod.pod} -n ${pod.namespace}${options}`, `respread explain pod/${pod.pod} -n ${pod.namespace}${options}`];
}

function podsTable(report, states, options) {
  if (!report.pods.length) return null;
  const said = new Map(); // A long sentence is said once.
  const why = (pod) => {
    const first = said.get(pod.message) ?? said.set(pod.message, pod.pod).get(pod.message);
    return first === pod.pod || pod.message.length < 40 ? pod.message : `as ${first}`;
  };
  return h("details", { class: "card", id: "pods" },
    h("summary", {}, h("h2", { class: "inline" }, `All ${counted(report.pods.length, "pod")}, and why each moves or stays`)),
    h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Pods" }, h("table", { class: "plain pods-table" },
      h("thead", {}, h("tr", {}, ["Pod", "Node", "State", "Age", "What happens", "Why", "Commands"].map((text) => h("th", { scope: "col" }, text)))),
      h("tbody", {}, report.pods.slice(0, 500).map((pod) => {
        const state = states.get(pod.pod);
        return h("tr", { id: `pod-${pod.pod}`, tabindex: "-1" }, h("th", { scope: "row" }, pod.pod), h("td", {}, pod.node ?? "none"),
          h("td", {}, state ? (state.terminating ? "Terminating" : state.phase + (state.ready ? "" : ", not Ready")) : ""),
          h("td", {}, state ? age(state.created, report.time) : ""),
          h("td", {}, pod.fate, pod.move ? ` (wave ${pod.move.wave}, ${pod.move.certain ? "certain" : "likely"})` : ""),
          h("td", {}, pod.reason ? h("b", {}, `${pod.reason}: `) : null, why(pod)),
          h("td", { class: "commands" }, commandsOf(pod, options).map((command) => copyButton(command))));
      }))),
    report.pods.length > 500 ? h("p", { class: "faint" }, `and ${counted(report.pods.length - 500, "more pod")}`) : null));
}

function policies(report) {
  if (!report.policies.length) return null;
  return h("section", { class: "card" }, h("h2", {}, "Policies"), report.policies.map((policy) => [
    h("h3", {}, `${policy.name} (${policy.mode})`, report.defaultPolicy ? " – not in the cluster; what an empty spec would do" : ""),
    policy.wrong.map((wrong) => h("p", { class: "bad" }, wrong)),
    policy.conditions.length ? h("ul", {}, policy.conditions.map((each) => h("li", {}, h("b", {}, `${each.type} ${each.status}`), ` (${each.reason}): ${each.message}`))) : null,
  ]));
}

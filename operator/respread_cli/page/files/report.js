// A report that `-o html` wrote: the result of one command, in the views of the page, without a server.

import { beforeAndAfter, constraintWords, distribution, domainCell } from "./bars.js";
import { fill, h } from "./dom.js";
import { counted, dateAndTime, listed, number, sentence, shortKey, stateOf, workloadName, workloadsOf } from "./words.js";
import { drawSimulation, lossTable } from "./whatif.js";
import { drawWorkload } from "./workload.js";

const VIEWS = { SkewReport: skewView, PlanReport: planView, ExplainReport: explainView, SimulationReport: simulationView, DomainLossReport: domainLossView, PlanDifference: differenceView };

/** Show a report of any kind; of `explain`, with nodes, pods and curves. */
export function reportView(main, content) {
  const report = content.explain ?? content;
  const { source, time } = origin(content);
  document.title = `Respread: ${report.kind}, ${source}`;
  const body = h("div", {});
  fill(main, body, report.notes.length ? h("section", { class: "card" }, h("h2", {}, "Notes"), h("ul", {}, report.notes.map((note) => h("li", {}, note)))) : null,
    h("footer", { class: "faint" }, `Made by respread from ${source}, ${dateAndTime(time)}.`));
  VIEWS[report.kind](body, report, content);
}

/** What a report was made from. */
export function origin(content) {
  return content.explain ?? content.after ?? content;
}

function differenceView(body, report) {
  const { before, after } = report;
  const state = (each) => (each ? `skew ${each.skew} (maxSkew ${each.maxSkew}), ${counted(each.evictions, "eviction")}${each.reason ? `, blocked by ${each.reason}` : ""}` : "nothing to do");
  const moves = (title, list) => (list.length ? h("section", { class: "card" }, h("h2", {}, title), h("ul", {}, list.map((move) => h("li", {}, `${move.pod} in ${move.namespace} from ${move.node}`)))) : null);
  fill(body,
    h("h1", { class: after.violated > before.violated ? "bad" : null }, `${counted(after.violated, "constraint")} violated (${number(before.violated)} before), ${counted(after.evictions, "eviction")} (${number(before.evictions)} before).`),
    h("p", { class: "faint" }, `Compared with ${before.source}, ${dateAndTime(before.time)}.`),
    report.addedPolicies.length ? h("p", {}, `New policies: ${listed(report.addedPolicies)}.`) : null,
    report.removedPolicies.length ? h("p", {}, `Policies that are gone: ${listed(report.removedPolicies)}.`) : null,
    report.constraints.length ? h("section", { class: "card" }, h("h2", {}, "Constraints that differ"), h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Constraints that differ" }, h("table", { class: "plain" },
      h("thead", {}, h("tr", {}, ["Workload", "Namespace", "Key", "Before", "Now"].map((text) => h("th", { scope: "col" }, text)))),
      h("tbody", {}, report.constraints.map((each) => h("tr", {}, h("th", { scope: "row" }, workloadsOf(each)), h("td", {}, each.namespace), h("td", {}, shortKey(each.topologyKey)), h("td", {}, state(each.before)), h("td", { class: each.after?.violated ? "over" : null }, state(each.after)))))))) : h("p", {}, "No constraint differs."),
    moves("Evictions that are new", report.addedMoves), moves("Evictions that are gone", report.removedMoves));
}

function explainView(body, report, content) {
  drawWorkload(body, content);
}

function simulationView(body, report) {
  const changes = [
    report.addedNodes.length ? `${counted(report.addedNodes.length, "node")} added` : "",
    report.removedNodes.length ? `${listed(report.removedNodes)} gone` : "",
    report.cordonedNodes.length ? `${listed(report.cordonedNodes)} cordoned` : "",
    report.drainedNodes.length ? `${listed(report.drainedNodes)} drained` : "",
    ...report.scaled.map((each) => `${workloadName(each.workload)} from ${number(each.pods)} to ${counted(each.replicas, "pod")}`),
  ].filter(Boolean);
  const outcome = h("div", {});
  fill(body, h("h1", {}, `What if: ${listed(changes, 6)}`), outcome);
  drawSimulation(outcome, report, null);
}

function domainLossView(body, report) {
  const key = shortKey(report.topologyKey);
  const harmful = report.domains.filter((each) => each.workloads.length);
  const pending = report.pending.reduce((sum, each) => sum + each.pods, 0);
  fill(body,
    h("h1", { class: harmful.length ? "bad" : "good" }, harmful.length ? `✗ The loss of ${counted(harmful.length, key)} of ${number(report.domains.length)} would harm workloads.` : `✓ The loss of no ${key} would harm a workload.`),
    pending ? h("p", { class: "faint" }, `Pending already, and not counted: ${counted(pending, "pod")}.`) : null,
    report.namespaces.some((each) => each.missing || each.outages) ? h("section", { class: "card" }, h("h2", {}, "By namespace, in the domain whose loss is worst for it"), h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Namespaces" }, h("table", { class: "plain" },
      h("thead", {}, h("tr", {}, ["Namespace", "Pods", "Domain", "Pods missing", "Workloads without a pod", "Workloads without a pod for a time"].map((text) => h("th", { scope: "col" }, text)))),
      h("tbody", {}, report.namespaces.filter((each) => each.missing || each.outages).map((each) => h("tr", {}, h("th", { scope: "row" }, each.namespace), h("td", {}, number(each.pods)), h("td", {}, each.worstDomain), h("td", { class: each.missing ? "over" : null }, number(each.missing)), h("td", {}, number(each.gone)), h("td", {}, number(each.outages)))))))) : null,
    report.domains.map((each) => h("section", { class: `card${each.workloads.length ? " violated" : ""}` },
      h("h2", {}, `${each.workloads.length ? "✗" : "✓"} ${key}=${each.domain}`),
      h("p", {}, `${counted(each.nodes, "node")} with ${counted(each.pods, "pod")}: ${each.missing ? `${counted(each.missing, "pod")} find no node or are not created again` : "all of them find another node"}. ${counted(each.unharmed, "workload")} lose pods, keep some, and get the others back.`),
      lossTable(each.workloads))));
}

function skewView(body, report) {
  const unworkable = [report.unsatisfiable ? `${number(report.unsatisfiable)} that keep pods Pending, or would` : "", report.ineffective ? `${number(report.ineffective)} without effect` : ""].filter(Boolean).join(", ");
  const bad = report.violated || unworkable;
  const said = report.violated || unworkable ? `${number(report.violated)} of ${counted(report.groups.length, "constraint")} violated${unworkable ? `, ${unworkable}` : ""}.` : `${counted(report.groups.length, "constraint")}: all hold.`;
  fill(body, h("h1", { class: bad ? "bad" : "good" }, `${bad ? "✗" : "✓"} ${said}`), byKey(report.groups).map(([key, groups]) => groupsTable(key, groups, () => null)));
}

function byKey(groups) {
  const keys = new Map();
  for (const group of groups) keys.set(group.topologyKey, [...(keys.get(group.topologyKey) ?? []), group]);
  return [...keys].sort(([a], [b]) => b.endsWith("/zone") - a.endsWith("/zone") || a.localeCompare(b));
}

function groupsTable(key, groups, more) {
  const domains = [...new Set(groups.flatMap((group) => Object.keys(group.counts)))].sort();
  const columns = domains.length <= 12 && groups.every((group) => Object.keys(group.counts).length === group.domains) ? domains : null;
  return h("section", { class: "card" }, h("h2", {}, key), h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": key }, h("table", { class: "plain report" },
    h("thead", {}, h("tr", {}, ["State", "Workload", "Namespace", "Constraint", "Skew", ...(columns ?? ["Pods per domain"])].map((text) => h("th", { scope: "col" }, text)))),
    h("tbody", {}, groups.map((group) => h("tr", {},
      h("td", { class: stateOf(group).kind, title: group.findings.map((each) => `${each.rule}: ${each.message}. To cure it, ${each.cure}.`).join("\n") }, `${stateOf(group).mark} ${stateOf(group).word}`, group.findings.map((each) => h("div", { class: "faint" }, `${each.rule}: ${each.cure}`))),
      h("th", { scope: "row" }, workloadsOf(group)), h("td", {}, group.namespace), h("td", {}, constraintWords(group)),
      h("td", {}, `${number(group.skew)}/${number(group.maxSkew)}`),
      columns ? columns.map((domain) => h("td", {}, h("div", { class: "domain" }, domainCell(group.counts[domain], group, Math.max(...Object.values(group.counts)))))) : h("td", {}, h("div", { class: "domain spread" }, distribution(group))),
      more(group)))))));
}

function planView(body, report) {
  const said = report.evictions ? `${counted(report.evictions, "eviction")} would restore what can be restored` : report.violated ? "No eviction would help" : "Nothing has to be evicted";
  fill(body,
    h("h1", { class: report.violated ? "bad" : "good" }, `${report.violated ? "✗" : "✓"} ${number(report.violated)} of ${counted(report.selected, "constraint")} violated: ${said}.`),
    report.violatedUnselected ? h("p", {}, `${number(report.violatedUnselected)} more violated: no policy restores them.`) : null,
    h("p", { class: "faint" }, `Policies: ${listed(report.policies.map((policy) => `${policy.name} (${policy.wrong.length ? "invalid" : policy.mode})`))}.`),
    report.moves.length ? h("section", { class: "card" }, h("h2", {}, "Evictions, in their order"), h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Evictions" }, h("table", { class: "plain" },
      h("thead", {}, h("tr", {}, ["Wave", "Pod", "Namespace", "Workload", "From node", "Helps", "Where to", "Waits for"].map((text) => h("th", { scope: "col" }, text)))),
      h("tbody", {}, report.moves.map((move) => h("tr", {}, h("td", {}, String(move.wave)), h("th", { scope: "row" }, move.pod), h("td", {}, move.namespace), h("td", {}, workloadName(move.workload)), h("td", {}, move.node),
        h("td", {}, move.constraints.map((each) => h("div", {}, `${shortKey(each.topologyKey)} (skew ${each.skew}, maxSkew ${each.maxSkew})`))),
        h("td", {}, move.constraints.map((each) => h("div", {}, `${each.fromDomain} → ${listed(each.toDomains)}`)), move.certain ? null : h("span", { class: "faint" }, "likely")),
        h("td", {}, move.waitsFor ?? ""))))))) : null,
    report.blocked.length ? h("section", { class: "card violated" }, h("h2", {}, "What stays violated, and why"), h("ul", {}, report.blocked.map((each) => h("li", {}, h("b", {}, `${workloadsOf(each.group)} in ${each.group.namespace}`), `, ${constraintWords(each.group)}: `, h("b", { class: "over" }, each.reason), `: ${sentence(each.message)}`)))) : null,
    report.groups.map((each) => h("section", { class: `card constraint${each.violatedAfter ? " violated" : ""}` }, h("h3", {}, each.violatedAfter ? "✗ " : "✓ ", workloadsOf(each.group), h("span", { class: "faint" }, ` in ${each.group.namespace}, ${constraintWords(each.group)}, policy ${each.policy}`)),
      h("p", {}, `Skew ${each.group.skew} now, ${each.skewAfter} after the plan (${each.group.maxSkew} allowed).`), h("div", { class: "scroll" }, beforeAndAfter(each.group, each.countsAfter)))));
}

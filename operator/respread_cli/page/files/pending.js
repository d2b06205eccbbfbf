// The pods without a node, with the reason that kube-scheduler would give, for each constraint.

import { h, renew } from "./dom.js";
import { whileOpen } from "./live.js";
import { counted, number, sentence, shortKey, workloadLink, workloadName } from "./words.js";

const MOST_ROWS = 100;

/** Make the table, which asks for the reasons once it is opened, and return what draws it again. */
export function pendingIn(element, store, isOpen) {
  let found = null;
  const drawAll = () => {
    const { waitingPods } = store.overview;
    element.hidden = !waitingPods;
    renew(element, [waitingPods, found], () => [
      h("summary", {}, `${counted(waitingPods, "pod")} without a node`),
      found ? table(found) : h("p", { class: "faint" }, "Working out why …")]);
  };
  const load = whileOpen(element, "pending", isOpen, (read) => {
    found = read;
    drawAll();
  });
  return () => { drawAll(); load(); };
}

function table(found) {
  return [
    h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Pods without a node" }, h("table", { class: "plain pods-table" },
      h("thead", {}, h("tr", {}, ["Workload", "Pods", "Why"].map((text) => h("th", { scope: "col" }, text)))),
      h("tbody", {}, found.slice(0, MOST_ROWS).map((each) => h("tr", {},
        h("th", { scope: "row" }, h("a", { href: workloadLink(each.namespace, each.workload) }, workloadName(each.workload)), h("span", { class: "faint" }, ` ${each.namespace}`)),
        h("td", {}, counted(each.pods, "pod")),
        h("td", {}, why(each))))))),
    found.length > MOST_ROWS ? h("p", { class: "faint" }, `and ${counted(found.length - MOST_ROWS, "more workload")}`) : null];
}

function why({ message, rejections }) {
  if (!rejections.length) return sentence(message);
  return h("ul", {}, rejections.map((each) => h("li", {}, h("b", {}, each.topologyKey ? `${shortKey(each.topologyKey)} constraint` : each.plugin), `: ${number(each.nodes)} of the nodes ${each.message}`)));
}

// Begins the page: the live page of `respread ui`, or a report that `-o html` wrote.

import { clusterView } from "./cluster.js";
import { announce, fill, h } from "./dom.js";
import { ask, follow, Store } from "./live.js";
import { origin, reportView } from "./report.js";
import { whatIfView } from "./whatif.js";
import { clock, dateAndTime, sentence } from "./words.js";
import { workloadView } from "./workload.js";

const main = document.getElementById("main");
const report = document.getElementById("report");

if (report) beginReport(JSON.parse(report.textContent));
else beginLive();

function beginReport(content) {
  const { source, time } = origin(content);
  document.getElementById("source").textContent = `${source}, ${dateAndTime(time)}`;
  document.getElementById("views").remove();
  reportView(main, content);
}

async function beginLive() {
  const store = new Store();
  let view = null;
  let shown = null;
  const route = () => {
    const parts = location.hash.replace(/^#\/?/, "").split("?")[0].split("/").map(decodeURIComponent);
    const at = location.hash;
    if (at === shown) return;
    view?.close?.();
    shown = at;
    drawViews(parts[0]);
    if (parts[0] === "workload" && parts.length > 2) view = workloadView(main, store, parts[1], parts.slice(2).join("/"));
    else if (parts[0] === "what-if") view = whatIfView(main, store, new URLSearchParams(location.hash.split("?")[1] ?? ""));
    else view = clusterView(main, store);
    scrollTo(0, 0);
  };
  store.subscribe((what) => {
    drawConnection(store);
    return what.rows || what.all ? view?.update?.(what) : undefined;
  });
  addEventListener("hashchange", () => { route(); main.focus({ preventScroll: true }); });
  try {
    await follow(store);
  } catch (error) {
    fill(main, h("h1", { class: "bad" }, "The cluster can't be shown"), h("p", {}, String(error.message ?? error)));
    return;
  }
  drawConnection(store);
  route();
  const contexts = await ask("contexts").catch(() => []);
  if (contexts.length > 1) drawContexts(contexts, store, () => { shown = null; route(); });
}

/** Make the choice among the contexts of the kubeconfig, which shows another cluster. */
function drawContexts(contexts, store, again) {
  const ofStore = () => contexts.find((name) => store.overview.source === `context ${name}`) ?? "";
  const choice = h("select", { id: "context", "aria-label": "Context of the kubeconfig", on: { change: async () => {
    choice.disabled = true;
    try {
      await ask("context", { context: choice.value });
      store.begin(await ask("cluster"));
      location.hash = "#/";
      again();
    } catch (error) {
      announce(String(error.message ?? error));
      document.getElementById("connection").textContent = sentence(String(error.message ?? error));
    }
    choice.disabled = false;
    choice.value = ofStore();
  } } }, contexts.map((name) => h("option", { value: name, selected: name === ofStore() }, name)));
  fill(document.getElementById("source"), choice);
  store.subscribe(() => { if (!choice.disabled) choice.value = ofStore(); });
}

function drawViews(current) {
  const link = (href, text, here) => h("a", { href, "aria-current": here ? "page" : null }, text);
  fill(document.getElementById("views"), link("#/", "Cluster", !current), link("#/what-if", "What if", current === "what-if"));
}

function drawConnection(store) {
  const source = document.getElementById("source");
  const connection = document.getElementById("connection");
  if (!document.getElementById("context")) source.textContent = store.overview?.source ?? "";
  let state = ["live", "● live"];
  if (store.serverLost) state = ["lost", `○ No connection to respread ui since ${clock(store.serverLost)}. Is it still running? Trying again …`];
  else if (store.lost) state = ["lost", `○ No connection to the cluster since ${clock(store.lost.since)}: ${store.lost.message} Trying again …`];
  else if (!store.live) state = ["file", `snapshot of ${store.overview ? dateAndTime(store.overview.time) : ""}`];
  if (connection.textContent === state[1]) return;
  connection.className = `connection ${state[0]}`;
  connection.textContent = state[1];
}

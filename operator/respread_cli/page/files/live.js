// What the page knows of the cluster, and how it hears of changes.

import { inSlices } from "./slices.js";
import { workloadName } from "./words.js";

const ALIVE_MILLISECONDS = 25000; // The server says something every ten seconds.
const SORTED_AT_ONCE = 500;
const MERGED_AT_ONCE = 1000;
const WHILE_OPEN_MILLISECONDS = 3000; // Between two readings while the cluster changes.

/** The cluster as the page knows it. Views subscribe to be drawn again. */
export class Store {
  constructor() {
    this.version = 0;
    this.live = false;
    this.overview = null;
    this.points = [];
    this.happenings = [];
    this.lost = null; // Since when the server has no connection to the API server, and why.
    this.serverLost = null; // Since when this page has no connection to its server.
    this.kubectl = ""; // The options with which kubectl talks to the same cluster.
    this.changedRows = new Map(); // Row id to the counts that were drawn before, null for a new row.
    this.listeners = new Set();
    this.rows = new Map();
    this.untold = null; // What has changed since views were last drawn.
    this.tellSoon = oneAtATime(() => this.tellTogether());
  }

  subscribe(listener) {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  /** Tell views what has changed, and return when they are drawn. */
  tell(what) {
    return Promise.all([...this.listeners].map((listener) => listener(what)));
  }

  /** Take over everything. */
  begin(page) {
    Object.assign(this, { version: page.version, live: page.live, overview: page.overview, lost: page.lost, kubectl: page.kubectl });
    this.points = page.timeline.points;
    this.happenings = page.timeline.happenings;
    this.rows = new Map(page.overview.rows.map((row) => [row.id, row]));
    this.changedRows = new Map();
    this.untold = null;
    this.tell({ all: true });
  }

  /** Take over what differs from the version before. Return false if a version is missing. */
  apply(update) {
    this.lost = update.lost ?? null;
    const change = update.change;
    if (change) {
      if (change.version <= this.version) return true;
      if (change.version !== this.version + 1) return false;
      this.version = change.version;
      Object.assign(this.overview, change.fields, { time: update.time });
    }
    const untold = this.beginTelling();
    for (const id of change?.gone ?? []) {
      this.rows.delete(id);
      untold.rows.delete(id);
      untold.gone.add(id);
    }
    for (const row of change?.rows ?? []) {
      if (!untold.rows.has(row.id)) untold.rows.set(row.id, this.rows.get(row.id)?.group.counts ?? null);
      untold.gone.delete(row.id);
      this.rows.set(row.id, row);
    }
    if (update.timeline) {
      this.points = [...this.points, ...update.timeline.points].slice(-600);
      this.happenings = [...this.happenings, ...update.timeline.happenings].slice(-200);
    }
    return true;
  }

  /** Collect what is to be drawn, however many updates arrive until then. */
  beginTelling() {
    this.untold ??= { rows: new Map(), gone: new Set() };
    this.tellSoon();
    return this.untold;
  }

  async tellTogether() {
    await new Promise(requestAnimationFrame);
    const { overview, untold } = this;
    if (!untold) return; // Everything was loaded meanwhile.
    this.untold = null;
    const changed = [...untold.rows.keys()].map((id) => this.rows.get(id));
    if (changed.length || untold.gone.size) {
      const rows = await inSlices(mergedRows(overview.rows, changed, untold), () => this.overview === overview);
      if (!rows) return;
      overview.rows = rows;
    }
    this.changedRows = untold.rows;
    await this.tell({ rows: changed });
  }

  lose() {
    if (this.serverLost) return;
    this.serverLost = new Date().toISOString();
    this.tell({});
  }

  find() {
    if (!this.serverLost) return;
    this.serverLost = null;
    this.tell({});
  }
}

/** Return all rows in their order, those that have changed in their new places. */
function* mergedRows(rows, changed, { rows: before, gone }) {
  let all = rows.filter((row) => !before.has(row.id) && !gone.has(row.id));
  for (let at = 0; at < changed.length; at += SORTED_AT_ONCE) {
    yield;
    const some = changed.slice(at, at + SORTED_AT_ONCE).sort(worstFirst);
    yield;
    all = yield* merged(all, some);
  }
  return all;
}

/** Merge two lists that are in order. */
function* merged(some, others) {
  const all = [];
  let at = 0;
  for (const row of some) {
    if (all.length % MERGED_AT_ONCE === 0) yield;
    while (at < others.length && worstFirst(others[at], row) < 0) all.push(others[at++]);
    all.push(row);
  }
  return all.concat(others.slice(at));
}

/** The order of `respread skew`. */
export function worstFirst(one, other) {
  const a = placeOf(one);
  const b = placeOf(other);
  for (let at = 0; at < a.length; at += 1) {
    if (a[at] < b[at]) return -1;
    if (a[at] > b[at]) return 1;
  }
  return 0;
}

const places = new WeakMap();

function placeOf(row) {
  let found = places.get(row);
  if (!found) places.set(row, found = place(row));
  return found;
}

function place({ group }) {
  const first = group.workloads[0];
  return [
    !group.violated, group.whenUnsatisfiable !== "DoNotSchedule", group.maxSkew - group.skew, -group.excess, group.namespace,
    first ? workloadName(first) : "", group.topologyKey, group.selector,
  ];
}

/** Get JSON from the page's server. `signal` ends it. */
export async function ask(path, body, signal) {
  const request = body === undefined ? {} : {
    signal, method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
  };
  const response = await fetch(`api/${path}`, request);
  const type = response.headers.get("Content-Type") ?? "";
  const answer = type.includes("json") ? await response.json() : { error: await response.text() };
  if (!response.ok) throw new Error(answer.error || `${response.status} ${response.statusText}`);
  return answer;
}

/** Return a function that asks for something again: never twice at once, and not more often than every so many milliseconds.
 * What is asked for meanwhile is asked for once, at the end. */
export function oneAtATime(load, pauseMilliseconds = 0) {
  let running = false;
  let again = false;
  const run = async () => {
    if (running) {
      again = true;
      return;
    }
    running = true;
    try {
      do {
        again = false;
        await load();
        if (pauseMilliseconds) await new Promise((resolve) => { setTimeout(resolve, pauseMilliseconds); });
      } while (again);
    } finally {
      running = false;
    }
  };
  return run;
}

/** Read something while a part of the page that opens is open: when it is opened, and again when the returned function is
 * called, at most every three seconds. `take` is called with it; what could not be read is read again next time. */
export function whileOpen(element, what, isShown, take) {
  const load = oneAtATime(async () => {
    if (!element.open || !isShown()) return;
    const found = await ask(what).catch(() => null);
    if (found && isShown()) take(found);
  }, WHILE_OPEN_MILLISECONDS);
  element.addEventListener("toggle", load);
  return () => { if (element.open) load(); };
}

/** Return a function that does something a while later, once, however often it is called until then. */
export function aWhileLater(act, milliseconds) {
  let timer = null;
  return () => { timer ??= setTimeout(() => { timer = null; act(); }, milliseconds); };
}

/** Load the cluster, and follow it as long as the page is open. */
export async function follow(store) {
  let loading = null;
  const load = () => {
    loading ??= ask("cluster").then((page) => store.begin(page)).finally(() => { loading = null; });
    return loading;
  };
  await load();
  let heard = Date.now();
  let source = null;
  let broken = false; // After that, the server may be another one, whose versions mean something else.
  const connect = () => {
    source?.close();
    source = new EventSource("api/changes");
    const hear = () => { heard = Date.now(); store.find(); };
    source.addEventListener("alive", hear);
    source.addEventListener("version", (event) => {
      hear();
      if (broken || Number(event.data) !== store.version) load().then(() => { broken = false; }, () => store.lose());
    });
    source.addEventListener("update", (event) => {
      hear();
      if (!store.apply(JSON.parse(event.data))) load().catch(() => store.lose());
    });
    source.addEventListener("error", () => {
      broken = true;
      store.lose();
      if (source.readyState === EventSource.CLOSED) setTimeout(connect, 2000);
    });
  };
  connect();
  setInterval(() => {
    if (Date.now() - heard < ALIVE_MILLISECONDS) return;
    heard = Date.now();
    store.lose();
    connect();
  }, 5000);
}

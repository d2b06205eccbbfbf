// What the page knows of the cluster, and how it hears of changes.

const ALIVE_MILLISECONDS = 25000; // The server says something every ten seconds.

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
    this.command = "";
    this.changedRows = new Map(); // Row id to the counts before the newest change.
    this.listeners = new Set();
    this.rows = new Map();
  }

  subscribe(listener) {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  tell(what) {
    for (const listener of [...this.listeners]) listener(what);
  }

  /** Take over everything. */
  begin(page) {
    Object.assign(this, { version: page.version, live: page.live, overview: page.overview, lost: page.lost, command: page.command });
    this.points = page.timeline.points;
    this.happenings = page.timeline.happenings;
    this.rows = new Map(page.overview.rows.map((row) => [row.id, row]));
    this.changedRows = new Map();
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
      this.changedRows = new Map(change.rows.map((row) => [row.id, this.rows.get(row.id)?.group.counts ?? null]));
      for (const id of change.gone) this.rows.delete(id);
      for (const row of change.rows) this.rows.set(row.id, row);
      this.overview = { ...this.overview, ...change.fields, time: update.time, rows: [...this.rows.values()].sort(worstFirst) };
    }
    if (update.timeline) {
      this.points = [...this.points, ...update.timeline.points].slice(-600);
      this.happenings = [...this.happenings, ...update.timeline.happenings].slice(-200);
    }
    this.tell({ rows: change?.rows ?? [] });
    return true;
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

/** The order of `respread skew`. */
export function worstFirst(one, other) {
  const a = place(one);
  const b = place(other);
  for (let at = 0; at < a.length; at += 1) {
    if (a[at] < b[at]) return -1;
    if (a[at] > b[at]) return 1;
  }
  return 0;
}

function place({ group }) {
  const first = group.workloads[0];
  return [
    !group.violated, group.whenUnsatisfiable !== "DoNotSchedule", group.maxSkew - group.skew, -group.excess, group.namespace,
    first ? `${first.kind}/${first.name}` : "", group.topologyKey, group.selector,
  ];
}

/** Get JSON from the page's server. */
export async function ask(path, body) {
  const request = body === undefined ? {} : {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
  };
  const response = await fetch(`api/${path}`, request);
  const type = response.headers.get("Content-Type") ?? "";
  const answer = type.includes("json") ? await response.json() : { error: await response.text() };
  if (!response.ok) throw new Error(answer.error || `${response.status} ${response.statusText}`);
  return answer;
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

// Words for values: names as kubectl writes them, numbers, times.

const SHORT_KINDS = {
  DaemonSet: "ds", Deployment: "deploy", Pod: "pod", ReplicaSet: "rs", ReplicationController: "rc", StatefulSet: "sts",
};

export const STATES = {
  Violated: { mark: "✗", word: "Violated", text: "violated; the plan restores it" },
  Blocked: { mark: "⊘", word: "Blocked", text: "violated, and the plan can't, or not fully, restore it" },
  NotSelected: { mark: "!", word: "No policy", text: "violated, and no policy restores it" },
  UnderWay: { mark: "↻", word: "Under way", text: "the operator has evicted a pod, and its replacement is not Ready yet" },
  Unsatisfiable: { mark: "⊗", word: "Can't work", text: "it keeps pods Pending, now or at the next rollout or scale-up" },
  Ineffective: { mark: "○", word: "No effect", text: "it can't change where pods go" },
  Holds: { mark: "✓", word: "Holds", text: "the constraint holds" },
};

/** The looks of a constraint that can't work, or is violated or not: its mark, a word for it, and its class. */
export function stateOf(group) {
  const known = group.state === "Unsatisfiable" || group.state === "Ineffective" ? STATES[group.state] : null;
  if (known) return { mark: known.mark, word: known.word, kind: group.state === "Unsatisfiable" ? "over" : "idle" };
  return group.violated ? { mark: "✗", word: "violated", kind: "over" } : { mark: "✓", word: "holds", kind: "good" };
}

/** `deploy/web` */
export function workloadName(workload) {
  return `${SHORT_KINDS[workload.kind] ?? workload.kind.toLowerCase()}/${workload.name}`;
}

/** Where the page shows a workload. */
export function workloadLink(namespace, workload) {
  return `#/workload/${encodeURIComponent(namespace)}/${encodeURIComponent(workloadName(workload))}`;
}

/** The first workload of a group, and how many more there are. */
export function workloadsOf(group) {
  if (!group.workloads.length) return group.selector;
  const more = group.workloads.length - 1;
  return workloadName(group.workloads[0]) + (more ? ` +${more}` : "");
}

/** `zone` */
export function shortKey(key) {
  return key.slice(key.lastIndexOf("/") + 1);
}

/** What most domains may have: the minimum plus maxSkew. */
export function allowedIn(group) {
  return group.minimum + group.maxSkew;
}

const NUMBERS = new Intl.NumberFormat("en");

export function number(value) {
  return NUMBERS.format(value);
}

/** `1 pod`, `2 pods` */
export function counted(value, noun, plural = `${noun}s`) {
  return `${number(value)} ${value === 1 ? noun : plural}`;
}

/** `a`, `a and b`, `a, b and 3 more` */
export function listed(words, most = 4) {
  const shown = words.slice(0, most);
  const more = words.length - shown.length;
  if (more) return `${shown.join(", ")} and ${number(more)} more`;
  return shown.length > 1 ? `${shown.slice(0, -1).join(", ")} and ${shown.at(-1)}` : shown.join("");
}

// A format takes a hundred times as long to make as to use.
const CLOCK = new Intl.DateTimeFormat([], { timeStyle: "medium", hourCycle: "h23" });
const DATE_AND_TIME = new Intl.DateTimeFormat([], { dateStyle: "medium", timeStyle: "short" });

/** `14:03:21` in the time zone of the browser. */
export function clock(time) {
  return CLOCK.format(new Date(time));
}

export function dateAndTime(time) {
  return DATE_AND_TIME.format(new Date(time));
}

/** The age of something, as kubectl writes it: `3d`, `5h`, `12m`, `8s`. */
export function age(from, to) {
  if (!from) return "";
  const seconds = Math.max(0, (new Date(to) - new Date(from)) / 1000);
  for (const [unit, size] of [["y", 31536000], ["d", 86400], ["h", 3600], ["m", 60]]) {
    if (seconds >= 2 * size || (unit === "y" && seconds >= size)) return `${Math.floor(seconds / size)}${unit}`;
  }
  return `${Math.floor(seconds)}s`;
}

/** A sentence with a capital letter and a full stop. */
export function sentence(text) {
  if (!text) return "";
  const field = /^[a-z]+\.[a-z]/i.test(text); // spec.prevention: as the API spells it
  const whole = field ? text : text[0].toUpperCase() + text.slice(1);
  return /[.!?…]$/.test(whole) ? whole : `${whole}.`;
}

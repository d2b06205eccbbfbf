// Curves over time and over replicas, drawn as SVG. Each has the same numbers as a table or a sentence beside it.

import { h, svg } from "./dom.js";
import { clock, counted, number } from "./words.js";

/** A step line of a number over time. */
export function sparkline(points, field, label) {
  const width = 260;
  const height = 64;
  if (!points.length) return h("p", { class: "faint" }, "Nothing yet.");
  const first = new Date(points[0].time).getTime();
  const last = Math.max(new Date(points.at(-1).time).getTime(), first + 1000);
  const most = Math.max(0, ...points.map((point) => point[field]));
  const x = (time) => (width * (new Date(time).getTime() - first)) / (last - first);
  const y = (value) => height - 2 - ((height - 6) * value) / Math.max(1, most);
  let path = `M0 ${y(points[0][field])}`;
  for (const point of points) path += `H${x(point.time).toFixed(1)}V${y(point[field]).toFixed(1)}`;
  path += `H${width}`;
  const now = points.at(-1)[field];
  return h("figure", { class: "spark" },
    h("figcaption", {}, label, " ", h("b", {}, number(now)), h("span", { class: "faint" }, ` (most ${number(most)} since ${clock(points[0].time)})`)),
    svg("svg", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": `${label}: ${now} now, at most ${most} since ${clock(points[0].time)}` },
      svg("path", { d: `${path}V${height}H0Z`, class: "area" }),
      svg("path", { d: path, class: "line" })));
}

const SERIES = [["withoutCosts", "without prevention"], ["asItIs", "as now"], ["withCosts", "with prevention"]];
const LEFT = 34; // Room for the numbers of the axis.
const FLOOR = 24; // Room for the numbers of replicas.

/** How many evictions each number of replicas would leave to be made: three bars for each, whose numbers the table has. */
export function scaleDownCurve(curve, choose) {
  const points = curve.points;
  const most = Math.max(1, ...points.flatMap((point) => SERIES.map(([field]) => point[field].evictions)));
  const step = Math.max(14, Math.min(72, Math.floor(760 / Math.max(1, points.length))));
  const height = 190;
  const width = LEFT + points.length * step;
  const bar = step / 4;
  const y = (value) => height - FLOOR - ((height - FLOOR - 12) * value) / most;
  const bars = SERIES.map(([field], order) => {
    const d = points.map((point, at) => {
      const top = point[field].evictions ? y(point[field].evictions) : y(0) - 1.5;
      return `M${(LEFT + at * step + (order + 0.5) * bar).toFixed(1)} ${y(0)}V${top.toFixed(1)}h${(bar - 1).toFixed(1)}V${y(0)}z`;
    }).join("");
    return svg("path", { d, class: `curve curve-${order}` });
  });
  const ticks = [...new Set([0, Math.round(most / 2), most])];
  const every = Math.ceil(28 / step);
  return h("figure", { class: "curve-figure" },
    h("figcaption", {}, "Evictions that a scale-down now would make necessary, by the number of replicas that it leaves"),
    h("ul", { class: "legend" }, SERIES.map(([, words], order) => h("li", { class: `key-${order}` }, words))),
    h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Chart, scrolls sideways" }, svg("svg", {
      viewBox: `0 0 ${width} ${height}`, width, height, role: "img",
      "aria-label": `Evictions by replicas; the table below has the numbers. At most ${most}.`,
    },
    ticks.map((tick) => [
      svg("line", { x1: LEFT, x2: width, y1: y(tick), y2: y(tick), class: "axis" }),
      svg("text", { x: LEFT - 8, y: y(tick) + 4, class: "tick end" }, String(tick))]),
    bars,
    points.map((point, at) => [
      svg("rect", {
        x: LEFT + at * step, y: 0, width: step, height, class: "slot", on: choose ? { click: () => choose(point.replicas) } : undefined,
      }, svg("title", {}, `${counted(point.replicas, "replica")}: ${SERIES.map(([field, words]) => `${point[field].evictions} ${words}`).join(", ")}`)),
      at % every === 0 ? svg("text", { x: LEFT + (at + 0.5) * step, y: height - 6, class: "tick" }, String(point.replicas)) : null,
    ]))),
    h("details", {}, h("summary", {}, "The numbers"),
      h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "The numbers" }, h("table", { class: "plain" },
        h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "replicas"), SERIES.map(([, words]) => h("th", { scope: "col" }, words)))),
        h("tbody", {}, points.map((point) => h("tr", {}, h("th", { scope: "row" }, String(point.replicas)),
          SERIES.map(([field]) => h("td", {}, `${point[field].evictions}${point[field].certain ? "" : " (likely)"}`)))))))));
}

/** Whether any scale-down would make an eviction necessary, whichever pod deletion costs there are. */
export function hasEvictions(curve) {
  return curve.points.some((point) => SERIES.some(([field]) => point[field].evictions));
}

// Bars and plots

import { amount } from "./format.js";
import { h, tags } from "./ui.js";

const { b, div, figcaption, figure, li, span, ul } = tags;

// From these parts of a limit, and from this throttling and pressure, `podslice top` has colors
const HIGH = 0.75;
const FULL = 0.9;
export const THROTTLED_PERCENT = 25;
export const PRESSURE_PERCENT = 10;

const CPUS = { cpu: " CPUs" };
const share = (part, whole) => `${whole > 0 ? Math.min(part / whole, 1) * 100 : 0}%`;
const mark = (kind, part, whole, title) => div({ class: `mark ${kind}`, style: { left: share(part, whole) }, title });

export const legend = entries => ul({ class: "legend" }, entries.map(([kind, label, text]) =>
  li({ key: label }, span({ class: `swatch ${kind}` }), `${label} `, b(text))));

// The use as part of the limit, or else of what the host has, with marks at the request and at recorded use
export function UseBar({ resource, label, used, limit, request, recorded = null, whole = 0 }) {
  const text = amount[resource];
  if (used == null)
    return div({ class: "use" }, "-");
  const scale = limit ?? Math.max(whole, request ?? 0);
  const part = limit ? used / limit : 0;
  const words = [
    `${text(used)}${limit == null ? "" : ` of ${text(limit)}`}${CPUS[resource] ?? ""}`,
    limit == null ? "no limit" : "", request == null ? "" : `request ${text(request)}`,
    recorded === null ? "" : `90th percentile of recorded use ${text(recorded)}`,
  ].filter(Boolean).join(", ");
  return div({ class: "use", title: words },
    scale > 0 && div({
      class: `bar ${part >= FULL ? "full" : part >= HIGH ? "high" : ""} ${limit == null ? "is-open" : ""}`,
      role: "meter", "aria-label": label, "aria-valuemin": 0, "aria-valuemax": scale, "aria-valuenow": used,
      "aria-valuetext": words,
    }, div({ class: "fill", style: { width: share(used, scale) } }),
    request > 0 && mark("request", request, scale), recorded > 0 && mark("recorded", recorded, scale)),
    span({ class: "amounts-text" }, b(text(used)), limit == null ? "" : ` / ${text(limit)}`));
}

// What the host has, in parts, with a mark at its use
export function PartsBar({ resource, label, parts, capacity, allocatable, used }) {
  const text = amount[resource];
  const shown = parts.filter(each => each.amount > 0 || each.id === "free");
  const words = `${label}: ${shown.map(each => `${each.label} ${text(each.amount)}`).join(", ")}`;
  const total = `${text(capacity)}${CPUS[resource] ?? ""}`;
  return div({ class: "parts" },
    div({ class: "parts-head" }, b(label), 
      span(used == null ? total : `${text(used)} of ${total} in use`, `, ${text(allocatable)} allocatable`)),
    div({ class: "parts-bar", role: "img", "aria-label": words }, shown.map(each => div({
      key: each.id, class: each.id, title: `${each.label}: ${text(each.amount)}`,
      style: { width: share(each.amount, capacity) },
    })), used != null && mark("used", used, capacity, `in use: ${text(used)}`)),
    legend(shown.map(each => [each.id, each.label, text(each.amount)])));
}

const [WIDTH, HEIGHT] = [600, 140];

// Points over a time, with lines at further amounts: [kind, label, amount or null]
export function Plot({ resource, label, points, lines, from, to, ticks }) {
  const text = amount[resource];
  const known = lines.filter(([, , found]) => found !== null);
  const most = Math.max(1, ...points.map(each => each.amount));
  // a limit far above the use would flatten the plot
  const drawn = known.filter(([, , found]) => found <= most * 8);
  const top = 1.1 * Math.max(most, ...drawn.map(([, , found]) => found));
  const y = found => HEIGHT * (1 - found / top);
  const path = points.map((each, index) => {
    const isGap = index === 0 || each.at - points[index - 1].at > (to - from) / 40;
    return `${isGap ? "M" : "L"}${(each.at - from) / (to - from) * WIDTH} ${y(each.amount)}`;
  });
  return figure({ class: "plot" },
    figcaption(b(label), legend(known.map(line =>
      [line[0], line[1], `${text(line[2])}${drawn.includes(line) ? "" : ", above the plot"}`]))),
    div({ class: "plot-area" },
      h("svg", {
        viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img",
        "aria-label": `${label}, at most ${text(most)}`,
      }, drawn.map(([kind, , found]) => h("line", { key: kind, class: kind, x2: WIDTH, y1: y(found), y2: y(found) })),
      h("path", { d: path.join(" ") })),
      span({ class: "plot-top" }, text(top))),
    div({ class: "plot-ticks" }, ticks.map(tick => span({ key: tick }, tick))));
}

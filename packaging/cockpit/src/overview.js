// The overview: problems, what the host has, and the tree of pods with their use

import { useMemo, useRef, useState } from "preact/hooks";
import { Problems, podHref } from "./change.js";
import { PRESSURE_PERCENT, PartsBar, THROTTLED_PERCENT, UseBar } from "./charts.js";
import { percent } from "./format.js";
import { SORTS, visibleRows, withSums } from "./tree.js";
import { Alert, Button, Card, Check, Command, Empty, Icon, Label, h, name, pf, tags, useInView } from "./ui.js";

const { a, details, div, form, input, label, option, p, select, span, summary, table, tbody, td, th, thead, tr } = tags;

const TITLES = { cpu: "CPU", memory: "Memory" };
const NEW_POD = `podslice new web --memory-limit 256Mi > web.yaml
podslice apply -f web.yaml`;

export const Overview = ({ state, live, lacking, onChanged }) => div({ class: "stack" },
  h(Problems, { problems: state.problems, onChanged }),
  lacking.length > 0 && details({ class: "lacking" },
    summary(`What this host lacks for podslice (${lacking.length})`),
    lacking.map(each => h(Alert, { kind: "warning", title: each.what, key: each.check },
      p(each.effect), each.fix && p({ class: "remedy" }, each.fix)))),
  h(Card, { title: "Host" }, div({ class: "halves" }, Object.keys(TITLES).map(resource => h(PartsBar, {
    key: resource, resource, label: TITLES[resource], ...state.host[resource], used: live.use.get("")?.[resource],
  })))),
  state.rows.length > 0 ? h(Tree, { state, live }) : h(Empty, { title: "No pods" },
    p("A manifest gives a pod its budget. Write one, and apply it:"), h(Command, null, NEW_POD)));

function Tree({ state, live }) {
  const [filter, setFilter] = useState({ text: "", onlyProblems: false, sort: "name", toggled: new Set() });
  const set = change => setFilter(before => ({ ...before, ...change }));
  const use = useMemo(() => withSums(state.rows, live.use), [state, live]);
  const shown = visibleRows(state.rows, use, filter);
  const count = rows => rows.filter(row => row.kind === "pod").length;
  const [some, all] = [count(shown.map(each => each.row)), count(state.rows)];
  const toggle = id => setFilter(before => {
    const toggled = new Set(before.toggled);
    return { ...before, toggled: toggled.delete(id) ? toggled : toggled.add(id) };
  });
  const whole = { cpu: state.host.cpu.capacity, memory: state.host.memory.capacity };
  return h(Card, {
    title: "Pods", class: "tree-card",
    actions: span({ class: "why" }, `${some === all ? "" : `${some} of `}${all} ${all === 1 ? "pod" : "pods"}`,
      live.source && `, use from ${live.source}`),
  },
  form({ class: "filters", role: "search", onSubmit: event => event.preventDefault() },
    span({ class: pf("form-control") }, input({
      type: "search", placeholder: "Filter by name", "aria-label": "Filter by name", value: filter.text,
      onInput: event => set({ text: event.target.value }),
    })),
    label({ class: "field" }, "Sort by", span({ class: pf("form-control") },
      select({ value: filter.sort, onChange: event => set({ sort: event.target.value }) },
        SORTS.map(sort => option({ key: sort, value: sort }, TITLES[sort] ?? sort))))),
    h(Check, { checked: filter.onlyProblems, onChange: checked => set({ onlyProblems: checked }) }, "Problems only")),
  table({ class: pf("table", "pf-m-compact tree"), role: "treegrid", "aria-label": "Pods" },
    thead({ class: pf("table__thead") }, tr({ class: pf("table__tr") },
      ["Name", "State", "CPU", "Memory", "Throttled", "Pressure"].map(title =>
        th({ key: title, class: pf("table__th"), scope: "col" }, title)))),
    tbody({ class: pf("table__tbody") }, shown.map(each => h(TreeRow, {
      key: each.row.id, ...each, use: use.get(each.row.use), whole, toggle,
    })))));
}

// An update of hundreds of rows every two seconds would block the page while it is scrolled: only rows in view show
// each change of the use, and rows with the same values are not compared
function TreeRow({ toggle, ...values }) {
  const [element, use] = [useRef(null), useRef(null)];
  const isInView = useInView(element);
  if (isInView || !use.current)
    use.current = values.use;
  const shown = { ...values, use: use.current };
  return useMemo(() => treeRow(shown, toggle, element), [JSON.stringify(shown)]);
}

function treeRow({ row, isOpen, hasChildren, position, size, use, whole }, toggle, ref) {
  const cell = (title, kind, content) =>
    td({ class: pf("table__td", kind), "data-label": title, role: "gridcell" }, content);
  const bar = resource => cell(TITLES[resource], "cell-bar", h(UseBar, {
    resource, label: `${TITLES[resource]} of ${row.name}`, used: use?.[resource], limit: row.limits[resource],
    request: row.requests[resource], whole: whole[resource],
  }));
  const throttled = use?.throttled;
  return tr({
    ref, class: pf("table__tr", `row-${row.kind} ${row.problems.length ? "is-marked" : ""}`), role: "row",
    "aria-level": row.level, "aria-posinset": position, "aria-setsize": size,
    "aria-expanded": hasChildren ? String(isOpen) : null,
  },
  th({ class: pf("table__th", "cell-name"), scope: "row", role: "rowheader" },
    div({ class: "name", style: { "--level": row.level - 1 } },
      hasChildren ? h(Button, {
        kind: "plain", class: `toggle ${isOpen ? "is-open" : ""}`, onClick: () => toggle(row.id),
        "aria-label": `${isOpen ? "Close" : "Open"} ${row.name}`,
      }, h(Icon, { name: "angle" })) : span({ class: "toggle" }),
      row.kind === "pod" ? a({ href: podHref(row.pod) }, name(row.name)) : span({ class: "unit-name" }, name(row.name)),
      span({ class: "why" }, row.qos))),
  cell("State", "cell-state", h(State, { row })),
  bar("cpu"), bar("memory"),
  cell("Throttled", "cell-number", throttled == null ? null
    : span({ class: throttled >= THROTTLED_PERCENT ? "is-high" : null }, percent(throttled))),
  cell("Pressure", "cell-number", h(Pressure, { pressure: use?.pressure })));
}

function State({ row }) {
  const { state, problems } = row;
  const count = row.containers ? ` ${row.ready}/${row.containers}` : "";
  if (problems.length)
    return span({ title: problems.map(each => each.message).join("\n") },
      h(Label, { color: "red" }, problems.length === 1 ? "1 problem" : `${problems.length} problems`), count);
  if (/^(failed|missing|elsewhere|OOM|killed|exited [1-9]|pending)/.test(state))
    return h(Label, { color: "orange" }, state);
  return state === "active" && count ? `running${count}` : state;
}

export function Pressure({ pressure }) {
  const known = Object.entries(pressure ?? {}).filter(([, value]) => Number.isFinite(value));
  const found = known.filter(([, value]) => value >= 1).sort(([, one], [, other]) => other - one);
  if (!found.length)
    return known.length ? "0 %" : null;
  return found.map(([of, value]) => span({ key: of, class: value >= PRESSURE_PERCENT ? "is-high" : null },
    `${of} ${percent(value)} `));
}

// The page of one pod

import { useEffect, useState } from "preact/hooks";
import { ChangeDialog, DeleteDialog, Problems, useWhyNot } from "./change.js";
import { Plot, UseBar, legend } from "./charts.js";
import { amount, bytes, clock, duration, percent, property, time, value } from "./format.js";
import { Pressure } from "./overview.js";
import * as podslice from "./podslice.js";
import { Alert, Button, Card, Empty, Facts, Label, Table, h, name, pf, tags, usePoll } from "./ui.js";

const { a, b, code, div, figcaption, figure, h1, header, nav, p, pre, span } = tags;

const POLL_MSEC = 5000;
const REASONS_MSEC = 60000; // they change with the manifest and the configuration only
const HOUR_MSEC = 3600000;
const HIGH = { class: "is-high" };

export function PodPage({ pod, live, onChanged }) {
  const [{ data, error }, refresh] = usePoll(() => podslice.readPod(pod), POLL_MSEC, [pod]);
  const [{ data: reasons }, refreshReasons] = usePoll(() => podslice.readReasons(pod), REASONS_MSEC, [pod]);
  const [history, setHistory] = useState(null);
  useEffect(() => void podslice.readHistory(pod).then(setHistory), [pod]);
  const changed = () => {
    refresh();
    refreshReasons();
    onChanged();
  };
  const page = data?.page;
  return div({ class: "stack" },
    h(Heading, { pod, page, onChanged: changed }),
    error && h(Alert, { title: "This pod cannot be read" }, pre(error.message)),
    data && h(Problems, { problems: data.problems, onChanged: changed }),
    data && !page && h(Empty, { title: "The pod is not applied" }, data.pending.map(each => p(name(each.message)))),
    page && [
      div({ class: "halves", key: "use" }, h(Use, { page, use: live.use.get(pod) ?? page.use }), h(About, { page })),
      h(Day, { key: "day", page, history }),
      h(Containers, { key: "containers", page }),
      h(Values, { key: "values", values: data.values, reasons }),
      h(Events, { key: "events", page }),
    ]);
}

function Heading({ pod, page, onChanged }) {
  const why = useWhyNot();
  const [Chosen, choose] = useState(null);
  const button = (text, Dialog, more) => h(Button, { why, onClick: () => choose(() => Dialog), ...more }, text);
  return header(
    nav({ "aria-label": "Breadcrumb" }, a({ href: "#/" }, "Pods")),
    div({ class: "heading" }, h1(name(pod)),
      page && [h(Label, { key: "qos" }, page.qos),
        h(Label, { key: "phase", color: page.phase === "running" ? "green" : "orange" }, page.phase)],
      div({ class: "actions" },
        page && button("Change", ChangeDialog, page.manifest ? {}
          : { why: why || "Its manifest is in no manifest directory: change the file that it was applied from" }),
        page && button("Delete", DeleteDialog, { class: "pf-m-danger" }))),
    Chosen && h(Chosen, { page, onChanged, onClose: () => choose(null) }));
}

function Use({ page, use }) {
  const bar = (resource, title, used) => div({ class: "use-row" }, span(title), h(UseBar, {
    resource, label: title, used, limit: page.limits[resource], request: page.requests[resource],
    recorded: page.p90[resource] ?? null,
  }));
  const { throttled, io } = page;
  return h(Card, { title: "Use" },
    bar("cpu", "CPU", use.cpu), bar("memory", "Memory", use.memory), bar("tasks", "Tasks", page.use.tasks),
    h(Facts, { facts: [
      ["Throttled", throttled &&
        `${percent(throttled.share * 100)} of all periods, ${duration(throttled.usec)} in total`],
      ["Pressure", Object.values(use.pressure).some(Number.isFinite) && h(Pressure, { pressure: use.pressure })],
      ["OOM kills", page.oomKills > 0 && span(HIGH, page.oomKills)],
      ["I/O", io && `${bytes(io.read)} read, ${bytes(io.written)} written`],
    ] }),
    legend([["request", "request"], ...page.p90.cpu === null ? [] : [["recorded", "90th percentile of recorded use"]]]));
}

const list = found => Object.entries(found).filter(([, each]) => each != null)
  .map(([key, each]) => `${key === "cpu" ? "CPU" : key} ${amount[key](each)}`).join(", ") || "none";

const About = ({ page }) => h(Card, { title: "About" }, h(Facts, { facts: [
  ["Requests", list(page.requests)],
  ["Limits", list(page.limits)],
  ["Manifest", page.manifest ? code(page.manifest) : "in no manifest directory"],
  ["Slice", code(page.slice)],
  ["Started", page.startedUsec && `${time(page.startedUsec)}, ${duration(Date.now() * 1000 - page.startedUsec)} ago`],
  ["Grace period", `${page.graceSec} s`],
  ...page.volumes.map(each => [`Volume ${each.name}`, [each.size && `${bytes(each.size)}, `, code(each.path)]]),
] }));

const NO_HISTORY = "Nothing is recorded yet: the agent, podslice-agent.service, takes a sample each minute, and " +
  "writes them every ten minutes.";

function Day({ page, history }) {
  const to = Date.now();
  const from = to - 24 * HOUR_MSEC;
  const ticks = [...[24, 18, 12, 6].map(hours => clock(new Date(to - hours * HOUR_MSEC)).slice(0, 5)), "now"];
  const day = (history?.day ?? []).filter(each => each.at > from);
  const plot = (resource, label) => h(Plot, {
    resource, label, from, to, ticks, points: day.map(each => ({ at: each.at, amount: each[resource] })),
    lines: [["limit", "limit", page.limits[resource]], ["request", "request", page.requests[resource]],
      ["recorded", "recommended request", history?.[resource] ?? null]],
  });
  return h(Card, { title: "The last day" }, day.length > 1
    ? div({ class: "halves" }, plot("cpu", "CPU, highest minute of each quarter of an hour"),
      plot("memory", "Memory, most of each quarter of an hour"))
    : p({ class: "why" }, NO_HISTORY));
}

const journal = unit => `/system/logs#/?prio=debug&_SYSTEMD_UNIT=${encodeURIComponent(unit)}`;

const Containers = ({ page }) => h(Card, { title: "Containers" },
  page.unreadable.map(text => p({ key: text, class: "why" }, text)),
  h(Table, {
    label: "Containers", titles: ["Name", "State", "Restarts", "CPU", "Memory", "Tasks", "Last end", "Log"],
    rows: page.containers.map(each => [each.unit, [
      span(b(name(each.name)), " ", each.image && span({ class: "why" }, name(each.image))),
      span(/^(OOM|exited [1-9]|killed|failed)/.test(each.state) ? HIGH : {}, each.state),
      each.restarts,
      each.use.cpu == null ? "-" : amount.cpu(each.use.cpu),
      each.use.memory == null ? "-" : bytes(each.use.memory),
      span({ title: each.processes.map(one => `${one.pid} ${one.name}`).join("\n") }, each.use.tasks ?? "-"),
      each.last ? `${each.last.how}${each.last.usec ? `, ${time(each.last.usec)}` : ""}` : "-",
      h(Button, { kind: "link", class: "pf-m-inline", onClick: () => cockpit.jump(journal(each.unit)) }, "Journal"),
    ]]),
  }),
  page.containers.filter(each => each.log.length).map(each => figure({ class: "log", key: each.unit },
    figcaption("Last messages of ", b(name(each.name))),
    pre({ class: "command" }, each.log.map((line, index) => div({ key: index },
      span({ class: "why" }, clock(new Date(line.usec / 1000)), " "), name(line.text)))))));

const Values = ({ values, reasons }) => h(Card, { title: "Values" }, h(Table, {
  label: "Values", titles: ["Unit", "Property", "Desired", "systemd", "Kernel", "Reason"],
  rows: values.map(each => [`${each.of} ${each.name}`, [
    name(each.of), code(property(each.name)), value(each.name, each.desired),
    span(each.differs ? HIGH : {}, value(each.name, each.systemd), each.differs && " (differs)"),
    each.kernel ?? "-", span({ class: "why" }, reasons?.get(each.reason)),
  ], each.differs]),
}));

const Events = ({ page }) => h(Card, { title: "Events" }, page.events.length ? h(Table, {
  label: "Events", titles: ["Time", "Kind", "Event"],
  rows: page.events.toReversed().map((each, index) =>
    [index, [time(each.usec), span(each.isBad ? HIGH : {}, each.kind), name(each.text)]]),
}) : p({ class: "why" }, "None are recorded."));

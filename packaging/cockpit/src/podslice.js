/* The command line of podslice and the socket of its agent: the only module that knows verbs, options, keys of
   JSON and metrics. Amounts are thousandths of a CPU and bytes; null is "not known" or "none". */

import { visible } from "./format.js";

const SOCKET = "/run/podslice/agent.sock";
const LIVE_MSEC = 2000;
const METRICS_EVERY = 5; // rounds: they are larger than the summary
const CHANGING = ["apply", "confirm", "delete", "readmit"];
const RESOURCES = ["cpu", "memory", "io"];

function spawn(words, { input, superuser = "try", err = "message" } = {}) {
  const environ = ["LC_ALL=C.UTF-8", "NO_COLOR=1", "COLUMNS=1000"];
  const process = cockpit.spawn(words, { superuser, err, environ });
  if (input !== undefined)
    process.input(input);
  return process;
}

const parse = text => JSON.parse(text, (_, found) => typeof found === "string" ? visible(found) : found);

const settled = process => new Promise(resolve =>
  process.then(output => resolve({ output }), (exit, output) => resolve({ exit, output })));

const failure = (exit, text) => ({ message: visible(text || exit?.message || ""), problem: exit?.problem });

// The document of a command, also with an exit status that says that there is something to see
async function ask(words, options, codes = []) {
  const { exit, output } = await settled(spawn(["podslice", ...words, "-o", "json"], options));
  let found = {};
  try {
    found = parse(output);
  } catch {
    // it has ended before
  }
  // a command without a result reports only why
  const isResult = Object.keys(found).some(key => !["version", "problems"].includes(key));
  if (isResult && (!exit || codes.includes(exit.exit_status)))
    return found;
  throw failure(exit, problemText(found.problems));
}

export const problemText = (problems = []) => problems.map(each =>
  [each.where && `${each.where}: `, each.message, each.hint && `\n  → ${each.hint}`].join("")).join("\n");

const amounts = found => ({ cpu: found?.cpu_milli ?? null, memory: found?.memory_bytes ?? null });

function endOf(exit) {
  if (exit?.oom_killed)
    return "OOM-killed";
  if (exit?.signal)
    return `killed ${exit.signal}`;
  return exit?.exit_code == null ? "exited" : `exited ${exit.exit_code}`;
}

const stateOf = found => found.state === "exited" ? endOf(found.last_exit) : found.state;

// ---- What exists: the rows of a tree, each after the slice that it is in, and the problems

export async function readState() {
  const [status, node] = await Promise.all([ask(["status", "--exit-zero"]), ask(["node"])]);
  performance.mark("podslice-state");
  return { ...toState(status), host: { cpu: toParts(node, "cpu_milli"), memory: toParts(node, "memory_bytes") } };
}

export function toState(status) {
  const rows = [];
  const groups = new Map();
  for (const unit of status.units.filter(each => each.kind === "slice" || "container" in each)) {
    const parent = groups.get(unit.control_group.slice(0, unit.control_group.lastIndexOf("/")));
    const row = { ...toRow(unit), level: (parent?.level ?? 0) + 1, parent: parent?.id ?? null };
    groups.set(unit.control_group, row);
    rows.push(row);
  }
  for (const other of status.others) {
    const within = rows.filter(row => row.pod === other.pod);
    const state = other.runtime ?? "other";
    // podman and docker each run a container in a separate unit
    const same = within.find(row => row.kind === "container" && row.name === other.container && row.state !== "active");
    if (same)
      same.state = state;
    else if (within.length)
      rows.splice(rows.indexOf(within.at(-1)) + 1, 0, {
        ...toRow({ ...other, name: other.unit, state }), level: within[0].level + 1, parent: within[0].id,
      });
  }
  for (const each of status.pending.filter(each => !each.is_applied))
    rows.push({
      ...toRow({ name: each.pod, pod: each.pod, state: `pending: ${each.reason}`, qos_class: each.qos_class }),
      level: 1, parent: null,
    });
  for (const row of rows)
    row.problems = status.problems.filter(each =>
      each.object === row.unit || (row.kind === "pod" && each.pod === row.pod));
  return { rows, problems: status.problems, agent: status.agent_pid };
}

function toRow(unit) {
  const limit = name => {
    const found = unit.properties?.find(each => each.name === name)?.systemd;
    return typeof found === "number" ? found : null;
  };
  const quota = limit("CPUQuotaPerSecUSec");
  const kind = "container" in unit ? "container" : unit.pod ? "pod" : "slice";
  const name = kind === "container" ? unit.container ?? unit.name : unit.pod ?? unit.name;
  return {
    id: unit.name, unit: unit.name, kind, name, pod: unit.pod,
    use: kind === "container" ? `${unit.pod} ${name}` : name,
    state: stateOf(unit),
    qos: unit.qos_class,
    ready: unit.containers_ready, containers: unit.containers,
    requests: amounts(unit.requests),
    limits: { cpu: quota === null ? null : Math.round(quota / 1000), memory: limit("MemoryMax") },
  };
}

// The parts of a resource, which together are what the host has
export function toParts(node, key) {
  const capacity = node.capacity[key] ?? 0;
  const parts = [
    ["kube", "kube-reserved", node.reserved.kube], ["system", "system-reserved", node.reserved.system],
    ["eviction", "eviction threshold", node.reserved.eviction], ["requested", "requested by pods", node.requested],
  ].map(([id, label, found]) => ({ id, label, amount: found[key] ?? 0 }));
  const free = Math.max(capacity - parts.reduce((sum, each) => sum + each.amount, 0), 0);
  return { capacity, allocatable: node.allocatable[key] ?? 0, parts: [...parts, { id: "free", label: "free", amount: free }] };
}

// ---- One pod

export const readPod = async pod => toPod(await ask(["status", "--exit-zero", pod]));

// Why the values are as they are, by the slice or container and the property
export async function readReasons(pod) {
  const { pods: [found] } = await ask(["explain", pod]);
  return new Map([found, ...found.containers].flatMap(part =>
    part.properties.map(each => [`${part.slice ?? part.name} ${each.name}`, each.why])));
}

export function toPod(status) {
  const values = status.units.filter(unit => unit.pod).flatMap(unit => unit.properties.map(each => ({
    name: each.name, desired: each.desired, systemd: each.systemd, kernel: each.kernel,
    of: unit.container ?? "pod",
    differs: unit.differs && each.desired !== each.systemd,
    reason: `${unit.container ?? unit.name} ${each.name}`,
  })));
  return { problems: status.problems, pending: status.pending, values, page: status.pod ? toPage(status.pod) : null };
}

function toPage(found) {
  const { usage } = found;
  return {
    key: `${found.namespace}/${found.name}`,
    qos: found.qos_class, phase: found.phase, manifest: found.manifest, applying: found.apply_command, slice: found.slice,
    startedUsec: found.started_usec, graceSec: found.grace_period_sec,
    requests: amounts(found.requests),
    limits: { cpu: usage.cpu_limit_milli, memory: usage.memory_limit_bytes, tasks: usage.tasks_limit },
    p90: { cpu: found.usage_p90?.cpu_milli ?? null, memory: found.usage_p90?.memory_working_set_bytes ?? null },
    use: toUse(usage),
    throttled: usage.periods ? { share: usage.throttled_periods / usage.periods, usec: usage.throttled_usec } : null,
    oomKills: usage.oom_kills ?? null,
    io: usage.io_read_bytes == null ? null : { read: usage.io_read_bytes, written: usage.io_written_bytes },
    volumes: found.volumes.map(each => ({ name: each.name, path: each.path, size: each.size_bytes })),
    containers: found.containers.map(each => ({
      name: each.name, unit: each.unit, state: stateOf(each), restarts: each.restarts, image: each.image,
      use: each.usage ? toUse(each.usage) : {},
      processes: each.processes,
      last: each.last_exit && { how: endOf(each.last_exit), usec: each.last_exit.ended_usec },
      log: each.log.map(line => ({ usec: line.time_usec, text: line.message })),
    })),
    events: found.events.map(each => ({
      usec: each.time_usec, kind: each.kind, text: each.message, isBad: ["error", "warning"].includes(each.level),
    })),
    unreadable: [...new Set([found.events_problem, found.log_problem])].filter(Boolean),
  };
}

// What was recorded of the last day, and the recommended amounts; null without a history
export async function readHistory(pod) {
  const found = await ask(["recommend", pod]).catch(() => null);
  const one = found?.pods[0];
  return one && {
    day: one.day.map(each => ({ at: each.time_usec / 1000, cpu: each.cpu_milli, memory: each.memory_bytes })),
    cpu: one.cpu_request?.recommended_milli ?? null,
    memory: one.memory_request?.recommended_bytes ?? null,
  };
}

export const readLacking = async () =>
  (await ask(["doctor"], {}, [3])).findings.filter(each => each.state === "attention");

// ---- Changes

// Whether the page may run a command that podslice proposes
export const isRunnable = command => command?.[0] === "podslice" && CHANGING.includes(command[1]);

export const commandText = words =>
  words.map(word => /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`).join(" ");

export const deleting = (pod, forget) => ["podslice", "delete", ...forget ? ["--forget"] : [], pod];

// What `apply` would do; null of other verbs, which have no plan
export const readPlan = async command =>
  command[1] === "apply" ? toPlan(await ask(["plan", ...command.slice(2)], {}, [1, 3])) : null;

// With the options of the command that applies a manifest, whose file comes last
export const planText = async (command, text) =>
  toPlan(await ask(["plan", ...command.slice(2, -1), "-"], { input: text }, [1, 3]));

export function toPlan(found) {
  const foreign = found.foreign ? [`${found.foreign.reason}; ${found.foreign.fix}`] : [];
  return {
    steps: found.steps.map(({ action, unit, why, occupants, properties }) => ({
      action, unit, why, occupants, values: properties.map(each => ({ ...each, from: each.old, to: each.new })),
    })),
    skipped: found.skipped.map(each => `${each.unit}: ${each.name}: ${each.why}`),
    refused: [...found.refused.map(each => `${each.pod}: ${each.reason}: ${each.message}`), ...foreign],
  };
}

// The output of the command is shown unchanged
export async function change(command) {
  const { exit, output } = await settled(spawn(command, { superuser: "require", err: "out" }));
  if (exit)
    throw failure(exit, output);
  return visible(output);
}

// The lines in which a text differs from a file, each with its mark, and some around them
export async function readDifference(file, text) {
  const { exit, output } = await settled(spawn(["diff", "-u", file, "-"], { input: text, superuser: "require" }));
  if (exit && exit.exit_status !== 1)
    throw failure(exit);
  return visible(output).split("\n").slice(2, -1);
}

// ---- Use, every two seconds, by slice, pod and "pod container"; the key of the host is ""

const pressureOf = found => name =>
  found[`${name}_pressure_percent`] ?? found.pressure?.[name]?.some.avg10_percent;

const toUse = (found, pressure = pressureOf(found)) => ({
  cpu: found.cpu_milli ?? null, memory: found.memory_working_set_bytes ?? null,
  throttled: found.throttled_percent ?? null, tasks: found.tasks ?? null,
  pressure: Object.fromEntries(RESOURCES.map(name => [name, pressure(name)])),
});

export function useOfTop(top) {
  const use = new Map([["", toUse(top.node)], ...top.groups.map(each => [each.unit, toUse(each)])]);
  for (const pod of top.pods) {
    use.set(pod.pod, toUse(pod));
    pod.containers.forEach(each => use.set(`${pod.pod} ${each.name}`, toUse(each)));
  }
  return use;
}

// Rates are those since the summary before
export function useOfAgent(summary, throttled, root) {
  const use = new Map();
  const milli = cores => cores == null ? null : cores / 1e6;
  const add = (key, found) => use.set(key, toUse({
    cpu_milli: milli(found.cpu?.usageNanoCores), memory_working_set_bytes: found.memory?.workingSetBytes,
    throttled_percent: throttled.get(key),
  }, name => found[name]?.psi?.some.avg10));
  add("", summary.node);
  summary.node.systemContainers.filter(each => each.name === "pods").forEach(each => add(root, each));
  for (const pod of summary.pods) {
    const key = `${pod.podRef.namespace}/${pod.podRef.name}`;
    add(key, pod);
    pod.containers.forEach(each => add(`${key} ${each.name}`, each));
  }
  return use;
}

const PERIODS = /^(?:podslice_pod|container)_cpu_cfs_(throttled_)?periods_total\{(.*)\} (\S+)$/gm;

// The number of CPU quota periods, and of throttled periods
export function periodsOf(metrics) {
  const periods = new Map();
  for (const [, isThrottled, labels, value] of metrics.matchAll(PERIODS)) {
    const of = Object.fromEntries([...labels.matchAll(/(\w+)="([^"]*)"/g)].map(each => each.slice(1)));
    const key = `${of.namespace}/${of.pod}${of.container ? ` ${of.container}` : ""}`;
    periods.set(key, { ...periods.get(key), [isThrottled ? "throttled" : "all"]: Number(value) });
  }
  return periods;
}

export function throttledBetween(before, now) {
  const percent = new Map();
  for (const [key, { all, throttled }] of now) {
    const then = before.get(key) ?? { all, throttled };
    if (all > 0)
      percent.set(key, all > then.all ? Math.round((throttled - then.throttled) * 100 / (all - then.all)) : 0);
  }
  return percent;
}

// Calls back with the use and its source, until the function that is returned is called
export function watchUse(root, onUse) {
  const http = cockpit.http(SOCKET, { superuser: "try" });
  let stop = () => {};
  let isOver = false;
  let [round, periods, throttled] = [0, null, new Map()];
  const fromAgent = async () => {
    try {
      if (round++ % METRICS_EVERY === 0) {
        const now = periodsOf(await http.get("/metrics"));
        throttled = throttledBetween(periods ?? now, now);
        periods = now;
      }
      const summary = parse(await http.get("/stats/summary"));
      if (isOver)
        return;
      onUse(useOfAgent(summary, throttled, root), "the agent");
      const timer = setTimeout(fromAgent, LIVE_MSEC);
      stop = () => clearTimeout(timer);
    } catch {
      if (!isOver)
        fromTop();
    }
  };
  const fromTop = () => {
    const process = spawn(["podslice", "top", "--follow", "--interval", `${LIVE_MSEC / 1000}s`, "-o", "json"]);
    let rest = "";
    process.stream(data => {
      const lines = (rest + data).split("\n");
      rest = lines.pop();
      lines.forEach(line => onUse(useOfTop(parse(line)), "podslice top"));
    });
    process.catch(() => {}); // `status` reports what prevents it
    stop = () => process.close("terminated");
  };
  fromAgent();
  return () => {
    isOver = true;
    stop();
    http.close();
  };
}

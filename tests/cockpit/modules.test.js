// The modules of the page that need no browser: node --test tests/cockpit/modules.test.js

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { test } from "node:test";
import { bytes, duration, value, visible } from "../../packaging/cockpit/src/format.js";
import { findAmounts, withAmount } from "../../packaging/cockpit/src/manifest.js";
import * as podslice from "../../packaging/cockpit/src/podslice.js";
import { visibleRows, withSums } from "../../packaging/cockpit/src/tree.js";

const GROUP = "/kubepods.slice/kubepods-burstable.slice";
const WEB = `${GROUP}/web.slice`;

const property = (name, systemd) => ({ name, desired: systemd, systemd, kernel: null });

const unit = (name, control_group, more = {}) => ({
  name, control_group, kind: "slice", pod: null, qos_class: null, state: "active", differs: false, properties: [], ...more,
});

const container = (name, more) => unit(`web-${name}.scope`, `${WEB}/web-${name}.scope`, {
  kind: "scope", pod: "default/web", container: name, restarts: 0, last_exit: null, ...more,
});

const STATUS = {
  problems: [{ object: "default/web", message: "bad", hint: "", pod: "default/web", command: null }],
  units: [
    unit("kubepods.slice", "/kubepods.slice", { properties: [property("MemoryMax", 1000)] }),
    unit("kubepods-burstable.slice", GROUP),
    unit("web.slice", WEB, {
      pod: "default/web", qos_class: "Burstable", containers: 2, containers_ready: 1,
      requests: { cpu_milli: 500 }, limits: {},
      properties: [property("CPUQuotaPerSecUSec", 1500000), property("MemoryMax", "infinity")],
    }),
    container("app", { state: "exited", last_exit: { exit_code: 3, signal: null, oom_killed: false } }),
    container("worker", { state: "not started" }),
    unit("db.slice", `${GROUP}/db.slice`, { pod: "default/db", containers: 1, containers_ready: 1 }),
  ],
  others: [
    { unit: "libpod-1.scope", pod: "default/web", container: "worker", runtime: "podman", restarts: 2, processes: [] },
    { unit: "x.service", pod: "default/web", container: null, runtime: null, restarts: 0, processes: [] },
  ],
  pending: [
    { pod: "default/big", reason: "OutOfmemory", qos_class: "Guaranteed", is_applied: false },
    { pod: "default/web", reason: "NotApplied", qos_class: "Burstable", is_applied: true },
  ],
  agent_pid: 7,
};

test("units are rows of a tree", () => {
  const { rows, agent } = podslice.toState(STATUS);
  assert.equal(agent, 7);
  assert.deepEqual(rows.map(row => [row.level, row.kind, row.name, row.state]), [
    [1, "slice", "kubepods.slice", "active"],
    [2, "slice", "kubepods-burstable.slice", "active"],
    [3, "pod", "default/web", "active"],
    [4, "container", "app", "exited 3"],
    [4, "container", "worker", "podman"],
    [4, "container", "x.service", "other"],
    [3, "pod", "default/db", "active"],
    [1, "pod", "default/big", "pending: OutOfmemory"],
  ]);
  const web = rows[2];
  assert.deepEqual([web.limits, web.requests], [{ cpu: 1500, memory: null }, { cpu: 500, memory: null }]);
  assert.deepEqual([web.problems.length, rows[6].problems.length], [1, 0]);
  assert.equal(new Set(rows.map(row => row.id)).size, rows.length);
});

test("rows are filtered, sorted and closed", () => {
  const { rows } = podslice.toState(STATUS);
  const use = new Map([["default/db", { cpu: 9, pressure: {} }], ["default/web", { cpu: 5, pressure: { io: 3 } }]]);
  const names = filter => visibleRows(rows, use, filter).map(each => each.row.name);
  const slices = ["kubepods.slice", "kubepods-burstable.slice"];
  assert.deepEqual(names({}), ["default/big", ...slices, "default/web", "default/db"]);
  assert.deepEqual(names({ sort: "cpu" }), ["default/big", ...slices, "default/db", "default/web"]);
  assert.deepEqual(names({ sort: "pressure" }), ["default/big", ...slices, "default/web", "default/db"]);
  assert.deepEqual(names({ text: " DB " }), [...slices, "default/db"]);
  assert.deepEqual(names({ onlyProblems: true }), [...slices, "default/web"]);
  assert.deepEqual(names({ text: "nothing" }), []);
  const toggled = new Set(["web.slice"]);
  assert.deepEqual(names({ text: "web", toggled }), [...slices, "default/web", "app", "worker", "x.service"]);
  assert.deepEqual(names({ toggled: new Set(["kubepods.slice"]) }), ["default/big", "kubepods.slice"]);
});

test("what the host has is in parts", () => {
  const reserved = { kube: { cpu_milli: 100 }, system: {}, eviction: {} };
  const { capacity, allocatable, parts } = podslice.toParts({
    capacity: { cpu_milli: 2000 }, reserved, requested: { cpu_milli: 500 }, allocatable: { cpu_milli: 1900 },
  }, "cpu_milli");
  assert.deepEqual([capacity, allocatable, parts.map(each => each.amount)], [2000, 1900, [100, 0, 0, 500, 1400]]);
});

test("use of podslice top", () => {
  const row = { cpu_milli: 5, memory_working_set_bytes: 9, throttled_percent: 3, cpu_pressure_percent: 1.5 };
  const use = podslice.useOfTop({
    node: row, groups: [{ unit: "kubepods.slice", ...row }], pods: [{ pod: "a/b", ...row, containers: [{ name: "c" }] }],
  });
  assert.deepEqual([...use.keys()], ["", "kubepods.slice", "a/b", "a/b c"]);
  assert.deepEqual(use.get("a/b"), {
    cpu: 5, memory: 9, throttled: 3, tasks: null, pressure: { cpu: 1.5, memory: undefined, io: undefined },
  });
});

test("use of the agent, whose slices have the sum of their pods", () => {
  const found = cpu => ({ cpu: { usageNanoCores: cpu * 1e6, psi: { some: { avg10: 4 } } }, memory: { workingSetBytes: cpu } });
  const summary = {
    node: { ...found(1000), systemContainers: [{ name: "pods", ...found(300) }, { name: "misc", ...found(1) }] },
    pods: ["web", "db"].map(name => ({
      podRef: { namespace: "default", name }, ...found(name.length), containers: [{ name: "app", ...found(1) }],
    })),
  };
  const use = podslice.useOfAgent(summary, new Map([["default/web", 40]]), "kubepods.slice");
  assert.equal(use.get("kubepods.slice").cpu, 300);
  assert.deepEqual([use.get("default/web").cpu, use.get("default/web").throttled], [3, 40]);
  assert.deepEqual(use.get("default/web app").pressure, { cpu: 4, memory: undefined, io: undefined });
  const sums = withSums(podslice.toState(STATUS).rows, use);
  assert.deepEqual([sums.get("kubepods-burstable.slice").cpu, sums.get("kubepods.slice").cpu], [5, 300]);
});

test("throttling is between two readings of metrics", () => {
  const metrics = (all, throttled) => `
podslice_pod_cpu_cfs_periods_total{namespace="default",pod="web"} ${all}.0
podslice_pod_cpu_cfs_throttled_periods_total{namespace="default",pod="web"} ${throttled}.0
container_cpu_cfs_periods_total{container="app",namespace="default",pod="web"} 0.0
container_cpu_cfs_throttled_periods_total{container="app",namespace="default",pod="web"} 0.0
podslice_group_cpu_cfs_periods_total{group="pods"} 9.0
`;
  const [before, now] = [podslice.periodsOf(metrics(100, 10)), podslice.periodsOf(metrics(200, 35))];
  assert.deepEqual([...podslice.throttledBetween(before, now)], [["default/web", 25]]);
  assert.deepEqual([...podslice.throttledBetween(now, now)], [["default/web", 0]]);
});

test("problems of a command are lines", () => {
  const found = [{ where: "web.yaml:3", message: "bad", hint: "write 2" }, { where: "", message: "worse", hint: "" }];
  assert.equal(podslice.problemText(found), "web.yaml:3: bad\n  → write 2\nworse");
});

test("only commands of podslice that change pods can run", () => {
  const runnable = [["podslice", "apply"], ["podslice", "readmit", "web"], ["podslice", "delete", "web"]];
  assert.ok(runnable.every(podslice.isRunnable));
  assert.ok(![null, [], ["podslice", "run", "sh"], ["rm", "apply"], ["podslice", "logs"]].some(podslice.isRunnable));
  assert.equal(podslice.commandText(["podslice", "apply", "-f", "it's <b>"]), "podslice apply -f 'it'\\''s <b>'");
});

const MANIFEST = `# two pods
apiVersion: v1
kind: Pod
metadata:
  name: web          # a name
  annotations:
    name: other
spec:
  resources:         # the budget
    requests:        # kept
      cpu: 500m      # its share
    limits:
      memory: "64Mi" # most
  containers:
  - name: app
    command:
    - sh
    - -c
    - |
      limits:
        memory: 5
  - image: x
    name: worker
    resources:
      limits: {cpu: 1}
---
apiVersion: apps/v1
kind: Deployment
metadata: 
  name: shop
  namespace: other
spec:
  template:
    spec:
      containers:
        - name: main
`;

const changed = (...edits) => {
  const [pod] = edits;
  const text = edits.slice(1).reduce((before, [at, kind, resource, amount]) =>
    withAmount(before, pod, findAmounts(before, pod)[at], { kind, resource }, amount), MANIFEST);
  const script = 'diff --unified=0 <(printf %s "$1") -';
  const { stdout } = spawnSync("bash", ["-c", script, "bash", MANIFEST], { input: text });
  return String(stdout).split("\n").slice(2, -1).filter(line => !line.startsWith("@@"));
};

test("amounts are found where they are stated", () => {
  const places = findAmounts(MANIFEST, "default/web");
  assert.deepEqual(places.map(place => [place.name, place.amounts.map(each => each.value)]), [
    ["", ["500m", "", "", "64Mi"]], ["app", ["", "", "", ""]], ["worker", ["", "", "", ""]],
  ]);
  assert.deepEqual(places[2].amounts.map(each => each.isFixed), [false, false, true, true]);
  assert.deepEqual(findAmounts(MANIFEST, "other/shop-0").map(place => place.name), ["", "main"]);
  for (const pod of ["default/shop-0", "default/we", "other/web-1"])
    assert.deepEqual(findAmounts(MANIFEST, pod), []);
  assert.deepEqual(findAmounts('{"kind": "Pod", "metadata": {"name": "web"}}', "default/web"), []);
  assert.deepEqual(findAmounts("", "default/web"), []);
  assert.deepEqual(findAmounts(`${MANIFEST}---\n${MANIFEST}`, "default/web"), []);
});

test("a changed amount changes its line only", () => {
  assert.deepEqual(changed("default/web", [0, "limits", "memory", "128Mi"]),
    ['-      memory: "64Mi" # most', "+      memory: 128Mi # most"]);
  assert.deepEqual(changed("default/web", [0, "limits", "cpu", "2"]), ["+      cpu: 2"]);
  assert.deepEqual(changed("default/web", [0, "requests", "cpu", ""]), ["-      cpu: 500m      # its share"]);
  assert.deepEqual(changed("default/web", [1, "limits", "cpu", "2"]), ["+    resources:", "+      limits:", "+        cpu: 2"]);
  assert.deepEqual(changed("other/shop-0", [1, "limits", "cpu", "2"], [0, "requests", "cpu", "1"]), [
    "+      resources:", "+        requests:", "+          cpu: 1",
    "+          resources:", "+            limits:", "+              cpu: 2",
  ]);
  assert.deepEqual(changed("default/web", [0, "limits", "cpu", ""]), []);
});

test("amounts can be read", () => {
  assert.deepEqual([0, 999, 1024, 1536, 64 << 20, 1.5 * 2 ** 40].map(bytes),
    ["0 B", "999 B", "1 KiB", "1.5 KiB", "64 MiB", "1.5 TiB"]);
  assert.deepEqual([5000, 12e6, 200e6, 7200e6, 97 * 3600e6].map(duration), ["5 ms", "12 s", "3 min 20 s", "2 h", "4 d 1 h"]);
  assert.deepEqual([["CPUQuotaPerSecUSec", 1500000], ["MemoryMax", "infinity"], ["MemoryLow", 1 << 26], ["CPUWeight", null]]
    .map(each => value(...each)), ["150%", "infinity", "64 MiB", "-"]);
});

test("characters that hide or reorder text are shown", () => {
  assert.equal(visible("a\u202egnp.\u2066\u0007\n\tb é 日本"), "a\\u{202e}gnp.\\u{2066}\\u{7}\n\tb é 日本");
});

// The rows of the tree that are shown

const KEYS = {
  cpu: use => use?.cpu ?? 0,
  memory: use => use?.memory ?? 0,
  throttled: use => use?.throttled ?? 0,
  pressure: use => Math.max(0, ...Object.values(use?.pressure ?? {}).filter(Number.isFinite)),
};

export const SORTS = ["name", ...Object.keys(KEYS)];

const natural = new Intl.Collator("en", { numeric: true });

/* Pods by a part of their name or with problems, sorted within their slice. Slices are open and pods closed, except
   those that are toggled. Slices without shown pods are left out while there is a filter. */
export function visibleRows(rows, use, { text = "", onlyProblems = false, sort = "name", toggled = new Set() }) {
  const wanted = text.trim().toLowerCase();
  const children = new Map();
  for (const row of rows)
    children.set(row.parent, [...children.get(row.parent) ?? [], row]);
  const of = row => children.get(row.id) ?? [];
  const isAffected = row => row.problems.length > 0 || of(row).some(isAffected);
  const isShown = row => {
    if (row.kind === "container")
      return true;
    if (row.kind === "pod")
      return row.name.toLowerCase().includes(wanted) && (!onlyProblems || isAffected(row));
    return of(row).some(isShown) || (!wanted && (!onlyProblems || row.problems.length > 0));
  };
  const compare = (a, b) => {
    if (a.kind !== b.kind || a.kind === "slice" || sort === "name")
      return (a.kind === "slice") - (b.kind === "slice");
    return KEYS[sort](use.get(b.use)) - KEYS[sort](use.get(a.use)) || natural.compare(a.name, b.name);
  };
  const shown = [];
  const visit = parent => {
    const found = (children.get(parent) ?? []).filter(isShown).sort(compare);
    found.forEach((row, index) => {
      const hasChildren = children.has(row.id);
      const isOpen = hasChildren && (row.kind === "pod") === toggled.has(row.id);
      shown.push({ row, isOpen, hasChildren, position: index + 1, size: found.length });
      if (isOpen)
        visit(row.id);
    });
  };
  visit(null);
  return shown;
}

// The agent measures pods: a slice without measured values has the sum of the pods in it
export function withSums(rows, use) {
  const sums = new Map(use);
  for (const row of [...rows].reverse().filter(row => row.kind === "slice" && !use.has(row.use))) {
    const found = rows.filter(each => each.parent === row.id).map(each => sums.get(each.use)).filter(Boolean);
    const sum = key => found.some(each => each[key] !== null)
      ? found.reduce((total, each) => total + (each[key] ?? 0), 0) : null;
    sums.set(row.use, { cpu: sum("cpu"), memory: sum("memory"), throttled: null, pressure: {} });
  }
  return sums;
}

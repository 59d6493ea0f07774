/* The text of a manifest: where its amounts are stated, and the text with another amount. It is read by lines, as far as it is YAML in block style, which people write; in other
   texts no amount is found. What the text means is decided by podslice alone, which plans the result. */

const KEY = /^(\s*)((?:- )*)([A-Za-z][\w./-]*|"[^"]+"):(?:\s+(.*))?$/;
const VALUE = /^("[^"]*"|'[^']*'|[^\s"'{[&*!|>#][^#]*?)\s*(?:#.*)?$/;
export const AMOUNT = /^[0-9][0-9A-Za-z.]*$/;
const unquoted = text => text.replace(/^(["'])(.*)\1$/, "$2");

// The lines of one document, by path: spec.containers.0.name
function readDocument(lines, first, end) {
  const nodes = new Map();
  const stack = [];
  let skipped = Infinity; // the lines of a text below its key, which are indented more
  for (let line = first; line < end; line++) {
    const text = lines[line];
    const indent = text.search(/\S/);
    if (indent < 0 || text.trimStart().startsWith("#") || indent > skipped)
      continue;
    skipped = Infinity;
    const found = KEY.exec(text);
    if (!found)
      continue;
    const [, spaces, dashes, key, rest = ""] = found;
    let column = spaces.length;
    for (let dash = 0; dash < dashes.length; dash += 2, column += 2) {
      // another item of the same list ends the one before
      while (stack.length && stack.at(-1).column + ("index" in stack.at(-1)) > column)
        stack.pop();
      const parent = stack.map(each => each.name).join(".");
      const index = nodes.get(parent)?.items ?? 0;
      if (nodes.has(parent))
        nodes.get(parent).items = index + 1;
      stack.push({ column, name: index, index });
    }
    while (stack.length && stack.at(-1).column >= column && !(dashes && "index" in stack.at(-1)))
      stack.pop();
    stack.push({ column, name: unquoted(key) });
    const value = VALUE.exec(rest)?.[1] ?? "";
    const start = text.length - rest.length;
    nodes.set(stack.map(each => each.name).join("."), {
      line, column, start, end: start + value.length, value: unquoted(value), isOpen: !rest || rest.startsWith("#"),
    });
    if (/^[|>]/.test(rest))
      skipped = column;
  }
  return nodes;
}

// The document that states a pod, or null; pods of a workload have its name, and a number
function findDocument(lines, pod) {
  const [namespace, name] = pod.split("/");
  const marks = [-1, ...lines.keys()].filter(line => line < 0 || /^---(\s|$)/.test(lines[line]));
  const found = marks.map((mark, index) => readDocument(lines, mark + 1, marks[index + 1] ?? lines.length));
  const named = found.filter(nodes => {
    const stated = nodes.get("metadata.name")?.value;
    const where = nodes.get("metadata.namespace")?.value ?? namespace;
    const isOf = stated === name || (nodes.has("spec.template") && name.startsWith(`${stated}-`));
    return stated && where === namespace && isOf;
  });
  return named.length === 1 ? named[0] : null;
}

// The places of amounts: the pod, where its name is "", and its containers, each with what is stated
export function findAmounts(text, pod) {
  const nodes = findDocument(text.split("\n"), pod);
  const containers = [...nodes?.keys() ?? []].find(path => /^spec(\.\w+)*\.containers$/.test(path));
  if (!containers || !nodes.get(containers).items)
    return [];
  const spec = containers.slice(0, -".containers".length);
  const place = (name, path) => ({
    name, path,
    amounts: ["requests", "limits"].flatMap(kind => ["cpu", "memory"].map(resource => ({
      kind, resource, value: nodes.get(`${path}.resources.${kind}.${resource}`)?.value ?? "",
      // in braces on one line: { cpu: 1 }
      isFixed: ["", `.${kind}`].some(part => nodes.get(`${path}.resources${part}`)?.isOpen === false),
    }))),
  });
  const items = [...Array(nodes.get(containers).items).keys()];
  return [place("", spec), ...items.map(index => {
    const path = `${containers}.${index}`;
    return place(nodes.get(`${path}.name`)?.value ?? `container ${index + 1}`, path);
  })];
}

// The text with an amount at a place; an empty amount removes it
export function withAmount(text, pod, { path }, { kind, resource }, amount) {
  const lines = text.split("\n");
  const nodes = findDocument(lines, pod);
  const parts = ["resources", kind, resource];
  const at = nodes.get([path, ...parts].join("."));
  if (at) {
    if (amount)
      lines[at.line] = lines[at.line].slice(0, at.start) + amount + lines[at.line].slice(at.end);
    else
      lines.splice(at.line, 1);
    return lines.join("\n");
  }
  if (!amount)
    return text;
  let known = path;
  while (parts.length && nodes.has(`${known}.${parts[0]}`))
    known += `.${parts.shift()}`;
  const children = [...nodes].filter(([each]) => each.startsWith(`${known}.`));
  // an item of a list begins on the line of its first key
  const before = nodes.get(known) ?? children[0][1];
  let column = nodes.has(known) && !children.length ? before.column + 2 : children[0][1].column;
  lines.splice(before.line + 1, 0, ...parts.map((part, index) => {
    const line = `${" ".repeat(column)}${part}:${index === parts.length - 1 ? ` ${amount}` : ""}`;
    column += 2;
    return line;
  }));
  return lines.join("\n");
}

// Amounts, times and values as text

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

export function bytes(value) {
  let power = 0;
  for (; value >= 1000 && power < UNITS.length - 1; power++)
    value /= 1024;
  const digits = power === 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  return `${Number(value.toFixed(digits))} ${UNITS[power]}`;
}

export const amount = { cpu: milli => (milli / 1000).toFixed(2), memory: bytes, tasks: String };
export const percent = value => `${Math.round(value)} %`;

const two = number => String(number).padStart(2, "0");

export const clock = at => `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;

export function time(usec) {
  const at = new Date(usec / 1000);
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${clock(at)}`;
}

const SPANS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];

// 3 min 20 s
export function duration(usec) {
  const seconds = Math.floor(usec / 1e6);
  const index = SPANS.findIndex(([span]) => seconds >= span);
  if (index < 0)
    return `${Math.max(Math.floor(usec / 1000), 0)} ms`;
  const [span, name] = SPANS[index];
  const [next, nextName] = SPANS[index + 1] ?? [1, ""];
  const rest = Math.floor((seconds % span) / next);
  return `${Math.floor(seconds / span)} ${name}${rest ? ` ${rest} ${nextName}` : ""}`;
}

// With characters that have no picture, or reorder text, as \u{202e}
export const visible = text => text.replace(/[^\P{C}\n\t]/gu, found => `\\u{${found.codePointAt(0).toString(16)}}`);

export const property = name => name === "CPUQuotaPerSecUSec" ? "CPUQuota" : name;

// The value of a property, as in a unit file, or as an amount that can be read
export function value(name, found) {
  if (typeof found !== "number")
    return found === null ? "-" : String(found);
  if (name === "CPUQuotaPerSecUSec")
    return `${Number((found / 10000).toFixed(2))}%`;
  return name.startsWith("Memory") ? bytes(found) : String(found);
}

// Dialogs that change something. Each shows its command, and what that would do, before it runs.

import { useEffect, useState } from "preact/hooks";
import { property, value } from "./format.js";
import { AMOUNT, findAmounts, withAmount } from "./manifest.js";
import * as podslice from "./podslice.js";
import { Alert, Button, Card, Check, Command, Dialog, h, name, pf, tags } from "./ui.js";

const { a, b, code, del, details, div, fieldset, form, h2, input, ins, label, legend, li, ol, p, pre, span, summary,
  textarea, ul } = tags;

export const podHref = pod => `#/pod/${pod.split("/").map(encodeURIComponent).join("/")}`;

// Why the user cannot change anything, empty if they can; calls back when that changes
export function useWhyNot(onChanged) {
  const [isAllowed, setAllowed] = useState(null);
  useEffect(() => {
    const permission = cockpit.permission({ admin: true });
    const update = () => setAllowed(before => {
      if (before !== null && before !== permission.allowed)
        onChanged?.();
      return permission.allowed;
    });
    permission.addEventListener("changed", update);
    update();
    return () => permission.close();
  }, []);
  return isAllowed ? "" : "This requires administrative access, which the top of the page turns on";
}

export function Problems({ problems, onChanged }) {
  const why = useWhyNot();
  const [command, setCommand] = useState(null);
  return problems.length > 0 && h(Card, {
    title: problems.length === 1 ? "1 problem" : `${problems.length} problems`, class: "problems",
  },
  ul({ class: "problem-list" }, problems.map((each, index) => li({ key: index },
    div(
      p(each.pod ? a({ href: podHref(each.pod) }, name(each.object)) : b(name(each.object)), ": ", name(each.message)),
      each.hint && p({ class: "remedy" }, name(each.hint))),
    podslice.isRunnable(each.command) && h(Button, { why, onClick: () => setCommand(each.command) },
      `${each.command[1]} …`)))),
  command && h(RunDialog, { command, onClose: () => setCommand(null), onChanged }));
}

// What would be done, as the command line plans it
export const Plan = ({ plan }) => div({ class: "plan" },
  plan.refused.map(text => h(Alert, { key: text, title: name(text) })),
  !plan.steps.length && !plan.refused.length && p("Nothing to change."),
  ol(plan.steps.map((step, index) => li({ key: index },
    b(step.action), " ", code(step.unit), step.why && ` ${step.why}`,
    step.occupants?.length > 0 && p("this ends ", name(step.occupants.join(", "))),
    ul(step.values.map(each => li({ key: each.name },
      code(property(each.name)), " ", each.from !== null && [del(value(each.name, each.from)), " → "],
      ins(value(each.name, each.to)), " ", span({ class: "why" }, each.why))))))),
  plan.skipped.map(text => p({ key: text, class: "remedy" }, text)));

// Runs something once, and keeps what came of it
function useRun(onChanged) {
  const [result, setResult] = useState(null);
  return [result, async make => {
    setResult({ isRunning: true });
    setResult(await make().then(output => ({ output }), error => ({ error: error.message || error.problem })));
    onChanged();
  }];
}

const Result = ({ result }) => result && !result.isRunning && (result.error
  ? h(Alert, { title: "This did not succeed" }, pre(result.error))
  : h(Alert, { kind: "success", title: "Done" }, result.output && pre(result.output)));

const buttonsFor = ({ result, onClose, run, text, kind = "primary", why = "", more }) => [
  !result && h(Button, { key: "run", kind, why, onClick: run }, text),
  !result && more,
  h(Button, {
    key: "close", kind: result ? "primary" : "link", why: result?.isRunning ? "It is running" : "", onClick: onClose,
  }, result?.isRunning ? "Running …" : result ? "Close" : "Cancel"),
];

export function RunDialog({ command, onClose, onChanged, children }) {
  const [plan, setPlan] = useState();
  const [error, setError] = useState("");
  const [result, run] = useRun(onChanged);
  useEffect(() => void podslice.readPlan(command).then(setPlan, found => setError(found.message)), []);
  const kind = command[1] === "delete" ? "danger" : "primary";
  return h(Dialog, {
    title: `Run podslice ${command[1]}?`, onClose: () => result?.isRunning || onClose(),
    buttons: buttonsFor({
      result, onClose, kind, text: "Run", run: () => run(() => podslice.change(command)),
      why: plan === undefined && !error ? "The plan is not known yet" : "",
    }),
  },
  h(Command, null, podslice.commandText(command)),
  !result && [children, error && h(Alert, { title: "There is no plan" }, pre(error)), plan && h(Plan, { plan })],
  h(Result, { result }));
}

export function DeleteDialog({ page, ...more }) {
  const [forget, setForget] = useState(false);
  const running = page.containers.filter(each => each.processes.length);
  return h(RunDialog, { ...more, command: podslice.deleting(page.key, forget) },
    p(running.length ? `This ends, within ${page.graceSec} s, what runs in the pod:` : "Nothing runs in the pod."),
    ul(running.map(each => li({ key: each.unit }, b(name(each.name)), ": ",
      name(each.processes.map(one => `${one.pid} ${one.name}`).join(", "))))),
    page.manifest && h(Check, { checked: forget, onChange: setForget },
      "Remove the manifest, too, so that it is not applied again: ", code(page.manifest)));
}

const MARKS = { "+": "added", "-": "removed", "@": "why" };

const Difference = ({ lines }) => pre({ class: "difference", "aria-label": "Changes of the manifest" },
  lines.map((line, index) => span({ key: index, class: MARKS[line[0]] }, `${line}\n`)));

function AmountField({ place, amount, text, setText, pod }) {
  const [typed, setTyped] = useState(amount.value);
  useEffect(() => setTyped(amount.value), [amount.value]);
  const isValid = typed === "" || AMOUNT.test(typed);
  const onInput = event => {
    const found = event.target.value.trim();
    setTyped(found);
    if (found === "" || AMOUNT.test(found))
      setText(withAmount(text, pod, place, amount, found));
  };
  return label(`${amount.resource === "cpu" ? "CPU" : "Memory"} ${amount.kind.slice(0, -1)}`,
    span({ class: pf("form-control", isValid ? "" : "pf-m-error") }, input({
      type: "text", value: typed, disabled: amount.isFixed, spellcheck: false, "aria-invalid": String(!isValid), onInput,
      placeholder: amount.isFixed ? "see the text" : "none", name: `${place.name} ${amount.kind} ${amount.resource}`,
    })));
}

// The amounts of a manifest in a form, or its text; then the difference and the plan; then it is written and applied
export function ChangeDialog({ page, onClose, onChanged }) {
  const [file, setFile] = useState(null);
  const [text, setText] = useState("");
  const [plan, setPlan] = useState(null);
  const [error, setError] = useState("");
  const [result, run] = useRun(onChanged);
  useEffect(() => {
    const handle = cockpit.file(page.manifest, { superuser: "require" });
    handle.read().then((content, tag) => {
      setFile({ handle, content, tag });
      setText(content);
    }, found => setError(found.message));
    return () => handle.close();
  }, []);
  const places = file ? findAmounts(text, page.key) : [];
  const check = () => {
    setError("");
    Promise.all([podslice.planText(page.applying, text), podslice.readDifference(page.manifest, text)])
      .then(([made, lines]) => setPlan({ ...made, lines }), found => setError(found.message));
  };
  const apply = () => run(async () => {
    await file.handle.replace(text, file.tag); // fails if someone else has changed it
    return podslice.change(page.applying);
  });
  const step = plan
    ? { text: "Write and apply", run: apply, why: plan.refused.length ? "It would be refused" : "",
      more: h(Button, { key: "back", onClick: () => setPlan(null) }, "Back") }
    : { text: "Show the plan", run: check, why: file?.content === text ? "Nothing is changed yet" : "" };
  return h(Dialog, {
    title: ["Change ", name(page.key)], size: "lg", onClose: () => result?.isRunning || onClose(),
    buttons: buttonsFor({ result, onClose, ...step }),
  },
  error && h(Alert, { title: "This cannot be applied" }, pre(error)),
  !plan && form({ onSubmit: event => { event.preventDefault(); step.why || check(); } },
    places.map(place => fieldset({ key: place.path },
      legend(place.name ? ["Container ", name(place.name)] : "Pod, for all containers together"),
      div({ class: "amounts" }, place.amounts.map(amount => h(AmountField, {
        key: amount.kind + amount.resource, place, amount, text, setText, pod: page.key,
      }))))),
    details({ open: file && !places.length }, summary("Text of ", code(page.manifest)),
      span({ class: pf("form-control", "pf-m-textarea") }, textarea({
        rows: 16, spellcheck: false, "aria-label": "Manifest", value: text,
        onInput: event => setText(event.target.value),
      })))),
  plan && [h2(code(page.manifest)), h(Difference, { lines: plan.lines })],
  plan && !result && [h2("Plan"), h(Plan, { plan })],
  h(Result, { result }));
}

/* Elements, with the classes of PatternFly. Texts are text nodes, and widths are set as properties: the page makes
   no markup of data, and has no inline styles. */

import { h } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

export { h };

// div({ class: "use" }, child, …), where the properties can be left out
const element = (name, [first, ...rest]) =>
  first?.constructor === Object ? h(name, first, ...rest) : h(name, null, first, ...rest);
export const tags = new Proxy({}, { get: (_, name) => (...given) => element(name, given) });
const { button, dd, dialog, div, dl, dt, footer, h1, h2, header, input, label, p, pre, section, span, table, tbody, td,
  th, thead, tr } = tags;

export const pf = (name, more = "") => `pf-v6-c-${name} ${more}`.trim();

const PATHS = {
  angle: "M9 6l6 6-6 6",
  success: "M5 13l4 4L19 7",
  warning: "M12 3L2 20h20L12 3zm0 7v5m0 2v1",
  danger: "M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18zm0 4v6m0 3v1",
};

export const Icon = ({ name }) =>
  h("svg", { viewBox: "0 0 24 24", class: "icon", "aria-hidden": "true" }, h("path", { d: PATHS[name] }));

export const name = text => h("bdi", null, text);

// A button that cannot be used says why
export const Button = ({ kind = "secondary", why = "", onClick, children, class: more = "", ...rest }) => button({
  type: "button", class: pf("button", `pf-m-${kind} ${more} ${why && "pf-m-aria-disabled"}`),
  "aria-disabled": why ? "true" : null, title: why || null, onClick: event => why || onClick(event), ...rest,
}, span({ class: pf("button__text") }, children));

export const Check = ({ checked, onChange, children }) => label({ class: pf("check") },
  input({ class: pf("check__input"), type: "checkbox", checked, onChange: event => onChange(event.target.checked) }),
  span({ class: pf("check__label") }, children));

export const Label = ({ color, children }) => span({ class: pf("label", `pf-m-compact ${color && `pf-m-${color}`}`) },
  span({ class: pf("label__content") }, span({ class: pf("label__text") }, children)));

export const Card = ({ title, actions, children, class: more }) =>
  section({ class: pf("card", more), "aria-label": title },
    div({ class: pf("card__header") },
      div({ class: pf("card__header-main") }, h2({ class: pf("card__title-text") }, title)),
      actions && div({ class: pf("card__actions") }, actions)),
    div({ class: pf("card__body") }, children));

export const Alert = ({ kind = "danger", title, children }) =>
  div({ class: pf("alert", `pf-m-inline pf-m-${kind}`), role: "status" },
    div({ class: pf("alert__icon") }, h(Icon, { name: kind })),
    p({ class: pf("alert__title") }, title),
    children && div({ class: pf("alert__description") }, children));

export const Empty = ({ title, children }) => div({ class: pf("empty-state") },
  div({ class: pf("empty-state__content") },
    h1({ class: pf("empty-state__title-text") }, title), div({ class: pf("empty-state__body") }, children)));

export const Command = ({ children }) => pre({ class: "command" }, children);

// A modal dialog of the browser, which keeps the focus; at its end the button that opened it has the focus again
export function Dialog({ title, onClose, buttons, children, size = "md" }) {
  const ref = useRef(null);
  // before the first paint: until then it is a part of the page, in another place
  useLayoutEffect(() => {
    const own = ref.current;
    own.showModal();
    return () => own.close();
  }, []);
  const onCancel = event => {
    event.preventDefault();
    onClose();
  };
  return dialog({ ref, class: pf("modal-box", `pf-m-${size}`), "aria-labelledby": "dialog-title", onCancel },
    header({ class: pf("modal-box__header") }, h1({ class: pf("modal-box__title"), id: "dialog-title" }, title)),
    div({ class: pf("modal-box__body"), tabIndex: 0 }, children),
    footer({ class: pf("modal-box__footer") }, buttons));
}

// Rows are [key, cells, whether it is marked]; narrow pages show each cell below its title
export const Table = ({ label: title, titles, rows }) =>
  table({ class: pf("table", "pf-m-compact pf-m-grid-lg"), "aria-label": title },
    thead({ class: pf("table__thead") }, tr({ class: pf("table__tr") },
      titles.map(each => th({ class: pf("table__th"), scope: "col", key: each }, each)))),
    tbody({ class: pf("table__tbody") }, rows.map(([key, cells, isMarked]) =>
      tr({ class: pf("table__tr", isMarked && "is-marked"), key }, cells.map((cell, index) =>
        td({ class: pf("table__td"), "data-label": titles[index], key: index }, cell))))));

export const Facts = ({ facts }) => dl({ class: pf("description-list", "pf-m-horizontal pf-m-compact") },
  facts.filter(([, found]) => found).map(([term, found]) => div({ class: pf("description-list__group"), key: term },
    dt({ class: pf("description-list__term") }, span({ class: pf("description-list__text") }, term)),
    dd({ class: pf("description-list__description") }, div({ class: pf("description-list__text") }, found)))));

const inView = new IntersectionObserver(
  entries => entries.forEach(each => each.target.dispatchEvent(new CustomEvent("in-view", { detail: each.isIntersecting }))),
  { scrollMargin: "50%" });

// Whether an element is in view, or nearly
export function useInView(ref) {
  const [isInView, setInView] = useState(false);
  useEffect(() => {
    const element = ref.current;
    element.addEventListener("in-view", event => setInView(event.detail));
    inView.observe(element);
    return () => inView.unobserve(element);
  }, []);
  return isInView;
}

// What `read` returns, read again after a time while the page is visible; and a function that reads it now
export function usePoll(read, msec, dependencies) {
  const [found, setFound] = useState({ data: null, error: null });
  const refresh = useRef(null);
  useEffect(() => {
    let [timer, last] = [null, 0];
    refresh.current = async () => {
      clearTimeout(timer);
      const mine = ++last;
      const next = await read().then(data => ({ data, error: null }), error => ({ error }));
      if (mine !== last)
        return;
      setFound(before => ({ ...before, ...next }));
      timer = setTimeout(onVisible, msec);
    };
    const onVisible = () => document.hidden || refresh.current();
    document.addEventListener("visibilitychange", onVisible);
    refresh.current();
    return () => {
      last = -1;
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", onVisible);
    };
  }, dependencies);
  return [found, () => refresh.current()];
}

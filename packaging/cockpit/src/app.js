// The page: what is shown at which address, and what all of it shares

import { render } from "preact";
import { useEffect, useState } from "preact/hooks";
import { useWhyNot } from "./change.js";
import { Overview } from "./overview.js";
import { PodPage } from "./pod.js";
import * as podslice from "./podslice.js";
import { Command, Empty, h, tags, usePoll } from "./ui.js";
import "./style.css";

const { code, p, pre } = tags;

const POLL_MSEC = 10000;
const INSTALL = `apt install podslice     # Debian, Ubuntu
dnf install podslice     # Fedora`;

// As the other pages: what is chosen in Cockpit's menu, or else in the browser
function followTheme() {
  const prefersDark = window.matchMedia("(prefers-color-scheme: dark)");
  const update = (style = localStorage.getItem("shell:style") ?? "auto") =>
    document.documentElement.classList.toggle("pf-v6-theme-dark",
      style === "dark" || (style === "auto" && prefersDark.matches));
  window.addEventListener("storage", event => event.key === "shell:style" && update());
  window.addEventListener("cockpit-style", event => update(event.detail.style));
  prefersDark.addEventListener("change", () => update());
  update();
}

function App() {
  const [path, setPath] = useState(cockpit.location.path);
  const [lacking, setLacking] = useState([]);
  const [live, setLive] = useState({ use: new Map(), source: "" });
  const [{ data: state, error }, refresh] = usePoll(podslice.readState, POLL_MSEC, []);
  const root = state?.rows[0]?.unit ?? "";
  useWhyNot(refresh);
  useEffect(() => void podslice.readLacking().then(setLacking, () => {}), []);
  useEffect(() => {
    const update = () => {
      setPath(cockpit.location.path);
      window.scrollTo(0, 0);
    };
    cockpit.addEventListener("locationchanged", update);
    return () => cockpit.removeEventListener("locationchanged", update);
  }, []);
  // again when the agent has started or ended
  useEffect(() => {
    if (state)
      return podslice.watchUse(root, (use, source) => setLive({ use, source }));
  }, [!state, root, state?.agent]);
  if (error)
    return h(Missing, { error });
  if (!state)
    return p({ role: "status" }, "Loading …");
  if (path[0] === "pod" && path.length === 3) {
    const pod = `${path[1]}/${path[2]}`;
    return h(PodPage, { key: pod, pod, live, onChanged: refresh });
  }
  return h(Overview, { state, live, lacking, onChanged: refresh });
}

const Missing = ({ error }) => error.problem === "not-found"
  ? h(Empty, { title: "podslice is not installed" },
    p("This page shows what the command ", code("podslice"), " reports. Install it on this host:"),
    h(Command, null, INSTALL))
  : h(Empty, { title: "podslice does not answer" }, pre(error.message || error.problem));

followTheme();
cockpit.transport.wait(() => render(h(App), document.querySelector("main")));

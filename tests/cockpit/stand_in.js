/* In place of Cockpit's base1/cockpit.js, as far as the page uses it: commands, files and the socket of the agent
   are requests to the server of tests/cockpit/stand_in.py. */

(() => {
  const send = async (kind, given) => {
    const answer = await fetch(`/${kind}`, { method: "POST", body: JSON.stringify(given) });
    return answer.json();
  };

  const spawn = words => {
    const sinks = [];
    let [input, isOver] = ["", false];
    const isStream = words.includes("--follow");
    const run = async () => {
      await null; // until the caller has given the input
      for (;;) {
        const { status, out, err } = await send("spawn", { words, input });
        sinks.forEach(sink => isOver || sink(out));
        if (isOver || !isStream) {
          if (status)
            throw Object.assign(new Error(err), { exit_status: status, problem: status < 0 ? "not-found" : null, out });
          return out;
        }
        await new Promise(resolve => setTimeout(resolve, 2000));
      }
    };
    const made = run();
    return {
      input: text => { input = text; },
      stream: sink => sinks.push(sink),
      close: () => { isOver = true; },
      then: (done, failed) => made.then(done, failed && (error => failed(error, error.out))),
      catch: failed => made.catch(failed),
    };
  };

  const path = () => window.location.hash.replace(/^#\/?/, "").split("/").filter(Boolean).map(decodeURIComponent);
  const events = new EventTarget();
  window.addEventListener("hashchange", () => events.dispatchEvent(new Event("locationchanged")));

  window.cockpit = {
    spawn,
    http: () => ({ get: () => Promise.reject(new Error("no agent")), close: () => {} }),
    file: name => ({
      read: () => ({ then: done => send("file", { name }).then(({ text }) => done(text, "tag")) }),
      replace: text => send("file", { name, text }),
      close: () => {},
    }),
    permission: () => ({ allowed: !window.location.search.includes("limited"), addEventListener: () => {}, close: () => {} }),
    jump: to => { window.jumped = to; },
    location: { get path() { return path(); } },
    addEventListener: (...given) => events.addEventListener(...given),
    removeEventListener: (...given) => events.removeEventListener(...given),
    transport: { wait: ready => ready() },
  };
})();

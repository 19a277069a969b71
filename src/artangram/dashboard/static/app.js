"use strict";
// The dashboard: asks for the view once a second and shows it. Names and outputs become text only.
(() => {
  const EVERY_MS = 1000;
  const $ = (id) => document.getElementById(id);
  const make = (tag, name, ...parts) => {
    const node = document.createElement(tag);
    if (name) node.className = name;
    node.append(...parts.map((part) => (part instanceof Node ? part : String(part))));
    return node;
  };
  const seconds = (s) => (s >= 120 ? `${(s / 60).toFixed(1)} min` : s >= 1 ? `${s.toFixed(1)} s` : `${(s * 1000).toFixed(s < 0.01 ? 1 : 0)} ms`);
  const hours = (s) => (s / 3600).toFixed(s < 360 ? 4 : 2);
  const count = (n) => n.toLocaleString("en");
  let last = null;

  function meter(part, name) {
    const bar = make("i", name || "");
    bar.style.width = `${Math.min(100, 100 * part).toFixed(1)}%`;
    return make("div", "meter", bar);
  }
  function link(action) {
    const a = make("a", "", action);
    a.href = `#action/${encodeURIComponent(action)}`;
    return a;
  }
  function rows(body, found, cells, empty) {
    const filter = $("filter").value.toLowerCase();
    const kept = found.filter((one) => !filter || JSON.stringify(one).toLowerCase().includes(filter));
    const made = kept.map((one) => {
      const row = make("tr");
      for (const [value, name] of cells(one)) {
        const cell = make("td", name, value);
        if (!(value instanceof Node)) cell.title = String(value);
        row.append(cell);
      }
      return row;
    });
    if (!made.length) {
      const cell = make("td", "empty", empty);
      cell.colSpan = 20;
      made.push(make("tr", "", cell));
    }
    body.replaceChildren(...made);
  }

  function showPools(view) {
    $("pools").replaceChildren(...view.status.pools.map((pool) => {
      const gb = pool.unit === "MB";
      const amount = (n) => (gb ? (n / 1024).toFixed(1) : count(n));
      const tile = make("div", "tile", make("span", "quiet", `${pool.resource}, ${gb ? "GB" : pool.unit}`),
        make("b", "", amount(pool.used), make("small", "", ` of ${amount(pool.capacity)}`)),
        meter(pool.capacity ? pool.used / pool.capacity : 0));
      tile.dataset.pool = pool.resource;
      tile.dataset.used = pool.used;
      return tile;
    }), ...view.status.apis.map((api) => make("div", "tile", make("span", "quiet", `${api.api}, calls`),
      make("b", "", count(api.window_used), make("small", "", api.limit === null ? " no limit" : ` of ${count(api.limit)} in ${api.window_s} s`)),
      meter(api.limit ? api.window_used / api.limit : 0))));
    $("ways").replaceChildren(...view.alternatives.map((way) => make("div", "way",
      make("b", "", way.name), make("span", "n", `${hours(way.core_s)} core h`), make("span", "quiet", way.reason))));
  }
  function showJobs(view) {
    const used = new Map(view.use.map((one) => [one.job, one]));
    const now = new Set(view.status.jobs.map((one) => one.job));
    const gone = view.use.filter((one) => !now.has(one.job))
      .map((one) => ({ job: one.job, share: 1, running: 0, queued: 0, trajectories: 0, cores: 0, waits_for: "" }));
    const most = Math.max(1, ...view.status.pools.filter((p) => p.resource === "cpu").map((p) => p.capacity));
    rows($("jobs-rows"), [...view.status.jobs, ...gone], (job) => {
      const use = used.get(job.job) || { core_s: 0, memory_mb_s: 0, device_s: 0, calls: 0, tokens: 0 };
      return [
        [job.job], [job.share, "n"], [count(job.running), "n"], [count(job.queued), "n"], [count(job.trajectories), "n"],
        [make("span", "", meter(job.cores / most), String(job.cores))],
        [hours(use.core_s), "n"], [hours(use.memory_mb_s / 1024), "n"], [hours(use.device_s), "n"],
        [count(use.calls), "n"], [count(use.tokens), "n"], [job.waits_for || "–", "why"],
      ];
    }, "no job has submitted anything");
  }
  function showQueue(view) {
    rows($("queue-rows"), view.status.waiting, (one) => [[link(one.action)], [one.kind], [one.job], [seconds(one.queued_s), "n"], [one.reason, "why"]], "nothing waits");
    rows($("running-rows"), view.status.longest, (one) => [[link(one.action)], [one.kind], [one.job], [one.where], [one.units || "–", "n"], [seconds(one.held_s), "n"]], "nothing runs");
    rows($("trajectory-rows"), view.trajectories, (one) => [[one.trajectory], [one.job], [one.task || "–"], [one.node || "–"], [one.running, "n"], [one.waiting, "n"], [seconds(one.queued_s), "n"]], "no trajectory is open");
  }
  function showKinds(view) {
    const total = (kind) => kind.wait_s + kind.overhead_s + kind.run_s;
    const most = Math.max(1e-9, ...view.kinds.map(total));
    const made = view.kinds.map((kind) => {
      const parts = [["wait", kind.wait_s], ["over", kind.overhead_s], ["run", kind.run_s]].map(([name, s]) => {
        const part = make("i", name);
        part.style.width = `${(100 * s / most).toFixed(2)}%`;
        part.title = `${name} ${seconds(s)}`;
        return part;
      });
      const name = make("span", "", kind.kind);
      name.title = kind.kind;
      return make("div", "kind", name, make("div", "stack", ...parts), make("span", "n", `${seconds(total(kind))} · ${count(kind.count)}`));
    });
    $("kinds").replaceChildren(...(made.length ? made : [make("p", "empty", "nothing has ended lately")]));
  }
  function showNodes(view) {
    const states = Object.entries(view.node_states).map(([state, n]) => `${n} ${state}`).join(", ");
    const hidden = view.num_nodes - view.status.nodes.length;
    $("nodes-told").textContent = states + (hidden > 0 ? `; the first ${view.status.nodes.length} are shown` : "");
    $("node-cards").replaceChildren(...view.status.nodes.map((node) => {
      const here = node.population;
      return make("div", "node", make("b", "", make("span", "", node.node), make("span", `state ${node.state}`, node.state)),
        make("div", "", `${node.cores_used} of ${node.cores} cores, ${node.running} running`), meter(node.cores ? node.cores_used / node.cores : 0),
        make("div", "quiet", `${(node.memory_used_mb / 1024).toFixed(1)} of ${(node.memory_mb / 1024).toFixed(1)} GB held` + (here ? `, ${here.sandboxes} sandboxes, ${here.hibernated} asleep` : "")));
    }));
    const told = view.status.services.map((one) => `${one.service}: on ${one.resident.join(", ") || "no device"}, ${one.busy} calls, ${one.queued} wait`);
    const f = view.status.functions;
    if (f) told.push(`functions: ${f.workers} of ${f.ceiling} workers warm, ${f.busy} busy, ${f.queued} calls wait, ${f.cold_starts} cold starts`);
    $("callees").replaceChildren(...told.map((text) => make("p", "quiet", text)));
  }

  const drawCores = Charts.coresChart($("cores-chart"));
  const drawBars = Charts.timeline($("bars"), $("bar-told"), (action) => { location.hash = `action/${encodeURIComponent(action)}`; });

  function show(view) {
    last = view;
    const s = view.status;
    $("summary").textContent = `${s.policy}, ${count(s.running)} running, ${count(s.queued)} waiting, ${count(s.ended)} ended, ${count(s.trajectories)} trajectories, up for ${seconds(s.uptime_s)}` + (s.is_draining ? ", draining" : "");
    showPools(view); showJobs(view); showQueue(view); showKinds(view); showNodes(view);
    if (view.run) Run.begin();
    Run.draw();
    drawCores(view.samples);
    drawBars(view);
    document.body.dataset.at = view.at;
    document.body.dataset.ended = s.ended;
  }

  async function ask() {
    try {
      const answer = await fetch("/dashboard/view.json");
      if (answer.status === 401) { location.reload(); return; }
      if (!answer.ok) throw new Error(`it answers ${answer.status}`);
      show(await answer.json());
      $("offline").hidden = true;
    } catch (error) {
      $("offline").hidden = false;
      $("offline").textContent = `The service does not answer (${error.message}); trying again. What you see is old.`;
    }
    setTimeout(ask, document.hidden ? 5 * EVERY_MS : EVERY_MS);
  }

  async function showAction(action) {
    const answer = await fetch(`/dashboard/actions/${encodeURIComponent(action)}`);
    const found = await answer.json();
    $("action-title").textContent = `Action ${action}`;
    const why = found.explanation;
    $("action-why").textContent = found.error || (why ? `${why.state}: ${why.summary}` : "ended");
    const first = found.history && found.history.length ? found.history[0].at : 0;
    $("action-history").replaceChildren(...(found.history || []).map((one) => make("li", "",
      make("span", "quiet", `+${(one.at - first).toFixed(3)} s`), make("b", "", one.what), make("span", "", one.detail))),
      ...(why ? why.hindrances.map((one) => make("li", "", make("span", "quiet", one.resource), make("b", "", "starts when"), make("span", "", one.starts_when))) : []));
    $("action-output").replaceChildren(...["stdout", "stderr"].filter((name) => found[name]).flatMap((name) => {
      const text = make("pre", "", found[name]);
      text.tabIndex = 0;
      return [make("h3", "", name), text];
    }));
    if (!$("action").open) $("action").showModal();
  }
  function route() {
    const hash = decodeURI(location.hash.slice(1));
    if (hash.startsWith("action/")) {
      showAction(decodeURIComponent(location.hash.slice("#action/".length)));
    } else if ($("action").open) {
      $("action").close();
    }
    if (hash.startsWith("job/")) {
      $("filter").value = decodeURIComponent(location.hash.slice("#job/".length));
      if (last) show(last);
    }
  }
  $("action").addEventListener("close", () => { if (location.hash.startsWith("#action/")) history.pushState(null, "", location.pathname); });
  $("filter").addEventListener("input", () => { if (last) show(last); });
  $("theme").addEventListener("click", () => {
    const dark = getComputedStyle(document.documentElement).colorScheme === "dark";
    document.documentElement.dataset.theme = dark ? "light" : "dark";
    localStorage.setItem("theme", document.documentElement.dataset.theme);
    if (last) show(last);
  });
  document.addEventListener("keydown", (event) => {
    if (event.target.matches("input") || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "/") { $("filter").focus(); event.preventDefault(); }
    if (event.key === "t") $("theme").click();
    const section = document.querySelector(`nav a[data-key="${CSS.escape(event.key)}"]`);
    if (section) { section.click(); }
  });
  if (localStorage.getItem("theme")) document.documentElement.dataset.theme = localStorage.getItem("theme");
  window.addEventListener("hashchange", route);
  window.addEventListener("resize", () => { if (last) show(last); });
  ask().then(route);
})();

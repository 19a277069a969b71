"use strict";
// The training run of a cluster that belongs to one: its curves, and what the model said.
const Run = (() => {
  const EVERY_MS = 2000;
  const HUES = ["--run", "--wait", "--accent", "--pods", "--over", "--quiet"];
  const isTask = (name) => name.startsWith("reward/") && name !== "reward/deviation";
  const CHARTS = [
    ["Reward", (name) => name === "reward" || isTask(name)],
    ["Held-out problems", (name) => name === "eval" || name.startsWith("eval/")],
    ["Staleness: most versions behind, share of tokens", (name) => name.startsWith("train/") && name.includes("stale")],
    ["Seconds of a step", (name) => ["run/collect_s", "run/train_s", "run/publish_s", "run/exposed_s"].includes(name)],
    ["Trainer against engine, and clip", (name) => ["train/mismatch_kl", "train/kl", "train/clip_fraction"].includes(name)],
    ["Tokens of an attempt", (name) => ["rollout/length", "rollout/max_length"].includes(name)],
    ["Attempts cut short, groups that teach nothing", (name) => ["rollout/truncated", "rollout/equal_groups"].includes(name)],
  ];
  const $ = (id) => document.getElementById(id);
  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const make = (tag, name, ...parts) => {
    const node = document.createElement(tag);
    if (name) node.className = name;
    node.append(...parts.map((part) => (part instanceof Node ? part : String(part))));
    return node;
  };
  const plots = new Map();
  let attempts = [];
  let told = null;

  function chart(title, names, found) {
    let known = plots.get(title);
    if (!known) {
      const box = make("div", "chart");
      box.setAttribute("role", "img");
      box.setAttribute("aria-label", title);
      $("curves").append(make("figure", "", make("figcaption", "", title), box));
      known = { box, key: "" };
      plots.set(title, known);
    }
    const key = [names, known.box.clientWidth, color("--ink")].join();
    const data = [found.steps, ...names.map((name) => found.series[name])];
    if (known.key === key) { known.plot.setData(data); return; }
    if (known.plot) known.plot.destroy();
    known.key = key;
    const axis = { stroke: color("--quiet"), grid: { stroke: color("--track") }, ticks: { stroke: color("--line") } };
    known.plot = new uPlot({
      width: known.box.clientWidth, height: 178,
      cursor: { drag: { x: false, y: false } },
      scales: { x: { time: false }, y: { range: (u, low, high) => [Math.min(0, low), Math.max(high, 1e-6) * 1.08] } },
      axes: [axis, { ...axis, size: 52 }],
      series: [{ label: "step" }, ...names.map((name, i) => ({
        label: name, stroke: color(HUES[i % HUES.length]), width: name === "reward" || name === "eval" ? 2.4 : 1.5, spanGaps: true, points: { show: found.steps.length < 3 },
        dash: i >= HUES.length ? [5, 4] : undefined,
      }))],
    }, data, known.box);
  }

  function draw() {
    if (!told) return;
    const last = told.steps.length ? told.steps[told.steps.length - 1] : 0;
    $("run-told").textContent = `${told.run}, step ${last} of ${told.planned}`;
    document.body.dataset.step = last;
    for (const [title, wanted] of CHARTS) {
      const names = Object.keys(told.series).filter(wanted).sort();
      if (names.length) chart(title, names, told);
    }
  }

  function drawAttempts() {
    $("attempt-rows").replaceChildren(...attempts.map((one) => {
      const link = make("a", "", one.problem);
      link.href = `#attempt/${encodeURIComponent(one.trajectory)}`;
      const cells = [[one.step, "n"], [one.task], [link], [one.reward === null ? "–" : one.reward.toFixed(2), "n"], [one.status]];
      return make("tr", "", ...cells.map(([value, name]) => make("td", name, value)));
    }));
  }

  async function ask() {
    try {
      const [curves, kept] = await Promise.all(["run.json", "transcripts.json"].map(async (name) => {
        const answer = await fetch(`/dashboard/${name}`);
        if (!answer.ok) throw new Error(`it answers ${answer.status}`);
        return answer.json();
      }));
      told = curves;
      attempts = kept;
      draw();
      drawAttempts();
    } catch (error) {
      // The other half of the page says that the service does not answer.
    }
    setTimeout(ask, document.hidden ? 5 * EVERY_MS : EVERY_MS);
  }

  function showAttempt(id) {
    const one = attempts.find((found) => found.trajectory === id);
    $("attempt-title").textContent = one ? `${one.task}: ${one.problem}, step ${one.step}` : "This attempt is not kept any more";
    $("attempt-told").textContent = one ? `reward ${one.reward === null ? "none" : one.reward.toFixed(3)}, ${one.status}` : "";
    $("attempt-said").replaceChildren(...(one ? one.conversations : []).map((line, index) => make("div", "conversation",
      ...(one.conversations.length > 1 ? [make("h3", "", `Conversation ${index + 1}`)] : []),
      ...line.map((part) => {
        const text = make("pre", part.is_sampled ? "sampled" : "given", part.text);
        text.tabIndex = 0;
        return make("div", "", make("span", "quiet", part.is_sampled ? "model" : "given"), text);
      }))));
    if (!$("attempt").open) $("attempt").showModal();
  }
  async function route() {
    if (location.hash.startsWith("#attempt/")) showAttempt(decodeURIComponent(location.hash.slice("#attempt/".length)));
    else if ($("attempt").open) $("attempt").close();
  }

  let begun = false;
  function begin() {
    if (begun) return;
    begun = true;
    $("training").hidden = false;
    document.querySelector('nav a[href="#training"]').hidden = false;
    $("attempt").addEventListener("close", () => { if (location.hash.startsWith("#attempt/")) history.pushState(null, "", location.pathname); });
    window.addEventListener("hashchange", route);
    window.addEventListener("resize", draw);
    ask().then(route);
  }
  return { begin, draw };
})();

"use strict";
// Pictures of the dashboard: the chart of cores (uPlot) and the timeline (a canvas).
const Charts = (() => {
  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  function coresChart(box) {
    let plot = null;
    let theme = "";
    let width = 0;
    function make(data) {
      if (plot) plot.destroy();
      const axis = { stroke: color("--quiet"), grid: { stroke: color("--track") }, ticks: { stroke: color("--line") } };
      const line = (label, name, more) => ({ label, stroke: color(name), width: 1.6, points: { show: false }, ...more });
      plot = new uPlot({
        width, height: 178,
        cursor: { drag: { x: false, y: false } },
        axes: [axis, { ...axis, size: 44 }],
        scales: { y: { range: (u, low, high) => [0, Math.max(1, high) * 1.08] } },
        series: [
          {},
          line("used", "--run", { width: 2.2, fill: color("--run") + "22" }),
          line("wanted", "--wait"),
          line("pods would hold", "--pods", { dash: [6, 4] }),
          line("there are", "--quiet", { dash: [2, 3] }),
        ],
      }, data, box);
    }
    return (samples) => {
      const now = color("--ink");
      const data = [[], [], [], [], []];
      for (const [at, used, capacity, wanted, pods] of samples) {
        data[0].push(at); data[1].push(used); data[2].push(wanted); data[3].push(pods); data[4].push(capacity);
      }
      if (!plot || theme !== now || width !== box.clientWidth) {
        theme = now;
        width = box.clientWidth;
        make(data);
      } else {
        plot.setData(data);
      }
    };
  }

  // A colour for every kind, the same on every page.
  function hue(text) {
    let hash = 0;
    for (const c of text) hash = (hash * 31 + c.codePointAt(0)) >>> 0;
    return hash % 360;
  }

  function timeline(canvas, told, open) {
    const left = 118, row = 15, foot = 20, span = 60;
    let shown = [];
    let chosen = null;
    function order(lane) {
      const [node, unit] = [lane.slice(0, lane.indexOf("/")), lane.slice(lane.indexOf("/") + 1)];
      return [node, parseInt(unit.replace(/\D+/g, "") || "0", 10)];
    }
    function draw(view) {
      const width = canvas.clientWidth, scale = window.devicePixelRatio || 1;
      const lanes = [...new Set(view.bars.map((bar) => bar.lane))]
        .sort((a, b) => { const [x, i] = order(a), [y, j] = order(b); return x < y ? -1 : x > y ? 1 : i - j; });
      const height = Math.max(3, lanes.length) * row + foot;
      canvas.width = width * scale;
      canvas.height = height * scale;
      canvas.style.height = height + "px";
      const pen = canvas.getContext("2d");
      pen.scale(scale, scale);
      pen.font = "11px system-ui, sans-serif";
      const dark = color("--card") !== "#ffffff";
      const at = (t) => left + (width - left) * (t - (view.at - span)) / span;
      const place = new Map(lanes.map((lane, index) => [lane, index * row]));
      pen.textBaseline = "middle";
      for (const lane of lanes) {
        const y = place.get(lane);
        pen.fillStyle = color("--quiet");
        pen.fillText(lane.length > 19 ? "…" + lane.slice(-18) : lane, 0, y + row / 2);
        pen.fillStyle = color("--track");
        pen.fillRect(left, y + row - 2, width - left, 1);
      }
      shown = [];
      for (const bar of view.bars) {
        const x = Math.max(left, at(bar.begin)), end = at(bar.end === null ? view.at : bar.end);
        const box = { x, y: place.get(bar.lane) + 1, w: Math.max(1.5, end - x), h: row - 4, bar };
        shown.push(box);
        pen.fillStyle = `hsl(${hue(bar.kind)} ${dark ? "55% 58%" : "52% 44%"})`;
        pen.globalAlpha = bar.end === null ? 1 : 0.72;
        pen.fillRect(box.x, box.y, box.w, box.h);
        pen.globalAlpha = 1;
        if (["resized", "preempted", "lost", "failed", "timed_out"].includes(bar.ended_by)) {
          pen.fillStyle = color(bar.ended_by === "resized" ? "--ink" : "--bad");
          pen.fillRect(end - 2, box.y, 2, box.h);
        }
        if (chosen === bar.action) {
          pen.strokeStyle = color("--ink");
          pen.strokeRect(box.x, box.y, box.w, box.h);
        }
      }
      pen.fillStyle = color("--quiet");
      for (let s = 0; s <= span; s += 15) {
        pen.textAlign = s === 0 ? "right" : s === span ? "left" : "center";
        pen.fillText(s === 0 ? "now" : `${s} s ago`, at(view.at - s), height - 8);
      }
      pen.textAlign = "left";
      if (!lanes.length) pen.fillText("nothing ran in the last minute", left, row);
    }
    const found = (event) => {
      const box = canvas.getBoundingClientRect();
      const [x, y] = [event.clientX - box.left, event.clientY - box.top];
      return shown.find((one) => x >= one.x - 2 && x <= one.x + one.w + 2 && y >= one.y - 1 && y <= one.y + one.h + 2);
    };
    const tell = (one) => {
      told.textContent = one
        ? `${one.bar.kind} of ${one.bar.job}, ${one.bar.lane}${one.bar.ended_by ? ", " + one.bar.ended_by : ", running"}: ${one.bar.action}`
        : "";
      canvas.style.cursor = one ? "pointer" : "default";
    };
    canvas.addEventListener("mousemove", (event) => tell(found(event)));
    canvas.addEventListener("click", (event) => { const one = found(event); if (one) open(one.bar.action); });
    canvas.addEventListener("keydown", (event) => {
      const step = { ArrowRight: -1, ArrowLeft: 1, ArrowDown: 1, ArrowUp: -1 }[event.key];
      const index = shown.findIndex((one) => one.bar.action === chosen);
      if (step && shown.length) {
        const next = shown[(index + step + shown.length) % shown.length];
        chosen = next.bar.action;
        tell(next);
        event.preventDefault();
      } else if (event.key === "Enter" && chosen) {
        open(chosen);
      }
    });
    return draw;
  }

  return { coresChart, timeline };
})();

// Draws the charts over time anew by uPlot, from the data that they carry: values to point at, and a closer look.
// Without this script the SVG stays.
"use strict";
(() => {
  const HEIGHT = 168;
  const PARTS = ["full", "piecewise", "eager", "good", "stripe", "quiet", "rule", "page", "warn", "info"];
  let drawn = [];
  let sizes = null;

  // Colours are the style sheet's: shapes that nobody sees have them as the browser made them out.
  function palette() {
    const svg = document.querySelector("svg.defs");
    let probes = svg.querySelector("g.probes");
    if (!probes) {
      probes = svg.appendChild(document.createElementNS(svg.namespaceURI, "g"));
      probes.setAttribute("class", "probes");
      for (const name of PARTS) {
        probes.appendChild(document.createElementNS(svg.namespaceURI, "rect")).setAttribute("class", name);
      }
    }
    const colours = {};
    for (const probe of probes.children) colours[probe.getAttribute("class")] = getComputedStyle(probe).fill;
    return { ...colours, busy: colours.good, step: colours.good, "": colours.full };
  }

  function hatched(colours) {
    const tile = document.createElement("canvas");
    tile.width = tile.height = 8;
    const ink = tile.getContext("2d");
    ink.fillStyle = colours.eager;
    ink.fillRect(0, 0, 8, 8);
    ink.strokeStyle = colours.stripe;
    ink.lineWidth = 2.4;
    for (const shift of [-8, 0, 8]) {
      ink.beginPath();
      ink.moveTo(shift - 2, 10);
      ink.lineTo(shift + 10, -2);
      ink.stroke();
    }
    return ink.createPattern(tile, "repeat");
  }

  function faint(colour, share) {
    return colour.replace(/^rgb\((.*)\)$/, `rgba($1, ${share})`);
  }

  function percent(value) {
    const of = value * 100;
    return `${of.toFixed(of > 0 && of < 10 ? 1 : 0)}\u00a0%`;
  }

  function duration(us) {
    if (us >= 1e6) return `${(us / 1e6).toFixed(2)}\u00a0s`;
    return us >= 1000 ? `${(us / 1000).toFixed(2)}\u00a0ms` : `${us.toFixed(0)}\u00a0µs`;
  }

  function clock(seconds) {
    return new Date(seconds * 1000).toISOString().slice(11, 19);
  }

  // A stack is areas that are painted over one another, the whole first.
  function tops(told) {
    if (!told.stacked) return told.ys;
    return told.ys.map((_, n) => told.x.map((_x, at) => {
      const below = told.ys.slice(0, n + 1).map((line) => line[at]);
      return below.includes(null) ? null : below.reduce((sum, value) => sum + value, 0);
    }));
  }

  function series(told, colours, words) {
    const stepped = uPlot.paths.stepped({ align: 1 });
    const pattern = told.stacked ? hatched(colours) : null;
    const order = told.names.map((_, n) => (told.stacked ? told.names.length - 1 - n : n));
    return order.map((n) => {
      const colour = colours[told.css[n]];
      const fill = told.css[n] === "eager" ? pattern : told.stacked ? colour : faint(colour, 0.13);
      return {
        label: told.names[n],
        paths: stepped,
        stroke: told.stacked ? undefined : colour,
        width: told.stacked ? 0 : 1.8,
        fill: () => fill,
        points: { show: false },
        value: (_u, _v, _s, at) => (at === null || told.ys[n][at] === null ? "–" : words(told.ys[n][at])),
        order: n,
      };
    });
  }

  // Times at which an incident was open, as a band at the top and a line where it began.
  function incidents(marks, colours) {
    return (u) => {
      const { left, top, width, height } = u.bbox;
      const clip = (x) => Math.min(left + width, Math.max(left, x));
      for (const mark of marks) {
        const from = u.valToPos(mark.from, "x", true);
        const to = mark.to === null ? left + width : u.valToPos(mark.to, "x", true);
        if (to < left || from > left + width) continue;
        u.ctx.fillStyle = colours[mark.severity] || colours.info;
        u.ctx.fillRect(clip(from), top, Math.max(2, clip(to) - clip(from)), 3 * devicePixelRatio);
        if (from >= left) u.ctx.fillRect(from, top, devicePixelRatio, height);
      }
    };
  }

  function remember(u) {
    // All charts move together, and one may know of a moment more than the one that was clicked: nearly all is all.
    const first = u.data[0][0], known = u.data[0].at(-1) - first;
    const shown = Math.min(u.scales.x.max, first + known) - Math.max(u.scales.x.min, first);
    const whole = shown >= 0.9 * known;
    const main = document.querySelector("main");
    if (whole) delete main.dataset.zoomed;
    else main.dataset.zoomed = "yes";
  }

  function build(figure, marks, colours) {
    const told = JSON.parse(figure.dataset.series);
    if (told.x.length < 2) return null;
    const words = told.unit === "share" ? percent : duration;
    const lines = series(told, colours, words);
    const values = tops(told);
    const place = document.createElement("div");
    place.className = "drawn";
    const old = figure.querySelector(".frame");
    old.after(place);
    old.hidden = true;
    const options = {
      width: figure.clientWidth - 32,
      height: HEIGHT,
      padding: [6, 26, 0, 0],
      tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
      scales: {
        x: { range: (u, min, max) => (min === told.x[0] && max === told.x.at(-1) ? [told.from, told.to] : [min, max]) },
        y: { range: [0, told.top] },
      },
      axes: [
        { stroke: colours.quiet, grid: { show: false }, ticks: { show: false }, size: 26, font: "11.5px system-ui", space: 64,
          values: (_u, splits) => splits.map(clock) },
        { stroke: colours.quiet, grid: { stroke: colours.rule, width: 1 }, ticks: { show: false }, size: 58, gap: 6,
          font: "11.5px system-ui", splits: () => [0, told.top / 2, told.top],
          values: (_u, splits) => splits.map((v) => (v ? words(v) : "0")) },
      ],
      series: [{ label: "UTC", value: (_u, _v, _s, at) => (at === null ? "–" : clock(told.x[at])) }, ...lines],
      legend: { markers: { fill: (_u, n) => colours[told.css[lines[n - 1].order]], stroke: () => "transparent" } },
      cursor: { sync: { key: "time" }, y: false, drag: { x: true, y: false }, points: { show: !told.stacked } },
      hooks: { draw: [incidents(marks, colours)], setScale: [remember] },
    };
    return { figure, plot: new uPlot(options, [told.x, ...lines.map((line) => values[line.order])], place) };
  }

  function drawAll() {
    for (const one of drawn) one.plot.destroy();
    for (const place of document.querySelectorAll(".drawn")) place.remove();
    if (sizes) sizes.disconnect();
    drawn = [];
    const group = document.querySelector(".charts");
    if (!group || typeof uPlot === "undefined") return;
    const colours = palette();
    const marks = JSON.parse(group.dataset.marks || "[]");
    for (const figure of group.querySelectorAll("figure[data-series]")) {
      const one = build(figure, marks, colours);
      if (one) drawn.push(one);
    }
    sizes = new ResizeObserver(() => {
      for (const { figure, plot } of drawn) {
        const width = figure.clientWidth - 32;
        if (width > 0 && width !== plot.width) plot.setSize({ width, height: HEIGHT });
      }
    });
    sizes.observe(group);
  }

  document.addEventListener("replaywatch:shown", drawAll);
  drawAll();
})();

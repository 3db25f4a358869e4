/* Charts: an element with data-source is filled with the lines that the source tells, and again when the page hears of progress. */
(() => {
  "use strict";

  const COLOURS = ["#4f6bed", "#2f9e6b", "#d17b0f", "#c2417c", "#7a5bd0", "#1c95b0", "#b3553a", "#6b7a2c", "#a13fb0", "#5a6f8c"];
  const drawn = new Map();

  function colour(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  }

  function smoothed(values, weight) {
    if (!weight) return values;
    let last = null;
    return values.map((value) => {
      if (value === null) return null;
      last = last === null ? value : last * weight + value * (1 - weight);
      return last;
    });
  }

  // Lines have steps of their own: they are joined on one axis, with gaps that are not drawn.
  function joined(lines, across, weight) {
    const places = [...new Set(lines.flatMap((line) => line[across]).filter((x) => x !== null))].sort((a, b) => a - b);
    const index = new Map(places.map((x, at) => [x, at]));
    const columns = lines.map((line) => {
      const column = new Array(places.length).fill(undefined);
      smoothed(line.value, weight).forEach((value, at) => {
        const x = line[across][at];
        if (x !== null) column[index.get(x)] = value;
      });
      return column;
    });
    return [places, ...columns];
  }

  function written(value) {
    if (value === null || value === undefined) return "–";
    const size = Math.abs(value);
    return size !== 0 && (size < 1e-3 || size >= 1e6) ? value.toExponential(2) : String(Number(value.toPrecision(4)));
  }

  function settings(element) {
    const tools = element.closest("[data-chart]");
    const read = (name, otherwise) => tools?.querySelector(`[data-tool='${name}']`)?.value ?? otherwise;
    return {
      across: read("across", "step"),
      weight: Number(read("smooth", "0")),
      log: tools?.querySelector("[data-tool='log']")?.checked ?? false,
    };
  }

  function options(element, lines, chosen) {
    const text = colour("--muted");
    const grid = { stroke: colour("--line"), width: 1 };
    const font = "11px Inter, system-ui, sans-serif";
    const axis = { stroke: text, font, grid, ticks: { show: false } };
    const several = lines.length > 4;
    return {
      width: Math.max(280, element.clientWidth),
      height: Number(element.dataset.height || 260),
      scales: { x: { time: false }, y: { distr: chosen.log ? 3 : 1 } },
      axes: [
        { ...axis, values: (_, ticks) => ticks.map(written) },
        { ...axis, size: 56, values: (_, ticks) => ticks.map((tick) => (tick === null ? "" : written(tick))) },
      ],
      cursor: { drag: { x: true, y: false }, focus: { prox: 24 } },
      focus: { alpha: 0.25 },
      legend: { show: !several, live: true },
      series: [
        { label: chosen.across, value: (_, value) => written(value) },
        ...lines.map((line, at) => ({
          label: line.label,
          stroke: several ? (line.best ? colour("--accent") : colour("--shade-3")) : COLOURS[at % COLOURS.length],
          width: line.best && several ? 2.5 : 1.5,
          spanGaps: true,
          points: { show: line.value.length < 40, size: 5 },
          value: (_, value) => written(value),
        })),
      ],
    };
  }

  function draw(element, told) {
    const chosen = settings(element);
    // The best is drawn last, above the others.
    const lines = [...told.lines].sort((a, b) => Number(a.best) - Number(b.best));
    const data = joined(lines, chosen.across, chosen.weight);
    const before = drawn.get(element);
    const shape = JSON.stringify([chosen, lines.map((line) => line.label), document.documentElement.dataset.theme]);
    element.dataset.points = String(lines.reduce((sum, line) => sum + line.value.length, 0));
    if (before?.plot && before.shape === shape && element.contains(before.plot.root)) {
      before.told = told;
      before.plot.setData(data);
      return;
    }
    before?.plot?.destroy();
    element.replaceChildren();
    if (!data[0].length) {
      const words = document.createElement("p");
      words.className = "empty";
      words.textContent = element.dataset.none || "Nothing was reported yet.";
      element.append(words);
      drawn.set(element, { told, plot: null, shape });
      return;
    }
    drawn.set(element, { told, plot: new uPlot(options(element, lines, chosen), data, element), shape });
  }

  async function load(element) {
    try {
      const response = await fetch(element.dataset.source, { headers: { Accept: "application/json" } });
      if (response.ok) draw(element, await response.json());
    } catch {
      // The stream says that the master is away; the next signal loads again.
    }
  }

  function every(then) {
    for (const element of document.querySelectorAll("[data-source]")) then(element);
  }

  let waiting = null;
  function again() {
    if (waiting !== null || document.hidden) return;
    waiting = setTimeout(() => { waiting = null; every(load); }, 150);
  }

  const live = document.getElementById("live");
  live?.addEventListener("changed", again);
  live?.addEventListener("progress", again);
  document.addEventListener("input", (event) => {
    if (!event.target.matches("[data-tool]")) return;
    for (const element of event.target.closest("[data-chart]").querySelectorAll("[data-source]")) {
      const known = drawn.get(element);
      if (known) draw(element, known.told);
    }
  });
  let resizing = null;
  window.addEventListener("resize", () => {
    clearTimeout(resizing);
    resizing = setTimeout(() => every((element) => {
      const known = drawn.get(element);
      known?.plot?.setSize({ width: Math.max(280, element.clientWidth), height: known.plot.height });
    }), 100);
  });
  every(load);
})();

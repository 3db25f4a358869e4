/* Charts: an element with data-source is filled with the lines that the source tells, and again when the page hears of progress. */
(() => {
  "use strict";

  const SERIES = 10;
  const drawn = new Map();

  // A variable's own text is not resolved (light-dark() stands in it); a colour that is used is.
  const probe = document.createElement("span");
  probe.hidden = true;
  document.body.append(probe);
  function colour(name) {
    probe.style.color = `var(${name})`;
    return getComputedStyle(probe).color;
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
    const several = lines.length > 4 && element.dataset.each === undefined;
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
          stroke: several ? (line.best ? colour("--accent") : colour("--shade-3")) : colour(`--series-${(line.place ?? at) % SERIES}`),
          width: line.best && several ? 2.5 : 1.5,
          spanGaps: true,
          points: { show: line.value.length < 20, size: 5, fill: colour("--panel") },
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
    const shape = JSON.stringify([chosen, lines.map((line) => line.label), colour("--text")]);
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

  async function load(source, elements) {
    try {
      const response = await fetch(source, { headers: { Accept: "application/json" } });
      if (!response.ok) return;
      const told = await response.json();
      for (const element of elements) draw(element, told.charts?.[element.dataset.name] ?? told);
    } catch {
      // The stream says that the master is away; the next signal loads again.
    }
  }

  // Charts of one source are told by one answer.
  function loadAll() {
    const sources = new Map();
    every((element) => sources.set(element.dataset.source, [...(sources.get(element.dataset.source) ?? []), element]));
    for (const [source, elements] of sources) load(source, elements);
  }

  function every(then) {
    for (const element of document.querySelectorAll("[data-source]")) then(element);
  }

  let waiting = null;
  function again() {
    if (waiting !== null || document.hidden) return;
    waiting = setTimeout(() => { waiting = null; loadAll(); }, 150);
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
  // The picture has its colours in it: it is drawn anew when the machine turns dark or light.
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => every((element) => {
    const known = drawn.get(element);
    if (known) draw(element, known.told);
  }));
  let resizing = null;
  window.addEventListener("resize", () => {
    clearTimeout(resizing);
    resizing = setTimeout(() => every((element) => {
      const known = drawn.get(element);
      known?.plot?.setSize({ width: Math.max(280, element.clientWidth), height: known.plot.height });
    }), 100);
  });
  loadAll();
})();

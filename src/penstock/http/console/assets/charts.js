// Lines over time, with uPlot, in the page's own colours.
import { Alpine, clock } from "./core.js";

// x-chart="{times, lines: [values, ...], word: value => text}"; times in seconds. The colours are the accent and a second
// one; `steps` are the distances that the lines across may have. With .spark it is a small line and nothing else.
Alpine.directive("chart", (element, { expression, modifiers }, { effect, evaluateLater, cleanup }) => {
  const wanted = evaluateLater(expression);
  let plot = null;
  let chart = null;

  const draw = () => {
    if (!chart || !element.clientWidth) return;
    // One point makes no line.
    if (chart.times.length < 2) { plot?.destroy(); plot = null; return; }
    const data = [chart.times, ...chart.lines];
    if (plot) return plot.setData(data);
    plot = new uPlot(options(element, chart, modifiers.includes("spark")), data, element);
  };
  const anew = () => { plot?.destroy(); plot = null; draw(); };

  effect(() => wanted((found) => { chart = found && Alpine.raw(found); draw(); }));
  const resized = new ResizeObserver(() => (plot ? plot.setSize({ width: element.clientWidth, height: element.clientHeight }) : draw()));
  resized.observe(element);
  document.addEventListener("theme", anew);
  const scheme = matchMedia("(prefers-color-scheme: dark)");
  scheme.addEventListener("change", anew);
  cleanup(() => { resized.disconnect(); document.removeEventListener("theme", anew); scheme.removeEventListener("change", anew); plot?.destroy(); });
});

// What a name of the style sheet is in the scheme that counts now.
function colour(element, name) {
  element.style.color = `var(${name})`;
  const found = getComputedStyle(element).color;
  element.style.color = "";
  return found;
}

const isLong = ({ scales: { x } }) => x.max - x.min > 600;

// Where lines of a chart of bytes are drawn.
export const BINARY_STEPS = Array.from({ length: 50 }, (_, power) => 2 ** power);

function options(element, chart, isSpark) {
  const [line, muted] = [colour(element, "--line"), colour(element, "--muted")];
  const strokes = [colour(element, "--accent"), colour(element, "--second")];
  const tip = element.appendChild(document.createElement("div"));
  tip.className = "chart-tip";
  const axis = { stroke: muted, font: "11px system-ui, sans-serif", ticks: { show: false } };
  return {
    width: element.clientWidth,
    height: element.clientHeight,
    padding: isSpark ? [2, 2, 2, 2] : [8, 24, 0, 0],
    cursor: { show: !isSpark, y: false, drag: { x: false, y: false }, points: { size: 6 } },
    legend: { show: false },
    scales: { y: { range: (_, low, high) => [0, high > 0 ? high * 1.1 : 1] } },
    axes: isSpark ? [{ show: false }, { show: false }] : [
      { ...axis, grid: { show: false }, space: 80, size: 24, values: (plot, splits) => splits.map((at) => clock(at * 1000).slice(0, isLong(plot) ? 5 : 8)) },
      { ...axis, grid: { stroke: line, width: 1 }, space: 36, size: 68, incrs: chart.steps, values: (_, splits) => splits.map((at) => chart.word(at)) },
    ],
    series: [
      {},
      ...chart.lines.map((_, at) => ({
        stroke: strokes[at],
        width: 1.5,
        fill: at === 0 ? strokes[0].replace("rgb(", "rgba(").replace(")", ", 0.1)") : undefined,
        points: { show: false },
      })),
    ],
    hooks: {
      destroy: [() => tip.remove()],
      setCursor: [
        (plot) => {
          const at = plot.cursor.idx;
          tip.textContent = at == null ? "" : `${clock(chart.times[at] * 1000)}  ${chart.lines.map((one) => chart.word(one[at] ?? 0)).join(" · ")}`;
        },
      ],
      setData: [(plot) => { chart.times = plot.data[0]; chart.lines = plot.data.slice(1); }],
    },
  };
}

// The widgets of the lessons without a kernel: each draws, from numbers that the lesson computed when it was built, what its controls say.

import { THETA_LEGEND, grid, thetaCurve } from "./board.js";
import { COLOURS, Panel, html, legend, panels } from "./plot.js";
import { expectedTau, lengthsOf, schedule, sum, survival, thresholdLengths, throughput, topK, topOf } from "./rules.js";

const { green, red, blue, sky, grey, ink } = COLOURS;
const percent = (share) => `${Math.round(100 * share)} %`;

/** Lesson 03: expected speed-up by draft length, at the acceptance and the costs that the sliders say. */
function length({ measured }, { acceptance, cost, verify }, width) {
  const curve = Array.from({ length: 16 }, (_, k) => [
    k + 1,
    expectedTau(acceptance, k + 1) / ((k + 1) * cost + verify),
  ]);
  const best = curve.reduce((one, other) => (other[1] > one[1] ? other : one));
  const top = [3, 6, 12, 24].find((one) => one > best[1]);
  const nodes = [
    panels(width, (each) => {
      const panel = new Panel({
        width: each,
        x: [0, 17],
        y: [0, top],
        xlabel: "draft length γ",
        ylabel: "times plain decoding",
        title: "Speed-up",
      });
      panel.box([0, 17], [0, 1], { fill: red, opacity: 0.1 });
      panel.line(curve, { color: ink });
      panel.marks(curve, { color: ink, size: 0.6 });
      panel.marks([best], { color: ink, size: 2, hollow: true });
      for (const [, gamma, speedup, color, marker] of measured)
        panel.marks([[gamma, speedup]], { color, marker, size: 1.5 });
      return panel;
    }),
    legend([
      [ink, "formula, its best in a ring"],
      ...measured.map(([label, , , color, marker]) => [color, `measured: ${label}`, marker]),
      [red, "slower than plain decoding", null, 0.25],
    ]),
  ];
  const sentence =
    best[1] > 1 ? `Best at γ = ${best[0]}: ${best[1].toFixed(2)} times plain decoding.` : "No draft length pays.";
  return { nodes, sentence };
}

/** Lesson 09: recorded blocks cut at a threshold, accepted and wasted, and the cost of a token. */
function threshold({ thresholds, blocks }, { domain, scaling, least, requests }, width) {
  const { accepted, wasted, cost } = blocks[domain][scaling],
    ms = cost[requests - 1];
  const at = thresholds.reduce(
    (best, one, k) => (Math.abs(one - least) < Math.abs(thresholds[best] - least) ? k : best),
    0,
  );
  const lowest = Math.min(...ms),
    near = thresholds.map((x, k) => [x, ms[k]]).filter(([, y]) => y <= 1.03 * lowest);
  const high = 1.15 * (accepted[0] + wasted[0]),
    dear = 1.2 * Math.max(...ms);
  const side = (each, top, ylabel, title) =>
    new Panel({ width: each, x: [0, 0.95], y: [0, top], xlabel: "confidence threshold", ylabel, title });
  const here = (panel) =>
    panel.line(
      [
        [thresholds[at], panel.y[0]],
        [thresholds[at], panel.y[1]],
      ],
      { color: ink, dash: "3 3", width: 1 },
    );
  const nodes = [
    panels(
      width,
      (each) => {
        const panel = side(each, high, "tokens per round", "What a cut keeps");
        panel.area(
          thresholds.map((one, k) => [one, 0, accepted[k]]),
          { color: green },
        );
        panel.area(
          thresholds.map((one, k) => [one, accepted[k], accepted[k] + wasted[k]]),
          { color: red },
        );
        here(panel);
        return panel;
      },
      (each) => {
        const panel = side(each, dear, "verification, ms a token", "What a token costs");
        panel.line(
          thresholds.map((one, k) => [one, ms[k]]),
          { color: blue },
        );
        panel.marks(near, { color: ink, marker: "D", hollow: true });
        panel.marks([[thresholds[at], ms[at]]], { color: ink, size: 1.4 });
        here(panel);
        return panel;
      },
    ),
    legend([
      [green, "accepted"],
      [red, "wasted"],
      [ink, "within 3 % of the least cost", "D"],
      [ink, "here", "o"],
    ]),
  ];
  const sentence =
    `Cut at ${thresholds[at].toFixed(2)}: ${accepted[at].toFixed(2)} tokens accepted and ${wasted[at].toFixed(2)} wasted per round; ` +
    `${ms[at].toFixed(3)} ms a token, ${percent(ms[at] / lowest - 1)} above the least.`;
  return { nodes, sentence };
}

/** Lesson 10: what a policy admits of one recorded step, and θ along the order. */
function board({ confidence, tables, lag, threshold: least }, { requests, table, policy, step }, width) {
  const steps = confidence[requests],
    alive = steps[step].map(survival),
    speeds = tables[table].table;
  const found = throughput(alive, speeds),
    gamma = alive[0].length;
  const best = (blocks) => {
    const search = throughput(blocks, speeds);
    return lengthsOf(search.order, topOf(search), blocks.length);
  };
  const lengths = {
    algorithm1: () => schedule(alive, speeds),
    convex: () => schedule(alive, tables[table].hull),
    retrospective: () => best(alive),
    lagged: () => topK(alive, sum(best(steps[step - lag].map(survival)))),
    threshold: () => thresholdLengths(steps[step], least),
    all: () => alive.map(() => gamma),
  }[policy]();
  const admitted = sum(lengths),
    expected = alive.length + sum(alive.flatMap((block, r) => block.slice(0, lengths[r])));
  const value = alive.length + admitted < speeds.length ? expected * speeds[alive.length + admitted] : null;
  const top = Math.max(...found.theta);
  const below =
    value === null
      ? "more than the table covers"
      : value >= top * (1 - 1e-9)
        ? "no θ is higher"
        : `${(100 * (1 - value / top)).toFixed(1)} % below the highest θ`;
  return {
    nodes: [grid(width, alive, lengths), thetaCurve(width, found, value === null ? null : [admitted, value])]
      .map((panel) => panel.node)
      .concat(legend([[blue, "likely to survive"], ...THETA_LEGEND])),
    sentence: `${admitted} of ${alive.length * gamma} drafts admitted: ${below}.`,
  };
}

/** Lesson 11: where a load stands on the frontier, and what it leaves for each request. */
function frontier({ measured, modelled, looks, loads, served, gamma }, { load, policy, step }, width) {
  const [lengths, kept] = served[policy][load][step],
    [speed, total] = modelled[policy][loads.indexOf(load)];
  const points = Object.values(measured).flat(),
    most = (axis) => 1.1 * Math.max(...points.map((point) => point[axis]));
  const mean = sum(lengths) / lengths.length,
    wide = Math.max(8, lengths.length);
  const nodes = [
    panels(
      width,
      (each) => {
        const panel = new Panel({
          width: each,
          x: [0, most(0)],
          y: [0, most(1)],
          xlabel: "tokens/s of each user",
          ylabel: "tokens/s in all",
          title: "Frontier",
        });
        for (const name of ["mtp", policy]) {
          panel.line(modelled[name], { color: shade(looks[name].color) });
          panel.marks(measured[name], { color: shade(looks[name].color), marker: looks[name].marker });
        }
        panel.marks([[speed, total]], { color: red, size: 3, hollow: true });
        return panel;
      },
      (each) => {
        const panel = new Panel({
          width: each,
          x: [0.4, wide + 0.6],
          y: [0, gamma + 0.6],
          xlabel: "requests, longest first",
          ylabel: "drafts",
          title: "One step",
          yticks: Array.from({ length: gamma + 1 }, (_, k) => k),
          xticks: [1, Math.ceil(wide / 2), wide],
        });
        lengths.forEach((many, r) => {
          panel.box([r + 0.6, r + 1.4], [0, gamma], { fill: "none", stroke: grey, width: 0.5 });
          panel.box([r + 0.6, r + 1.4], [0, many], { fill: sky });
          panel.box([r + 0.6, r + 1.4], [0, kept[r]], { fill: green });
        });
        panel.line(
          [
            [0.4, mean],
            [wide + 0.6, mean],
          ],
          { color: ink, dash: "5 4", width: 1 },
        );
        return panel;
      },
    ),
    legend([
      ...["mtp", policy].map((name) => [shade(looks[name].color), looks[name].label, looks[name].marker]),
      [red, "this load, by the model", "o"],
      [sky, "verified"],
      [green, "accepted"],
    ]),
  ];
  const sentence = `${load} under way: ${mean.toFixed(2)} drafts verified per request; ${Math.round(speed)} tokens/s for each user, ${Math.round(total)} in all.`;
  return { nodes, sentence };
}

/** Black is the page's ink, which is light on a dark page. */
const shade = (color) => (color === "#000000" ? ink : color);

export const DRAWINGS = { length, threshold, board, frontier };

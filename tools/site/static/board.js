// The scheduler's board: what is admitted of the drafts of a step, and the expected throughput along the order of admission.

import { COLOURS, Panel } from "./plot.js";
import { stopOf, topOf } from "./rules.js";

const { red, blue, orange, grey, ink } = COLOURS;

/** Requests by positions, shaded by survival, what is admitted outlined. */
export function grid(width, alive, lengths, height = 200) {
  const requests = alive.length,
    gamma = alive[0].length;
  const panel = new Panel({
    width,
    height,
    x: [0.5, requests + 0.5],
    y: [0.5, gamma + 0.5],
    xlabel: "request",
    ylabel: "position",
    title: "Survival, and what is admitted",
    xticks: Array.from({ length: requests }, (_, k) => k + 1).filter(
      (one) => (one - 1) % Math.ceil(requests / 12) === 0,
    ),
    yticks: Array.from({ length: gamma }, (_, k) => k + 1),
  });
  alive.forEach((block, r) =>
    block.forEach((chance, k) => panel.box([r + 0.55, r + 1.45], [k + 0.5, k + 1.5], { fill: blue, opacity: chance })),
  );
  lengths.forEach(
    (many, r) =>
      many && panel.box([r + 0.54, r + 1.46], [0.5, many + 0.5], { fill: "none", stroke: orange, width: 2.5 }),
  );
  return panel;
}

/** θ along the order of admission, with Algorithm 1's stop, the top, and where `chosen` drafts stand. */
export function thetaCurve(width, found, chosen, height = 240) {
  const { theta } = found,
    stop = stopOf(found),
    top = topOf(found),
    low = Math.min(...theta),
    span = Math.max(...theta) - low || 1;
  const panel = new Panel({
    width,
    height,
    x: [0, Math.max(1, theta.length - 1)],
    y: [Math.max(0, low - 0.1 * span), low + 1.1 * span],
    xlabel: "drafts admitted, the likeliest first",
    ylabel: "θ, tokens a second",
    title: "Expected throughput",
  });
  panel.line(
    theta.map((value, at) => [at, value]),
    { color: grey },
  );
  panel.marks([[top, theta[top]]], { color: red, marker: "X", size: 1.4 });
  panel.marks([[stop, theta[stop]]], { color: ink, marker: "^", size: 1.3 });
  if (chosen) panel.marks([chosen], { color: orange, size: 2.2, hollow: true });
  return panel;
}

export const THETA_LEGEND = [
  [orange, "this choice", "o"],
  [ink, "Algorithm 1 stops", "^"],
  [red, "the highest of all", "X"],
];

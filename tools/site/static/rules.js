// The rules of the course in plain numbers: what the package computes with tensors (tests compare the two).

export const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);

/** Weights as probabilities; all equal where every weight is 0. */
export function normalised(weights) {
  const total = sum(weights);
  return weights.map((weight) => (total > 0 ? weight / total : 1 / weights.length));
}

/** The place where a uniform number in [0, 1) falls among probabilities: one draw. */
export function drawAt(probs, uniform) {
  let reached = 0;
  for (let token = 0; token < probs.length; token++) {
    reached += probs[token];
    if (uniform < reached) return token;
  }
  return probs.findLastIndex((chance) => chance > 0);
}

/** How likely a drafted token is kept: min(1, p / q). */
export const keepChance = (p, q) => Math.min(1, p / q);

/** How likely a draft is kept at all, the overlap of the two distributions: 1 - TV(p, q). */
export const overlap = (target, draft) => sum(target.map((p, token) => Math.min(p, draft[token])));

/** What the target still owes after the draft's share, max(p - q, 0) renormalised; the target itself where nothing is owed. */
export function residual(target, draft) {
  const owed = target.map((p, token) => Math.max(p - draft[token], 0));
  return sum(owed) > 0 ? normalised(owed) : target;
}

/**
 * The longest accepted prefix of a block and the token after it.
 * targets [g + 1][V], drafts [g][V], tokens [g]; `coins` [g] and `last` are uniform numbers in [0, 1).
 */
export function accept(targets, drafts, tokens, coins, last) {
  let accepted = 0;
  while (accepted < tokens.length) {
    const token = tokens[accepted];
    if (coins[accepted] >= keepChance(targets[accepted][token], drafts[accepted][token])) break;
    accepted += 1;
  }
  const after = accepted < tokens.length ? residual(targets[accepted], drafts[accepted]) : targets[accepted];
  return { accepted, next: drawAt(after, last) };
}

/** The chance that a block survives up to each position: the running product of its confidences. */
export function survival(confidences) {
  let alive = 1;
  return confidences.map((confidence) => (alive *= confidence));
}

/** Steps per second by batch size, from 0 to the last of `sizes`: between two measured sizes the smaller one's speed holds. */
export function costTable(sizes, speeds) {
  const bySize = [];
  for (let size = 0, at = 0; size <= sizes.at(-1); size++) {
    if (at + 1 < sizes.length && sizes[at + 1] <= size) at += 1;
    bySize.push(speeds[at]);
  }
  return bySize;
}

/**
 * The order in which drafts would be admitted, the likeliest to survive first, and the expected tokens per second after 0, 1, ... of
 * them. alive [R][g], speeds by batch size from 0. A draft is { request, position, alive }.
 */
export function throughput(alive, speeds) {
  const requests = alive.length;
  const order = alive.flatMap((block, request) =>
    block.map((chance, position) => ({ request, position, alive: chance })),
  );
  order.sort((one, other) => other.alive - one.alive || one.position - other.position || one.request - other.request);
  const theta = [];
  let expected = requests;
  for (let admitted = 0; admitted <= order.length && requests + admitted < speeds.length; admitted++) {
    if (admitted > 0) expected += order[admitted - 1].alive;
    theta.push(expected * speeds[requests + admitted]);
  }
  return { order, theta };
}

/** How many of the first `admitted` drafts of an order belong to each request. */
export function lengthsOf(order, admitted, requests) {
  const lengths = Array(requests).fill(0);
  for (const draft of order.slice(0, admitted)) lengths[draft.request] += 1;
  return lengths;
}

/** Algorithm 1: where the search stops, at the first draft that does not raise the expected throughput. */
export function stopOf({ order, theta }) {
  let admitted = 0;
  while (admitted + 1 < theta.length && order[admitted].alive > 0 && theta[admitted + 1] > theta[admitted])
    admitted += 1;
  return admitted;
}

/** Where the expected throughput is highest of all, the smallest batch where several have it. */
export const topOf = ({ theta }) => theta.reduce((best, value, at) => (value > theta[best] ? at : best), 0);

/** Algorithm 1: verification lengths [R] of survivals [R][g]. */
export function schedule(alive, speeds) {
  const found = throughput(alive, speeds);
  return lengthsOf(found.order, stopOf(found), alive.length);
}

/** Lengths [R] that give a budget of drafts to the highest survivals. */
export const topK = (alive, budget) => lengthsOf(throughput(alive, []).order, budget, alive.length);

/** Lengths [R] before the first confidence below `least`. */
export function thresholdLengths(confidences, least) {
  return confidences.map((block) => {
    const cut = block.findIndex((confidence) => confidence < least);
    return cut < 0 ? block.length : cut;
  });
}

/** Tokens per round where a draft after kept ones is kept with chance `a`. */
export const expectedTau = (a, gamma) => sum(Array.from({ length: gamma + 1 }, (_, k) => a ** k));

// The accept rule in plain numbers: what the package computes with tensors (tests compare the two).

export const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);

/** Weights, of which one at least is above 0, as probabilities. */
export const normalised = (weights) => weights.map((weight) => weight / sum(weights));

/** The place where a uniform number in [0, 1) falls among probabilities: one draw. */
export function drawAt(probs, uniform) {
  let reached = 0;
  for (let token = 0; token < probs.length; token++) {
    reached += probs[token];
    if (uniform < reached) return token;
  }
  return probs.findLastIndex((chance) => chance > 0);
}

/** How likely each drafted token is kept: min(1, p / q). */
export const keepChances = (target, draft) => target.map((p, token) => (draft[token] > 0 ? Math.min(1, p / draft[token]) : 1));

/** How likely a draft is kept at all, if each token is kept with its chance. */
export const kept = (draft, chances) => sum(draft.map((q, token) => q * chances[token]));

/** What the target still owes after the draft's share, max(p - q, 0) renormalised; the target itself where nothing is owed. */
export function residual(target, draft) {
  const owed = target.map((p, token) => Math.max(p - draft[token], 0));
  return sum(owed) > 0 ? normalised(owed) : target;
}

/** The distribution of the committed token: a kept draft, or after a refusal a draw from `owed`. */
export function committed(draft, chances, owed) {
  const refused = 1 - kept(draft, chances);
  return draft.map((q, token) => q * chances[token] + refused * owed[token]);
}

/** How far two distributions are apart: half the sum of what differs. */
export const distance = (one, other) => sum(one.map((p, token) => Math.abs(p - other[token]))) / 2;

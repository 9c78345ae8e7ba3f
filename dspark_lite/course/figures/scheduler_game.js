// Be the scheduler: the reader sends drafts of recorded blocks on a clock, with Algorithm 1 beside; a peek betrays.

import { bars, button, html } from "./elements.js";

const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);

/** What a step with these lengths commits, and how many milliseconds it lasts. */
export function outcome({ accepted }, lengths, machine) {
  const kept = sum(lengths.map((length, r) => Math.min(length, accepted[r])));
  return { tokens: lengths.length + kept, ms: machine + lengths.length + sum(lengths), kept };
}

/** Put the game into an element: a scene of scheduler_game.py. */
export function mount(place, { machine, steps, answers, test }) {
  const board = html("div", { className: "board" });
  const says = html("p", { role: "status" });
  const run = button("Run the step", () => (ran ? begin(at + 1) : serve()));
  const peek = button("Peek", () => {
    peeked = true;
    draw();
  });
  const scores = html("div", {});
  const keys = html("p", { className: "keys" }, run, peek, button("Start anew", () => restart()));
  place.append(html("div", { className: "game" }, board, keys, says, scores));
  let at, lengths, chips, peeked, ran, mine, theirs, told;

  function restart() {
    mine = { tokens: 0, ms: 0 };
    theirs = { tokens: 0, ms: 0 };
    told = { promised: 0, kept: 0, sent: 0, zeros: 0, peeks: 0 };
    scores.replaceChildren();
    begin(0);
  }

  function begin(step) {
    if (step === steps.length) return restart();
    [at, peeked, ran] = [step, false, false];
    const { alive } = steps[at];
    lengths = alive.map(() => 0);
    chips = alive.map((block, r) => block.map((_, k) => button("", () => choose(r, k))));
    const row = (block, r) => html("div", {}, html("span", { textContent: r + 1 }), ...block);
    board.replaceChildren(...chips.map(row));
    draw();
  }

  function choose(r, k) {
    lengths[r] = lengths[r] === k + 1 ? k : k + 1;
    draw();
  }

  function draw() {
    const { alive, accepted } = steps[at];
    chips.forEach((block, r) =>
      block.forEach((chip, k) => {
        const sent = k < lengths[r];
        const kept = k < accepted[r];
        const known = peeked || (ran && sent);
        const verdict = !known ? "" : kept ? " ✓" : " ✗";
        chip.textContent = `${Math.round(100 * alive[r][k])}${verdict}`;
        chip.ariaLabel = `request ${r + 1}, draft ${k + 1}, survival ${Math.round(100 * alive[r][k])} %${known ? (kept ? ", kept" : ", refused") : ""}`;
        chip.ariaPressed = sent;
        chip.disabled = ran;
        chip.className = !sent ? "" : !known ? "sent" : kept ? "sent kept" : "sent refused";
      }),
    );
    run.textContent = !ran ? "Run the step" : at + 1 < steps.length ? "Next step" : "Play again";
    peek.disabled = peeked || ran;
    if (ran) return;
    const expected = lengths.length + sum(alive.flatMap((block, r) => block.slice(0, lengths[r])));
    const { ms } = outcome(steps[at], lengths, machine);
    says.textContent =
      `Step ${at + 1} of ${steps.length}, ${lengths.length} requests. Each anchor goes; click a draft to send it and those before it. ` +
      `${machine} + ${ms - machine} tokens = ${ms} ms, ${expected.toFixed(1)} tokens expected: θ = ${((1000 * expected) / ms).toFixed(0)} a second.`;
  }

  function serve() {
    ran = true;
    const { alive, lengths: algorithm } = steps[at];
    const own = outcome(steps[at], lengths, machine);
    for (const [total, step] of [[mine, own], [theirs, outcome(steps[at], algorithm, machine)]]) {
      total.tokens += step.tokens;
      total.ms += step.ms;
    }
    told.promised += sum(alive.flatMap((block, r) => block.slice(0, lengths[r])));
    told.kept += own.kept;
    told.sent += sum(lengths);
    told.zeros += (peeked ? test.peeked : test.honest)[at];
    told.peeks += peeked;
    draw();
    says.textContent =
      `${own.tokens} tokens in ${own.ms} ms. Algorithm 1 sent ${algorithm.join(", ")} drafts, row by row. ` +
      (at + 1 < steps.length ? "" : ending());
    score();
  }

  function ending() {
    if (!told.peeks) return "You never peeked, and from the answers nobody can tell that you were there. Play again, and peek.";
    const share = (told.zeros / (answers * steps.length)).toFixed(2);
    return `You peeked in ${told.peeks} of ${steps.length} steps. The clock liked it, and the test request says 0 with ${share}, where its target says ${test.target.toFixed(2)}: whoever sees the word before choosing writes another text.`;
  }

  function score() {
    const speed = ({ tokens, ms }) => (1000 * tokens) / ms;
    const top = 1.2 * Math.max(speed(mine), speed(theirs));
    const clock = ([name, total, paint]) => [name, speed(total) / top, `${speed(total).toFixed(0)} tokens a second`, paint];
    const share = told.kept / Math.max(1, told.sent);
    const promised = told.promised / Math.max(1, told.sent);
    const zeros = told.zeros / (answers * (at + 1));
    const paint = told.peeks ? "refused" : "kept";
    scores.replaceChildren(
      html("p", { textContent: "Speed" }),
      bars([["you", mine, "added"], ["Algorithm 1", theirs, "soft"]].map(clock)),
      html("p", { textContent: "Honesty: a bar should end at its line" }),
      bars([
        ["your drafts kept", share, `${share.toFixed(2)}, survival ${promised.toFixed(2)}`, paint, promised],
        ["test request: 0", zeros, `${zeros.toFixed(2)}, target ${test.target.toFixed(2)}`, paint, test.target],
      ]),
    );
  }

  restart();
}

export default { render: ({ model, el }) => mount(el, model.get("scene")) };

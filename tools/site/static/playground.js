// The playground: the accept rule on two distributions, one round by hand, Algorithm 1 on a table. No Python takes part.

import { COLOURS, Panel, framed, html, legend, panels } from "./plot.js";
import {
  accept,
  costTable,
  drawAt,
  keepChance,
  normalised,
  overlap,
  residual,
  schedule,
  stopOf,
  sum,
  survival,
  throughput,
} from "./rules.js";
import { THETA_LEGEND, grid, thetaCurve } from "./board.js";

const { green, red, blue, ink } = COLOURS;
const WORDS = ["the", "a", "my", "its"];
const percent = (share) => `${(100 * share).toFixed(1)} %`;

/** Uniform numbers in [0, 1) that are the same at every visit (mulberry32). */
export function uniforms(seed) {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let mixed = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

const button = (words, onclick) => html("button", { type: "button", textContent: words, onclick });

/** A table of number fields with a heading for each column and row; `changed` is told of every change. */
function fields(caption, columns, rows, values, { min = 0, max, step }, changed) {
  const row = (name, r) =>
    html(
      "tr",
      {},
      html("th", { scope: "row", textContent: name }),
      ...columns.map((column, c) => {
        const field = html("input", {
          type: "number",
          min,
          max,
          step,
          value: values[r][c],
          ariaLabel: `${name}, ${column}`,
        });
        field.onchange = () => {
          values[r][c] = Math.min(max, Math.max(min, Number(field.value) || 0));
          field.value = values[r][c];
          changed();
        };
        return html("td", {}, field);
      }),
    );
  const head = html(
    "tr",
    {},
    html("td"),
    ...columns.map((column) => html("th", { scope: "col", textContent: column })),
  );
  const table = html(
    "table",
    { className: "fields" },
    html("caption", { textContent: caption }),
    head,
    ...rows.map(row),
  );
  return html("div", { className: "wide", tabIndex: 0, role: "group", ariaLabel: caption }, table);
}

/** Part 1: what the rule keeps, refuses and owes, and a histogram of what it commits. */
function rulePart(place, uniform) {
  const weights = [
    [10, 50],
    [40, 20],
    [20, 20],
    [30, 10],
  ];
  let counts,
    kept,
    mistaken = false;
  const column = (which) => normalised(weights.map((row) => row[which]));
  const commit = (many) => {
    const target = column(0),
      draft = column(1),
      owed = mistaken ? target : residual(target, draft);
    for (let k = 0; k < many; k++) {
      const token = drawAt(draft, uniform()),
        keep = uniform() < keepChance(target[token], draft[token]);
      counts[keep ? token : drawAt(owed, uniform())] += 1;
      kept += keep;
    }
    redraw();
  };
  const anew = () => {
    counts = WORDS.map(() => 0);
    kept = 0;
    redraw();
  };
  const mistake = html("input", {
    type: "checkbox",
    onchange: () => {
      mistaken = mistake.checked;
      anew();
    },
  });
  place.append(
    fields("Weights of the next word", ["target p", "draft q"], WORDS, weights, { max: 100, step: 1 }, () => anew()),
    html(
      "p",
      { className: "buttons" },
      button("Draw 1 token", () => commit(1)),
      button("Draw 100", () => commit(100)),
      button("Draw 10,000", () => commit(10000)),
      button("Start anew", () => anew()),
      html("label", {}, mistake, " make a mistake: after a refusal draw from p"),
    ),
  );
  const redraw = framed(place, (width) => {
    const target = column(0),
      draft = column(1),
      drawn = sum(counts),
      shares = counts.map((count) => count / Math.max(1, drawn));
    const high = 1.1 * Math.max(...target, ...draft, ...shares),
      names = WORDS.map((word, at) => [at, word]);
    const nodes = [
      panels(
        width,
        (each) => {
          const panel = new Panel({
            width: each,
            x: [-0.6, 3.6],
            y: [0, high],
            xlabel: "next word",
            ylabel: "probability",
            title: "The rule",
            xticks: names,
          });
          target.forEach((p, at) => {
            const q = draft[at],
              low = Math.min(p, q);
            panel.box([at - 0.35, at + 0.35], [0, low], { fill: green, opacity: 0.85 });
            panel.box([at - 0.35, at + 0.35], [low, Math.max(p, q)], { fill: p > q ? blue : red, opacity: 0.6 });
          });
          return panel;
        },
        (each) => {
          const panel = new Panel({
            width: each,
            x: [-0.6, 3.6],
            y: [0, high],
            xlabel: "committed word",
            ylabel: "share",
            title: `${drawn} tokens drawn`,
            xticks: names,
          });
          shares.forEach((share, at) => panel.box([at - 0.35, at + 0.35], [0, share], { fill: ink, opacity: 0.35 }));
          target.forEach((p, at) =>
            panel.line(
              [
                [at - 0.45, p],
                [at + 0.45, p],
              ],
              { color: blue, width: 3 },
            ),
          );
          return panel;
        },
      ),
      legend([
        [green, "drafted and kept"],
        [red, "drafted too often, refused"],
        [blue, "owed by the draft; at the right, the target's p"],
      ]),
    ];
    const off = sum(target.map((p, at) => Math.abs(p - shares[at]))) / 2;
    const soFar = drawn
      ? ` So far ${percent(kept / drawn)} of ${drawn} drafts were kept, and the committed words are ${off.toFixed(3)} away from the target.`
      : "";
    const sentence = `The overlap says that ${percent(overlap(target, draft))} of the drafts are kept.${soFar}`;
    return { nodes, sentence };
  });
  anew();
}

/** Part 2: the reader is the accept rule, a coin at a time, and picks the token after the block. */
function roundPart(place, uniform) {
  const lines = html("ol", { className: "round" }),
    ask = html("div", { className: "ask" });
  const told = html("p", { className: "said", role: "status" });
  place.append(lines, ask, told);
  let block;
  const distribution = () => normalised(WORDS.map(() => -Math.log(1 - uniform())));
  const begin = () => {
    const drafts = [0, 1, 2].map(distribution);
    // Targets that resemble the drafts, so that some are kept.
    const targets = [
      ...drafts.map((draft) => normalised(draft.map((q) => q * (0.3 + 1.4 * uniform())))),
      distribution(),
    ];
    const tokens = drafts.map((draft) => drawAt(draft, uniform()));
    block = { drafts, targets, tokens, coins: tokens.map(uniform), last: uniform(), at: 0, wrong: 0 };
    block.verdict = accept(targets, drafts, tokens, block.coins, block.last);
    lines.replaceChildren();
    told.textContent = "";
    next();
  };
  const next = () => (block.at < block.tokens.length ? askCoin() : askLast(true));
  const options = (question, answers, right, done) => {
    ask.replaceChildren(
      html("p", { textContent: question }),
      html(
        "p",
        { className: "buttons" },
        ...answers.map((words, at) =>
          button(words, () => {
            if (at !== right) block.wrong += 1;
            done(at === right ? "Right: " : "Not so: ");
          }),
        ),
      ),
    );
    if (lines.children.length) ask.querySelector("button").focus();
  };
  const record = (words, said) => {
    lines.append(html("li", { textContent: words }));
    told.textContent = said;
  };
  const askCoin = () => {
    const { at, tokens, coins } = block,
      token = tokens[at],
      p = block.targets[at][token],
      q = block.drafts[at][token],
      chance = keepChance(p, q);
    const keep = at < block.verdict.accepted;
    options(
      `Draft ${at + 1} is “${WORDS[token]}”, with q = ${q.toFixed(2)} and p = ${p.toFixed(2)}. The coin shows ${coins[at].toFixed(2)}.`,
      ["Keep it", "Refuse it"],
      keep ? 0 : 1,
      (grade) => {
        record(
          `“${WORDS[token]}” ${keep ? "kept" : "refused"}`,
          `${grade}it is kept with chance min(1, p / q) = ${chance.toFixed(2)}, and the coin shows ${coins[at].toFixed(2)}.`,
        );
        block.at += 1;
        keep ? next() : askLast(false);
      },
    );
  };
  const askLast = (whole) => {
    const at = block.verdict.accepted,
      from = whole ? block.targets[at] : residual(block.targets[at], block.drafts[at]);
    const shares = from.map((chance, token) => `${WORDS[token]} ${chance.toFixed(2)}`).join(", ");
    options(
      `${whole ? "All are kept, so a bonus is drawn from p" : "The replacement is drawn from what is owed"}: ${shares}. Counted from the left, ` +
        `the number ${block.last.toFixed(2)} falls on`,
      WORDS,
      block.verdict.next,
      (grade) => {
        record(
          `“${WORDS[block.verdict.next]}” added by the target`,
          `${grade}it falls on “${WORDS[block.verdict.next]}”. The round commits ${at + 1} ` +
            `token${at ? "s" : ""}; you made ${block.wrong || "no"} mistake${block.wrong === 1 ? "" : "s"}.`,
        );
        ask.replaceChildren(html("p", { className: "buttons" }, button("Another block", begin)));
        ask.querySelector("button").focus();
      },
    );
  };
  begin();
}

const SIZES = Array.from({ length: 13 }, (_, k) => k + 3);
const MACHINES = {
  smooth: (batch) => 100 / Math.sqrt(1 + (batch / 10) ** 2),
  "idle: memory is the limit": (batch) => 100 - batch / 3,
  "tiles of 4 tokens": (batch) => 100 / Math.sqrt(1 + ((4 * Math.ceil(batch / 4)) / 10) ** 2),
};

/** Part 3: Algorithm 1 on three requests and a cost table that can be edited. */
function schedulePart(place) {
  const confidences = [
    [0.95, 0.9, 0.8, 0.7],
    [0.8, 0.6, 0.5, 0.4],
    [0.99, 0.97, 0.5, 0.9],
  ];
  const requests = confidences.map((_, r) => `request ${r + 1}`);
  const speeds = SIZES.map((size) => {
    const field = html("input", { type: "number", min: 1, max: 999, step: 0.1, onchange: () => redraw() });
    return { size, field, node: html("label", {}, html("span", { textContent: `${size}:` }), field) };
  });
  const setMachine = (machine) =>
    speeds.forEach(({ size, field }) => {
      field.value = machine(size).toFixed(1);
    });
  const menu = html(
    "select",
    {
      onchange: () => {
        setMachine(MACHINES[menu.value]);
        redraw();
      },
    },
    ...Object.keys(MACHINES).map((name) => html("option", { textContent: name })),
  );
  const costs = html(
    "fieldset",
    { className: "costs" },
    html("legend", { textContent: "Steps per second, by tokens in the batch" }),
    ...speeds.map(({ node }) => node),
  );
  place.append(
    fields("Confidence of each draft", ["1", "2", "3", "4"], requests, confidences, { max: 1, step: 0.01 }, () =>
      redraw(),
    ),
    html("label", { className: "menu" }, html("span", { textContent: "machine" }), menu),
    costs,
  );
  setMachine(MACHINES.smooth);
  const redraw = framed(place, (width) => {
    const alive = confidences.map(survival),
      table = costTable(
        SIZES,
        speeds.map(({ field }) => Number(field.value) || 1),
      );
    const found = throughput(alive, table),
      lengths = schedule(alive, table),
      stop = stopOf(found),
      top = Math.max(...found.theta);
    const nodes = [
      panels(
        width,
        (each) => grid(each, alive, lengths, 240),
        (each) => thetaCurve(each, found, null),
      ),
      legend(THETA_LEGEND.slice(1)),
    ];
    const because =
      stop === found.order.length
        ? "every draft raised θ"
        : stop + 1 >= found.theta.length
          ? "the table ends"
          : `draft ${found.order[stop].position + 1} of request ${found.order[stop].request + 1} would take θ from ${found.theta[stop].toFixed(1)} to ${found.theta[stop + 1].toFixed(1)}`;
    const lost = 1 - found.theta[stop] / top;
    const sentence =
      `Admitted: ${lengths.join(", ")} drafts of the three requests. It stops because ${because}; ` +
        `${lost > 1e-9 ? `the highest θ is ${(100 * lost).toFixed(1)} % above, behind a fall that the search may not cross` : "no θ is higher"}.`;
    return { nodes, sentence };
  });
  redraw();
}

const uniform = uniforms(7);
rulePart(document.getElementById("play-rule"), uniform);
roundPart(document.getElementById("play-round"), uniform);
schedulePart(document.getElementById("play-schedule"));

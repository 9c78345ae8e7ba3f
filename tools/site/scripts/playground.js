// The playground: the reader looks for the keep chances that leave the target's distribution. No Python takes part.

import { bars, button, calm, html } from "./elements.js";
import { committed, distance, drawAt, keepChances, kept, normalised, residual, sum } from "./rules.js";

const WORDS = ["the", "a", "my", "its"];
const PAUSE = 1200; // milliseconds between the lines of a slow draw
const percent = (share) => `${(100 * share).toFixed(0)} %`;

/** A number field or a slider that writes into `values[place]`. */
function input(type, label, values, place, max, step, changed) {
  const field = html("input", { type, min: 0, max, step, value: values[place], ariaLabel: label });
  const take = () => {
    values[place] = Math.min(max, Math.max(0, Number(field.value) || 0));
    if (type === "number") field.value = values[place];
    changed();
  };
  field[type === "range" ? "oninput" : "onchange"] = take;
  return field;
}

/** Put the toy into a page: weights, keep chances, what comes of them, one draw told slowly. */
export function ruleToy(place) {
  const weights = { "target p": [10, 40, 20, 30], "draft q": [50, 20, 20, 10] };
  const chances = WORDS.map(() => 1);
  let timer = 0;

  const sliders = WORDS.map((word, k) => input("range", `keep chance of ${word}`, chances, k, 1, 0.01, () => draw()));
  const shown = WORDS.map(() => html("span", {}));
  const numbers = Object.entries(weights).map(([name, values]) =>
    WORDS.map((word, k) => input("number", `${word}, ${name}`, values, k, 100, 1, () => draw())),
  );
  const cells = (tag, ...parts) => html("tr", {}, ...parts.map((part) => html(tag, {}, part)));
  const table = html("table", {}, cells("th", "word", ...Object.keys(weights), "you keep it with chance"));
  WORDS.forEach((word, k) => {
    table.append(cells("td", word, numbers[0][k], numbers[1][k], html("span", { className: "keys" }, sliders[k], shown[k])));
  });
  const mistake = html("input", { type: "checkbox", onchange: () => draw() });
  const says = html("p", { role: "status" });
  const picture = html("div", {});
  const story = html("ol", { ariaLive: "polite" });
  const slowly = button("Draw one word, slowly", () => tell());
  const show = button("Show the rule", () => {
    Object.assign(chances, keepChances(...both()));
    sliders.forEach((slider, k) => (slider.value = chances[k]));
    draw();
  });
  const keys = html("p", { className: "keys" }, slowly, show, html("label", {}, mistake, " after a refusal draw from p, a mistake"));
  place.append(table, keys, says, picture, story);

  const both = () => Object.values(weights).map(normalised);
  const owedBy = (target, draft) => (mistake.checked ? target : residual(target, draft));

  function draw() {
    clearTimeout(timer);
    story.replaceChildren();
    chances.forEach((chance, k) => (shown[k].textContent = chance.toFixed(2)));
    const empty = Object.keys(weights).find((name) => !sum(weights[name]));
    slowly.disabled = show.disabled = Boolean(empty);
    if (empty) {
      picture.replaceChildren();
      says.textContent = `All weights of the ${empty} are 0. Give a word a weight: some word must come next.`;
      return;
    }
    const [target, draft] = both();
    const owed = owedBy(target, draft);
    const found = committed(draft, chances, owed);
    const [off, mine, most] = [distance(target, found), kept(draft, chances), kept(draft, keepChances(target, draft))];
    const line = (probs, paint, marks) => probs.map((p, k) => [WORDS[k], p, p.toFixed(2), paint, marks?.[k]]);
    const exact = off < 0.005;
    picture.replaceChildren(
      html("p", { textContent: `After a refusal the word is drawn from ${mistake.checked ? "p" : "what is owed"}` }),
      bars(line(owed, "added")),
      html("p", { textContent: "So these words are committed; a line is the target's p" }),
      bars(line(found, exact ? "kept" : "refused", target)),
    );
    let verdict = `Your words are ${off.toFixed(2)} away from the target.`;
    if (exact) verdict = "Your words have the target's distribution.";
    if (exact && most - mine > 0.005) verdict += ` But ${percent(most)} could be kept.`;
    if (exact && most - mine <= 0.005) verdict += " No rule keeps more. Compare your chances with p / q.";
    says.textContent = `You keep ${percent(mine)} of the drafts. ${verdict}`;
  }

  /** One draw, a line at a time. */
  function tell() {
    clearTimeout(timer);
    story.replaceChildren();
    const [target, draft] = both();
    const offered = drawAt(draft, Math.random());
    const coin = Math.random();
    const isKept = coin < chances[offered];
    const lines = [
      `The drafter draws “${WORDS[offered]}” from q.`,
      `You keep it with chance ${chances[offered].toFixed(2)}. The coin, a number from 0 to 1, shows ${coin.toFixed(2)}.`,
      isKept ? `The coin is below: “${WORDS[offered]}” is committed.` : `The coin is not below: “${WORDS[offered]}” is refused.`,
    ];
    if (!isKept) lines.push(`The target draws “${WORDS[drawAt(owedBy(target, draft), Math.random())]}” in its place.`);
    const next = () => {
      story.append(html("li", { textContent: lines.shift() }));
      if (lines.length) calm() ? next() : (timer = setTimeout(next, PAUSE));
    };
    next();
  }

  draw();
}

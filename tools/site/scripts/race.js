// The race: the target alone and with a drafter, as they were recorded, slowed down so that an eye can follow.

import { button, calm, html } from "./elements.js";

const SECONDS = 9; // that plain decoding takes on the page

/** When each token of an answer is there, in milliseconds: [text, when, kind]. */
export function plainTimes({ tokens, plain_ms }) {
  return tokens.map((text, k) => [text, k * plain_ms, "own"]);
}
export function draftedTimes({ tokens }, { rounds, round_ms }) {
  const times = [[tokens[0], 0, "own"]];
  rounds.forEach(([kept, committed], number) => {
    for (let k = 0; k < committed; k++) times.push([tokens[times.length], (number + 1) * round_ms, k < kept ? "guessed" : "own"]);
  });
  return times;
}

const menu = (label, names, onchange) => {
  const select = html("select", { onchange }, ...Object.entries(names).map(([value, textContent]) => html("option", { value, textContent })));
  return [html("label", {}, `${label} `, select), select];
};

/** Put the races into a page: menus, a button, two lanes and the sentence of how it ended. */
export function race(place, { races, device, domains, drafters }) {
  let timer = 0;
  const lanes = [0, 1].map(() => html("p", { className: "lane" }));
  const names = [html("h2", {}), html("h2", {})];
  const ended = html("p", { className: "ended" });
  const play = button("", () => start());
  const [domain, byDomain] = menu("Text:", domains, () => start());
  const [drafter, byDrafter] = menu("Drafter:", drafters, () => start());
  place.append(html("div", { className: "buttons" }, domain, drafter, play), names[0], lanes[0], names[1], lanes[1], ended);

  function start() {
    clearInterval(timer);
    const run = races[byDomain.value], drafted = run.drafters[byDrafter.value];
    const lists = [plainTimes(run), draftedTimes(run, drafted)];
    const ends = lists.map((list) => list.at(-1)[1]);
    const slow = (1000 * SECONDS) / ends[0], begun = performance.now();
    const guessed = drafters[byDrafter.value];
    names[0].textContent = "The large model alone";
    names[1].textContent = `The same model, and ${guessed} guesses ahead (green: a guess that it kept)`;
    lanes.forEach((lane) => lane.replaceChildren());
    ended.textContent = "";
    play.textContent = "↻ Again";
    const at = [0, 0];
    const tick = () => {
      const now = calm() ? Infinity : (performance.now() - begun) / slow;
      lists.forEach((list, lane) => {
        for (; at[lane] < list.length && list[at[lane]][1] <= now; at[lane]++)
          lanes[lane].append(html("span", { className: list[at[lane]][2], textContent: list[at[lane]][0] }));
      });
      if (now < Math.max(...ends)) return;
      clearInterval(timer);
      const gain = ends[0] / ends[1];
      ended.textContent = `The same text, token for token, ${gain >= 1 ? `${gain.toFixed(1)} times as fast` : `in ${(1 / gain).toFixed(1)} times the time`}. Recorded on ${device} with this course's tiny models, shown ${slow.toFixed(0)} times slower.`;
    };
    timer = setInterval(tick, 30);
    tick();
  }
  start();
}

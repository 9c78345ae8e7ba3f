// A bet: choices, and the verdict once there is an answer. The same module serves a notebook by anywidget, and a plain page.

import { button, html } from "./elements.js";

const STORE = "dspark-bets"; // {name: [choice, won, belief]} of a reader without a kernel

/** Whether a choice wins: the same option, or a number near enough. */
const wins = ({ range, within, answer }, choice) =>
  range ? Math.abs(choice - answer) <= within * Math.abs(answer) : choice === answer;

/** What a choice takes for granted: {belief, betrays}. */
const granted = ({ range, low, high, options, answer }, choice) =>
  range ? (choice < answer ? low : high) : options.find(({ text }) => text === choice);

/** Draw a bet into an element: choices before there is one, then the choice, with an answer the verdict. */
function draw(place, scene, chosen, choose) {
  const { question, options, range, unit, answer, told, why } = scene;
  const box = html("div", { className: "bet" }, html("p", { className: "asked", textContent: question }));
  box.ariaLive = "polite";
  place.replaceChildren(box);
  if (chosen === null || chosen === undefined) {
    if (range) {
      const [min, max, step] = range;
      const shown = html("output", {});
      const slider = html("input", { type: "range", min, max, step, value: (min + max) / 2 });
      slider.ariaLabel = question;
      slider.oninput = () => (shown.textContent = ` ${slider.value} ${unit} `);
      slider.oninput();
      const take = button("That is my bet", () => choose(Number(slider.value)));
      box.append(html("p", {}, slider, shown, take));
    } else
      for (const { text } of options) {
        const group = `${scene.name}${answer === undefined ? "" : ", settled"}`; // a place has its own
        const pick = html("input", { type: "radio", name: group, onchange: () => choose(text) });
        box.append(html("label", {}, pick, ` ${text}`));
      }
    return;
  }
  const said = range ? `${chosen} ${unit}` : chosen;
  if (answer === undefined) {
    box.append(html("p", { textContent: `You bet on: ${said}. Run on: the answer appears further down.` }));
    return;
  }
  const won = wins(scene, chosen);
  const found = range ? `${Number(answer.toPrecision(3))} ${unit}` : answer;
  const verdict = won ? `You bet on ${said}, and you win` : `You bet on ${said}; it is ${found}`;
  box.append(html("p", { className: won ? "won" : "lost", textContent: verdict + (told ? `: ${told}.` : ".") }));
  const { belief } = won ? {} : granted(scene, chosen);
  box.append(html("p", { textContent: [belief, why].filter(Boolean).join(" ") }));
}

/** The bets of a reader without a kernel. */
export const kept = () => JSON.parse(localStorage.getItem(STORE) ?? "{}");

/** Put a bet into a page without a kernel: two places of one name share a choice, and the one with the answer settles it. */
export function mount(place, scene) {
  const keep = (entry) => {
    localStorage.setItem(STORE, JSON.stringify({ ...kept(), [scene.name]: entry }));
    dispatchEvent(new Event(STORE));
  };
  const show = () => {
    const [choice, won] = kept()[scene.name] ?? [];
    if (choice !== undefined && won === null && scene.answer !== undefined) {
      const right = wins(scene, choice);
      return keep([choice, right, right ? null : (granted(scene, choice).betrays ?? null)]);
    }
    draw(place, scene, choice, (taken) => keep([taken, null, null]));
  };
  addEventListener(STORE, show);
  show();
}

/** Hide what a cell has measured until the reader has made a bet. */
export function hide(cell, name) {
  const shown = [...cell.querySelectorAll(".cell_output > *")].filter((part) => !part.querySelector("[data-bet]"));
  const show = () => shown.forEach((part) => (part.hidden = !(name in kept())));
  addEventListener(STORE, show);
  show();
}

/** Draw the score of a reader without a kernel: a row a lesson. */
export function score(place, { lessons, beliefs }) {
  const show = () => {
    const bets = kept(), all = Object.values(bets).filter(([, won]) => won !== null), lost = {};
    for (const [, won, belief] of all) if (!won && belief) lost[belief] = (lost[belief] ?? 0) + 1;
    const [most, times] = Object.entries(lost).sort((a, b) => b[1] - a[1])[0] ?? [];
    let said = all.length ? `Your bets: ${all.filter(([, won]) => won).length} of ${all.length} won` : "No bet is settled yet";
    if (times > 1) said += `; ${beliefs[most]} (${times} times)`;
    const mark = (name) => ({ true: "■", false: "□" })[bets[name]?.[1]] ?? "·";
    const rows = Object.entries(lessons).map(([lesson, names]) => `${lesson} ${names.map(mark).join(" ")}`);
    place.replaceChildren(html("pre", { className: "bets", textContent: [`${said}.`, ...rows, "■ won  □ lost  · open"].join("\n") }));
  };
  addEventListener(STORE, show);
  show();
}

export default {
  render({ model, el }) {
    const show = () =>
      draw(el, model.get("scene"), model.get("chosen"), (choice) => {
        model.set("chosen", choice);
        model.save_changes();
      });
    model.on("change:chosen", show);
    show();
  },
};

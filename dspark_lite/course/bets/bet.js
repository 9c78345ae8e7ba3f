// A bet: choices, and the verdict once there is an answer. A case: measurements, and suspects to accuse. The same module serves a
// notebook by anywidget, and a plain page.

import { button, html } from "./elements.js";

const STORE = "dspark-bets"; // {name: [choice, won, belief]} of a reader without a kernel; of a case [{taken, accused}, solved]

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

/** The suspects that no measurement taken speaks against. */
const left = (suspects, taken) => Object.keys(suspects).filter((name) => !taken.some((measured) => measured in suspects[name]));

/** What the measurements say of an accused suspect, in cases/records.py's words. */
function answerTo({ suspects, cause, why }, taken, name) {
  if (name !== cause) {
    const said = taken.filter((measured) => measured in suspects[name]).map((measured) => `${measured}: ${suspects[name][measured]}`);
    if (said.length) return `Not “${name}”. ${said.join(" ")}`;
    return `Not “${name}”, though nothing that you measured could tell. What could have: ${Object.keys(suspects[name]).join(", ")}.`;
  }
  const others = left(suspects, taken).filter((other) => other !== name).join("”, “");
  return `It is “${name}”, ${others ? `by luck: nothing that you measured speaks against “${others}”.` : "and your measurements leave no other."} ${why}`;
}

/** Draw a case into an element; `keep` takes what was measured and who was accused, and whether that closes it: solved or not. */
function investigate(place, scene, state, keep) {
  const { name, title, story, seen, measurements, suspects, cause, most } = scene;
  const { taken, accused } = state ?? { taken: [], accused: [] };
  const closed = accused.includes(cause);
  const line = (textContent, className = "") => html("p", { textContent, className });
  const pre = (lines) => html("pre", { textContent: lines.join("\n"), tabIndex: 0 });
  const box = html("div", { className: "bet case" }, line(`${name[0].toUpperCase()}${name.slice(1)}: ${title}`, "asked"), line(story), ...(seen ? [pre(seen)] : []));
  box.ariaLive = "polite";
  for (const [name, { does, result, tells }] of Object.entries(measurements))
    if (closed || taken.includes(name)) {
      box.append(line(taken.includes(name) ? name : `${name} (you did not measure it)`, "asked"));
      box.append(pre(result), ...(closed ? [line(tells)] : []));
    } else {
      box.append(button(`${name}: ${does}`, () => keep({ taken: [...taken, name], accused }, null)));
      box.lastChild.disabled = taken.length === most;
    }
  if (!closed) box.append(line(`Measurements left: ${most - taken.length}. Whom do you accuse?`, "asked"));
  for (const suspect of Object.keys(suspects)) {
    const accuse = () => {
      const first = !accused.length && left(suspects, taken).length === 1;
      keep({ taken, accused: [...accused, suspect] }, suspect === cause ? first : null);
    };
    if (accused.includes(suspect)) box.append(line(answerTo(scene, taken, suspect), suspect === cause ? "won" : "lost"));
    else if (!closed) box.append(button(suspect, accuse));
  }
  place.replaceChildren(box);
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
    if (scene.suspects) return investigate(place, scene, choice, (state, solved) => keep([state, solved, null]));
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
export function score(place, { lessons, beliefs, cases }) {
  const show = () => {
    const bets = kept(), lost = {};
    const all = Object.values(lessons).flat().map((name) => bets[name] ?? [null, null]).filter(([, won]) => won !== null);
    for (const [, won, belief] of all) if (!won && belief) lost[belief] = (lost[belief] ?? 0) + 1;
    const [most, times] = Object.entries(lost).sort((a, b) => b[1] - a[1])[0] ?? [];
    let said = all.length ? `Your bets: ${all.filter(([, won]) => won).length} of ${all.length} won` : "No bet is settled yet";
    if (times > 1) said += `; ${beliefs[most]} (${times} times)`;
    const mark = (name) => ({ true: "■", false: "□" })[bets[name]?.[1]] ?? "·";
    said += `. Your cases: ${cases.filter((lesson) => mark(`case ${lesson}`) === "■").length} of ${cases.length} solved.`;
    const rows = [...new Set([...Object.keys(lessons), ...cases])].sort().map((lesson) =>
      [lesson, ...(lessons[lesson] ?? []).map(mark), ...(cases.includes(lesson) ? [` case ${mark(`case ${lesson}`)}`] : [])].join(" "));
    place.replaceChildren(html("pre", { className: "bets", textContent: [said, ...rows, "■ won or solved  □ not  · open"].join("\n") }));
  };
  addEventListener(STORE, show);
  show();
}

export default {
  render({ model, el }) {
    const show = () => {
      const paint = model.get("scene").suspects ? investigate : draw;
      paint(el, model.get("scene"), model.get("chosen"), (choice) => {
        model.set("chosen", choice);
        model.save_changes();
      });
    };
    model.on("change:chosen", show);
    show();
  },
};

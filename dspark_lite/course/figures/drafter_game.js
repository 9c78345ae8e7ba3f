// You are the drafter: the reader guesses the next words, and an author of long ago is the target.

import { bars, button, html } from "./elements.js";

/** What counts of a word: its letters. */
const letters = (word) => word.toLowerCase().replace(/[^a-z]/g, "");

/** How many drafts are kept: those before the first that is not the author's word. */
export function accepted(drafts, wanted) {
  const wrong = drafts.findIndex((draft, k) => letters(draft) !== letters(wanted[k]));
  return wrong < 0 ? drafts.length : wrong;
}

/** Words a round, over as many whole rounds as it takes to reach so many words. */
export function tau(ends, words) {
  const rounds = 1 + ends.findIndex((end) => end >= words);
  return ends[rounds - 1] / rounds;
}

/** Put the game into an element: a scene of drafter_game.py. */
export function mount(place, { source, given, words, gamma, rounds, others }) {
  const text = html("p", { className: "text" });
  const field = html("input", { type: "text", autocomplete: "off", spellcheck: false });
  const send = html("button", { type: "submit", textContent: "Verify" });
  const ask = html("label", {}, `Your draft, up to ${gamma} words `, field);
  const form = html("form", {}, ask, send, button("Start anew", () => start()));
  const says = html("p", { role: "status" });
  const reached = html("div", {});
  const root = html("div", { className: "game drafter" }, text, form, says, reached);
  let ends;

  const word = (textContent, className = "") => html("span", { className, textContent });
  const add = (...spans) => spans.forEach((span) => text.append(span, span.textContent.endsWith("—") ? "" : " "));

  function start() {
    ends = [];
    text.replaceChildren();
    add(...given.map((one) => word(one)));
    says.textContent = `The author is the target: ${source}. Guess how it goes on; capitals and commas do not matter.`;
    reached.replaceChildren();
    send.disabled = field.disabled = false;
  }

  form.onsubmit = (event) => {
    event.preventDefault();
    const at = ends.at(-1) ?? 0;
    const typed = field.value.split(/\s+/).filter(letters);
    if (!typed.length) {
      says.textContent = "Type a word: a drafter that offers nothing wins nothing.";
      return;
    }
    const drafts = typed.slice(0, Math.min(gamma, words.length - at - 1));
    const kept = accepted(drafts, words.slice(at));
    text.querySelectorAll(".refused, .void").forEach((one) => one.remove());
    add(...words.slice(at, at + kept).map((one) => word(one, "kept")));
    add(...drafts.slice(kept).map((one, k) => word(one, k ? "void" : "refused")));
    add(word(words[at + kept], "added"));
    ends.push(at + kept + 1);
    field.value = "";
    tell(drafts.length, kept, words[at + kept]);
  };

  function tell(offered, kept, own) {
    const done = ends.length === rounds || ends.at(-1) === words.length;
    const mine = tau(ends, ends.at(-1));
    says.textContent =
      `Round ${ends.length} of ${rounds}: ${kept} of ${offered} kept, and the author adds “${own}”. ` +
      (kept < offered ? "After the first difference all is void. " : "") +
      (done ? `The end: τ = ${mine.toFixed(2)}. The text is the author's, whoever drafts; only the rounds are yours.` : "");
    const all = [["you", mine, "added"], ...Object.entries(others).map(([name, list]) => [name, tau(list, ends.at(-1)), "soft"])];
    reached.replaceChildren(
      html("p", { textContent: "Words a round (τ), over the same words" }),
      bars(all.map(([name, value, paint]) => [name, value / (gamma + 1), value.toFixed(2), paint])),
    );
    send.disabled = field.disabled = done;
  }

  root.dataset.lmSuppressShortcuts = "true"; // JupyterLab leaves the keys to us
  root.onkeydown = (event) => event.stopPropagation();
  place.append(root);
  start();
}

export default { render: ({ model, el }) => mount(el, model.get("scene")) };

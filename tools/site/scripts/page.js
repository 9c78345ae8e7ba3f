// What every page loads: players come to life where the page has one, and a figure is enlarged by a tap.

import * as bets from "./bet.js";
import { mount as drafterGame } from "./drafter_game.js";
import { button, html } from "./elements.js";
import { frames } from "./frames.js";
import { mount } from "./living_round.js";
import { ruleToy } from "./playground.js";
import { race } from "./race.js";
import { mount as schedulerGame } from "./scheduler_game.js";

const DRAWINGS = {
  living_round: mount,
  bet: bets.mount,
  case: bets.mount,
  score: bets.score,
  drafter_game: drafterGame,
  scheduler_game: schedulerGame,
  frames,
  race,
};

for (const place of document.querySelectorAll(".course-own")) {
  const { drawing, numbers } = JSON.parse(place.querySelector("script").textContent);
  place.hidden = false;
  DRAWINGS[drawing](place, numbers);
}

const rule = document.querySelector("#play-rule");
if (rule) ruleToy(rule);

// A figure is as wide as the page; a tap shows it in its own size, to move about in.
for (const figure of document.querySelectorAll(".cell_output > img, .course-frames img")) {
  const copy = figure.cloneNode();
  const dialog = html("dialog", { className: "large" });
  const open = html("button", { type: "button", className: "enlarge", ariaLabel: `Enlarge: ${figure.alt}` });
  open.onclick = () => {
    copy.src = figure.src;
    dialog.ariaLabel = figure.alt;
    dialog.showModal();
  };
  figure.replaceWith(open);
  open.append(figure);
  dialog.append(button("Close", () => dialog.close()), copy);
  open.after(dialog);
}

// What a cell measures is shown to whoever has bet on it.
let asked = null;
for (const cell of document.querySelectorAll(".cell")) {
  asked = cell.querySelector("[data-bet]")?.dataset.bet ?? asked;
  if (cell.classList.contains("tag_answer")) bets.hide(cell, asked);
}

// What a link cites is shown while the pointer or the keyboard is on it, until Escape.
const root = document.documentElement;
addEventListener("keydown", ({ key }) => key === "Escape" && root.classList.add("no-citations"));
for (const comes of ["pointerover", "focusin"]) addEventListener(comes, () => root.classList.remove("no-citations"));

// From disk a page reads no other page.
if (location.protocol === "file:") {
  DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
  const told = (textContent) => html("p", { className: "from-disk", textContent });
  document.querySelector("#search-results")?.before(told("These pages were opened from disk, where a browser reads no other page: results come without excerpts."));
  for (const link of document.querySelectorAll("a[download]"))
    link.parentElement.after(told(`These pages were opened from disk: the notebook lies beside this page, as ${link.getAttribute("href")}.`));
}

// What every page loads: widgets come to life where the page has one, and the keyboard reaches what scrolls sideways.

import * as bets from "./bet.js";
import { mount } from "./living_round.js";
import { follow } from "./plot.js";
import { race } from "./race.js";
import { DRAWINGS } from "./widgets.js";

for (const place of document.querySelectorAll(".course-widget, .course-own")) {
  const { drawing, numbers, controls } = JSON.parse(place.querySelector("script").textContent);
  place.hidden = false;
  if (drawing === "living_round") mount(place, numbers);
  else if (drawing === "bet" || drawing === "case") bets.mount(place, numbers);
  else if (drawing === "score") bets.score(place, numbers);
  else if (drawing === "race") race(place, numbers);
  else follow(place, controls, (values, width) => DRAWINGS[drawing](numbers, values, width));
}

// A figure is as wide as the page; a tap shows it in its own size, to move about in.
for (const figure of document.querySelectorAll(".cell_output > img")) {
  const dialog = document.createElement("dialog");
  dialog.className = "large";
  dialog.ariaLabel = figure.alt;
  const close = document.createElement("button");
  close.textContent = "Close";
  close.onclick = () => dialog.close();
  const open = document.createElement("button");
  open.className = "enlarge";
  open.ariaLabel = `Enlarge: ${figure.alt}`;
  open.onclick = () => dialog.showModal();
  figure.replaceWith(open);
  open.append(figure);
  dialog.append(close, figure.cloneNode());
  open.after(dialog);
}

// What a cell measures is shown to whoever has bet on it.
let asked = null;
for (const cell of document.querySelectorAll(".cell")) {
  asked = cell.querySelector("[data-bet]")?.dataset.bet ?? asked;
  if (cell.classList.contains("tag_answer")) bets.hide(cell, asked);
}

// What every page loads: widgets come to life where the page has one, and the keyboard reaches what scrolls sideways.

import * as bets from "./bet.js";
import { mount } from "./living_round.js";
import { follow } from "./plot.js";
import { DRAWINGS } from "./widgets.js";

for (const place of document.querySelectorAll(".course-widget, .course-own")) {
  const { drawing, numbers, controls } = JSON.parse(place.querySelector("script").textContent);
  place.hidden = false;
  if (drawing === "living_round") mount(place, numbers);
  else if (drawing === "bet") bets.mount(place, numbers);
  else if (drawing === "score") bets.score(place, numbers);
  else follow(place, controls, (values, width) => DRAWINGS[drawing](numbers, values, width));
}

// The same width as in course.css: only there do figures scroll.
if (matchMedia("(max-width: 560px)").matches)
  for (const output of document.querySelectorAll(".cell_output:has(> img)")) output.tabIndex = 0;

// What a cell measures is shown to whoever has bet on it.
let asked = null;
for (const cell of document.querySelectorAll(".cell")) {
  asked = cell.querySelector("[data-bet]")?.dataset.bet ?? asked;
  if (cell.classList.contains("tag_answer")) bets.hide(cell, asked);
}

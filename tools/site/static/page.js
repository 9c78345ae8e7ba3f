// What every page loads: widgets come to life where the page has one.

import { follow } from "./plot.js";
import { DRAWINGS } from "./widgets.js";

for (const place of document.querySelectorAll(".course-widget")) {
  const { drawing, numbers, controls } = JSON.parse(place.querySelector("script").textContent);
  place.hidden = false;
  follow(place, controls, (values, width) => DRAWINGS[drawing](numbers, values, width));
}

// A figure that was drawn once for each position of a slider: the page shows the one where the slider stands.

import { html } from "./elements.js";

/** Put the frames into a page: a slider, what is set, and the picture. */
export function frames(place, { label, begin, frames, controls }) {
  const picture = html("img", {});
  const said = html("output", {});
  const slider = html("input", { type: "range", min: 0, max: frames.length - 1, ariaLabel: label });
  slider.value = begin;
  slider.oninput = () => {
    const [words, drawn] = frames[slider.value];
    said.textContent = picture.alt = slider.ariaValueText = words;
    picture.src = `data:image/png;base64,${drawn}`;
  };
  place.append(html("label", {}, slider, said), picture);
  if (controls.includes(", ")) place.append(html("p", { className: "note", textContent: `In a running notebook these move it: ${controls}` }));
  slider.oninput();
}

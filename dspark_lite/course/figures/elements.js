// What every player of the course draws with: elements, buttons, and bars. A page and a notebook have the same.

const SVG = "http://www.w3.org/2000/svg";

/** An element of SVG with attributes and children. */
export function svg(name, attributes, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) if (value !== undefined) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/** An element of HTML with properties, which are those of the DOM, and children. */
export function html(name, properties, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

export const button = (words, onclick) => html("button", { type: "button", textContent: words, onclick });

/**
 * Horizontal bars: [name, share of the width, words behind it, paint, mark] a row. A paint is a class of elements.css;
 * a mark is a share, too, and stands for what the bar should reach.
 */
export function bars(rows) {
  const drawn = rows.map(([name, share, words, paint, mark]) => {
    const track = html("span", { className: "track", ariaHidden: "true" }, html("span", { className: `fill ${paint}` }));
    track.firstChild.style.width = `${100 * Math.min(1, share)}%`;
    if (mark !== undefined) {
      track.append(html("span", { className: "goal" }));
      track.lastChild.style.left = `${100 * Math.min(1, mark)}%`;
    }
    return [html("span", { textContent: name }), track, html("span", { textContent: words })];
  });
  return html("div", { className: "bars" }, ...drawn.flat());
}

/** What a page may not do, because the reader has asked for less motion. */
export const calm = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

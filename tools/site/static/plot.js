// Charts as SVG, drawn at the width that the page has for them; ink and paper take the page's colours, dark or light.

import { html, svg } from "./living_round.js";

export const COLOURS = {
  green: "#009E73",
  red: "#D55E00",
  blue: "#0072B2",
  orange: "#E69F00",
  sky: "#56B4E9",
  purple: "#CC79A7",
  grey: "#8A8A8A",
  ink: "currentColor",
};
const MARKS = {
  o: "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0",
  s: "M-4 -4h8v8h-8z",
  "^": "M0 -5L5 4H-5z",
  v: "M0 5L5 -4H-5z",
  D: "M0 -5L5 0L0 5L-5 0z",
  X: "M-4 -4L4 4M4 -4L-4 4",
  P: "M0 -5V5M-5 0H5",
  "<": "M-5 0L4 5V-5z",
  "*": "M0 -6L2 -2L6 -2L3 1L4 6L0 3L-4 6L-3 1L-6 -2L-2 -2z",
};

export { html };

/** At most `most` round numbers between low and high. */
export function ticks(low, high, most = 6) {
  const step = [1, 2, 5, 10]
    .map((one) => one * 10 ** Math.floor(Math.log10((high - low) / most)))
    .find((one) => (high - low) / one <= most);
  const first = Math.ceil(low / step - 1e-9);
  return Array.from({ length: Math.floor(high / step + 1e-9) - first + 1 }, (_, k) =>
    Number(((first + k) * step).toPrecision(12)),
  );
}

/** A panel with axes, in an SVG of its own. x and y are [low, high]; `xticks` are numbers or [number, text]. */
export class Panel {
  constructor({ width, height = 260, x, y, xlabel, ylabel, title, xticks = ticks(...x), yticks = ticks(...y, 5) }) {
    Object.assign(this, { width, height, x, y, left: 62, right: width - 10, top: 30, bottom: height - 44 });
    this.node = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
    for (const tick of xticks) {
      const [at, text] = Array.isArray(tick) ? tick : [tick, String(tick)];
      this.text(this.atX(at), this.bottom + 16, text, { "text-anchor": "middle" });
    }
    for (const at of yticks) {
      this.add("line", {
        x1: this.left,
        x2: this.right,
        y1: this.atY(at),
        y2: this.atY(at),
        stroke: "currentColor",
        "stroke-opacity": 0.15,
      });
      this.text(this.left - 6, this.atY(at) + 4, String(at), { "text-anchor": "end" });
    }
    this.add("path", {
      d: `M${this.left} ${this.top}V${this.bottom}H${this.right}`,
      stroke: "currentColor",
      fill: "none",
    });
    this.text((this.left + this.right) / 2, this.bottom + 36, xlabel, { "text-anchor": "middle" });
    this.text(0, 0, ylabel, {
      "text-anchor": "middle",
      transform: `translate(14 ${(this.top + this.bottom) / 2}) rotate(-90)`,
    });
    this.text(this.left, 16, title, { "font-weight": "bold" });
  }

  atX(value) {
    return this.left + ((value - this.x[0]) / (this.x[1] - this.x[0])) * (this.right - this.left);
  }
  atY(value) {
    return this.bottom - ((value - this.y[0]) / (this.y[1] - this.y[0])) * (this.bottom - this.top);
  }

  add(name, attributes, ...children) {
    this.node.append(svg(name, attributes, ...children));
  }

  text(x, y, words, attributes = {}) {
    this.add("text", { x, y, fill: "currentColor", "font-size": 12, ...attributes }, words);
  }

  line(points, { color, width = 2, dash = "" }) {
    this.add("polyline", {
      points: points.map(([x, y]) => `${this.atX(x)},${this.atY(y)}`).join(" "),
      fill: "none",
      stroke: color,
      "stroke-width": width,
      "stroke-dasharray": dash,
    });
  }

  marks(points, { color, marker = "o", size = 1, hollow = false }) {
    for (const [x, y] of points) {
      const place = `translate(${this.atX(x)} ${this.atY(y)}) scale(${size})`;
      this.add("path", {
        d: MARKS[marker],
        transform: place,
        stroke: color,
        "stroke-width": 2 / size,
        fill: hollow ? "none" : color,
      });
    }
  }

  /** A rectangle from (x0, y0) to (x1, y1). */
  box([x0, x1], [y0, y1], { fill, stroke = "none", width = 1, opacity = 1 }) {
    const [left, right] = [this.atX(x0), this.atX(x1)],
      [top, bottom] = [this.atY(y1), this.atY(y0)];
    this.add("rect", {
      x: left,
      y: top,
      width: Math.max(0, right - left),
      height: Math.max(0, bottom - top),
      fill,
      stroke,
      "stroke-width": width,
      "fill-opacity": opacity,
    });
  }

  /** The area between two curves [x, low, high]. */
  area(points, { color, opacity = 0.7 }) {
    const up = points.map(([x, , high]) => `${this.atX(x)},${this.atY(high)}`);
    const back = points.map(([x, low]) => `${this.atX(x)},${this.atY(low)}`).reverse();
    this.add("polygon", { points: [...up, ...back].join(" "), fill: color, "fill-opacity": opacity });
  }
}

/** What colours and marks mean: entries [color, words], then a marker where it is one, and the opacity of an area that is pale. */
export function legend(entries) {
  const keys = entries.map(([color, words, marker, opacity = 1]) => {
    const key = svg("svg", { width: 16, height: 12, viewBox: "-8 -6 16 12", "aria-hidden": "true" });
    key.append(
      marker
        ? svg("path", { d: MARKS[marker], stroke: color, "stroke-width": 2, fill: color })
        : svg("rect", { x: -7, y: -4, width: 14, height: 8, fill: color, "fill-opacity": opacity }),
    );
    return html("span", { className: "key" }, key, ` ${words}`);
  });
  return html("p", { className: "legend" }, ...keys);
}

/** Panels side by side, or below one another where the page is narrow; `make(width)` of each returns a Panel. */
export function panels(width, ...makers) {
  const each = width < 560 ? width : Math.floor(width / makers.length) - 4;
  return html("div", { className: "panels" }, ...makers.map((make) => make(each).node));
}

/** Controls as a form: { name: { label, value, min, max, step } or { label, value, options: [[words, value]] } }. */
export class Form {
  constructor(controls, changed) {
    this.values = Object.fromEntries(Object.entries(controls).map(([name, { value }]) => [name, value]));
    this.node = html("form", { className: "controls", onsubmit: () => false });
    for (const [name, control] of Object.entries(controls)) this.node.append(this.control(name, control, changed));
  }

  control(name, { label, value, min, max, step, options }, changed) {
    const set = (found, said) => {
      this.values[name] = found;
      said.textContent = options ? "" : String(found);
      changed();
    };
    const said = html("output", { textContent: options ? "" : String(value) });
    if (options) {
      const menu = html(
        "select",
        { name, onchange: () => set(options[menu.selectedIndex][1], said) },
        ...options.map(([words, one]) => html("option", { textContent: words, selected: one === value })),
      );
      return html("label", {}, html("span", { textContent: label }), menu);
    }
    const slider = html("input", {
      name,
      type: "range",
      min,
      max,
      step,
      oninput: () => set(Number(slider.value), said),
    });
    slider.value = value;
    return html("label", {}, html("span", { textContent: label }), slider, said);
  }
}

/** A drawing that follows the page's width: `draw(width)` returns nodes and what they say in a sentence. Returns what draws it anew. */
export function framed(place, draw) {
  const picture = html("div", { className: "picture", role: "img" }),
    said = html("p", { className: "said", role: "status" });
  let drawnAt = 0;
  const redraw = () => {
    const { nodes, sentence } = draw(picture.clientWidth);
    picture.replaceChildren(...nodes);
    picture.ariaLabel = said.textContent = sentence;
  };
  place.append(picture, said);
  new ResizeObserver(() => {
    if (picture.clientWidth !== drawnAt) redraw();
    drawnAt = picture.clientWidth;
  }).observe(picture);
  return redraw;
}

/** A drawing that follows its controls, too: `draw(values, width)`. */
export function follow(place, controls, draw) {
  const form = new Form(controls, () => redraw());
  place.append(form.node);
  const redraw = framed(place, (width) => draw(form.values, width));
  redraw();
}

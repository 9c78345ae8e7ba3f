// The living round: plays a scene of round_scene.py. The same module serves Jupyter, Colab and VS Code by anywidget, and a plain page.

import { button, calm, html, svg } from "./elements.js";

const NARROW = 560; // pixels: below, the narrow drawing is shown

/** The node of a shape. What its changes move is in its style: see `dress`. */
function node({ kind, x, y, width, height, round, points, words, size, anchor, mono, thick, dash, tip }) {
  const common = { "stroke-width": thick, "stroke-dasharray": dash };
  if (kind === "token") {
    const letters = { x: x + width / 2, y: y + 18.5, "font-size": 12, "text-anchor": "middle", class: "mono" };
    return svg("g", { "stroke-width": 2 }, svg("rect", { x, y, width, height, rx: 5 }), svg("text", letters, words));
  }
  if (kind === "rect") return svg("rect", { x, y, width, height, rx: round, ...common });
  if (kind === "path")
    return svg("path", { d: `M${points.join("L")}`, fill: "none", "marker-end": tip && "url(#tip)", ...common });
  return svg("text", { x, y, "font-size": size, "text-anchor": anchor, class: mono ? "mono" : undefined }, words);
}

/** Give a node the look that its shape has at a step, in motion or at once. */
function dress(made, shape, step, moving) {
  const look = { opacity: 1, dx: 0, dy: 0, sx: 1, sy: 1, ms: 450, wait: 0, ease: "ease-in-out" };
  Object.assign(look, shape);
  for (const [since, change] of shape.at) if (since <= step) Object.assign(look, { ms: 450, wait: 0 }, change);
  const style = made.style;
  style.transition = moving ? `all ${look.ms}ms ${look.ease} ${look.wait}ms` : "none";
  style.opacity = look.opacity;
  style.transform = `translate(${look.dx}px, ${look.dy}px) scale(${look.sx}, ${look.sy})`;
  if (look.fill) style.fill = `var(--${look.fill})`;
  if (look.stroke) style.stroke = `var(--${look.stroke})`;
  if (shape.kind === "token") made.lastChild.style.fill = `var(--${look.fill === "ink" ? "paper" : "ink"})`;
  style.fontWeight = look.bold ? "bold" : "normal";
}

/** Put a player of a scene into an element; return a function that ends it. */
export function mount(place, { pages, rounds, telling, title }) {
  const steps = rounds.flatMap((round, r) => round.steps.map((step, within) => ({ ...step, r, within })));
  let at = telling, begun = false, timer = 0, drawn = "", nodes = [], shapes = [];

  const picture = html("div", { className: "stage" });
  picture.setAttribute("role", "img");
  const says = html("p", { className: "says" });
  const play = button("▶ Play", () => (timer ? stop() : start()));
  const back = button("‹ Step", () => go(at - 1));
  const on = button("Step ›", () => go(at + 1));
  back.ariaLabel = "one step back";
  on.ariaLabel = "one step on";
  const slider = html("input", { type: "range", min: 0, max: steps.length - 1, oninput: () => go(Number(slider.value)) });
  slider.ariaLabel = "step of the rounds";
  const where = html("span", { className: "where" });
  const root = html("div", { className: "living-round" }, picture, says);
  root.append(html("div", { className: "keys" }, play, back, on, slider, where));
  root.setAttribute("role", "group");
  root.ariaLabel = title;
  root.dataset.lmSuppressShortcuts = "true"; // JupyterLab leaves the keys to us

  function draw(moving) {
    const { r, within, say } = steps[at];
    const page = Number(picture.clientWidth < NARROW);
    if (drawn !== `${r} ${page}`) {
      const [width, height] = pages[page];
      const sheet = svg("svg", { viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
      sheet.innerHTML = `<defs><marker id="tip" viewBox="0 0 6 6" refX="5" refY="3" markerWidth="4" markerHeight="4" orient="auto"><path d="M0 0L6 3L0 6z"/></marker></defs>`;
      sheet.style.maxWidth = `${1.2 * width}px`;
      shapes = rounds[r].drawings[page];
      nodes = shapes.map(node);
      sheet.append(...nodes);
      picture.replaceChildren(sheet);
      if (moving) shapes.forEach((shape, k) => dress(nodes[k], shape, within - 1, false));
      sheet.getBoundingClientRect(); // the looks that the motion begins with
      drawn = `${r} ${page}`;
    }
    shapes.forEach((shape, k) => dress(nodes[k], shape, within, moving && !calm()));
    says.textContent = say;
    picture.ariaLabel = say;
    slider.value = at;
    slider.setAttribute("aria-valuetext", say);
    where.textContent = rounds.length > 1 ? `round ${r + 1} of ${rounds.length}` : "";
    [back.disabled, on.disabled] = [at === 0, at === steps.length - 1];
  }

  function show(next) {
    const one = next === at + 1;
    at = Math.max(0, Math.min(steps.length - 1, next));
    draw(one);
  }

  function go(next) {
    stop();
    begun = true;
    show(next);
  }

  function start() {
    if (!begun || at === steps.length - 1) show(0);
    begun = true;
    says.ariaLive = "off"; // while it runs, a voice would not keep up
    play.textContent = "❚❚ Pause";
    const wait = () => {
      timer = setTimeout(() => {
        show(at + 1);
        at === steps.length - 1 ? stop() : wait();
      }, steps[at].ms);
    };
    wait();
  }

  function stop() {
    clearTimeout(timer);
    timer = 0;
    says.ariaLive = "polite";
    play.textContent = "▶ Play";
  }

  root.onkeydown = (event) => {
    const move = { ArrowRight: 1, ArrowLeft: -1, Home: -at, End: steps.length }[event.key];
    if (move !== undefined) go(at + move);
    else if (event.key === " " && event.target.tagName !== "BUTTON") play.click();
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  picture.onclick = () => play.click();
  place.append(root);
  const watch = new ResizeObserver(() => draw(false));
  watch.observe(picture);
  stop();
  draw(false);
  return () => (stop(), watch.disconnect());
}

export default { render: ({ model, el }) => mount(el, model.get("scene")) };

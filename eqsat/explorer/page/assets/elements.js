// Makes elements and texts. Every text from a run goes into a text node or an attribute, never into markup.

const SVG = "http://www.w3.org/2000/svg";

function element(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

function shape(name, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

function filled(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

function button(label, title, act, attributes = {}) {
  return element("button", { type: "button", title, "aria-label": title, onclick: act, ...attributes }, label);
}

/** Calls `act` on a click, and on Enter or Space while the element has the focus. */
function pressable(made, label, act) {
  made.setAttribute("tabindex", "0");
  made.setAttribute("role", "button");
  made.setAttribute("aria-label", label);
  made.addEventListener("click", (event) => { event.stopPropagation(); act(event); });
  made.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    event.stopPropagation();
    act(event);
  });
  return made;
}

const UNITS = [[1, "s"], [1e-3, "ms"], [1e-6, "\u00b5s"], [1e-9, "ns"]];

/** A time in the unit that suits it, to three digits; "" where there is none. */
function duration(seconds, estimated = false) {
  if (seconds === null || seconds === undefined) return "";
  const size = Math.abs(seconds);
  const [scale, unit] = size === 0 ? UNITS[0] : UNITS.find(([one]) => size >= one * 0.9995) ?? UNITS.at(-1);
  const digits = Number((seconds / scale).toPrecision(3));
  return `${estimated ? "est. " : ""}${digits} ${unit}`;
}

const numbers = new Intl.NumberFormat("en");

function plural(count, noun) {
  return `${numbers.format(count)} ${noun}${count === 1 ? "" : noun.endsWith("s") ? "es" : "s"}`;
}

const ruler = document.createElement("canvas").getContext("2d");
const widths = new Map();

/** How wide a text is in a font, in pixels. */
function textWidth(text, font) {
  const key = font + text;
  if (!widths.has(key)) {
    ruler.font = font;
    widths.set(key, ruler.measureText(text).width);
  }
  return widths.get(key);
}

/** A text cut, with an ellipsis, to a width; names keep their end, which tells them apart. */
function cut(text, font, width, keepEnd = false) {
  if (textWidth(text, font) <= width) return text;
  let [low, high] = [0, text.length];
  const shown = (length) => (keepEnd ? `\u2026${text.slice(text.length - length)}` : `${text.slice(0, length)}\u2026`);
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (textWidth(shown(middle), font) <= width) low = middle;
    else high = middle - 1;
  }
  return shown(low);
}

/** A title at a size of its own, cut to a room; null where hardly a letter of it fits in. */
function enlargedTitle(text, size, { x, y, width, height }, keepEnd = false) {
  const shown = size * 1.2 > height ? "" : cut(text, `600 ${size}px system-ui, sans-serif`, width, keepEnd);
  if (shown.length < Math.min(text.length, 3)) return null;
  const made = shape("text", { class: "name", x, y: y + height / 2 + size * 0.36 }, shown);
  made.style.fontSize = `${size}px`;
  return made;
}

/** The colour of a change: seven that colour-blind people tell apart, with its number beside it. */
function hue(change) {
  return `hue${((change - 1) % 7) + 1}`;
}

function badge(change) {
  return element("span", { class: `badge ${hue(change)}` }, String(change));
}

/** A badge in a drawing, its right end at x; returns it and its width. */
function drawnBadge(change, x, y) {
  const width = 9 + 7 * String(change).length;
  const made = shape("g", { class: `badge ${hue(change)}` },
    shape("rect", { x: x - width, y, width, height: 16, rx: 8 }),
    shape("text", { x: x - width / 2, y: y + 12, "text-anchor": "middle" }, String(change)));
  return [made, width];
}

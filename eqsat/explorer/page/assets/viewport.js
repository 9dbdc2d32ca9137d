// A drawing that can be moved and zoomed: by wheel, drag, buttons and keys.

const SMALLEST = 0.001;
const LARGEST = 3;
const LEAST_TEXT = 11; // pixels on the screen: smaller text is not read
const LEGIBLE = LEAST_TEXT / 11.5; // the scale at which the smallest text of a drawing has that size

class Viewport {
  constructor(label, moved) {
    this.layer = shape("g");
    this.svg = shape("svg", { class: "drawing", tabindex: 0, role: "group", "aria-label": label }, this.layer);
    this.moved = moved;
    [this.x, this.y, this.scale] = [0, 0, 1];
    this.wide = null;
    this.known = null;
    new ResizeObserver(() => this.resized()).observe(this.svg);
    this.svg.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    this.svg.addEventListener("pointerdown", (event) => this.drag(event));
    this.svg.addEventListener("keydown", (event) => this.key(event));
  }

  /** Its width and height; kept, since asking while the drawing changes makes the browser lay out the page. */
  get size() {
    if (!this.known) {
      const [width, height] = [this.svg.clientWidth, this.svg.clientHeight];
      if (!width) return [600, 500];
      this.known = [width, height];
    }
    return this.known;
  }

  /** The part of the drawing in view, with as much again on every side where `wide`. */
  view(wide = 0) {
    const [width, height] = this.size;
    return {
      left: (-this.x - wide * width) / this.scale,
      top: (-this.y - wide * height) / this.scale,
      right: (-this.x + (1 + wide) * width) / this.scale,
      bottom: (-this.y + (1 + wide) * height) / this.scale,
    };
  }

  /** What was in the middle stays there when the drawing gets another width. */
  resized() {
    const width = this.svg.clientWidth;
    this.known = width ? [width, this.svg.clientHeight] : null;
    if (this.wide && width && this.wide !== width) this.move((width - this.wide) / 2, 0);
    this.wide = width || this.wide;
  }

  apply() {
    this.layer.setAttribute("transform", `translate(${round(this.x)} ${round(this.y)}) scale(${this.scale})`);
    this.moved();
  }

  zoom(factor, atX = this.size[0] / 2, atY = this.size[1] / 2) {
    const scale = Math.min(LARGEST, Math.max(SMALLEST, this.scale * factor));
    this.x = atX - ((atX - this.x) * scale) / this.scale;
    this.y = atY - ((atY - this.y) * scale) / this.scale;
    this.scale = scale;
    this.apply();
  }

  move(dx, dy) {
    this.x += dx;
    this.y += dy;
    this.apply();
  }

  /** Shows a box whole, at most at its own size; where that is below `least`, at `least`, from its top and around `x`. */
  fit(box, least = SMALLEST, x = box.x + box.width / 2) {
    const [width, height] = this.size;
    const whole = Math.min((width - 32) / Math.max(1, box.width), (height - 32) / Math.max(1, box.height), 1);
    this.scale = Math.max(least, whole);
    this.x = width / 2 - (whole < least ? x : box.x + box.width / 2) * this.scale;
    const over = box.height * this.scale > height - 32;
    this.y = over && whole < least ? 16 - box.y * this.scale : height / 2 - (box.y + box.height / 2) * this.scale;
    this.apply();
  }

  /** Brings a point of the drawing to the middle. */
  centre(x, y, least = 0.8) {
    const [width, height] = this.size;
    this.scale = Math.max(this.scale, least);
    this.x = width / 2 - x * this.scale;
    this.y = height / 2 - y * this.scale;
    this.apply();
  }

  /** Brings a box to the middle; of one that is larger than the view, its top left part, where its title is. */
  show(box, least) {
    const half = (size, length) => Math.min(length, (size - 32) / Math.max(this.scale, least)) / 2;
    this.centre(box.x + half(this.size[0], box.width), box.y + half(this.size[1], box.height), least);
  }

  /** Moves a box that is larger than the view so that it fills it, and centres one that is not. */
  hold(box) {
    const along = (at, size, from, length) => (length * this.scale > size - 32
      ? Math.min(16 - from * this.scale, Math.max(size - 16 - (from + length) * this.scale, at))
      : size / 2 - (from + length / 2) * this.scale);
    this.x = along(this.x, this.size[0], box.x, box.width);
    this.y = along(this.y, this.size[1], box.y, box.height);
    this.apply();
  }

  /** The size of a text, in the drawing, that is just legible on the screen; 0 where all texts are. */
  get enlarged() {
    return this.scale >= LEGIBLE ? 0 : Math.ceil((2 * LEAST_TEXT) / this.scale) / 2;
  }

  wheel(event) {
    event.preventDefault();
    const step = event.deltaMode === 1 ? 16 : 1;
    if (event.ctrlKey || event.metaKey) {
      const bounds = this.svg.getBoundingClientRect();
      this.zoom(Math.exp(-event.deltaY * step * 0.002), event.clientX - bounds.left, event.clientY - bounds.top);
    } else if (event.shiftKey) this.move(-event.deltaY * step, 0);
    else this.move(-event.deltaX * step, -event.deltaY * step);
  }

  drag(event) {
    if (event.button !== 0) return;
    let [x, y, dragged] = [event.clientX, event.clientY, false];
    const move = (now) => {
      if (!dragged && Math.hypot(now.clientX - x, now.clientY - y) < 4) return;
      if (!dragged) this.svg.setPointerCapture(event.pointerId);
      dragged = true;
      this.svg.classList.add("dragged");
      this.move(now.clientX - x, now.clientY - y);
      [x, y] = [now.clientX, now.clientY];
    };
    const end = () => {
      this.svg.classList.remove("dragged");
      this.svg.removeEventListener("pointermove", move);
      this.svg.removeEventListener("pointerup", end);
      this.svg.removeEventListener("pointercancel", end);
    };
    this.svg.addEventListener("pointermove", move);
    this.svg.addEventListener("pointerup", end);
    this.svg.addEventListener("pointercancel", end);
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const acts = {
      "+": () => this.zoom(1.25),
      "=": () => this.zoom(1.25),
      "-": () => this.zoom(0.8),
      ArrowLeft: () => this.move(60, 0),
      ArrowRight: () => this.move(-60, 0),
      ArrowUp: () => this.move(0, 60),
      ArrowDown: () => this.move(0, -60),
      PageUp: () => this.move(0, this.size[1] * 0.8),
      PageDown: () => this.move(0, -this.size[1] * 0.8),
    };
    if (!(event.key in acts)) return;
    event.preventDefault();
    acts[event.key]();
  }

  /** The buttons that every drawing has; `fit` shows it whole. */
  buttons(fit) {
    return element("span", { class: "buttons" },
      button("\u2212", "Zoom out", () => this.zoom(0.8)),
      button("+", "Zoom in", () => this.zoom(1.25)),
      button("Fit", "Show it whole", fit));
  }
}

function within(box, view) {
  return box.x < view.right && box.x + box.width > view.left && box.y < view.bottom && box.y + box.height > view.top;
}

/** The smallest box around boxes. */
function around(boxes) {
  const x = Math.min(...boxes.map((box) => box.x));
  const y = Math.min(...boxes.map((box) => box.y));
  const right = Math.max(...boxes.map((box) => box.x + box.width));
  const bottom = Math.max(...boxes.map((box) => box.y + box.height));
  return { x, y, width: right - x, height: bottom - y };
}

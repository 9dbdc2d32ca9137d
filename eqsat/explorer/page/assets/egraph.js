// Draws an e-graph, or the neighbourhood of one class: classes as boxes, with their e-nodes inside.

const MOST_FORMS = 8; // of a class, in one box
const MOST_NEAR = 24; // classes of a neighbourhood
const IN_A_ROW = 4;

class EgraphDrawing {
  /** `acts.open(id)` is called when a class is pressed. */
  constructor(run, acts) {
    this.run = run;
    this.acts = acts;
    this.readers = readersOf(run.classes);
    this.viewport = new Viewport("e-graph", () => this.moved());
    this.chosen = null;
    this.enlarged = 0; // the size that titles are drawn at; where it is not 0, they are all the text there is
  }

  /** The whole e-graph, as it was laid out beforehand; where it does not fit in legibly, the part around one class. */
  showWhole() {
    const { layer, across, lines } = this.run.whole;
    const ids = [...this.run.classes.keys()];
    const bends = new Map(lines.map(([start, end, ...flat]) => [`${start} ${end}`, pairs(flat)]));
    this.compose(ids, layer, across, bends);
    this.frame(this.richest());
  }

  /** The class with the most forms: there is most to see around it. */
  richest() {
    return [...this.run.classes.values()].reduce((best, of) => (of.forms.length > best.forms.length ? of : best)).id;
  }

  /** Shows all at a legible size, or else a class with as much around it as there is room for. */
  frame(id) {
    this.viewport.fit(this.bounds, LEGIBLE);
    this.viewport.show(this.boxes.get(id), LEGIBLE);
    this.viewport.hold(this.bounds);
    this.paint();
  }

  /** A class, the operands of its forms to some depth, and the classes that read it. */
  showAround(id, depth = 2) {
    const ids = this.near(id, depth);
    const place = new Map(ids.map((one, at) => [one, at]));
    const edges = [...new Set(ids.flatMap((reader) => this.operands(reader)
      .filter((operand) => place.has(operand)).map((operand) => `${place.get(operand)} ${place.get(reader)}`)))]
      .map((key) => key.split(" ").map(Number));
    const layer = layersOf(ids.length, edges);
    const stops = [...layer];
    const linked = [];
    const routes = edges.filter(([a, b]) => layer[a] !== layer[b]).map(([a, b]) => {
      const step = layer[a] < layer[b] ? 1 : -1;
      const route = [a];
      for (let of = layer[a] + step; of !== layer[b]; of += step) route.push(stops.push(of) - 1);
      route.push(b);
      for (let at = 1; at < route.length; at += 1) linked.push([route[at - 1], route[at]]);
      return { key: `${a} ${b}`, route };
    });
    const across = acrossOf(stops, linked);
    const bends = new Map(routes.map(({ key, route }) => [key, route.slice(1, -1).map((stop) => [stops[stop], across[stop]])]));
    this.compose(ids, layer, across.slice(0, ids.length), bends);
    this.frame(id);
  }

  near(id, depth) {
    const found = new Set([id]);
    const add = (next) => next.filter((one) => this.run.classes.has(one) && found.size < MOST_NEAR && !found.has(one) && found.add(one));
    add([...(this.readers.get(id) ?? [])].slice(0, 6));
    let edge = [id];
    for (let level = 0; level < depth; level += 1) edge = edge.flatMap((one) => add(this.operands(one)));
    return [...found];
  }

  operands(id) {
    return [...new Set(this.run.classes.get(id).forms.slice(0, MOST_FORMS).flatMap((form) => form.operands))];
  }

  compose(ids, layer, across, bends) {
    const at = new Map(ids.map((id, place) => [id, place]));
    const insides = ids.map((id) => classInside(this.run.classes.get(id)));
    const lines = ids.flatMap((id, end) => insides[end].forms.flatMap(({ form, x, width }) =>
      [...new Set(form.operands)].filter((operand) => at.has(operand) && operand !== id && bends.has(`${at.get(operand)} ${end}`))
        .map((operand) => ({
          start: at.get(operand), end, form,
          bends: bends.get(`${at.get(operand)} ${end}`) ?? [],
          endShift: x + width / 2 - insides[end].width / 2,
        }))));
    const sizes = insides.map(({ width, height }) => [width, height]);
    const placed = place({ layer, across, sizes, lines, gapX: 26, gapY: 46 });
    this.boxes = new Map(ids.map((id, place) => [id, {
      x: placed.x[place] - sizes[place][0] / 2, y: placed.y[place], width: sizes[place][0], height: sizes[place][1],
      inside: insides[place],
    }]));
    this.lines = lines.map((line, place) => ({ ...line, operand: ids[line.start], reader: ids[line.end], path: curve(placed.points[place]) }));
    this.bounds = { x: 0, y: 0, width: placed.width, height: placed.height };
  }

  /** Draws anew where the zoom changes which texts are legible. */
  moved() {
    if (this.waiting || !this.boxes || this.enlarged === this.viewport.enlarged) return;
    this.waiting = requestAnimationFrame(() => {
      this.waiting = null;
      this.paint();
    });
  }

  paint() {
    this.enlarged = this.viewport.enlarged;
    const lit = (line) => line.operand === this.chosen || line.reader === this.chosen;
    const lines = this.lines.map((line) => shape("path", {
      class: `edge${line.form.chosen ? " chosen" : ""}${lit(line) ? " lit" : ""}`, d: line.path,
    }, shape("title", {}, `${line.form.op} reads ${this.run.classes.get(line.operand).name}`)));
    const boxes = [...this.boxes].map(([id, box]) => this.drawClass(this.run.classes.get(id), box));
    this.viewport.layer.replaceChildren(...lines, ...boxes);
  }

  drawClass(of, box) {
    const { x, y, width, height, inside } = box;
    const states = `${of.constant ? " known" : ""}${of.id === this.chosen ? " chosen" : ""}`;
    const made = shape("g", { class: `class${states}`, "data-class": of.id },
      shape("rect", { class: "frame", x, y, width, height, rx: 9 }),
      ...this.classTitle(of, box),
      shape("title", {}, `class ${of.id}: ${of.values.join(", ") || of.name}\n${of.type}`));
    for (const placed of inside.forms) {
      const { form, x: dx, y: dy, width: wide } = placed;
      const mark = `${form.chosen ? " chosen" : ""}${form.original ? " original" : ""}`;
      const cost = duration(form.seconds, form.estimated);
      made.append(shape("g", { class: `form${mark}` },
        shape("rect", { x: x + dx, y: y + dy, width: wide, height: inside.tall, rx: 5 }),
        ...this.formTexts(placed, x + dx, y + dy, inside.tall, cost),
        shape("title", {}, [`${form.op} ${form.attrs}`, cost, form.rule && `by ${form.rule}`].filter(Boolean).join("\n"))));
    }
    if (inside.more && !this.enlarged) made.append(shape("text", { class: "facts", x: x + 10, y: y + height - 7 }, `${inside.more} more forms`));
    return pressable(made, `class ${of.id} ${of.name}, ${plural(of.forms.length, "form")}`, () => this.acts.open(of.id));
  }

  classTitle(of, { x, y, width }) {
    if (this.enlarged) return [enlargedTitle(of.name, this.enlarged, { x: x + 8, y: y + 1, width: width - 16, height: 38 }, true)];
    return [
      shape("text", { class: "name", x: x + 10, y: y + 17 }, cut(of.name, TITLE, width - 20, true)),
      shape("text", { class: "facts", x: x + 10, y: y + 32 }, cut(`class ${of.id} \u00b7 ${of.type}`, SMALL, width - 20))];
  }

  formTexts({ form, width, text, attrs }, x, y, height, cost) {
    if (this.enlarged) return [enlargedTitle(form.op, this.enlarged, { x: x + 5, y, width: width - 10, height })];
    return [
      shape("text", { class: "name", x: x + 8, y: y + 15 }, text),
      shape("text", { class: "cost", x: x + 8, y: y + 29 }, cost || "no cost"),
      attrs ? shape("text", { class: "facts", x: x + 8, y: y + 43 }, attrs) : null];
  }

  /** Marks a class. */
  choose(id) {
    this.chosen = id;
    if (this.boxes) this.paint();
  }

  /** Brings a class into view. */
  bring(id) {
    const box = this.boxes.get(id);
    if (box && !within(box, this.viewport.view())) this.viewport.show(box, LEGIBLE);
  }

  fit(least = undefined) {
    this.viewport.fit(this.bounds, least);
  }
}

/** Where the e-nodes of a class go in its box, those that are chosen or original first. */
function classInside(of) {
  const rank = (form) => (form.chosen ? 0 : form.original ? 1 : 2);
  const shown = [...of.forms].sort((a, b) => rank(a) - rank(b)).slice(0, MOST_FORMS);
  const forms = shown.map((form) => {
    const self = form.operands.includes(of.id) ? " \u21ba" : "";
    const text = cut(`${form.op}${self}`, TITLE, 150);
    const attrs = cut(form.attrs, SMALL, 110);
    const widest = Math.max(textWidth(text, TITLE), textWidth(duration(form.seconds, form.estimated) || "no cost", SMALL), textWidth(attrs, SMALL));
    return { form, text, attrs, width: Math.max(64, widest + 16) };
  });
  const tall = forms.some(({ attrs }) => attrs) ? 50 : 36;
  let [x, y, width] = [10, 40, Math.min(200, 20 + Math.max(textWidth(of.name, TITLE), textWidth(`class ${of.id} \u00b7 ${of.type}`, SMALL)))];
  forms.forEach((one, at) => {
    if (at && at % IN_A_ROW === 0) [x, y] = [10, y + tall + 6];
    Object.assign(one, { x, y });
    x += one.width + 8;
    width = Math.max(width, x + 2);
  });
  const more = of.forms.length - shown.length;
  return { forms, more, width, tall, height: y + tall + 10 + (more ? 18 : 0) };
}

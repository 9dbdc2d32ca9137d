// Draws one graph: nodes in layers, blocks that fold, changed regions coloured, costs on the nodes.

const TITLE = "600 13px system-ui, sans-serif";
const SMALL = "11.5px system-ui, sans-serif";
const MOST_OPEN = 300; // a graph of more nodes starts folded
const MOST_DRAWN = 1500; // of more shapes, only those near the view are drawn
const READABLE = 0.34; // below this scale, texts are left out
const MOST_SHOWN = 12; // nodes of a change that are unfolded; the others show as numbers on their blocks
const HEAD = 30;

class GraphDrawing {
  /** `acts` are open(node), called when a node is pressed, and changed(), called when blocks fold or unfold. */
  constructor(graph, acts) {
    this.graph = graph;
    this.acts = acts;
    this.viewport = new Viewport(`${graph.role} graph`, () => this.moved());
    this.chosen = null;
    this.change = null;
    this.found = null; // the block that was searched for
    this.insides = new Map(); // placed blocks, by index, as long as nothing in them folds or unfolds
    this.open = this.startOpen();
    this.compose();
  }

  /** All blocks of a small graph; of a large one, from the outside in, as many as stay easy to survey. */
  startOpen() {
    const { blocks } = this.graph;
    if (blocks[0].count <= MOST_OPEN) return new Set(blocks.keys());
    const open = new Set([0]);
    const waiting = [...blocks[0].children];
    let shown = blocks[0].items.length;
    while (waiting.length) {
      const block = blocks[waiting.shift()];
      const only = blocks[block.parent].items.length === 1;
      if (!only && shown > 6 && shown + block.items.length > 40) continue;
      open.add(block.index);
      shown += block.items.filter((item) => item.kind === "node" || item.kind === "block").length - 1;
      waiting.push(...block.children);
    }
    return open;
  }

  compose() {
    this.boxes = { nodes: new Map(), blocks: new Map() };
    this.lines = [];
    const inside = this.inside(this.graph.blocks[0]);
    this.lay(inside, 0, 0);
    this.bounds = { x: 0, y: 0, width: inside.placed.width, height: inside.placed.height };
    this.painted = null;
  }

  /** A block's items placed, inner blocks first, since an open block is as large as its inside. */
  inside(block) {
    if (!this.insides.has(block.index)) this.insides.set(block.index, this.placedInside(block));
    return this.insides.get(block.index);
  }

  placedInside(block) {
    const { nodes, blocks } = this.graph;
    const inner = new Map();
    const sizes = block.items.map((item) => {
      if (item.kind === "node") return nodeSize(nodes[item.index]);
      if (item.kind !== "block") return [6, 0];
      const child = blocks[item.index];
      if (!this.open.has(child.index)) return foldedSize(child);
      const found = this.inside(child);
      inner.set(item.index, found);
      return [Math.max(found.placed.width, titleWidth(child)) + 24, found.placed.height + HEAD + 12];
    });
    const shift = (item, kind, source) => {
      const found = item.kind === "block" ? inner.get(item.index) : undefined;
      if (!found) return 0;
      const port = found.block.items.findIndex((one) => one.kind === kind && one.index === source);
      return port < 0 ? 0 : found.placed.x[port] - found.placed.width / 2;
    };
    const lines = block.lines.map((line) => ({
      ...line,
      startShift: shift(block.items[line.start], "out", line.source),
      endShift: shift(block.items[line.end], "in", line.source),
    }));
    return { block, sizes, lines, inner, placed: place({ ...block, sizes, lines }) };
  }

  lay({ block, sizes, lines, inner, placed }, left, top) {
    block.items.forEach((item, at) => {
      const [width, height] = sizes[at];
      const box = { x: left + placed.x[at] - width / 2, y: top + placed.y[at], width, height };
      if (item.kind === "node") this.boxes.nodes.set(item.index, box);
      if (item.kind !== "block") return;
      this.boxes.blocks.set(item.index, box);
      const found = inner.get(item.index);
      if (found) this.lay(found, box.x + (width - found.placed.width) / 2, box.y + HEAD);
    });
    lines.forEach((line, at) => {
      let points = placed.points[at];
      if (!points.length) return;
      // a value that enters an open block goes on below its title
      const end = block.items[line.end];
      const start = block.items[line.start];
      if (end.kind === "block" && inner.has(end.index)) points = [...points, lower(points.at(-1), HEAD)];
      if (start.kind === "block" && inner.has(start.index)) points = [lower(points[0], -12), ...points];
      const shifted = points.map(([x, y]) => [x + left, y + top]);
      const [ys, xs] = [shifted.map(([, y]) => y), shifted.map(([x]) => x)];
      const [x, y] = [Math.min(...xs), Math.min(...ys)];
      this.lines.push({
        path: start.kind === "block" && inner.has(start.index) ? stubbed(shifted) : curve(shifted),
        source: line.source,
        target: end.kind === "node" ? end.index : null,
        arrow: end.kind === "node" || (end.kind === "block" && !inner.has(end.index)),
        x, y, width: Math.max(...xs) - x, height: Math.max(...ys) - y,
      });
    });
  }

  moved() {
    if (this.waiting) return;
    this.waiting = requestAnimationFrame(() => {
      this.waiting = null;
      this.paint();
    });
  }

  repaint() {
    this.painted = null;
    this.moved();
  }

  /** Draws what is near the view, where what is drawn does not hold it yet. */
  paint(force = false) {
    const { scale } = this.viewport;
    const readable = scale >= READABLE;
    const count = this.boxes.nodes.size + this.boxes.blocks.size + this.lines.length;
    const all = count <= MOST_DRAWN;
    const view = this.viewport.view();
    const old = this.painted;
    const holds = old && (old.all || (old.left <= view.left && old.right >= view.right && old.top <= view.top && old.bottom >= view.bottom));
    if (!force && holds && old.readable === readable) return;
    const wide = all ? { left: -Infinity, right: Infinity, top: -Infinity, bottom: Infinity } : this.viewport.view(0.6);
    this.painted = { ...wide, all, readable };
    const near = (boxes) => [...boxes].filter(([, box]) => within(box, wide));
    const blocks = near(this.boxes.blocks).map(([index, box]) => this.drawBlock(this.graph.blocks[index], box, readable));
    const lines = this.lines.filter((line) => within(line, wide)).map((line) => this.drawLine(line, readable));
    const nodes = near(this.boxes.nodes).map(([index, box]) => this.drawNode(this.graph.nodes[index], box, readable));
    this.viewport.layer.replaceChildren(...blocks.map(([frame]) => frame), ...lines, ...blocks.map(([, bar]) => bar), ...nodes);
    this.viewport.svg.classList.toggle("far", !readable);
  }

  drawLine(line, readable) {
    const node = this.graph.nodes[line.source];
    const lit = this.chosen && (this.chosen.index === line.source || this.chosen.index === line.target);
    const path = shape("path", { class: `edge${lit ? " lit" : ""}`, d: line.path });
    if (!readable) return path;
    const tip = shape("title", {}, `${node.names.join(", ") || node.label}: ${node.type}`);
    path.append(tip);
    if (!line.arrow) return path;
    const [, x, y] = /([-\d.]+) ([-\d.]+)$/.exec(line.path);
    const head = shape("path", { class: `arrow${lit ? " lit" : ""}`, d: `M${x} ${y}l-3.5 -6h7z` });
    return shape("g", {}, path, head);
  }

  /** A block's frame, which lines cross, and what stands above the lines: its title, or all of it when folded. */
  drawBlock(block, box, readable) {
    const { x, y, width, height } = box;
    const open = this.open.has(block.index);
    const dim = this.change !== null && !block.changes.has(this.change);
    const depth = this.pathOf(block).split("/").length % 2 ? "" : " inner";
    const frame = shape("g", { class: `block ${open ? "open" : "folded"}${depth}${dim ? " dim" : ""}` });
    if (!open) frame.append(shape("rect", { class: "behind", x: x + 4, y: y + 4, width, height, rx: 8 }));
    frame.append(shape("rect", { class: "frame", x, y, width, height, rx: 8 }));
    const bar = shape("g", { class: `bar${depth}${dim ? " dim" : ""}${block.index === this.found ? " chosen" : ""}`, "data-block": block.index },
      shape("rect", { x, y, width, height: open ? HEAD - 6 : height, rx: 8 }));
    if (readable) {
      const sign = open ? "\u2212" : "+";
      const most = width - (open ? 24 + textWidth(blockFacts(block), SMALL) + 16 : 36);
      bar.append(shape("text", { class: "sign", x: x + 10, y: y + 17 }, sign));
      bar.append(shape("text", { class: "name", x: x + 24, y: y + 17 }, cut(block.name, TITLE, most, true)));
      const facts = { class: "facts", x: open ? x + width - 10 : x + 24, y: open ? y + 16.5 : y + 34, "text-anchor": open ? "end" : "start" };
      bar.append(shape("text", facts, blockFacts(block)));
      bar.append(shape("title", {}, `${this.pathOf(block)}: ${blockFacts(block)}, press to ${open ? "fold" : "unfold"}`));
    }
    if (!open) foldedBadges(bar, block, box);
    const label = `${open ? "Fold" : "Unfold"} block ${block.name}`;
    pressable(bar, label, () => this.toggle(block.index)).setAttribute("aria-expanded", String(open));
    return [frame, bar];
  }

  drawNode(node, box, readable) {
    const { x, y, width, height } = box;
    const changed = node.change === null ? "" : ` changed ${hue(node.change)}`;
    const dim = this.change !== null && node.change !== this.change && !node.constants.some((of) => of.change === this.change);
    const states = `${this.chosen === node || (this.chosen && this.chosen.reader === node) ? " chosen" : ""}${
      this.same !== undefined && this.same !== null && node.eclass === this.same ? " same" : ""}${dim ? " dim" : ""}`;
    const made = shape("g", { class: `node ${isLeaf(node) ? "leaf" : "operator"}${changed}${states}`, "data-node": node.index },
      shape("rect", { class: "frame", x, y, width, height, rx: isLeaf(node) ? 14 : 6 }));
    if (readable) nodeTexts(made, node, box, this.graph.most, (of) => this.acts.open(of));
    const said = [node.label, duration(node.seconds, node.estimated), node.change === null ? "" : `change ${node.change}`];
    pressable(made, said.filter(Boolean).join(", "), () => this.acts.open(node));
    return made;
  }

  pathOf(block) {
    return block.parent === null ? "" : `${this.pathOf(this.graph.blocks[block.parent])}/${block.name}`.replace(/^\//, "");
  }

  /** Folds or unfolds a block; its title stays where it is on the screen. */
  toggle(index) {
    const before = this.boxes.blocks.get(index);
    this.turn(index, !this.open.has(index));
    this.compose();
    const now = this.boxes.blocks.get(index);
    const { viewport } = this;
    if (before && now) {
      viewport.x += (before.x + before.width / 2 - now.x - now.width / 2) * viewport.scale;
      viewport.y += (before.y - now.y) * viewport.scale;
    }
    viewport.apply();
    this.paint(true);
    viewport.layer.querySelector(`[data-block="${index}"]`)?.focus({ preventScroll: true });
    this.acts.changed?.();
  }

  foldAll(fold) {
    this.open = new Set(fold ? [0] : this.graph.blocks.keys());
    this.insides.clear();
    this.compose();
    this.fit(0.5);
  }

  fit(least = undefined) {
    const top = [...this.boxes.nodes.values(), ...this.boxes.blocks.values()].reduce((first, box) => (box.y < first.y ? box : first));
    this.viewport.fit(this.bounds, least, top.x + top.width / 2);
    this.repaint();
  }

  /** The first view: the whole where it can be read, else the first change, else the top. */
  start() {
    const [width, height] = this.viewport.size;
    const whole = Math.min(width / this.bounds.width, height / this.bounds.height);
    const first = [...this.boxes.nodes].find(([index]) => this.graph.nodes[index].change !== null)?.[1]
      ?? [...this.boxes.blocks].find(([index]) => !this.open.has(index) && this.graph.blocks[index].changes.size)?.[1];
    this.viewport.scale = 0.7;
    if (whole >= 0.5 || !first) this.fit(LEGIBLE);
    else {
      // no empty room above the graph
      const y = Math.max(first.y + first.height / 2, (height / 2 - 16) / LEGIBLE);
      this.viewport.centre(first.x + first.width / 2, y, LEGIBLE);
    }
    this.repaint();
  }

  /** Opens or closes a block, and forgets how it and what is around it were placed. */
  turn(index, open) {
    if (open) this.open.add(index);
    else this.open.delete(index);
    for (let block = index; block !== null; block = this.graph.blocks[block].parent) this.insides.delete(block);
  }

  unfoldTo(node) {
    for (let block = node.block; block !== null; block = this.graph.blocks[block].parent) {
      if (!this.open.has(block)) this.turn(block, true);
    }
  }

  /** Unfolds what holds a node, brings it to the middle and marks it. */
  reveal(node) {
    this.unfoldTo(node);
    this.compose();
    this.choose(node);
    const box = this.boxes.nodes.get((node.reader ?? node).index);
    if (box) this.viewport.centre(box.x + box.width / 2, box.y + box.height / 2);
    this.repaint();
  }

  /** Unfolds the blocks around a block, and shows it. */
  showBlock(index) {
    const block = this.graph.blocks[index];
    for (let outer = block.parent; outer !== null; outer = this.graph.blocks[outer].parent) this.turn(outer, true);
    this.compose();
    this.found = index;
    this.viewport.fit(padded(this.boxes.blocks.get(index)), 0.65);
    this.repaint();
  }

  /** Marks a node and, of its e-class, the others; null marks none. */
  choose(node, same = node?.eclass ?? null) {
    this.chosen = node;
    this.same = same;
    this.repaint();
  }

  /** Dims all but one change, unfolds and shows where it is first; null shows all alike. */
  single(change) {
    this.change = change;
    const nodes = this.graph.nodes.filter((node) => change !== null && node.change === change);
    if (nodes.length) {
      nodes.slice(0, MOST_SHOWN).forEach((node) => this.unfoldTo(node));
      this.compose();
      const boxes = nodes.map((node) => this.boxes.nodes.get((node.reader ?? node).index)).filter(Boolean);
      const [first] = boxes;
      const near = boxes.filter((box) => Math.abs(box.x - first.x) < 600 && Math.abs(box.y - first.y) < 700);
      if (first) this.viewport.fit(padded(around(near)), 0.6, first.x + first.width / 2);
    }
    this.repaint();
  }
}

function lower([x, y], by) {
  return [x, y + by];
}

/** A path whose first piece is straight: from a port at an open block's foot to the block's edge. */
function stubbed(points) {
  return `M${round(points[0][0])} ${round(points[0][1])}L${curve(points.slice(1)).slice(1)}`;
}

function padded(box) {
  return { x: box.x - 60, y: box.y - 60, width: box.width + 120, height: box.height + 120 };
}

function blockFacts(block) {
  const cost = block.seconds ? ` \u00b7 ${duration(block.seconds, block.estimated)}` : "";
  return `${plural(block.operators, "op")}${cost}`;
}

function titleWidth(block) {
  return Math.min(220, textWidth(block.name, TITLE)) + textWidth(blockFacts(block), SMALL) + 44;
}

function foldedSize(block) {
  const text = Math.max(textWidth(block.name, TITLE), textWidth(blockFacts(block), SMALL));
  return [Math.min(240, Math.max(130, text + 40)), block.changes.size ? 64 : 44];
}

function foldedBadges(made, block, box) {
  const most = Math.floor((box.width - 70) / 26);
  let x = box.x + 24;
  for (const change of [...block.changes].sort((a, b) => a - b).slice(0, most)) {
    const [drawn, width] = drawnBadge(change, x + 9 + 7 * String(change).length, box.y + 42);
    made.append(drawn);
    x += width + 4;
  }
  const more = block.changes.size - most;
  if (more > 0) made.append(shape("text", { class: "facts", x, y: box.y + 54 }, `+${more}`));
}

// Reads the compact JSON of a run into objects that the drawings use.

const KINDS = ["node", "block", "in", "out"];

/** A run: its graphs, e-classes by number, changes, rules and growth. */
function readRun(data) {
  const text = (place) => data.texts[place];
  const graphs = data.graphs.map((graph, side) => readGraph(graph, side, text));
  const classes = readClasses(data.classes, text);
  const changes = data.changes.map(([number, what, values, rules, steps, predicted, measured, gaps]) => (
    { number, what, values, rules, steps, predicted, measured, gaps }));
  const rules = data.rules.map(([name, text, fired, origin, evidence]) => ({ name, text, fired, origin, evidence }));
  const growth = data.growth.map(([phase, nodes, classes, seconds, fired]) => (
    { phase, nodes, classes, seconds, fired: new Map(fired) }));
  return { ...data, graphs, classes, changes, rules, growth };
}

function readGraph(graph, side, text) {
  const nodes = graph.label.map((label, index) => ({
    index,
    side,
    kind: text(graph.kind[index]),
    label: text(label),
    detail: text(graph.detail[index]),
    names: graph.names[index].map(text),
    seconds: graph.seconds[index],
    estimated: graph.estimated[index] === 1,
    change: graph.change[index],
    eclass: graph.eclass[index],
    type: text(graph.type[index]),
    block: 0,
    constants: [],
    reader: null,
  }));
  const blocks = graph.blocks.map((block, index) => readBlock(block, index, text));
  for (const block of blocks) {
    block.children = block.items.filter((item) => item.kind === "block").map((item) => item.index);
    for (const item of block.items) if (item.kind === "node") nodes[item.index].block = block.index;
  }
  for (const [reader, ...constants] of graph.tucked) {
    nodes[reader].constants = constants.map((constant) => nodes[constant]);
    for (const constant of constants) {
      nodes[constant].reader ??= nodes[reader];
      nodes[constant].block = nodes[reader].block;
    }
  }
  for (const node of nodes) splitDetail(node);
  for (const block of blocks.toReversed()) sumUp(block, blocks, nodes);
  return { role: graph.role, name: graph.name, side, nodes, blocks, most: Math.max(0, ...nodes.map((node) => node.seconds ?? 0)) };
}

/** A detail that ends in the type of what leaves the node: the type and the attributes get a line each. */
function splitDetail(node) {
  const has = node.type && node.detail.endsWith(node.type);
  const attrs = has ? node.detail.slice(0, -node.type.length).replace(/,?\s*$/, "") : node.detail;
  node.details = [has ? node.type : "", attrs].filter(Boolean);
}

function readBlock(block, index, text) {
  const items = block.index.map((of, place) => ({ kind: KINDS[block.kind[place]], index: of }));
  const lines = block.lines.map(([start, end, source, ...bends]) => ({ start, end, source, bends: pairs(bends) }));
  const { parent, layer, across } = block;
  return { index, name: block.name === null ? "" : text(block.name), parent, items, layer, across, lines };
}

/** What a folded block says of its inside: how many operators, what they cost, which changes. */
function sumUp(block, blocks, nodes) {
  const own = block.items.filter((item) => item.kind === "node").map((item) => nodes[item.index]);
  const inner = block.children.map((child) => blocks[child]);
  const add = (of) => own.reduce((sum, node) => sum + of(node), 0);
  block.count = add((node) => 1 + node.constants.length) + inner.reduce((sum, child) => sum + child.count, 0);
  block.operators = add((node) => (isLeaf(node) ? 0 : 1)) + inner.reduce((sum, child) => sum + child.operators, 0);
  block.seconds = add((node) => node.seconds ?? 0) + inner.reduce((sum, child) => sum + child.seconds, 0);
  block.estimated = own.some((node) => node.estimated) || inner.some((child) => child.estimated);
  block.changes = new Set([
    ...own.flatMap((node) => [node, ...node.constants]).map((node) => node.change).filter((change) => change !== null),
    ...inner.flatMap((child) => [...child.changes]),
  ]);
}

function readClasses(columns, text) {
  const classes = new Map();
  let form = 0;
  columns.id.forEach((id, place) => {
    const forms = [];
    for (const end = form + columns.forms[place]; form < end; form += 1) {
      forms.push({
        op: text(columns.op[form]),
        attrs: text(columns.attrs[form]),
        operands: columns.operands[form],
        seconds: columns.seconds[form],
        total: columns.total[form],
        chosen: (columns.marks[form] & 1) !== 0,
        original: (columns.marks[form] & 2) !== 0,
        estimated: (columns.marks[form] & 4) !== 0,
        rule: text(columns.rule[form]),
      });
    }
    const values = columns.values[place].map(text);
    const constant = columns.constant[place] === 1;
    const of = { id, place, type: text(columns.type[place]), constant, values, block: text(columns.block[place]), forms };
    of.name = values[0] ?? (forms.find((one) => one.chosen) ?? forms[0])?.op ?? "";
    classes.set(id, of);
  });
  return classes;
}

/** The classes that read each class by any of their forms. */
function readersOf(classes) {
  const readers = new Map();
  for (const of of classes.values()) {
    for (const operand of new Set(of.forms.flatMap((form) => form.operands))) {
      if (!readers.has(operand)) readers.set(operand, []);
      readers.get(operand).push(of.id);
    }
  }
  return readers;
}

function isLeaf(node) {
  return node.kind === "input" || node.kind === "constant" || node.kind === "output";
}

function pairs(flat) {
  const found = [];
  for (let place = 0; place < flat.length; place += 2) found.push([flat[place], flat[place + 1]]);
  return found;
}

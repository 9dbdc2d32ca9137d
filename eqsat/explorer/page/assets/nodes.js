// The texts of a node in a drawn graph: operator, cost, attributes, and the constants that it reads.

const MOST_CONSTANTS = 3;

function nodeSize(node) {
  const cost = duration(node.seconds, node.estimated);
  const first = textWidth(node.label, TITLE) + (cost ? textWidth(cost, SMALL) + 18 : 0);
  const lines = [...node.details, ...node.constants.map((of) => `\u25aa ${of.label}`)];
  const widest = Math.max(first, ...lines.map((line) => textWidth(line, SMALL)));
  const rows = node.details.length + Math.min(node.constants.length, MOST_CONSTANTS);
  return [Math.ceil(Math.min(230, Math.max(84, widest + 24))), 28 + 16 * rows];
}

/** Writes a node's texts; a constant can be pressed by itself, which calls `open` with it. */
function nodeTexts(made, node, { x, y, width, height }, most, open) {
  const cost = duration(node.seconds, node.estimated);
  const room = width - 24 - (cost ? textWidth(cost, SMALL) + 12 : 0);
  made.append(shape("text", { class: "name", x: x + 12, y: y + 19 }, cut(node.label, TITLE, room, isLeaf(node))));
  if (cost) {
    made.append(shape("text", { class: "cost", x: x + width - 12, y: y + 19, "text-anchor": "end" }, cost));
    const share = most ? Math.max(0.02, node.seconds / most) : 0;
    made.append(shape("rect", { class: "share", x: x + 6, y: y + height - 4, width: (width - 12) * share, height: 2.5, rx: 1.2 }));
  }
  let line = y + 35;
  for (const detail of node.details) {
    made.append(shape("text", { class: "detail", x: x + 12, y: line }, cut(detail, SMALL, width - 24)));
    line += 16;
  }
  const shown = node.constants.slice(0, node.constants.length > MOST_CONSTANTS ? MOST_CONSTANTS - 1 : MOST_CONSTANTS);
  for (const constant of shown) {
    made.append(constantText(constant, x, line, width, open));
    line += 16;
  }
  const more = node.constants.length - shown.length;
  if (more) made.append(shape("text", { class: "detail", x: x + 12, y: line }, `\u25aa ${more} more constants`));
  if (node.change !== null) {
    made.append(shape("rect", { class: "mark", x, y: y + 5, width: 4, height: height - 10, rx: 2 }));
    made.append(drawnBadge(node.change, x + width - 8, y - 9)[0]);
  }
  made.append(shape("title", {}, nodeFacts(node)));
}

function constantText(constant, x, y, width, open) {
  const changed = constant.change === null ? "" : ` changed ${hue(constant.change)}`;
  const made = shape("g", { class: `constant${changed}` },
    shape("rect", { class: "dot", x: x + 12, y: y - 8, width: 7, height: 7, rx: 1.5 }),
    shape("text", { class: "detail", x: x + 24, y }, cut(constant.label, SMALL, width - 36, true)),
    shape("title", {}, nodeFacts(constant)));
  return pressable(made, `constant ${constant.label}`, () => open(constant));
}

function nodeFacts(node) {
  const cost = duration(node.seconds, node.estimated);
  return [node.label, node.detail, node.names.join(", "), cost, node.change === null ? "" : `change ${node.change}`]
    .filter(Boolean).join("\n");
}

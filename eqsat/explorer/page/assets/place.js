// Turns layers and places across into coordinates, for items of any size.

/** The closest numbers to those wanted, by weighted least squares, of which each is `gaps` past the one before. */
function spread(wanted, weights, gaps) {
  const pools = [];
  let offset = 0;
  const offsets = wanted.map((_, place) => (offset += place ? gaps[place - 1] : 0));
  wanted.forEach((value, place) => {
    let pool = { sum: (value - offsets[place]) * weights[place], weight: weights[place], count: 1 };
    while (pools.length && pools.at(-1).sum * pool.weight >= pool.sum * pools.at(-1).weight) {
      const before = pools.pop();
      pool = { sum: before.sum + pool.sum, weight: before.weight + pool.weight, count: before.count + pool.count };
    }
    pools.push(pool);
  });
  const at = pools.flatMap(({ sum, weight, count }) => Array(count).fill(sum / weight));
  return at.map((value, place) => value + offsets[place]);
}

/**
 * Places items in their layers.
 *
 * `sizes` are [width, height] of the items; `lines` have start, end, bends ([layer, across]) and, where they do not
 * meet an item at its middle, startShift and endShift. Returns the items' middles `x` and tops `y`, the points of
 * every line, and the width and height of it all, from 0, 0.
 */
function place({ layer, across, sizes, lines, gapX = 22, gapY = 34 }) {
  const stops = layer.map((of, item) => ({ layer: of, across: across[item], width: sizes[item][0], weight: 1 }));
  const links = stops.map(() => ({ up: [], down: [] }));
  const routes = new Map();
  const trunks = new Map(); // edges that leave one item share their bends until they part
  // middles are pulled to middles: were ports pulled to ports, a chain of blocks would drift to one side
  const link = (a, b) => {
    const [high, low] = stops[a].layer <= stops[b].layer ? [a, b] : [b, a];
    links[low].up.push(high);
    links[high].down.push(low);
  };
  for (const line of lines) {
    if (line.start === line.end) continue;
    const key = `${line.start} ${line.end}`;
    const known = routes.get(key);
    const bends = known ?? line.bends.map(([of, x]) => {
      const trunk = `${line.start} ${of} ${x}`;
      if (!trunks.has(trunk)) {
        links.push({ up: [], down: [] });
        trunks.set(trunk, stops.push({ layer: of, across: x, width: 4, weight: 4 }) - 1);
      }
      return trunks.get(trunk);
    });
    routes.set(key, bends);
    const route = [line.start, ...(known ? [] : bends), line.end];
    if (known && bends.length) continue;
    for (let at = 1; at < route.length; at += 1) link(route[at - 1], route[at]);
  }
  // what branches off a trunk does not pull it aside
  const isBend = (stop) => stop >= sizes.length;
  for (const stop of trunks.values()) {
    for (const side of ["up", "down"]) {
      if (links[stop][side].some(isBend)) links[stop][side] = links[stop][side].filter(isBend);
    }
  }
  const rows = inRows(stops, gapX);
  settle(stops, links, rows);
  return drawn(stops, sizes, lines, routes, rows, gapY);
}

function inRows(stops, gapX) {
  const rows = [];
  stops.forEach((stop, item) => (rows[stop.layer] ??= []).push(item));
  return Array.from(rows, (row = []) => {
    row.sort((a, b) => stops[a].across - stops[b].across);
    const gaps = row.slice(1).map((item, at) => (stops[row[at]].width + stops[item].width) / 2 + gapX);
    return { items: row, gaps, weights: row.map((item) => stops[item].weight) };
  });
}

/** Pulls every item towards those it is linked to, layer by layer, down and up in turn. */
function settle(stops, links, rows) {
  const widest = rows.reduce((most, row) => Math.max(most, row.gaps.reduce((sum, gap) => sum + gap, 0)), 0);
  const span = stops.reduce((most, stop) => Math.max(most, stop.across), 1);
  for (const stop of stops) stop.x = stop.across * (widest / span);
  const pull = (row, sides) => {
    const wanted = row.items.map((item) => {
      const near = sides.flatMap((side) => links[item][side]);
      return near.length ? near.reduce((sum, other) => sum + stops[other].x, 0) / near.length : stops[item].x;
    });
    spread(wanted, row.weights, row.gaps).forEach((x, at) => { stops[row.items[at]].x = x; });
  };
  for (const row of rows) pull(row, ["up"]);
  const rounds = stops.length < 2000 ? 16 : 6;
  for (let turn = 0; turn < rounds; turn += 1) {
    for (const row of rows.toReversed()) pull(row, turn < 3 ? ["down"] : ["up", "down"]);
    for (const row of rows) pull(row, turn < 3 ? ["up"] : ["up", "down"]);
  }
  straighten(stops, links);
  for (const row of rows) {
    spread(row.items.map((item) => stops[item].x), row.weights, row.gaps).forEach((x, at) => { stops[row.items[at]].x = x; });
  }
}

/** Puts each chain, whose items have one link on either side, under its middle. */
function straighten(stops, links) {
  const only = (item, side) => (new Set(links[item][side]).size === 1 ? links[item][side][0] : null);
  const next = (item) => {
    const below = only(item, "down");
    return below !== null && only(below, "up") === item ? below : null;
  };
  stops.forEach((_, item) => {
    const above = only(item, "up");
    if (above !== null && next(above) === item) return;
    const chain = [item];
    for (let below = next(item); below !== null; below = next(below)) chain.push(below);
    const middle = chain.reduce((sum, one) => sum + stops[one].x, 0) / chain.length;
    for (const one of chain) stops[one].x = middle;
  });
}

function drawn(stops, sizes, lines, routes, rows, gapY) {
  const least = stops.reduce((most, stop) => Math.min(most, stop.x - stop.width / 2), Infinity);
  let [bottom, gap] = [0, 0];
  const tops = [];
  const heights = [];
  rows.forEach((row, of) => {
    tops[of] = bottom;
    heights[of] = row.items.reduce((most, item) => Math.max(most, sizes[item]?.[1] ?? 0), 0);
    // a row of ports needs less room
    gap = heights[of] === 0 && of === 0 ? 14 : gapY;
    bottom += heights[of] + gap;
  });
  bottom -= gap;
  if (rows.length > 1 && heights.at(-1) === 0) {
    tops[rows.length - 1] -= gapY - 14;
    bottom -= gapY - 14;
  }
  for (const stop of stops) stop.x -= least;
  const y = sizes.map(([, height], item) => tops[stops[item].layer] + (heights[stops[item].layer] - height) / 2);
  const width = stops.reduce((most, stop) => Math.max(most, stop.x + stop.width / 2), 0);
  const points = lines.map((line) => {
    if (line.start === line.end) return [];
    const down = stops[line.start].layer <= stops[line.end].layer;
    const route = [line.start, ...routes.get(`${line.start} ${line.end}`), line.end];
    const found = route.flatMap((stop, at) => {
      const of = stops[stop].layer;
      const top = stop < sizes.length ? y[stop] : tops[of];
      const end = stop < sizes.length ? y[stop] + sizes[stop][1] : tops[of] + heights[of];
      const x = stops[stop].x + (at === 0 ? line.startShift ?? 0 : at === route.length - 1 ? line.endShift ?? 0 : 0);
      if (at === 0) return down ? [[x, end], [x, tops[of] + heights[of]]] : [[x, top], [x, tops[of]]];
      if (at === route.length - 1) return down ? [[x, tops[of]], [x, top]] : [[x, tops[of] + heights[of]], [x, end]];
      return down ? [[x, top], [x, end]] : [[x, end], [x, top]];
    });
    return found;
  });
  return { x: stops.slice(0, sizes.length).map((stop) => stop.x), y, points, width, height: Math.max(0, bottom) };
}

/** The path of a curve through points: straight inside a layer, bent between layers. */
function curve(points, dx = 0, dy = 0) {
  const at = ([x, y]) => `${round(x + dx)} ${round(y + dy)}`;
  let path = "";
  points.forEach((point, place) => {
    if (place === 0) path = `M${at(point)}`;
    else if (place % 2) path += point[1] === points[place - 1][1] && point[0] === points[place - 1][0] ? "" : `L${at(point)}`;
    else {
      const [x0, y0] = points[place - 1];
      const [x1, y1] = point;
      const middle = (y0 + y1) / 2;
      path += x0 === x1 ? `L${at(point)}` : `C${at([x0, middle])} ${at([x1, middle])} ${at(point)}`;
    }
  });
  return path;
}

function round(number) {
  return Math.round(number * 10) / 10;
}

/** Layers of a graph that may have cycles: each item below those it reads, edges that close a cycle left out. */
function layersOf(count, edges) {
  const before = Array.from({ length: count }, () => []);
  for (const [a, b] of edges) if (a !== b) before[b].push(a);
  const layer = Array(count).fill(-1);
  const open = new Set();
  const visit = (item) => {
    if (layer[item] >= 0) return layer[item];
    open.add(item);
    let most = -1;
    for (const other of before[item]) if (!open.has(other)) most = Math.max(most, visit(other));
    open.delete(item);
    layer[item] = most + 1;
    return layer[item];
  };
  for (let item = 0; item < count; item += 1) visit(item);
  return layer;
}

/** Places across that keep crossings few: items go to the middle of those they are linked to, round by round. */
function acrossOf(layer, edges) {
  const rows = [];
  layer.forEach((of, item) => (rows[of] ??= []).push(item));
  const across = Array(layer.length).fill(0);
  const number = (row) => row.forEach((item, at) => { across[item] = at - (row.length - 1) / 2; });
  rows.forEach(number);
  const near = layer.map(() => []);
  for (const [a, b] of edges) {
    near[a].push(b);
    near[b].push(a);
  }
  for (let pass = 0; pass < 12; pass += 1) {
    for (const row of pass % 2 ? rows.toReversed() : rows) {
      if (!row) continue;
      const side = (item) => near[item].filter((other) => (layer[other] - layer[item]) * (pass % 2 ? 1 : -1) > 0);
      const key = new Map(row.map((item) => {
        const others = side(item);
        return [item, others.length ? others.reduce((sum, other) => sum + across[other], 0) / others.length : across[item]];
      }));
      row.sort((a, b) => key.get(a) - key.get(b));
      number(row);
    }
  }
  return across;
}

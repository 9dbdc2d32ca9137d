// The growth of the e-graph and the rules that fired, as charts and a table.

const TOP_RULES = 12;

/** Charts as wide as their pane, drawn anew when that gets another width: their texts are as large as all others. */
class GrowthPane {
  constructor(run) {
    this.growth = run.growth;
    this.names = topRules(run.growth);
    this.charts = [element("div"), element("div")];
    this.element = element("section", { class: "text growth" }, run.growth.length ? [
      element("h2", {}, "Size of the e-graph over time"),
      this.charts[0],
      key([["nodes", "e-nodes"], ["classes", "e-classes"]]),
      element("h2", {}, "Firings per rule, by step"),
      this.charts[1],
      key(this.names.map((name, at) => [`series${at}`, name])),
    ] : element("p", { class: "empty" }, "This run recorded no steps."));
    new ResizeObserver(() => this.show()).observe(this.charts[0]);
  }

  show() {
    const width = Math.min(this.charts[0].clientWidth, CHART.most);
    if (!this.growth.length || !width || width === this.width) return;
    this.width = width;
    this.charts[0].replaceChildren(sizeChart(this.growth, width));
    this.charts[1].replaceChildren(firedChart(this.growth, this.names, width));
  }
}

/** The rules that fired most, then the rest as "others". */
function topRules(growth) {
  const counts = new Map();
  for (const step of growth) for (const [name, count] of step.fired) counts.set(name, (counts.get(name) ?? 0) + count);
  const names = [...counts.keys()].sort((a, b) => counts.get(b) - counts.get(a));
  return names.length > TOP_RULES ? [...names.slice(0, TOP_RULES), "others"] : names;
}

function key(entries) {
  return element("ul", { class: "key" }, entries.map(([name, text]) => element("li", {}, element("i", { class: name }), text)));
}

const STEP_LABEL = 34; // pixels that the number of a step needs with room around it
const CHART = { most: 1000, height: 260, left: 64, right: 16, top: 12, bottom: 40 };

function frame(most, label, width) {
  const { height, left, right, top, bottom } = CHART;
  const svg = shape("svg", { class: "chart", width, height, role: "img", "aria-label": label });
  const ticks = ticksTo(most);
  const y = (value) => height - bottom - ((height - top - bottom) * value) / (ticks.at(-1) || 1);
  for (const tick of ticks) {
    svg.append(shape("line", { class: "grid", x1: left, x2: width - right, y1: y(tick), y2: y(tick) }),
      shape("text", { x: left - 8, y: y(tick) + 4, "text-anchor": "end" }, tick.toLocaleString("en")));
  }
  return [svg, y];
}

/** Round numbers from 0 past `most`. */
function ticksTo(most) {
  const rough = Math.max(most, 1) / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = Math.max(1, [1, 2, 2.5, 5, 10].find((one) => one * power >= rough) * power);
  return Array.from({ length: Math.ceil(Math.max(most, 1) / step) + 1 }, (_, at) => at * step);
}

function sizeChart(growth, width) {
  const { height, left, right, bottom } = CHART;
  const last = growth.at(-1).seconds || 1;
  const x = (seconds) => left + ((width - left - right) * seconds) / last;
  const [svg, y] = frame(Math.max(...growth.map((step) => step.nodes)), "e-nodes and e-classes over time", width);
  for (const of of ["nodes", "classes"]) {
    svg.append(shape("path", { class: `line ${of}`, d: growth.map((step, at) => `${at ? "L" : "M"}${round(x(step.seconds))} ${round(y(step[of]))}`).join("") }));
    for (const step of growth) {
      svg.append(shape("circle", { class: of, cx: x(step.seconds), cy: y(step[of]), r: 3 },
        shape("title", {}, `${step.phase}, ${duration(step.seconds)}: ${plural(step.nodes, "e-node")}, ${plural(step.classes, "e-class")}`)));
    }
  }
  for (const share of [0, 0.25, 0.5, 0.75, 1]) {
    svg.append(shape("text", { x: x(last * share), y: height - bottom + 18, "text-anchor": share === 1 ? "end" : "middle" }, duration(last * share)));
  }
  svg.append(shape("text", { x: (width + left) / 2, y: height - 4, "text-anchor": "middle" }, "time since the start"));
  return svg;
}

function firedChart(growth, names, width) {
  const { height, left, right, bottom } = CHART;
  const sums = growth.map((step) => [...step.fired.values()].reduce((sum, count) => sum + count, 0));
  const [svg, y] = frame(Math.max(...sums), "firings per rule, by step", width);
  const each = (width - left - right) / growth.length;
  const every = Math.ceil(STEP_LABEL / each);
  growth.forEach((step, at) => {
    const parts = new Map(names.map((name) => [name, 0]));
    for (const [name, count] of step.fired) {
      const to = parts.has(name) ? name : "others";
      parts.set(to, parts.get(to) + count);
    }
    let sum = 0;
    names.forEach((name, series) => {
      const count = parts.get(name);
      if (!count) return;
      svg.append(shape("rect", { class: `series${series}`, x: round(left + each * (at + 0.12)), width: round(each * 0.76), y: round(y(sum + count)), height: round(y(sum) - y(sum + count)) },
        shape("title", {}, `step ${at}, ${step.phase}: ${name} fired ${count.toLocaleString("en")} times`)));
      sum += count;
    });
    if (at % every === 0) svg.append(shape("text", { x: left + each * (at + 0.5), y: height - bottom + 18, "text-anchor": "middle" }, String(at)));
  });
  svg.append(shape("text", { x: (width + left) / 2, y: height - 4, "text-anchor": "middle" }, "step"));
  return svg;
}

/** The rules in a table that sorts by any column. */
class RulesPane {
  constructor(run) {
    this.rules = run.rules;
    this.by = ["fired", -1];
    this.body = element("tbody");
    this.heads = ["name", "fired", "origin", "evidence", "text"].map((column) => element("th", { "aria-sort": "none", "data-column": column },
      button(column, `Sort by ${column}`, () => this.sort(column), { class: "link" })));
    this.element = element("section", { class: "text" }, run.rules.length
      ? element("table", { class: "rules" }, element("thead", {}, element("tr", {}, this.heads)), this.body)
      : element("p", { class: "empty" }, "No rule fired."));
    this.fill();
  }

  sort(column) {
    const [now, direction] = this.by;
    this.by = [column, now === column ? -direction : column === "fired" ? -1 : 1];
    this.fill();
  }

  fill() {
    const [column, direction] = this.by;
    const order = [...this.rules].sort((a, b) => direction * (column === "fired" ? a.fired - b.fired : a[column].localeCompare(b[column])));
    for (const head of this.heads) {
      const sorted = head.dataset.column === column ? (direction > 0 ? "ascending" : "descending") : "none";
      head.setAttribute("aria-sort", sorted);
    }
    this.body.replaceChildren(...order.map((rule) => element("tr", { "data-rule": rule.name },
      cell("name", rule.name), cell("fired", rule.fired.toLocaleString("en"), "number"), cell("origin", rule.origin),
      cell("evidence", rule.evidence), cell("text", element("code", {}, rule.text)))));
  }

  show(state) {
    for (const row of this.body.children) row.classList.toggle("lit", row.dataset.rule === state.rule);
    this.body.querySelector(".lit")?.scrollIntoView({ block: "center" });
  }
}

/** A cell that says which column it is of, for screens on which a row is a card. */
function cell(column, content, kind = null) {
  return element("td", { class: kind, "data-label": column }, content);
}

// The e-class panel: every form of a class, what it costs, which is chosen, and where it comes from.

const TREE_COST = "Tree cost: that of the form and of the cheapest forms below it, shared parts counted each time. "
  + "The choice counts a shared part once (DAG cost), so it may prefer a form whose tree costs more.";

/** `acts`: address(id) and ruleAddress(name) are what follows # for a class and a rule; show(id) shows it in the e-graph. */
function classPanel(run, id, acts) {
  const of = run.classes.get(id);
  if (!of) return element("p", { class: "empty" }, `This run has no class ${id}.`);
  const least = Math.min(...of.forms.map((form) => form.total ?? Infinity));
  const forms = [...of.forms].sort((a, b) => (a.total ?? Infinity) - (b.total ?? Infinity));
  const readers = acts.readers.get(id) ?? [];
  return element("div", { class: "eclass", "data-class": id },
    element("h2", {}, of.name, " ", element("span", { class: "muted" }, `class ${id}`)),
    element("dl", {},
      ...fact("Type", of.type),
      ...fact("Values", of.values.join(", ")),
      ...fact("Block", of.block),
      ...(of.constant ? fact("Known", "before the program runs") : [])),
    element("p", { class: "key" },
      element("span", { class: "tag chosen" }, "chosen"), " in the result  ",
      element("span", { class: "tag original" }, "original"), " in the given graph"),
    element("table", { class: "forms" },
      element("thead", {}, element("tr", {}, element("th", {}, plural(of.forms.length, "form")),
        element("th", { class: "number", title: "of this operator alone" }, "Own cost"),
        element("th", { class: "number", title: "of the cheapest tree with this form at its root" }, "Tree cost"))),
      element("tbody", {}, forms.map((form) => formRow(run, form, least, acts)))),
    element("p", { class: "note" }, TREE_COST),
    element("h3", {}, "Read by"),
    readers.length ? links(run, readers.slice(0, 30), acts) : element("p", { class: "muted" }, "nothing: an output, or not used"),
    acts.show && element("p", {}, button("Show in the e-graph", "Show this class in the e-graph", () => acts.show(id), { class: "wide" })));
}

function fact(name, text) {
  return text ? [element("dt", {}, name), element("dd", {}, text)] : [];
}

function formRow(run, form, least, acts) {
  const total = duration(form.total, form.estimated);
  const times = form.total && least > 0 && form.total > least * 1.0005 ? `${(form.total / least).toPrecision(3)} times` : "";
  return element("tr", { class: `${form.chosen ? "chosen " : ""}${form.original ? "original" : ""}` },
    element("td", {},
      element("div", {}, element("b", {}, form.op), " ", element("span", { class: "attrs" }, form.attrs), " ",
        form.chosen ? element("span", { class: "tag chosen" }, "chosen") : null, " ",
        form.original ? element("span", { class: "tag original" }, "original") : null),
      form.operands.length ? links(run, form.operands, acts) : null,
      form.rule ? element("div", { class: "muted" }, "by ", ruleLink(form.rule, acts)) : null),
    element("td", { class: "number" }, duration(form.seconds, form.estimated) || "none"),
    element("td", { class: "number", title: times }, total || "unknown"));
}

/** A link to a rule, where there is a pane for it. */
function ruleLink(name, acts) {
  return acts.ruleAddress ? element("a", { href: `#${acts.ruleAddress(name)}` }, name) : name;
}

function links(run, ids, acts) {
  return element("div", { class: "operands" }, ids.map((id) => {
    const of = run.classes.get(id);
    const name = of ? of.name : `class ${id}`;
    return element("a", { href: `#${acts.address(id)}`, title: of ? `class ${id}: ${of.type}` : "", "data-operand": id }, name);
  }));
}

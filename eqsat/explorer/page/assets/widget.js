// The e-graph in a notebook: `selected` and `data` are kept alike here and in Python.

function render({ model, el }) {
  el.classList.add("eqsat", "widget");
  let drawing;
  let run;
  const panel = element("aside", { "aria-label": "E-class" });
  const title = element("span", { class: "muted" });
  const side = element("div", { class: "side" });
  const select = (id) => {
    model.set("selected", id);
    model.save_changes();
  };
  const show = () => {
    const id = model.get("selected");
    const known = id !== null && run.classes.has(id);
    if (!run.whole && run.classes.size) drawing.showAround(known ? id : [...run.classes.keys()].at(-1));
    drawing.choose(known ? id : null);
    panel.hidden = id === null;
    if (panel.hidden) return;
    panel.replaceChildren(
      element("header", {}, button("\u00d7", "Close the class", () => select(null), { class: "close" })),
      classPanel(run, id, { readers: drawing.readers, address: (to) => `class=${to}` }));
  };
  const load = () => {
    run = readRun(model.get("data"));
    const held = drawing && run.whole ? drawing.viewport : null;
    drawing = new EgraphDrawing(run, { open: select });
    const forms = [...run.classes.values()].reduce((sum, of) => sum + of.forms.length, 0);
    title.textContent = `${plural(run.classes.size, "class")}, ${plural(forms, "e-node")}`;
    side.replaceChildren(
      element("header", {}, element("h2", {}, run.title), title, drawing.viewport.buttons(() => drawing.fit())),
      drawing.viewport.svg);
    if (run.whole) drawing.showWhole();
    if (held) Object.assign(drawing.viewport, { x: held.x, y: held.y, scale: held.scale }).apply();
    show();
  };
  // a link in the panel goes to a class of this widget, not to an address of the notebook
  panel.addEventListener("click", (event) => {
    const link = event.target.closest("[data-operand]");
    if (!link) return;
    event.preventDefault();
    select(Number(link.dataset.operand));
  });
  const main = element("main", {}, element("section", { class: "panes" }, side), panel);
  main.style.height = `${model.get("height")}px`;
  el.replaceChildren(main);
  load();
  requestAnimationFrame(() => { if (run.whole) drawing.showWhole(); });
  model.on("change:selected", show);
  model.on("change:data", load);
  return () => {
    model.off("change:selected", show);
    model.off("change:data", load);
  };
}

export default { render };

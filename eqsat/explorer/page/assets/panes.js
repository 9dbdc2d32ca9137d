// The panes of a page: graphs side by side, the e-graph, changes, growth, rules, report.

class GraphsPane {
  constructor(run, acts) {
    this.run = run;
    this.acts = acts;
    this.drawings = run.graphs.map((graph) => new GraphDrawing(graph, { open: (node) => acts.node(node) }));
    this.legend = element("div", { class: "legend", role: "group", "aria-label": "Changes" });
    this.element = element("section", { class: "graphs" },
      run.changes.length ? this.legend : null,
      element("div", { class: "sides" }, this.drawings.map((drawing) => this.side(drawing))));
  }

  side(drawing) {
    const { graph, viewport } = drawing;
    const [root] = graph.blocks;
    const folds = graph.blocks.length > 1 ? element("span", { class: "buttons" },
      button("Fold", "Fold all blocks", () => drawing.foldAll(true)),
      button("Unfold", "Unfold all blocks", () => drawing.foldAll(false))) : null;
    return element("div", { class: "side", "data-side": graph.side },
      element("header", {}, element("h2", { title: graph.name }, graph.role), element("span", { class: "muted" }, blockFacts(root)),
        folds, viewport.buttons(() => drawing.fit())),
      viewport.svg);
  }

  show(state) {
    if (!this.started) {
      this.started = true;
      this.drawings.forEach((drawing) => drawing.start());
    }
    const change = state.change ? Number(state.change) : null;
    if (this.change !== change) {
      this.change = change;
      this.drawings.forEach((drawing) => drawing.single(change));
      this.fillLegend();
    }
    if (state.block && this.block !== state.block) {
      const [of, block] = state.block.split(".").map(Number);
      this.drawings.forEach((drawing) => { drawing.found = null; });
      const path = this.drawings[of]?.pathOf(this.run.graphs[of].blocks[block] ?? this.run.graphs[of].blocks[0]);
      for (const drawing of path ? this.drawings : []) {
        const same = drawing.graph.blocks.find((one) => drawing.pathOf(one) === path);
        if (same) drawing.showBlock(same.index);
      }
    }
    this.block = state.block;
    const [side, index] = (state.node ?? "").split(".").map(Number);
    const node = state.node ? this.run.graphs[side]?.nodes[index] : null;
    const eclass = state.class ? Number(state.class) : null;
    if (node && this.node !== node && !this.pressed) this.drawings[side].reveal(node);
    this.pressed = false;
    this.node = node;
    for (const drawing of this.drawings) drawing.choose(node && node.side === drawing.graph.side ? node : null, eclass);
    if (node) this.followed(node);
  }

  /** Shows the node's class in the other graph too, where it is drawn and out of view. */
  followed(node) {
    for (const { graph, boxes, viewport } of this.drawings) {
      if (graph.side === node.side || node.eclass === null) continue;
      const other = graph.nodes.find((one) => one.eclass === node.eclass && boxes.nodes.has(one.index));
      const box = other && boxes.nodes.get(other.index);
      if (box && !within(box, viewport.view())) viewport.centre(box.x + box.width / 2, box.y + box.height / 2, 0.3);
    }
  }

  fillLegend() {
    this.legend.replaceChildren(
      element("span", { class: "muted" }, "Changes"),
      ...this.run.changes.map((change) => element("button", {
        type: "button", class: "chip", "aria-pressed": String(this.change === change.number), "data-change": change.number,
        title: change.rules.join(", "), onclick: () => this.acts.change(this.change === change.number ? null : change.number),
      }, badge(change.number), " ", change.what)));
    this.legend.querySelector("[aria-pressed=true]")?.scrollIntoView({ block: "nearest", inline: "center" });
  }
}

class EgraphPane {
  constructor(run, acts) {
    this.run = run;
    this.acts = acts;
    this.drawing = new EgraphDrawing(run, { open: (id) => acts.class(id) });
    this.list = element("div", { class: "list" });
    this.filter = element("input", { type: "search", placeholder: "Filter classes", "aria-label": "Filter classes", oninput: () => this.fill() });
    this.scope = run.whole ? button("Around the class", "Show the class in focus with its neighbours alone", () => this.turn()) : null;
    this.title = element("span", { class: "muted" });
    const count = plural([...run.classes.values()].reduce((sum, of) => sum + of.forms.length, 0), "e-node");
    this.element = element("section", { class: "egraph" },
      element("nav", { "aria-label": "Classes" }, this.filter, this.list),
      element("div", { class: "side" },
        element("header", {}, element("h2", {}, "e-graph"),
          element("span", { class: "muted" }, `${plural(run.classes.size, "class")}, ${count}`), this.title,
          this.scope, this.drawing.viewport.buttons(() => this.drawing.fit())),
        this.drawing.viewport.svg,
        element("footer", { class: "marks" }, [["chosen", "e-node of the result"], ["original", "e-node of the given graph"], ["known", "class known before the run"]]
          .map(([name, text]) => element("span", {}, element("i", { class: name }), text)))));
    this.whole = run.whole !== null;
  }

  show(state) {
    const id = state.class ? Number(state.class) : null;
    const known = id !== null && this.run.classes.has(id) ? id : null;
    if (!this.shown) this.fill();
    if (this.whole) {
      if (!this.shown) this.drawing.showWhole();
    } else {
      const focus = known ?? this.focus ?? this.drawing.richest();
      if (focus !== this.focus || !this.shown) this.drawing.showAround(focus);
      this.focus = focus;
    }
    this.shown = true;
    this.title.textContent = this.whole ? "" : `around ${this.run.classes.get(this.focus).name}`;
    this.drawing.choose(known ?? (this.whole ? null : this.focus));
    if (this.whole && known !== null) this.drawing.bring(known);
  }

  turn() {
    this.whole = !this.whole;
    this.focus = undefined;
    this.shown = false;
    this.scope.textContent = this.whole ? "Around the class" : "Whole e-graph";
    this.show(this.acts.state());
  }

  fill() {
    const wanted = this.filter.value.trim().toLowerCase();
    const blocks = new Map();
    for (const of of this.run.classes.values()) {
      if (wanted && !classText(of).includes(wanted)) continue;
      if (!blocks.has(of.block)) blocks.set(of.block, []);
      blocks.get(of.block).push(of);
    }
    const few = blocks.size <= 3;
    this.list.replaceChildren(...[...blocks].slice(0, 400).map(([name, found], at) => this.group(name, found, few || (wanted && at < 5))));
    if (!blocks.size) this.list.append(element("p", { class: "empty" }, "No class has that in its name, operators or block."));
  }

  group(name, found, open) {
    const group = element("details", {}, element("summary", { title: name }, element("span", { class: "muted" }, String(found.length)), " ", name || "(no block)"));
    const fill = () => {
      if (!group.open || group.children.length > 1) return;
      group.append(...found.slice(0, 300).map((of) => element("a", { href: `#${this.acts.address(of.id)}`, "data-listed": of.id, title: of.type },
        of.name, " ", element("span", { class: "muted" }, plural(of.forms.length, "form")))));
      if (found.length > 300) group.append(element("p", { class: "muted" }, `and ${found.length - 300} more: filter by name`));
    };
    group.addEventListener("toggle", fill);
    if (open) {
      group.open = true;
      fill();
    }
    return group;
  }
}

function classText(of) {
  of.text ??= [of.name, of.block, ...of.values, ...of.forms.map((form) => form.op), `class ${of.id}`].join("\n").toLowerCase();
  return of.text;
}

/** Every change: values, rules in order, steps, and what it saves. */
function changesPane(run, acts) {
  if (!run.changes.length) return element("section", { class: "text" }, element("p", { class: "empty" }, "The result is the graph as it was given."));
  return element("section", { class: "text changes" }, run.changes.map((change) => element("article", { class: hue(change.number), "data-change": change.number },
    element("h2", {}, badge(change.number), " ", change.what),
    element("dl", {},
      ...fact("Saves, predicted", saved(change.predicted)),
      ...fact("Saves, measured", change.measured === null ? "not measured" : saved(change.measured)),
      ...listed("Values", change.values),
      ...(change.rules.length ? [element("dt", {}, "Rules"), element("dd", {}, change.rules.map((rule, at) => [
        at ? ", then " : "", ruleLink(rule, acts)]).flat())] : [])),
    change.gaps ? element("p", { class: "gap" }, `${plural(change.gaps, "gap")} in the steps: there the e-graph holds both forms equal, and no rule is on record.`) : null,
    change.steps.length ? element("ol", { class: "steps" }, change.steps.map((step) => element("li", {}, element("code", {}, step)))) : null,
    button("Show in the graphs", `Show change ${change.number} in the graphs`, () => acts.change(change.number), { class: "wide" }))));
}

/** A list of which only the first are shown at once. */
function listed(name, texts, most = 6) {
  if (texts.length <= most) return fact(name, texts.join(", "));
  const rest = element("details", {}, element("summary", {}, `and ${texts.length - most} more`), texts.slice(most).join(", "));
  return [element("dt", {}, name), element("dd", {}, texts.slice(0, most).join(", "), rest)];
}

function saved(seconds) {
  if (seconds === null) return "";
  return seconds < 0 ? `${duration(-seconds)} lost` : duration(seconds);
}

function reportPane(run) {
  return element("section", { class: "text" },
    run.notes.length ? element("ul", { class: "notes" }, run.notes.map((note) => element("li", {}, note))) : null,
    element("pre", {}, run.report || "This run has no report."));
}

// Search by name: values, operators, blocks and classes, in one list under the box.

const MOST_FOUND = 40;

class Search {
  /** `pick(entry)` is called with what is picked: { node }, { block, side } or { eclass }. */
  constructor(run, pick) {
    this.pick = pick;
    this.entries = null;
    this.run = run;
    this.input = element("input", {
      type: "search", id: "search", role: "combobox", placeholder: "Search by name ( / )", "aria-label": "Search by name",
      "aria-controls": "found", "aria-expanded": "false", autocomplete: "off", spellcheck: "false",
      oninput: () => this.find(), onfocus: () => this.find(), onkeydown: (event) => this.key(event),
    });
    this.list = element("ul", { id: "found", role: "listbox", "aria-label": "Found", hidden: true });
    this.element = element("div", { class: "search" }, this.input, this.list);
    this.element.addEventListener("focusout", (event) => { if (!this.element.contains(event.relatedTarget)) this.close(); });
  }

  gather() {
    const found = [];
    for (const graph of this.run.graphs) {
      for (const block of graph.blocks.slice(1)) found.push({ what: `block, ${graph.role}`, name: block.name, block: block.index, side: graph.side, text: block.name });
      for (const node of graph.nodes) {
        const path = node.block ? graph.blocks[node.block].name : "";
        found.push({ what: graph.role, name: [node.label, ...node.names.slice(0, 1)].join("  "), node, text: [node.label, ...node.names, path].join("\n") });
      }
    }
    for (const of of this.run.classes.values()) found.push({ what: `class ${of.id}`, name: of.name, eclass: of.id, text: [of.name, ...of.values, ...of.forms.map((form) => form.op)].join("\n") });
    for (const entry of found) entry.text = entry.text.toLowerCase();
    return found;
  }

  find() {
    const wanted = this.input.value.trim().toLowerCase();
    if (!wanted) return this.close();
    this.entries ??= this.gather();
    const hits = this.entries.filter((entry) => entry.text.includes(wanted));
    const rank = ({ text }) => (text.split("\n").includes(wanted) ? 0 : text.startsWith(wanted) ? 1 : 2);
    const best = hits.map((entry) => [rank(entry), entry]).sort(([a], [b]) => a - b).slice(0, MOST_FOUND).map(([, entry]) => entry);
    this.list.replaceChildren(...best.map((entry, at) => this.option(entry, at)));
    if (!hits.length) this.list.append(element("li", { class: "muted" }, "Nothing has that name."));
    if (hits.length > best.length) this.list.append(element("li", { class: "muted" }, `and ${hits.length - best.length} more`));
    this.list.hidden = false;
    this.input.setAttribute("aria-expanded", "true");
    this.mark(0);
    return undefined;
  }

  option(entry, at) {
    const take = (event) => {
      event.preventDefault();
      this.take(entry);
    };
    const made = element("li", { role: "option", id: `found${at}`, onmousedown: take },
      element("span", { class: "name" }, entry.name), element("span", { class: "muted" }, entry.what));
    made.entry = entry;
    return made;
  }

  mark(at) {
    const options = [...this.list.querySelectorAll("[role=option]")];
    this.at = Math.max(0, Math.min(at, options.length - 1));
    options.forEach((option, place) => option.setAttribute("aria-selected", String(place === this.at)));
    options[this.at]?.scrollIntoView({ block: "nearest" });
    if (options.length) this.input.setAttribute("aria-activedescendant", `found${this.at}`);
  }

  key(event) {
    const acts = {
      ArrowDown: () => this.mark(this.at + 1),
      ArrowUp: () => this.mark(this.at - 1),
      Enter: () => {
        const option = this.list.querySelector("[aria-selected=true]");
        if (option && !this.list.hidden) this.take(option.entry);
      },
      Escape: () => this.close(),
    };
    if (!(event.key in acts)) return;
    event.preventDefault();
    acts[event.key]();
  }

  take(entry) {
    this.close();
    this.pick(entry);
  }

  close() {
    this.list.hidden = true;
    this.input.setAttribute("aria-expanded", "false");
    this.input.removeAttribute("aria-activedescendant");
  }
}

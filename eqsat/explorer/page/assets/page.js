// The page: panes as tabs, the class panel, search; the address after # says what is shown.

const PANES = [["graphs", "Graphs"], ["egraph", "E-graph"], ["changes", "Changes"], ["growth", "Growth"], ["rules", "Rules"], ["report", "Report"]];

class Page {
  constructor(run, only) {
    this.run = run;
    this.only = only;
    this.readers = readersOf(run.classes);
    const acts = {
      state: () => this.state(),
      address: (id) => this.address({ ...this.state(), node: null, class: id }),
      node: (node) => this.pressed(node),
      class: (id) => this.go({ class: id, node: null }),
      ruleAddress: (name) => this.address({ pane: "rules", rule: name }),
      change: (number) => this.go({ pane: "graphs", change: number, node: null }),
    };
    this.panes = this.build(acts);
    this.search = new Search(run, (entry) => this.found(entry));
    this.tabs = element("nav", { class: "tabs", role: "tablist", "aria-label": "Panes", onkeydown: (event) => this.tabKey(event) },
      PANES.filter(([name]) => name in this.panes).map(([name, label]) => element("button", {
        type: "button", role: "tab", id: `tab-${name}`, "aria-controls": `pane-${name}`, onclick: () => this.go({ pane: name }),
      }, name === "changes" && run.changes.length ? `${label} (${run.changes.length})` : label)));
    this.panel = element("aside", { "aria-label": "E-class", hidden: true });
    this.main = element("main", {}, element("div", { class: "panes" }, Object.entries(this.panes).map(([name, pane]) => {
      const made = pane.element ?? pane;
      filled(made, { id: `pane-${name}`, role: "tabpanel", "aria-labelledby": `tab-${name}`, hidden: true }, []);
      return made;
    })), this.panel);
  }

  build(acts) {
    const { run } = this;
    const makers = {
      graphs: () => (run.graphs.length ? new GraphsPane(run, acts) : null),
      egraph: () => (run.classes.size ? new EgraphPane(run, acts) : null),
      changes: () => changesPane(run, acts),
      growth: () => new GrowthPane(run),
      rules: () => new RulesPane(run),
      report: () => reportPane(run),
    };
    const names = Object.keys(makers).filter((name) => !this.only || name === this.only);
    return Object.fromEntries(names.map((name) => [name, makers[name]()]).filter(([, pane]) => pane));
  }

  start() {
    const title = element("h1", { title: this.run.title }, this.run.title);
    document.body.append(element("header", { class: "top" }, title, this.only ? null : this.tabs, this.search.element), this.main);
    document.body.classList.toggle("single", Boolean(this.only));
    addEventListener("hashchange", () => this.show());
    document.addEventListener("keydown", (event) => this.key(event));
    this.show();
    document.body.dataset.ready = "true";
  }

  state() {
    return Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  }

  address(state) {
    const kept = Object.entries(state).filter(([, value]) => value !== null && value !== undefined && value !== "");
    return new URLSearchParams(kept.map(([name, value]) => [name, String(value)])).toString();
  }

  go(patch) {
    const address = this.address({ ...this.state(), ...patch });
    if (location.hash.slice(1) === address) this.show();
    else location.hash = address;
  }

  /** A node that is pressed opens its class, and stays where it is. */
  pressed(node) {
    this.panes.graphs.pressed = true;
    this.go({ node: `${node.side}.${node.index}`, class: node.eclass });
  }

  show() {
    const state = this.state();
    const first = Object.keys(this.panes)[0];
    const now = state.pane in this.panes ? state.pane : first;
    for (const [name, pane] of Object.entries(this.panes)) (pane.element ?? pane).hidden = name !== now;
    for (const tab of this.tabs.children) {
      const on = tab.id === `tab-${now}`;
      tab.setAttribute("aria-selected", String(on));
      tab.tabIndex = on ? 0 : -1;
    }
    this.showPanel(state, now);
    this.panes[now]?.show?.(state);
  }

  showPanel(state, now) {
    const id = state.class === undefined ? null : Number(state.class);
    const room = now === "graphs" || now === "egraph";
    this.panel.hidden = id === null || !room;
    if (this.panel.hidden || this.shown === id) return;
    this.shown = id;
    const acts = {
      readers: this.readers,
      address: (to) => this.address({ ...this.state(), node: null, class: to }),
      ruleAddress: (name) => this.address({ ...this.state(), pane: "rules", rule: name }),
      show: (to) => this.go({ pane: "egraph" in this.panes ? "egraph" : now, class: to, node: null }),
    };
    this.panel.replaceChildren(
      element("header", {},
        button("\u2190", "Back", () => history.back()), button("\u2192", "Forward", () => history.forward()),
        button("\u00d7", "Close the class", () => { this.shown = null; this.go({ class: null, node: null }); }, { class: "close" })),
      classPanel(this.run, id, acts));
    this.panel.scrollTop = 0;
  }

  found({ node, block, side, eclass }) {
    if (node && this.panes.graphs) {
      this.go({ pane: "graphs", node: `${node.side}.${node.index}`, class: node.eclass, block: null });
      return;
    }
    if (block !== undefined && this.panes.graphs) {
      this.go({ pane: "graphs", node: null, block: `${side}.${block}` });
      return;
    }
    const id = eclass ?? node?.eclass ?? null;
    const pane = "egraph" in this.panes ? "egraph" : this.state().pane;
    this.go({ pane, class: id, node: null });
  }

  key(event) {
    const typing = event.target instanceof HTMLInputElement;
    if (event.key === "/" && !typing) {
      event.preventDefault();
      this.search.input.focus();
      this.search.input.select();
    }
    if (event.key === "Escape" && !typing && !this.panel.hidden) {
      this.shown = null;
      this.go({ class: null, node: null });
    }
  }

  tabKey(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    const tabs = [...this.tabs.children];
    const next = tabs[(tabs.indexOf(document.activeElement) + step + tabs.length) % tabs.length];
    next.focus();
    next.click();
  }
}

new Page(readRun(JSON.parse(document.getElementById("data").textContent)), document.body.dataset.pane).start();

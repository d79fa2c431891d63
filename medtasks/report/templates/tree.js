"use strict";
(() => {
  const data = JSON.parse(document.getElementById("tree-data").textContent);
  const { columns, levels } = data;
  const MISSING = -1;
  const MOST_OPENED = 300; // branches a search opens; more take long to draw, and nobody reads them
  const at = (id) => document.getElementById(id);
  const counted = (number) => `${number.toLocaleString("en")} question${number === 1 ? "" : "s"}`;
  const ofAll = (number) => `${number.toLocaleString("en")} of ${counted(data.questions)}`;
  const element = (name, about = {}, ...children) => {
    const made = Object.assign(document.createElement(name), about);
    made.append(...children);
    return made;
  };
  const attributes = (made, about) => {
    for (const [name, value] of Object.entries(about)) made.setAttribute(name, value);
    return made;
  };
  const titled = (column) => column.name.replaceAll("_", " ");
  const named = (column, value) => (value === MISSING ? `no ${titled(columns[column])} given` : columns[column].values[value] || "(empty)");

  // Sets of rows are bits. A row is what one image or question says; its unit is what the command takes as a whole.
  const rows = data.units.flatMap(([, unit], place) => unit.map((values) => ({ unit: place, values, leaves: [] })));
  const words = Math.ceil(rows.length / 32);
  const none = () => new Uint32Array(words);
  const include = (set, row) => (set[row >>> 5] |= 1 << (row & 31));
  const includes = (set, row) => (set[row >>> 5] >>> (row & 31)) & 1;
  const both = (one, other) => one.map((word, place) => word & other[place]);
  const either = (one, other) => one.map((word, place) => word | other[place]);
  const within = (one, other) => one.every((word, place) => (word & ~other[place]) === 0);
  const unitsOf = (set) => new Set(rows.filter((_, row) => includes(set, row)).map((row) => row.unit));
  const without = (units, others) => new Set([...units].filter((unit) => !others.has(unit)));
  const questionsOf = (units) => [...units].reduce((sum, unit) => sum + data.units[unit][0], 0);
  const valuesOf = (row, column) => (row.values[column].length ? row.values[column] : [MISSING]);
  const everything = none();
  const having = columns.map(() => new Map()); // rows by column and value
  rows.forEach((row, place) => {
    include(everything, place);
    columns.forEach((_, column) => {
      for (const value of valuesOf(row, column)) {
        if (!having[column].has(value)) having[column].set(value, none());
        include(having[column].get(value), place);
      }
    });
  });
  // Rows that the command takes for these values: a few values stand for others, too, and none says "no value".
  const taken = (column, values) => {
    const set = none();
    for (const value of values) {
      if (value === MISSING) continue;
      for (const one of columns[column].says[value] ?? [value]) having[column].get(one).forEach((word, place) => (set[place] |= word));
    }
    return set;
  };

  // The tree of what the filters leave.
  const filters = columns.map(() => new Set());
  const ticks = new Set(); // keys of leaves
  const open = { always: new Set(), searching: new Set() };
  let fits, root, wanted = [];
  const isOpen = (node) => (wanted.length ? open.searching : open.always).has(node.key);
  const child = (parent, value) => {
    if (!parent.children.has(value)) {
      const level = parent.level + 1;
      const label = named(level, value);
      const text = `${parent.text} ${label.toLowerCase()}`;
      parent.children.set(value, { level, value, parent, label, text, key: `${parent.key}/${value}`, children: new Map(), count: 0 });
    }
    return parent.children.get(value);
  };
  const ancestry = function* (node) {
    for (let one = node; one; one = one.parent) yield one;
  };
  const walk = (node, visit) => {
    visit(node);
    node.children.forEach((one) => walk(one, visit));
  };
  const count = (leaves, unit, field) => {
    for (const leaf of leaves) {
      for (const node of ancestry(leaf)) {
        if (node[`${field}Unit`] !== unit) node[field] += data.units[unit][0];
        node[`${field}Unit`] = unit;
      }
    }
  };
  const grow = () => {
    fits = everything;
    filters.forEach((values, column) => values.size && (fits = both(fits, taken(column, values))));
    root = { level: -1, text: "", key: "", children: new Map(), count: 0 };
    rows.forEach((row, place) => {
      let ends = includes(fits, place) ? [root] : [];
      for (let level = 0; level < levels; level++) ends = ends.flatMap((node) => valuesOf(row, level).map((value) => child(node, value)));
      row.leaves = ends;
      count(ends, row.unit, "count");
    });
    const sorted = (node) => {
      node.children = new Map([...node.children].sort(([one], [other]) => (one < 0) - (other < 0) || one - other));
      node.children.forEach(sorted);
    };
    sorted(root);
    search();
    tally();
  };
  const search = () => {
    wanted = at("search").value.toLowerCase().split(/\s+/).filter(Boolean);
    open.searching.clear();
    let found = 0;
    const mark = (node, inside) => {
      const own = node.level >= 0 && wanted.some((word) => node.label.toLowerCase().includes(word)) && wanted.every((word) => node.text.includes(word));
      found += own ? 1 : 0;
      node.found = own;
      let below = false;
      node.children.forEach((one) => (below = mark(one, inside || own) || below));
      node.shown = inside || own || below || !wanted.length;
      if (below) open.searching.add(node.key);
      return own || below;
    };
    mark(root, false);
    if (found > MOST_OPENED) open.searching.clear();
    draw();
    const narrowed = root.count < data.questions ? `${ofAll(root.count)} after the filters` : counted(data.questions);
    const groups = found === 1 ? "1 group fits" : `${found.toLocaleString("en")} groups fit`;
    at("shown").textContent = narrowed + (wanted.length ? `; ${groups} the search${found > MOST_OPENED ? ", too many to open them all" : ""}` : "");
  };

  // Ticks.
  const shownLeaves = (node) => {
    const leaves = [];
    walk(node, (one) => one.level === levels - 1 && one.shown && leaves.push(one));
    return leaves;
  };
  const toggle = (node) => {
    const leaves = shownLeaves(node);
    const full = leaves.every((leaf) => ticks.has(leaf.key));
    for (const leaf of leaves) full ? ticks.delete(leaf.key) : ticks.add(leaf.key);
    tally();
  };
  const tally = () => {
    walk(root, (node) => Object.assign(node, { leaves: 0, on: 0, ticked: 0, tickedUnit: undefined }));
    walk(root, (node) => {
      if (node.level !== levels - 1) return;
      const on = ticks.has(node.key) ? 1 : 0;
      for (const one of ancestry(node)) (one.leaves += 1), (one.on += on);
    });
    for (const row of rows) count(row.leaves.filter((leaf) => leaf.on), row.unit, "ticked");
    showAll();
    choice = choose();
    present();
  };

  // What commands choose. A box says for each level which values it takes, null for any.
  const box = (sets, taking = sets.map((set, level) => set && taken(level, set))) => {
    const match = taking.reduce((rest, set) => (set ? both(rest, set) : rest), fits);
    return { sets, taking, match };
  };
  const relaxed = (one, level) => box(one.sets.with(level, null), one.taking.with(level, null));
  const spelled = (one, level) => {
    if (one.sets[level]) return one;
    one.spelled ??= [];
    one.spelled[level] ??= box(one.sets.with(level, new Set(rows.flatMap((row, place) => (includes(one.match, place) ? row.values[level] : [])))));
    return one.spelled[level];
  };
  const differs = (one, other, level) => !one.sets[level] !== !other.sets[level];
  // Two boxes that name the same levels: a level that only one of them names is spelled out in the other.
  const alike = (one, other) => {
    for (let level = 0; level < levels; level++) {
      if (differs(one, other, level)) [one, other] = [spelled(one, level), spelled(other, level)];
    }
    return [one, other];
  };
  const hull = (one, other) => {
    const any = one.sets.map((set, level) => !set || !other.sets[level]);
    const sets = any.map((free, level) => (free ? null : new Set([...one.sets[level], ...other.sets[level]])));
    return box(sets, any.map((free, level) => (free ? null : either(one.taking[level], other.taking[level]))));
  };
  const tops = (node) => (node.on === node.leaves ? [node] : [...node.children.values()].filter((one) => one.on).flatMap(tops));
  const groupsOf = (nodes) => {
    const siblings = new Map();
    for (const node of nodes) siblings.set(node.parent, [...(siblings.get(node.parent) ?? []), node]);
    return [...siblings.values()].map((group) => {
      const sets = Array(levels).fill(null);
      for (const node of ancestry(group[0])) if (node.level >= 0) sets[node.level] = new Set([node.value]);
      if (group[0].level >= 0) sets[group[0].level] = new Set(group.map((node) => node.value));
      return sets;
    });
  };
  const exactly = (nodes) => {
    let target = none();
    for (const node of nodes) {
      let match = fits;
      for (const one of ancestry(node)) if (one.level >= 0) match = both(match, having[one.level].get(one.value));
      target = either(target, match);
    }
    const units = unitsOf(target); // a pair is chosen as a whole, so its other row may be, too
    const allowed = none();
    rows.forEach((row, place) => units.has(row.unit) && include(allowed, place));
    return { units, allowed };
  };
  const sayable = (one, allowed) => {
    for (let level = 0; level < levels; level++) {
      if (!one.sets[level]?.has(MISSING)) continue;
      const free = relaxed(one, level);
      if (within(free.match, allowed)) one = free;
      else one.sets[level].delete(MISSING);
    }
    return one;
  };
  // Whether the hull of two boxes takes nothing else: as within(hull(one, other).match, allowed), but mostly after a few words.
  const tight = (one, other, allowed) =>
    fits.every((word, place) => {
      for (let level = 0; level < levels; level++) {
        if (one.taking[level] && other.taking[level]) word &= one.taking[level][place] | other.taking[level][place];
      }
      return (word & ~allowed[place]) === 0;
    });
  const merged = (boxes, allowed) => {
    const kept = [];
    for (const one of boxes) {
      const join = (other, place) => {
        if (tight(other, one, allowed)) kept[place] = hull(other, one);
        else if (one.sets.some((_, level) => differs(one, other, level)) && tight(...alike(other, one), allowed)) {
          const wider = hull(...alike(other, one));
          if (!within(either(one.match, other.match), wider.match)) return false; // a spelled-out level loses what has no value
          kept[place] = wider;
        } else return false;
        return true;
      };
      if (!kept.some(join)) kept.push(one);
    }
    return kept.length < boxes.length ? merged(kept, allowed) : kept;
  };
  // What is said for nothing is left out, but for a single value that the user went by. The last levels say most.
  const shortened = (one, allowed) => {
    for (let level = 0; level < levels; level++) {
      const set = one.sets[level];
      const whole = set && (set.size > 1 || rows.every((row, place) => !includes(fits, place) || row.values[level].every((value) => set.has(value))));
      if (whole && within(relaxed(one, level).match, allowed)) one = relaxed(one, level);
    }
    return one;
  };
  const choose = () => {
    const nodes = root.on ? tops(root) : [];
    const { units, allowed } = exactly(nodes);
    const boxes = groupsOf(nodes).map((sets) => sayable(box(sets), allowed)).filter((one) => one.match.some(Boolean));
    const commands = merged(boxes, allowed).map((one) => shortened(one, allowed));
    const chosen = commands.map((one) => unitsOf(one.match));
    const union = new Set(chosen.flatMap((one) => [...one]));
    let single = null;
    if (commands.length > 1) {
      const hulls = [hull, (one, other) => hull(...alike(one, other))].map((join) => shortened(commands.reduce(join), everything));
      const whole = hulls.filter((one) => !without(union, unitsOf(one.match)).size && unitsOf(one.match).size < data.units.length);
      single = whole.sort((one, other) => questionsOf(unitsOf(one.match)) - questionsOf(unitsOf(other.match)))[0];
    }
    return { units, commands, chosen, union, single };
  };
  const quoted = (text) => (/^[\w@%+:,./=-]+$/.test(text) ? text : `'${text.replaceAll("'", `'"'"'`)}'`);
  const commandOf = (one, name) => {
    const parts = ["medtasks data select", quoted(data.dataset)];
    columns.forEach((column, place) => {
      const values = (place < levels && one.sets[place]) || filters[place];
      for (const value of [...values].sort((a, b) => a - b)) {
        const text = column.values[value];
        parts.push(column.option ? `${column.option} ${quoted(text)}` : `--where ${quoted(`${column.name}=${text}`)}`);
      }
    });
    return parts.concat(data.selects ? [`--as ${name}`] : []).join(" ");
  };

  // What is said of the choice.
  const fine = (name) => /^[\p{XID_Start}_]\p{XID_Continue}*$/u.test(name) && name === name.toLowerCase();
  const copy = async (text, where) => {
    const selection = getSelection();
    selection.selectAllChildren(where);
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      if (!document.execCommand("copy")) return (at("copied").textContent = "The browser refuses: press Ctrl+C, the text is selected.");
    }
    at("copied").textContent = "Copied.";
  };
  const listed = (command, number) => {
    const pieces = command.split(/(--[a-z-]+)/); // an option's name is not broken at its hyphens
    const code = element("code", {}, ...pieces.map((text, place) => (place % 2 ? element("span", { className: "metric", textContent: text }) : text)));
    const button = element("button", { className: "plain", type: "button", textContent: "Copy", onclick: () => copy(command, code) });
    const size = element("span", { textContent: ofAll(number) });
    return element("li", {}, element("pre", { className: "raw", tabIndex: 0 }, code), element("p", {}, size, button));
  };
  let choice;
  const present = () => {
    const { units, commands, chosen, union, single } = choice;
    const name = at("name").value.trim();
    const whole = commands.length === 1 && union.size === data.units.length && commandOf(commands[0], name) === commandOf({ sets: [] }, name);
    const good = !data.selects || fine(name);
    at("ticked").textContent = ofAll(root.ticked);
    at("follow").textContent = `${ofAll(root.ticked)} ticked: see the command`;
    at("name").setAttribute("aria-invalid", String(!good));
    at("name").closest("label").hidden = !data.selects;
    at("name-error").textContent = good ? "" : `'${name}' cannot be a task's name; take small letters, digits and underscores`;
    at("copied").textContent = "";
    const several = commands.length > 1;
    const exact = !without(units, union).size && !without(union, units).size;
    const written = whole || !good ? [] : commands.map((one, place) => [commandOf(one, several ? `${name}_${place + 1}` : name), questionsOf(chosen[place])]);
    at("why").textContent = !root.on ? "Tick a group to see the command." : whole ? "All questions are ticked: there is nothing to choose, run the whole dataset's task."
      : several ? `No one command says just this; ${commands.length} ${exact ? "commands do" : "come nearest"}, each makes a task.` : "";
    at("commands").replaceChildren(...written.map(([command, number]) => listed(command, number)));
    at("copy-all").hidden = written.length < 2;
    at("copy-all").onclick = () => copy(written.map(([command]) => command).join("\n"), at("commands"));
    at("notes").replaceChildren(...notes({ units, chosen, union }).map((text) => element("p", { textContent: text })));
    if (single && good) {
      const number = questionsOf(unitsOf(single.match));
      const say = `Or one command, which chooses ${counted(questionsOf(without(unitsOf(single.match), units)))} more than ticked`;
      at("notes").append(element("details", {}, element("summary", { textContent: say }), listed(commandOf(single, name), number)));
    }
  };
  const notes = ({ units, chosen, union }) => {
    const said = [];
    const [lost, more] = [questionsOf(without(units, union)), questionsOf(without(union, units))];
    const again = chosen.reduce((sum, one) => sum + questionsOf(one), 0) - questionsOf(union);
    if (lost) said.push(`${counted(lost)} of the ticked ones cannot be chosen apart: a value is not given, or cannot be written in a command.`);
    if (more) said.push(`${counted(more)} more than ticked: the command takes values that differ only in case or blanks for one.`);
    if (chosen.length > 1) said.push(`Together ${counted(questionsOf(union))}${again ? `; some are in more than one, the sum is ${again.toLocaleString("en")} more` : ", none in two of them"}.`);
    if (!data.selects && root.on) said.push("This dataset has no task of its name, so that the command shows the choice but makes no task.");
    return said;
  };

  // The tree on the page.
  const items = new WeakMap();
  const marked = (node) => {
    const label = element("span", { className: node.value === MISSING ? "label missing" : "label" });
    const place = node.found ? node.label.toLowerCase().indexOf(wanted.find((word) => node.label.toLowerCase().includes(word))) : -1;
    const length = place < 0 ? 0 : wanted.find((word) => node.label.toLowerCase().includes(word)).length;
    if (length) label.append(node.label.slice(0, place), element("mark", { textContent: node.label.slice(place, place + length) }), node.label.slice(place + length));
    else label.textContent = node.label;
    return label;
  };
  const itemOf = (node) => {
    const twist = element("span", { className: "twist", textContent: node.children.size ? "▶" : "" });
    const line = element("div", { className: "branch" }, twist, element("span", { className: "tick" }), marked(node), element("span", { className: "size" }));
    const item = attributes(element("li", {}, line), { role: "treeitem", "aria-level": node.level + 1, tabindex: -1 });
    items.set(item, node);
    if (node.children.size) unfold(item, isOpen(node));
    return item;
  };
  const listOf = (node) => [...node.children.values()].filter((one) => one.shown).map(itemOf);
  const unfold = (item, opened) => {
    const node = items.get(item);
    const opens = wanted.length ? open.searching : open.always;
    opened ? opens.add(node.key) : opens.delete(node.key);
    item.setAttribute("aria-expanded", opened);
    item.querySelector("ul")?.remove();
    if (!opened) return;
    item.append(attributes(element("ul", {}, ...listOf(node)), { role: "group" }));
    if (node.leaves !== undefined) for (const one of item.querySelectorAll("li")) show(one);
  };
  const show = (item) => {
    const node = items.get(item);
    const checked = !node.on ? "false" : node.on === node.leaves ? "true" : "mixed";
    const size = item.querySelector(".size");
    size.textContent = node.count.toLocaleString("en");
    if (node.ticked && node.ticked < node.count) size.prepend(element("b", { textContent: node.ticked.toLocaleString("en") }), " of ");
    const label = `${node.label}, ${counted(node.count)}, ${node.ticked.toLocaleString("en")} ticked`;
    attributes(item, { "aria-checked": checked, "aria-label": label });
  };
  const showAll = () => {
    for (const item of at("tree").querySelectorAll("[role=treeitem]")) show(item);
  };
  const draw = () => {
    at("tree").replaceChildren(...listOf(root));
    if (at("tree").firstChild) at("tree").firstChild.tabIndex = 0;
    else at("tree").append(element("li", { className: "empty-list", textContent: "Nothing fits the search and the filters." }));
  };
  const focus = (item) => {
    if (!item) return;
    for (const one of at("tree").querySelectorAll('[tabindex="0"]')) one.tabIndex = -1;
    item.tabIndex = 0;
    item.focus();
  };
  at("tree").addEventListener("click", (event) => {
    const item = event.target.closest(".branch")?.parentElement;
    const node = items.get(item);
    if (!node) return;
    const opens = node.children.size && !event.target.closest(".tick");
    opens ? unfold(item, !isOpen(node)) : toggle(node);
    focus(item);
  });
  at("tree").addEventListener("keydown", (event) => {
    const item = event.target.closest("li");
    const node = items.get(item);
    if (!node || event.ctrlKey || event.altKey || event.metaKey) return;
    const all = [...at("tree").querySelectorAll("li")];
    const opened = node.children.size && isOpen(node);
    const moves = {
      ArrowDown: () => focus(all[all.indexOf(item) + 1]),
      ArrowUp: () => focus(all[all.indexOf(item) - 1]),
      Home: () => focus(all[0]),
      End: () => focus(all.at(-1)),
      ArrowRight: () => (opened ? focus(item.querySelector("li")) : node.children.size && unfold(item, true)),
      ArrowLeft: () => (opened ? unfold(item, false) : focus(item.parentElement.closest("li"))),
      " ": () => toggle(node),
      Enter: () => (node.children.size ? unfold(item, !opened) : toggle(node)),
    };
    if (!(event.key in moves)) return;
    event.preventDefault();
    moves[event.key]();
  });

  // Filters by columns, apart from the last level, which the search finds.
  columns.forEach((column, place) => {
    if (place < levels && (place === levels - 1 || rows.some((row) => row.values[place].length > 1))) return;
    const summary = element("summary");
    const shown = () => {
      const chosen = filters[place];
      const some = chosen.size === 1 ? named(place, [...chosen][0]) : `${chosen.size} of ${column.values.length}`;
      summary.textContent = `${titled(column)}: ${chosen.size ? some : "all"}`;
      summary.parentElement?.classList.toggle("on", chosen.size > 0);
    };
    const change = (value, on) => {
      on ? filters[place].add(value) : filters[place].delete(value);
      shown();
      grow();
    };
    const boxes = column.values.map((_, value) => {
      const input = element("input", { type: "checkbox", disabled: column.says[value]?.length === 0, onchange: (event) => change(value, event.target.checked) });
      const number = questionsOf(unitsOf(having[place].get(value))).toLocaleString("en");
      return element("label", {}, input, element("span", { textContent: named(place, value) }), element("span", { textContent: number }));
    });
    const details = element("details", { className: "narrow", name: "narrow" }, summary, attributes(element("div", {}, ...boxes), { role: "group", "aria-label": titled(column) }));
    details.addEventListener("toggle", () => {
      details.classList.remove("right");
      details.classList.toggle("right", details.lastChild.getBoundingClientRect().right > document.documentElement.clientWidth);
    });
    at("narrowing").append(details);
    shown();
  });
  const fold = (but) => at("narrowing").querySelectorAll("details[open]").forEach((one) => one.contains(but) || (one.open = false));
  document.addEventListener("click", (event) => fold(event.target));
  document.addEventListener("keydown", (event) => event.key === "Escape" && fold(null));
  at("search").addEventListener("input", () => {
    search();
    showAll();
  });
  at("name").addEventListener("input", present);
  at("tick-shown").addEventListener("click", () => {
    for (const leaf of shownLeaves(root)) ticks.add(leaf.key);
    tally();
  });
  at("untick").addEventListener("click", () => {
    ticks.clear();
    tally();
  });
  grow();
})();

"use strict";
// Whatever comes from the data, such as a model's reply, becomes text nodes and never markup.
(() => {
  const ROW = 84; // pixels, as in the style sheet
  const SPARE = 6; // rows drawn above and below the visible ones
  const OUTCOMES = {
    right: ["✓", "right"],
    wrong: ["✗", "wrong"],
    invalid: ["∅", "invalid"],
    scored: ["•", "scored"],
    unread: ["–", "not read"],
  };

  const byId = (id) => document.getElementById(id);
  const make = (tag, options = {}, ...children) => {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(options)) {
      if (name === "class") node.className = value;
      else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
      else if (value !== null && value !== undefined) node.setAttribute(name, value);
    }
    node.append(...children.filter((child) => child !== null && child !== undefined && child !== ""));
    return node;
  };
  const plural = (number, what) => `${number.toLocaleString("en")} ${what}${number === 1 ? "" : "s"}`;

  // ------------------------------------------------------------------------------------------ printing

  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("main details:not([open])")].filter((one) => !one.closest("#audit"));
    for (const one of opened) one.open = true;
  });
  addEventListener("afterprint", () => {
    for (const one of opened) one.open = false;
    document.body.classList.remove("print-item");
  });

  const list = byId("list");
  if (!list) return;

  // ---------------------------------------------------------------------------------------------- data

  const data = JSON.parse(byId("audit-data").textContent);
  let pixels = null;
  const pictureOf = (number) => {
    pixels ??= JSON.parse(byId("audit-pictures").textContent);
    return pixels[number] || "";
  };
  const text = (number) => (number === undefined ? "" : data.texts[number]);
  const taskOf = (item) => data.tasks[item.t];
  const letter = (number) => (number < 26 ? String.fromCharCode(65 + number) : String(number + 1));

  const units = [];
  const unitAt = new Map();
  for (const item of data.items) {
    const name = JSON.stringify([item.t, item.u]);
    if (!unitAt.has(name)) {
      unitAt.set(name, units.length);
      units.push({ task: item.t, id: item.u, items: [], matched: [] });
    }
    units[unitAt.get(name)].items.push(item);
  }

  const answerOf = (item, rule) => item.a[rule ? taskOf(item).rules.indexOf(rule) : 0] ?? null;
  const outcomeOf = (answer) => {
    if (!answer) return "unread";
    if (answer[1] !== "ok") return "invalid";
    return answer[2] === null ? "scored" : answer[2] ? "right" : "wrong";
  };
  const differs = (item) => (item.differs ??= readDifferently(item));
  const readDifferently = (item) => {
    const read = item.a.filter(Boolean).map((answer) => JSON.stringify([answer[0], answer[2], answer[3]]));
    return new Set(read).size > 1;
  };
  const reasonWord = (reason) => (data.reasons[reason] ? data.reasons[reason][0] : reason);
  const haystackOf = (item) => {
    const parts = [item.id, item.u, text(item.q), text(item.r), ...(item.o || []).map(text), ...(item.f || [])];
    return (item.hay ??= parts.join("\n").toLowerCase());
  };

  // --------------------------------------------------------------------------------------------- state

  const fresh = () => ({
    task: "", rule: "", show: new Set(), reason: "", disagree: false, column: "", group: "", q: "",
  });
  // An empty rule is each task's own main reading, its first.
  let state = fresh();
  let shown = []; // units in the list
  let selected = null;
  let bare = true; // nothing was chosen yet, so that the address stays as it is
  let whitespace = false;

  const tasksInView = () => data.tasks.filter((task) => !state.task || task.name === state.task);
  const rulesInView = () => [...new Set(tasksInView().flatMap((task) => task.rules))];
  const columnsInView = () => [...new Set(tasksInView().flatMap((task) => task.columns))];

  const readAddress = () => {
    const found = new URLSearchParams(location.hash.slice(1));
    state = fresh();
    if (data.tasks.some((task) => task.name === found.get("task"))) state.task = found.get("task");
    if (rulesInView().includes(found.get("rule"))) state.rule = found.get("rule");
    for (const one of (found.get("show") || "").split(",")) if (one in OUTCOMES) state.show.add(one);
    state.reason = found.get("reason") || "";
    state.disagree = found.get("disagree") === "1";
    if (columnsInView().includes(found.get("column"))) {
      state.column = found.get("column");
      state.group = found.get("group") || "";
    }
    state.q = found.get("q") || "";
    const task = found.get("of") || state.task;
    const id = found.get("id");
    return id === null ? null : units.find((unit) =>
      (!task || data.tasks[unit.task].name === task) && (unit.id === id || unit.items.some((item) => item.id === id)));
  };

  const writeAddress = () => {
    if (bare) return;
    const parts = new URLSearchParams();
    if (state.task) parts.set("task", state.task);
    if (state.rule) parts.set("rule", state.rule);
    if (state.show.size) parts.set("show", [...state.show].join(","));
    if (state.reason) parts.set("reason", state.reason);
    if (state.disagree) parts.set("disagree", "1");
    if (state.column && state.group) {
      parts.set("column", state.column);
      parts.set("group", state.group);
    }
    if (state.q) parts.set("q", state.q);
    if (selected) {
      if (!state.task && data.tasks.length > 1) parts.set("of", data.tasks[selected.task].name);
      parts.set("id", selected.id);
    }
    history.replaceState(null, "", `#${parts.toString() || "audit"}`);
  };

  // ------------------------------------------------------------------------------------------- filters

  const inGroup = (item, column, group) => {
    const position = taskOf(item).columns.indexOf(column);
    return position >= 0 && item.g[position].includes(group);
  };

  const filter = () => {
    const wanted = state.q.toLowerCase();
    const tally = { right: 0, wrong: 0, invalid: 0, scored: 0, unread: 0, differing: 0, all: 0, matched: 0 };
    shown = [];
    for (const unit of units) {
      unit.matched = [];
      if (state.task && data.tasks[unit.task].name !== state.task) continue;
      for (const item of unit.items) {
        tally.all += 1;
        if (state.group && !inGroup(item, state.column, state.group)) continue;
        if (wanted && !haystackOf(item).includes(wanted)) continue;
        const answer = answerOf(item, state.rule);
        if (state.reason && (!answer || answer[1] !== state.reason)) continue;
        const outcome = outcomeOf(answer);
        const differing = differs(item);
        if (!state.disagree || differing) tally[outcome] += 1;
        if (state.show.size && !state.show.has(outcome)) continue;
        if (differing) tally.differing += 1;
        if (state.disagree && !differing) continue;
        tally.matched += 1;
        unit.matched.push(item);
      }
      if (unit.matched.length) shown.push(unit);
    }
    return tally;
  };

  const showTally = (tally) => {
    let line = `${tally.matched.toLocaleString("en")} of ${plural(tally.all, "question")}`;
    const here = units.filter((unit) => !state.task || data.tasks[unit.task].name === state.task);
    if (here.length < tally.all) {
      const together = here.every((unit) => unit.items.length === 2) ? "pairs" : "entries";
      line += `, in ${shown.length.toLocaleString("en")} of ${here.length.toLocaleString("en")} ${together}`;
    }
    byId("tally").textContent = line;
    for (const button of byId("outcomes").children) {
      const outcome = button.dataset.outcome;
      button.setAttribute("aria-pressed", String(state.show.has(outcome)));
      button.querySelector(".tally").textContent = tally[outcome].toLocaleString("en");
      button.hidden = !tally[outcome] && !state.show.has(outcome) && (outcome === "scored" || outcome === "unread");
    }
    byId("disagree").setAttribute("aria-pressed", String(state.disagree));
    byId("disagree").querySelector(".tally").textContent = tally.differing.toLocaleString("en");
  };

  const fillSelect = (id, entries, value) => {
    const select = byId(id);
    select.replaceChildren(...entries.map(([key, label]) => make("option", { value: key }, label)));
    select.value = value;
  };

  const countsBy = (keysOf) => {
    const counts = new Map();
    for (const item of data.items) {
      if (state.task && taskOf(item).name !== state.task) continue;
      for (const key of keysOf(item)) counts.set(key, (counts.get(key) || 0) + 1);
    }
    return counts;
  };

  const showFilters = () => {
    const all = [["", "all"]];
    fillSelect("task", [["", "all tasks"], ...data.tasks.map((task) => [task.name, task.name])], state.task);
    byId("task-field").hidden = data.tasks.length < 2;
    const rules = rulesInView();
    if (!rules.includes(state.rule)) state.rule = "";
    const own = new Set(tasksInView().map((task) => task.rules[0])).size > 1 ? [["", "main one of each task"]] : [];
    fillSelect("rule", [...own, ...rules.map((rule) => [rule, rule])], state.rule || (own.length ? "" : rules[0]));
    byId("rule-field").hidden = rules.length < 2;
    byId("disagree-field").hidden = !tasksInView().some((task) => task.rules.length > 1);
    const reasons = countsBy((item) => {
      const answer = answerOf(item, state.rule);
      return answer ? [answer[1]] : [];
    });
    if (state.reason && !reasons.has(state.reason)) reasons.set(state.reason, 0);
    const listed = [...reasons].sort().filter(([reason]) => reason !== "ok" || state.reason === "ok");
    fillSelect("reason", [...all, ...listed.map(([key, number]) => [key, `${reasonWord(key)} (${number})`])], state.reason);
    byId("reason-field").hidden = !listed.length;
    const columns = columnsInView();
    if (!columns.includes(state.column)) [state.column, state.group] = [columns[0] || "", ""];
    fillSelect("column", columns.map((column) => [column, column]), state.column);
    byId("column-field").hidden = columns.length < 2;
    byId("group-field").hidden = !columns.length;
    byId("group-label").textContent = columns.length === 1 ? columns[0] : "is";
    const groups = countsBy((item) => item.g[taskOf(item).columns.indexOf(state.column)] || []);
    if (state.group && !groups.has(state.group)) groups.set(state.group, 0);
    const names = [...groups].sort(([one], [other]) => one.localeCompare(other));
    fillSelect("group", [...all, ...names.map(([key, number]) => [key, `${key} (${number})`])], state.group);
    if (byId("search").value !== state.q) byId("search").value = state.q;
  };

  const refresh = () => {
    showFilters();
    showTally(filter());
    if (!shown.includes(selected)) selected = shown[0] || null;
    byId("list-space").style.height = `${shown.length * ROW}px`;
    reveal();
    drawRows();
    drawDetail();
    writeAddress();
  };
  const change = (edit) => {
    bare = false;
    edit(state);
    refresh();
  };
  const only = (outcome) => change((now) => {
    const already = now.show.size === 1 && now.show.has(outcome);
    now.reason = "";
    now.show = new Set(already ? [] : [outcome]);
  });

  // ---------------------------------------------------------------------------------------------- list

  const mark = (outcome, faded, label = OUTCOMES[outcome][1]) =>
    make("span", { class: `mark ${outcome}${faded ? " faded" : ""}` }, `${OUTCOMES[outcome][0]} ${label}`);

  const row = (position) => {
    const unit = shown[position];
    const first = unit.matched[0];
    const task = data.tasks[unit.task];
    const short = unit.items.length > 2;
    const marks = unit.items.slice(0, 5).map((item) => {
      const outcome = outcomeOf(answerOf(item, state.rule));
      return mark(outcome, !unit.matched.includes(item), short ? "" : undefined);
    });
    if (unit.items.length > 5) marks.push(make("span", {}, `+${unit.items.length - 5}`));
    const of = !state.task && data.tasks.length > 1 ? `${unit.id} · ${task.name}` : unit.id;
    return make("div", {
      class: "row", role: "option", id: `row-${position}`, style: `top:${position * ROW}px`,
      "aria-selected": String(unit === selected), "aria-setsize": shown.length, "aria-posinset": position + 1,
      onclick: () => select(unit, true),
    },
    make("div", { class: "title" }, text(first.q) || (task.withheld ? "withheld" : unit.id)),
    make("div", { class: "under" }, make("span", { class: "id", title: unit.id }, of), ...marks));
  };

  const drawRows = () => {
    const space = byId("list-space");
    const from = Math.max(0, Math.floor(list.scrollTop / ROW) - SPARE);
    const to = Math.min(shown.length, Math.ceil((list.scrollTop + list.clientHeight) / ROW) + SPARE);
    const rows = [];
    for (let position = from; position < to; position += 1) rows.push(row(position));
    space.replaceChildren(...rows);
    if (!shown.length) space.append(make("p", { class: "empty-list" }, "No question fits all filters."));
    const position = shown.indexOf(selected);
    if (position >= from && position < to) list.setAttribute("aria-activedescendant", `row-${position}`);
    else list.removeAttribute("aria-activedescendant");
  };

  const reveal = () => {
    const top = shown.indexOf(selected) * ROW;
    if (top < 0) list.scrollTop = 0;
    else if (top < list.scrollTop) list.scrollTop = top;
    else if (top + ROW > list.scrollTop + list.clientHeight) list.scrollTop = top + ROW - list.clientHeight;
  };

  const select = (unit, byHand = false) => {
    bare = false;
    selected = unit;
    reveal();
    drawRows();
    drawDetail();
    writeAddress();
    if (byHand && matchMedia("(max-width: 720px)").matches) byId("detail").scrollIntoView({ block: "start" });
  };

  const move = (step) => {
    if (!shown.length) return;
    const position = Math.min(shown.length - 1, Math.max(0, shown.indexOf(selected) + step));
    if (!inView()) byId("audit").scrollIntoView();
    select(shown[position]);
  };

  // -------------------------------------------------------------------------------------------- detail

  const INVISIBLE = /[\s\u0000-\u001f\u007f-\u00a0\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/gu;
  const visible = (value) => {
    const parts = [];
    let last = 0;
    for (const found of value.matchAll(INVISIBLE)) {
      parts.push(value.slice(last, found.index));
      last = found.index + found[0].length;
      const code = `U+${found[0].codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;
      const sign = { " ": "·", "\n": "↵\n", "\t": "⇥\t", "\r": "␍" }[found[0]] || `⟨${code}⟩`;
      parts.push(make("span", { class: "code" }, sign));
    }
    return [...parts, value.slice(last)];
  };
  const raw = (value) => make("pre", { class: "raw", tabindex: "0" }, ...(whitespace ? visible(value) : [value]));

  let enlarged = 0; // position among the pictures on the screen
  const enlarge = (position) => {
    const all = selected.items.flatMap((item) => pictureLabels(item)).filter(([number]) => pictureOf(number));
    enlarged = (position + all.length) % all.length;
    const [number, label] = all[enlarged];
    const [width, height, remark] = data.pictures[number];
    const place = all.length > 1 ? `${enlarged + 1} of ${all.length} (arrow keys)` : "";
    byId("zoom-picture").src = pictureOf(number);
    byId("zoom-picture").alt = label;
    byId("zoom-caption").textContent = [label, sizeOf(width, height), remark, place].filter(Boolean).join(" · ");
    if (!byId("zoom").open) byId("zoom").showModal();
  };
  const pictureLabels = (item) => (item.i || []).map((number, position) =>
    [number, `Picture ${item.i.length > 1 ? `${position + 1} ` : ""}of ${item.id}`]);
  const sizeOf = (width, height) => {
    const reduced = Math.max(width, height) > data.side;
    return width ? `${width} × ${height} pixels${reduced ? `, here at most ${data.side}` : ""}` : "";
  };

  const shots = (item, drawn) => {
    if (!item.i || !item.i.length) return null;
    return make("div", { class: "shots" }, ...pictureLabels(item).map(([number, label]) => {
      const [width, height, remark] = data.pictures[number];
      const source = pictureOf(number);
      if (!source) return make("div", { class: "no-shot" }, `No picture: ${remark}.`);
      const place = drawn.count;
      drawn.count += 1;
      const note = [sizeOf(width, height), remark].filter(Boolean).join("; ");
      return make("div", {},
        make("button", { type: "button", class: "shot", "aria-label": `Enlarge: ${label}`, onclick: () => enlarge(place) },
          make("img", { src: source, alt: label })),
        make("p", { class: "shot-note" }, note));
    }));
  };

  const options = (item) => {
    if (!item.o || !item.o.length) return null;
    const rules = taskOf(item).rules;
    return [make("h5", {}, "Options"), make("ul", { class: "options" }, ...item.o.map((option, position) => {
      const isKey = item.c.includes(position);
      const by = rules.filter((rule, number) => item.a[number] && item.a[number][4].includes(position));
      const who = by.length === rules.length ? "" : ` (${by.join(", ")})`;
      return make("li", { class: isKey ? "key" : "" },
        make("span", { class: "letter" }, letter(position)),
        make("span", { class: "text" }, text(option)),
        isKey || by.length ? make("span", { class: "said" },
          isKey ? make("span", { class: "is-key" }, "✓ right answer") : null,
          by.length ? make("span", {}, `● model's answer${who}`) : null) : null);
    }))];
  };

  const key = (item) => {
    if (!item.k || item.c.length) return null;
    return [make("h5", {}, "Right answer"), make("p", { class: "key-text" }, item.k)];
  };

  const reply = (item) => {
    if (taskOf(item).withheld) return null;
    const value = text(item.r);
    if (!value && item.l.length) return null;
    const head = make("h5", {}, "Reply of the model, as given");
    return [head, value ? raw(value) : make("p", { class: "said-nothing" }, "(nothing: the reply is empty)")];
  };

  const losses = (item) => {
    const known = item.l.filter((loss) => loss !== null);
    if (!item.l.length) return null;
    const best = Math.min(...known);
    const lines = item.l.flatMap((loss, position) => {
      const fill = make("div", { class: "fill" });
      fill.style.width = loss === null ? "0" : `${100 * Math.exp(best - loss)}%`;
      return [make("span", {}, letter(position)), make("div", { class: "track" }, fill),
        make("span", {}, loss === null ? "n/a" : loss.toFixed(4))];
    });
    return [make("h5", {}, "Mean negative log-likelihood per option; smaller is likelier"), make("div", { class: "losses" }, ...lines),
      make("p", { class: "shot-note" }, "Bars: likelihood relative to the best option.")];
  };

  const readout = (item) => {
    const lines = taskOf(item).rules.map((rule, number) => {
      const answer = item.a[number];
      const outcome = outcomeOf(answer);
      const why = answer && answer[1] !== "ok" ? data.reasons[answer[1]] || [answer[1], ""] : null;
      const score = answer && answer[3] !== null ? String(Number(answer[3].toFixed(4))) : "";
      return make("tr", {},
        make("th", { scope: "row" }, rule),
        make("td", {}, !answer ? "–" : why ? `none: ${why[0]}` : answer[0] === null ? "–" : answer[0],
          why ? make("small", {}, why[1]) : null),
        make("td", {}, mark(outcome, false, outcome === "scored" && score ? `score ${score}` : undefined)));
    });
    return [make("h5", {}, "How it was read"), make("table", { class: "readout" },
      make("thead", {}, make("tr", {}, ...["Rule", "Answer found", "Result"].map((head) => make("th", { scope: "col" }, head)))),
      make("tbody", {}, ...lines))];
  };

  const groupsOf = (item) => {
    const chips = taskOf(item).columns.flatMap((column, number) =>
      item.g[number].length ? [make("span", {}, `${column}: ${item.g[number].join(", ")}`)] : []);
    return chips.length ? make("div", { class: "chips" }, ...chips) : null;
  };

  const prompt = (item) => {
    const value = text(item.p);
    return value ? make("details", {}, make("summary", {}, "Prompt"), raw(value)) : null;
  };

  const card = (item, sharedQuestion, number, drawn) => {
    const unit = selected;
    const title = unit.items.length > 1 ? `${number + 1}. ${item.id}` : item.id;
    const question = text(item.q);
    const matches = unit.matched.length === unit.items.length || unit.matched.includes(item);
    return make("section", { class: "card", "data-id": item.id, "aria-label": title },
      make("h4", {}, title, mark(outcomeOf(answerOf(item, state.rule)), false), matches ? null : make("small", {}, "(not in the filter)")),
      item.f && item.f.length ? make("p", { class: "shot-note" }, item.f.join(" · ")) : null,
      shots(item, drawn),
      !sharedQuestion && question ? make("p", { class: "asked" }, question) : null,
      ...[options(item), key(item), reply(item), losses(item), readout(item)].flatMap((part) => part || []),
      groupsOf(item), prompt(item));
  };

  const drawDetail = () => {
    const detail = byId("detail");
    if (!selected) {
      detail.replaceChildren(make("p", { class: "said-nothing" }, "No question fits all filters."));
      return;
    }
    const task = data.tasks[selected.task];
    const questions = new Set(selected.items.map((item) => text(item.q)));
    const shared = questions.size === 1;
    const position = shown.indexOf(selected);
    const place = position < 0 ? "not in the filtered list" : `${position + 1} of ${shown.length.toLocaleString("en")}`;
    const together = selected.items.length > 1 ? `${selected.items.length === 2 ? "Pair" : "Group"} ${selected.id}` : "Question";
    const drawn = { count: 0 }; // pictures so far
    const switchWhitespace = () => { whitespace = !whitespace; drawDetail(); };
    detail.replaceChildren(...[
      make("div", { class: "detail-head" },
        make("h3", {}, `${together} · ${task.name} · ${place}`),
        make("span", {},
          task.withheld ? null : make("button", { type: "button", class: "plain", id: "whitespace", onclick: switchWhitespace },
            whitespace ? "Hide whitespace" : "Show whitespace"),
          " ",
          make("button", { type: "button", class: "plain", onclick: () => { document.body.classList.add("print-item"); print(); } }, "Print this"))),
      task.sample ? make("p", { class: "shot-note" }, "Sample data: a drawn picture.") : null,
      task.withheld ? make("p", { class: "banner" }, "Withheld: this dataset holds patients' data, so that its pictures, questions and replies are not in this file. Ids are hashed.") : null,
      shared && text(selected.items[0].q) ? make("p", { class: "asked" }, text(selected.items[0].q)) : null,
      make("div", { class: "cards-of-unit" }, ...selected.items.map((item, number) => card(item, shared, number, drawn))),
    ].filter(Boolean));
    detail.scrollTop = 0;
  };

  // ---------------------------------------------------------------------------------------- interaction

  const inView = () => {
    const box = byId("audit").getBoundingClientRect();
    return byId("audit").contains(document.activeElement) || (box.top < innerHeight * 0.6 && box.bottom > innerHeight * 0.3);
  };

  for (const outcome of Object.keys(OUTCOMES)) {
    const button = make("button", { type: "button", class: "toggle", "data-outcome": outcome, "aria-pressed": "false" },
      `${OUTCOMES[outcome][0]} ${OUTCOMES[outcome][1]} `, make("span", { class: "tally" }));
    button.addEventListener("click", () => change((now) => {
      if (!now.show.delete(outcome)) now.show.add(outcome);
    }));
    byId("outcomes").append(button);
  }
  byId("filters").addEventListener("submit", (event) => event.preventDefault());
  byId("search").addEventListener("input", () => change((now) => { now.q = byId("search").value; }));
  byId("task").addEventListener("change", () => change((now) => { now.task = byId("task").value; }));
  byId("rule").addEventListener("change", () => change((now) => { now.rule = byId("rule").value; }));
  byId("reason").addEventListener("change", () => change((now) => { now.reason = byId("reason").value; }));
  byId("column").addEventListener("change", () => change((now) => { now.column = byId("column").value; now.group = ""; }));
  byId("group").addEventListener("change", () => change((now) => { now.group = byId("group").value; }));
  byId("disagree").addEventListener("click", () => change((now) => { now.disagree = !now.disagree; }));
  byId("clear").addEventListener("click", () => change(() => { state = { ...fresh(), task: state.task, rule: state.rule }; }));
  byId("filters").classList.add("folded"); // only small screens fold them
  byId("unfold").addEventListener("click", () => {
    const folded = byId("filters").classList.toggle("folded");
    byId("unfold").setAttribute("aria-expanded", String(!folded));
  });
  byId("open-help").addEventListener("click", () => byId("help").showModal());
  byId("zoom-picture").addEventListener("click", () => byId("zoom").close());
  list.addEventListener("scroll", () => requestAnimationFrame(drawRows), { passive: true });
  addEventListener("resize", () => requestAnimationFrame(drawRows));

  const keys = {
    j: () => move(1),
    k: () => move(-1),
    w: () => only("wrong"),
    i: () => only("invalid"),
    r: () => only("right"),
    d: () => change((now) => { now.disagree = !now.disagree; }),
    "/": () => { byId("audit").scrollIntoView(); byId("search").focus(); byId("search").select(); },
    "?": () => byId("help").showModal(),
  };
  const keysInView = {
    ArrowDown: () => move(1), ArrowUp: () => move(-1), ArrowRight: () => move(1), ArrowLeft: () => move(-1),
  };
  const keysInList = {
    Home: () => move(-Infinity), End: () => move(Infinity),
    PageDown: () => move(Math.floor(list.clientHeight / ROW)), PageUp: () => move(-Math.floor(list.clientHeight / ROW)),
  };
  byId("zoom").addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, j: 1, ArrowLeft: -1, ArrowUp: -1, k: -1 }[event.key];
    if (step) enlarge(enlarged + step);
  });
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    const at = document.activeElement;
    if (at.matches("input, select, textarea")) {
      if (event.key === "Escape") { at.blur(); list.focus({ preventScroll: true }); }
      return;
    }
    const scrolls = at.matches("pre, .scroll, .detail"); // these need the arrows themselves
    const act = keys[event.key] || (!scrolls && inView() && keysInView[event.key]) || (at === list && keysInList[event.key]);
    if (!act) return;
    event.preventDefault();
    act();
  });

  const followAddress = () => {
    if (!location.hash.includes("=")) return false;
    const wanted = readAddress();
    bare = false;
    selected = wanted || null;
    refresh();
    if (wanted && selected !== wanted) select(wanted);
    byId("audit").scrollIntoView();
    return true;
  };
  addEventListener("hashchange", followAddress);
  if (!followAddress()) refresh();
})();

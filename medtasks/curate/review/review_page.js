"use strict";

const TYPING_MS = 150, RETRY_MS = 2000, PROOF_MS = 10000, WHOLE = 100, STEP = 10;
const FILTERS = ["all", "unscored", "below"];
const GLYPHS = { true: "✓", false: "✗", null: "–" };

let study = null;
let items = [];
let at = 0; // place of the question that is shown
let active = 0; // place of its marked image
let hint = ""; // why a key on the marked image did nothing
let captions = false;
let light = { brightness: WHOLE, contrast: WHOLE };
let zoom = 1;

let key = null; // by which the server proves that it is the one this page came from
const unsaved = new Set();
let trouble = ""; // why nothing can be saved at all
let saving = false;
let timer = 0;

const one = (css, under = document) => under.querySelector(css);
const all = (css, under = document) => [...under.querySelectorAll(css)];

function made(name, text = "", attributes = {}) {
  const element = document.createElement(name);
  element.textContent = text;
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

const current = () => items[at];
const letterOf = (place) => String.fromCharCode(65 + place);
const scored = (item) => item.said.judgements.every((judgement) => judgement.score !== null);
const below = (item) => item.said.judgements.some(({ score }) => score !== null && score < study.passing);
const isPair = () => study.kind === "pairs";

/* ---- Loading and saving ---------------------------------------------------------------------------------------- */

const bytes = (text) => new TextEncoder().encode(text);

/** Sends a request once the server has proved that it is ours: after its end another program may listen at its port. */
async function ask(path, options = {}) {
  const nonce = crypto.randomUUID();
  const proof = await fetch(`/proof?${nonce}`, { cache: "no-store", signal: AbortSignal.timeout(PROOF_MS) });
  const ours = await crypto.subtle.verify("HMAC", key, await proof.arrayBuffer(), bytes(nonce));
  if (!ours) throw new Error("another program listens here");
  return fetch(path, { cache: "no-store", ...options });
}

async function start() {
  try {
    study = await (await fetch("study", { cache: "no-store" })).json();
    key = await crypto.subtle.importKey("raw", bytes(study.key), { name: "HMAC", hash: "SHA-256" }, false, ["verify"]);
  } catch {
    study = null;
    return warn("The server does not answer. Start 'medtasks curate review' and open the address that it prints.");
  }
  items = study.items.map((item) => ({ ...item, edits: 0, refused: null, conflict: null }));
  document.title = `${study.name} · review`;
  one("#name").textContent = study.name;
  one("#who").textContent = `${study.kind.replaceAll("_", " ")} · reviewer ${study.reviewer}`;
  one("#position").max = items.length;
  one("#of").textContent = `of ${items.length}`;
  one("#below").textContent = `below ${study.passing}`;
  const place = Number.parseInt(location.hash.slice(1), 10) - 1;
  show(items[place] ? place : Math.max(0, items.findIndex((item) => !scored(item))));
  showState();
  one("#item").focus({ preventScroll: true });
}

function changed(item, wait = 0) {
  hint = "";
  item.edits += 1;
  item.refused = null;
  unsaved.add(item);
  showState();
  showProgress();
  clearTimeout(timer);
  timer = setTimeout(saveAll, wait);
}

async function saveAll() {
  if (saving) return; // it looks for more when it is done
  saving = true;
  let again = false;
  for (;;) {
    const item = [...unsaved].find((each) => each.refused === null && each.conflict === null);
    if (!item) break;
    again = !(await save(item));
    if (again) break;
  }
  saving = false;
  showState();
  clearTimeout(timer);
  if (again) timer = setTimeout(saveAll, RETRY_MS);
}

/** Returns whether to go on; false where nothing can be saved now. */
async function save(item) {
  const edits = item.edits;
  const body = JSON.stringify({ item: item.id, version: item.version, said: item.said });
  let status = 0, content = {};
  try {
    const headers = { "Content-Type": "application/json" };
    const reply = await ask("save", { method: "POST", headers, body });
    [status, content] = [reply.status, await reply.json()];
  } catch {
    trouble = "The server has ended or does not answer. Keep this page open, start the same command again and open " +
      "the address that it prints. Then copy what is not saved here, and paste it there with Ctrl+V.";
    return false;
  }
  if (trouble) all(".figure").forEach((made_, place) => fillImage(made_, current().draft.images[place]));
  trouble = "";
  if (status === 200 && !content.problems) {
    Object.assign(item, { version: content.version, remarks: content.remarks });
    if (edits === item.edits) {
      item.said.judgements = content.said.judgements;
      unsaved.delete(item);
    }
    if (item === current()) showJudgements();
  } else if (status === 200) {
    if (edits === item.edits) item.refused = content.problems;
    if (item === current()) showProblems();
  } else if (status === 409) {
    item.conflict = content;
  } else {
    trouble = content.error;
    return false;
  }
  showProgress();
  return true;
}

function showState() {
  const state = one("#state");
  const refused = [...unsaved].find((item) => item.refused);
  const conflict = [...unsaved].find((item) => item.conflict);
  const bad = trouble || refused || conflict;
  state.textContent = bad ? "Not saved" : unsaved.size ? "Saving …" : "Saved";
  state.className = bad ? "bad" : unsaved.size ? "busy" : "good";
  const number = unsaved.size === 1 ? "1 question is" : `${unsaved.size} questions are`;
  const copied = () => JSON.stringify([...unsaved].map(({ id, version, said }) => ({ id, version, said })));
  if (trouble) warn(`${number} not saved. ${trouble}`, button("Copy", () => navigator.clipboard.writeText(copied())));
  else if (conflict) warnOfConflict(conflict);
  else if (refused) warnOfRefused(refused);
  else one("#alert").hidden = true;
}

function warn(text, ...buttons) {
  const alert = one("#alert");
  if (trouble && !alert.hidden && alert.textContent.startsWith(text)) return; // a button made anew loses its click
  alert.replaceChildren(made("span", text), ...buttons);
  alert.hidden = false;
}

function button(text, act) {
  const found = made("button", text, { type: "button", class: "button" });
  found.addEventListener("click", act);
  return found;
}

function warnOfRefused(item) {
  const place = items.indexOf(item);
  const why = [...new Set(Object.values(item.refused))].join("; ");
  warn(`Question ${place + 1} is not saved: ${why}.`, ...(place === at ? [] : [button("Go there", () => show(place))]));
}

/** Takes over what the page of a server that has ended could not save. */
function pasteUnsaved(text) {
  let copied = [];
  try { copied = JSON.parse(text); } catch { return; }
  for (const { id, version, said } of Array.isArray(copied) ? copied : []) {
    const item = items.find((each) => each.id === id && each.said.digest === said?.digest);
    if (!item) continue;
    Object.assign(item, { version, said });
    changed(item);
  }
  render();
}

function warnOfConflict(item) {
  const { conflict } = item;
  const settle = (said) => () => {
    Object.assign(item, { conflict: null, version: conflict.version, said });
    if (said === conflict.said) unsaved.delete(item);
    if (item === current()) render();
    saveAll();
  };
  const same = conflict.said && conflict.said.digest === item.said.digest;
  const choices = [button("Take that version", settle(conflict.said)), button("Keep mine", settle(item.said))];
  warn(`Question ${items.indexOf(item) + 1} is not saved: ${conflict.error}.`, ...(same ? choices : []));
}

/* ---- Moving ---------------------------------------------------------------------------------------------------- */

const FITS = { all: () => true, unscored: (item) => !scored(item), below };

function show(place) {
  hint = "";
  at = place;
  active = Math.max(0, current().said.judgements.findIndex((judgement) => judgement.score === null));
  history.replaceState(null, "", `#${place + 1}`);
  render();
  window.scrollTo(0, 0);
}

function move(step, fits = FITS[one("#filter").value], around = false) {
  for (let n = 1; n <= items.length; n += 1) {
    let place = at + step * n;
    if (around) place = (place + items.length) % items.length;
    if (!items[place]) break;
    if (fits(items[place])) return show(place);
  }
  return undefined;
}

function setFilter(name) {
  one("#filter").value = name;
  if (!FITS[name](current())) move(1, FITS[name], true);
  showProgress();
}

/* ---- Showing --------------------------------------------------------------------------------------------------- */

function render() {
  const item = current();
  one("#figures").replaceChildren(...item.draft.images.map((name, place) => figure(item, name, place)));
  one("#figures").className = item.draft.images.length > 1 ? "several" : "single";
  one("#item").className = one("#figures").className;
  one("#item-id").textContent = item.id;
  one("#options").replaceChildren(...item.said.options.map(option));
  one("#wording [data-field=question]").value = item.said.question;
  one("#wording [data-field=note]").value = item.said.note;
  showType(item);
  showCaptions();
  showLight();
  showJudgements();
  showProblems();
  showProgress();
  for (const name of items[at + 1]?.draft.images ?? []) picture(name); // ahead of time
}

function option(text, place) {
  const label = made("label", `Option ${letterOf(place)} `, { class: "field" });
  if (place === 0) label.append(made("kbd", "o"));
  const input = made("input", "", { type: "text", autocomplete: "off", "data-field": `options.${place}` });
  input.value = text;
  label.append(input);
  return label;
}

function showType(item) {
  one("#type").hidden = !item.draft.hallucination;
  const select = one("#type select");
  select.replaceChildren(...study.hallucinations.map((name) => made("option", name)));
  select.value = item.said.hallucination ?? item.draft.hallucination;
}

function figure(item, name, place) {
  const made_ = one("#figure-template").content.cloneNode(true).firstElementChild;
  const several = item.draft.images.length > 1;
  const title = several ? `Image ${place + 1}` : "Image";
  one("h2", made_).textContent = several ? title : "Answer";
  one(".head", made_).hidden = !several && item.draft.options.length === 0; // the answer's field has a name of its own
  one(".shot", made_).setAttribute("aria-label", `Enlarge ${title.toLowerCase()}`);
  one(".shot", made_).addEventListener("click", () => { mark(place); openZoom(); });
  made_.addEventListener("focusin", () => mark(place));
  made_.addEventListener("pointerdown", () => mark(place));
  one("img", made_).alt = title;
  fillAnswers(made_, item, place, title);
  fillCaption(made_, study.images[name]);
  fillJudgement(made_, place, title);
  const categories = one(".categories", made_);
  categories.hidden = !isPair() && !item.draft.categories.length;
  one("input", categories).dataset.field = `categories.${place}`;
  one("input", categories).value = (item.said.categories[place] ?? []).join(", ");
  fillImage(made_, name);
  return made_;
}

function fillAnswers(made_, item, place, title) {
  const open = item.draft.options.length === 0;
  const answers = one(".answers", made_), field = one(".answer", made_);
  answers.hidden = one(".answer-text", made_).hidden = open;
  field.hidden = !open;
  answers.setAttribute("aria-label", `Answer to ${title.toLowerCase()}`);
  item.draft.options.forEach((_, number) => {
    const choice = made("button", letterOf(number), { type: "button", class: "choice", "data-letter": letterOf(number) });
    choice.addEventListener("click", () => setAnswer(place, number));
    answers.append(choice);
  });
  one("textarea", field).dataset.field = `answers.${place}`;
  one("textarea", field).value = open ? item.said.answers[place] : "";
  const components = Object.entries(item.draft.components ?? {}).filter(([, texts]) => texts.length);
  one(".components", made_).hidden = components.length === 0;
  one(".components", made_).append(...components.map(([kind, texts]) => {
    const line = made("p", "");
    line.append(made("strong", kind), ` ${texts.join(" · ")}`);
    return line;
  }));
}

function fillCaption(made_, image) {
  one(".caption h3", made_).textContent = isPair() ? "Caption" : "Report";
  one(".caption p", made_).textContent = image.text;
  for (const [name, value] of Object.entries(image.context)) {
    const text = typeof value === "string" ? value : JSON.stringify(value, null, 1);
    one(".caption dl", made_).append(made("dt", name.replaceAll("_", " ")), made("dd", text));
  }
}

function fillJudgement(made_, place, title) {
  study.aspects.forEach((aspect, number) => {
    const toggle = made("button", "", { type: "button", class: "toggle", "data-aspect": aspect });
    toggle.append(made("span", "", { class: "glyph", "aria-hidden": "true" }), aspect, " ", made("kbd", "qwe"[number]));
    toggle.addEventListener("click", () => turn(place, aspect));
    one(".aspects", made_).append(toggle);
  });
  one(".scores", made_).setAttribute("aria-label", `Score of ${title.toLowerCase()}`);
  for (let score = study.scores[0]; score <= study.scores[1]; score += 1) {
    const choice = made("button", String(score), { type: "button", class: "choice", "data-score": score });
    choice.addEventListener("click", () => setScore(place, score));
    one(".scores", made_).append(choice);
  }
}

const pictures = new Map(); // id to a promise of {url} or {error}

function picture(name) {
  const found = pictures.get(name) ?? fetched(name);
  pictures.delete(name);
  pictures.set(name, found); // what was used last goes last
  if (pictures.size > 24) {
    const [oldest, old] = pictures.entries().next().value;
    pictures.delete(oldest);
    old.then(({ url }) => url && URL.revokeObjectURL(url));
  }
  return found;
}

function fetched(name) {
  return ask(`image?id=${encodeURIComponent(name)}`).then(async (reply) => {
    if (!reply.ok) return { error: (await reply.json()).error };
    const note = decodeURIComponent(reply.headers.get("X-Conversions") ?? "");
    return { url: URL.createObjectURL(await reply.blob()), note };
  }).catch(() => { pictures.delete(name); return { error: "the server does not answer" }; });
}

async function fillImage(made_, name) {
  const { url, error, note } = await picture(name);
  if (url) one("img", made_).src = url;
  one(".shot", made_).classList.toggle("lost", Boolean(error));
  one(".shot", made_).disabled = Boolean(error);
  one(".image-note", made_).textContent = error ? `This image cannot be shown: ${error}.` : note;
}

function showCaptions() {
  for (const caption of all(".caption")) caption.hidden = !captions;
  one("#captions").setAttribute("aria-expanded", captions);
  one("#captions-text").textContent = `${captions ? "Hide" : "Show"} ${isPair() ? "captions" : "report"}`;
}

function showLight() {
  for (const [name, value] of Object.entries(light)) document.documentElement.style.setProperty(`--${name}`, `${value}%`);
}

/** All that keys change without a new question. */
function showJudgements() {
  const { said, draft } = current();
  all(".figure").forEach((made_, place) => {
    const judgement = said.judgements[place];
    made_.classList.toggle("active", place === active && draft.images.length > 1);
    for (const toggle of all(".toggle", made_)) {
      const met = judgement[toggle.dataset.aspect];
      toggle.setAttribute("aria-pressed", met === null ? "mixed" : met);
      one(".glyph", toggle).textContent = GLYPHS[met];
    }
    for (const choice of all(".scores .choice", made_)) {
      const chosen = Number(choice.dataset.score) === judgement.score;
      choice.setAttribute("aria-pressed", chosen);
      choice.classList.toggle("low", chosen && judgement.score < study.passing);
    }
    for (const choice of all(".answers .choice", made_)) {
      choice.setAttribute("aria-pressed", choice.dataset.letter === said.answers[place]);
    }
    const chosen = said.options[said.answers[place]?.charCodeAt(0) - 65];
    one(".answer-text", made_).textContent = draft.options.length ? chosen ?? "" : "";
    const why = judgement.correctness === false ? `Not correct, so its score is ${study.scores[0]}.` : "";
    one(".why", made_).textContent = (place === active && hint) || why;
  });
  one("#remarks").replaceChildren(...current().remarks.map((text) => made("li", text)));
  one("#revert").hidden = ["question", "options", "answers"].every(
    (name) => JSON.stringify(said[name]) === JSON.stringify(draft[name]));
}

function showProblems() {
  const refused = current().refused ?? {};
  for (const field of all("[data-field]")) {
    const why = refused[field.dataset.field];
    field.toggleAttribute("aria-invalid", Boolean(why));
    if (why) field.setAttribute("aria-invalid", "true");
    field.title = why ?? "";
  }
}

function showProgress() {
  if (!items.length) return;
  const done = items.filter(scored).length, low = items.filter(below).length;
  one("#progress").max = items.length;
  one("#progress").value = done;
  one("#tally").textContent = `${done} of ${items.length} scored${low ? `, ${low} below ${study.passing}` : ""}`;
  if (document.activeElement !== one("#position")) one("#position").value = at + 1;
  const name = one("#filter").value;
  const fitting = items.filter(FITS[name]).length;
  one("#none").hidden = name === "all" || FITS[name](current());
  one("#none").textContent = `This one is not ${name === "below" ? `below ${study.passing}` : name}; ${fitting} are.`;
}

/* ---- Judging --------------------------------------------------------------------------------------------------- */

function mark(place) {
  if (active === place) return;
  hint = "";
  active = place;
  showJudgements();
}

function other() {
  mark((active + 1) % current().draft.images.length);
}

function setScore(place, score) {
  const judgement = current().said.judgements[place];
  if (judgement.correctness === false && score !== study.scores[0]) {
    mark(place);
    hint = `Not correct, so its score stays ${study.scores[0]}. Say first that it is correct.`;
    return showJudgements();
  }
  judgement.score = score;
  const next = current().said.judgements.findIndex((each) => each.score === null);
  if (next >= 0 && score !== null) active = next;
  changed(current());
  return showJudgements();
}

/** The first word on an aspect is that it is not met: a score alone says that it is. */
function turn(place, aspect) {
  const judgement = current().said.judgements[place];
  judgement[aspect] = judgement[aspect] === false;
  if (aspect === "correctness") judgement.score = judgement.correctness ? null : study.scores[0];
  changed(current());
  showJudgements();
}

function setAnswer(place, number) {
  const { answers, options } = current().said;
  const before = answers[place];
  answers[place] = letterOf(number);
  // Of a pair with two options each image has its own.
  if (isPair() && options.length === 2 && answers.length === 2) answers[1 - place] = letterOf(1 - number);
  if (before === answers[place]) return;
  changed(current());
  showJudgements();
}

function nextAnswer() {
  const { answers, options } = current().said;
  if (options.length) setAnswer(active, (answers[active].charCodeAt(0) - 64) % options.length);
}

function edited(field) {
  const item = current(), [name, place] = field.dataset.field.split(".");
  if (name === "categories") {
    item.said.categories = item.draft.images.map((_, number) => item.said.categories[number] ?? []);
    item.said.categories[place] = field.value.split(",").map((text) => text.trim()).filter(Boolean);
  } else if (place === undefined) {
    item.said[name] = field.value;
  } else {
    item.said[name][place] = field.value;
  }
  changed(item, TYPING_MS);
  showJudgements();
  showProblems();
}

function revert() {
  const { said, draft } = current();
  Object.assign(said, structuredClone({ question: draft.question, options: draft.options, answers: draft.answers }));
  changed(current());
  render();
  one("#item").focus({ preventScroll: true });
}

function edit(css) {
  const field = all(css).find((each) => each.offsetParent !== null);
  if (!field) return;
  field.focus();
  field.setSelectionRange?.(field.value.length, field.value.length);
}

/* ---- Looking closely ------------------------------------------------------------------------------------------- */

function openZoom() {
  const image = one("img", all(".figure")[active]);
  if (!image.src) return;
  one("#zoomed img").src = image.src;
  one("#zoomed img").alt = one("#zoom-name").textContent = image.alt;
  setZoom(1);
  if (!one("#zoom").open) one("#zoom").showModal();
  one("#zoomed").focus();
}

/** Enlarges by a factor and brings a point of the window into the middle, by default what is there already. */
function setZoom(factor, clientX, clientY) {
  const box = one("#zoomed");
  const { left, top } = box.getBoundingClientRect();
  const [x, y] = [clientX - left || box.clientWidth / 2, clientY - top || box.clientHeight / 2];
  const [across, down] = [(box.scrollLeft + x) / zoom, (box.scrollTop + y) / zoom];
  zoom = Math.min(8, Math.max(1, factor));
  document.documentElement.style.setProperty("--zoom", zoom);
  box.scrollTo(across * zoom - box.clientWidth / 2, down * zoom - box.clientHeight / 2);
}

function lighten(name, step) {
  light[name] = Math.min(300, Math.max(20, light[name] + step));
  showLight();
}

function toggleCaptions() {
  captions = !captions;
  showCaptions();
}

/* ---- Keys ------------------------------------------------------------------------------------------------------ */

const LIGHT_KEYS = {
  "[": () => lighten("brightness", -STEP),
  "]": () => lighten("brightness", STEP),
  "{": () => lighten("contrast", -STEP),
  "}": () => lighten("contrast", STEP),
  "\\": () => { light = { brightness: WHOLE, contrast: WHOLE }; showLight(); },
};
const KEYS = {
  ...LIGHT_KEYS,
  q: () => turn(active, study.aspects[0]),
  w: () => turn(active, study.aspects[1]),
  e: () => turn(active, study.aspects[2]),
  x: other,
  s: nextAnswer,
  c: toggleCaptions,
  i: () => edit("[data-field=question]"),
  o: () => edit("[data-field='options.0'], [data-field='answers.0']"),
  t: () => edit(`[data-field='categories.${active}']`),
  h: () => edit("[data-field=hallucination]"),
  m: () => edit("[data-field=note]"),
  r: () => one("#revert").hidden || revert(),
  n: () => move(1),
  p: () => move(-1),
  arrowright: () => move(1),
  arrowleft: () => move(-1),
  u: () => move(1, FITS.unscored, true),
  g: () => { one("#position").focus(); one("#position").select(); },
  f: () => setFilter(FILTERS[(FILTERS.indexOf(one("#filter").value) + 1) % FILTERS.length]),
  z: openZoom,
  backspace: () => setScore(active, null),
  "?": () => one("#help").showModal(),
};
for (let digit = 0; digit <= 9; digit += 1) KEYS[digit] = () => setScore(active, digit || 10);
const ZOOM_KEYS = {
  ...LIGHT_KEYS,
  z: () => one("#zoom").close(),
  x: () => { other(); openZoom(); },
  "+": () => setZoom(zoom * 2),
  "-": () => setZoom(zoom / 2),
};

document.addEventListener("keydown", (event) => {
  if (study === null || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  const keys = one("#zoom").open ? ZOOM_KEYS : one("#help").open ? { "?": () => one("#help").close() } : KEYS;
  if (keys === KEYS && event.target.closest("input, textarea, select")) {
    if (event.key === "Escape" || (event.key === "Enter" && event.target.matches("input"))) one("#item").focus({ preventScroll: true });
    return;
  }
  const act = keys[event.key.toLowerCase()];
  if (!act) return;
  event.preventDefault();
  act();
});

document.addEventListener("paste", (event) => {
  if (study !== null && !event.target.closest("input, textarea")) pasteUnsaved(event.clipboardData.getData("text"));
});
document.addEventListener("input", (event) => {
  if (event.target.matches("[data-field]")) edited(event.target);
});
one("#position").addEventListener("change", ({ target }) => {
  const place = Number.parseInt(target.value, 10) - 1;
  if (items[place]) show(place);
  else target.value = at + 1;
});
one("#filter").addEventListener("change", (event) => setFilter(event.target.value));
one("#previous").addEventListener("click", KEYS.p);
one("#next").addEventListener("click", KEYS.n);
one("#unscored").addEventListener("click", KEYS.u);
one("#captions").addEventListener("click", toggleCaptions);
one("#revert").addEventListener("click", revert);
one("#keys").addEventListener("click", KEYS["?"]);
one("#zoomed").addEventListener("click", ({ clientX, clientY }) => setZoom(zoom >= 4 ? 1 : zoom * 2, clientX, clientY));
one("#larger").addEventListener("click", ZOOM_KEYS["+"]);
one("#smaller").addEventListener("click", ZOOM_KEYS["-"]);
document.addEventListener("visibilitychange", () => document.hidden && saveAll());
window.addEventListener("beforeunload", (event) => {
  if (!unsaved.size) return;
  saveAll();
  event.preventDefault();
});
start();

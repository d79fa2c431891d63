"use strict";
(() => {
  const cards = [...document.querySelectorAll(".finding")];
  const kind = document.getElementById("kind");
  const concern = document.getElementById("concern");
  const words = document.getElementById("words");
  const tally = document.getElementById("tally");
  if (!kind) return;
  const show = () => {
    const wanted = words.value.trim().toLowerCase();
    let shown = 0;
    for (const card of cards) {
      const fits =
        (!kind.value || card.dataset.kind === kind.value) &&
        (!concern.value || card.dataset.concern === concern.value) &&
        (!wanted || [...card.querySelectorAll("code")].some((name) => name.textContent.toLowerCase().includes(wanted)));
      card.hidden = !fits;
      shown += fits ? 1 : 0;
    }
    for (const list of document.querySelectorAll(".findings")) {
      list.querySelector(".nothing").hidden = list.querySelector(".finding:not([hidden])") !== null;
    }
    tally.textContent = `${shown} of ${cards.length} shown`;
  };
  for (const field of [kind, concern, words]) for (const event of ["input", "change"]) field.addEventListener(event, show);
  document.getElementById("filters").addEventListener("submit", (event) => event.preventDefault());
  show();
})();

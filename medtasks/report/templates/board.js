"use strict";
(() => {
  const body = document.querySelector("tbody");
  const headings = [...document.querySelectorAll("thead th")];
  const original = [...body.rows];
  const key = (row, column) => (column ? row.cells[column].dataset.value : row.cells[0].textContent.toLowerCase());
  const sort = (column, direction) => {
    const sign = direction === "ascending" ? 1 : -1;
    const rows = [...original].sort((first, second) => {
      const [a, b] = [key(first, column), key(second, column)];
      if (column && (a === "" || b === "")) return (a === "") - (b === "");
      return sign * (column ? Number(a) - Number(b) : a.localeCompare(b));
    });
    body.append(...rows);
  };
  headings.forEach((heading, column) => {
    heading.querySelector("button").addEventListener("click", () => {
      const first = column ? "descending" : "ascending";
      const other = column ? "ascending" : "descending";
      const direction = heading.getAttribute("aria-sort") === first ? other : first;
      headings.forEach((each) => each.removeAttribute("aria-sort"));
      heading.setAttribute("aria-sort", direction);
      sort(column, direction);
    });
  });
})();

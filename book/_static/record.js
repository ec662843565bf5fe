// Sorting and filtering of the record tables (scoreboard, errata). No dependency; without it the tables are plain and whole.
// Words of a text with formulas as a reader types them: LaTeX without its signs, so that "kappa" and "l1" are found.
const plain = (text) => text.replace(/\\[()]|[\\{}_$]/g, "").trim();

const start = (record) => {
  const body = record.querySelector("tbody");
  const rows = [...body.rows];
  const cells = new Map(rows.map((row) => [row, [...row.cells].map((cell) => plain(cell.textContent))]));
  const words = new Map(rows.map((row) => [row, cells.get(row).join(" ").toLowerCase()]));
  const inputs = [...record.querySelectorAll("[data-filter]")];
  const output = record.querySelector("output");
  const filter = () => {
    let shown = 0;
    for (const row of rows) {
      const keep = inputs.every((input) => {
        const wanted = input.value.trim().toLowerCase();
        if (!wanted) return true;
        if (input.dataset.filter === "text") {
          return plain(wanted).split(/\s+/).every((word) => words.get(row).includes(word));
        }
        const value = row.dataset[input.dataset.filter].toLowerCase();
        return input.dataset.filter === "paper" ? value.includes(wanted) : value === wanted;
      });
      row.hidden = !keep;
      shown += keep;
    }
    output.textContent = `${shown} of ${rows.length} ${output.dataset.count}`;
  };
  inputs.forEach((input) => input.addEventListener("input", filter));
  filter();
  [...record.querySelectorAll("th")].forEach((head, column) => {
    head.querySelector("button").addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      record.querySelectorAll("th").forEach((other) => other.setAttribute("aria-sort", "none"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const text = (row) => cells.get(row)[column];
      const number = (row) => (/^[-+]?[\d.]+(e[-+]?\d+)?$/i.test(text(row)) ? parseFloat(text(row)) : NaN);
      rows.sort((a, b) => {
        const [x, y] = [number(a), number(b)];
        // Numbers first, by value, then texts: one total order.
        const [p, q] = [Number.isNaN(x), Number.isNaN(y)];
        const order = p !== q ? p - q : p ? text(a).localeCompare(text(b), "en", { numeric: true }) : x - y;
        return up ? order : -order;
      });
      body.append(...rows);
    });
  });
};

// Formulas of the tables are set when they come near the window: a table of hundreds is laid out anew for each of them.
const formulas = () => [...document.querySelectorAll(".record-table .math")];
const waiting = new Set();
let typeset = Promise.resolve();
const set = (found) => {
  for (const formula of found) {
    waiting.delete(formula);
    formula.classList.replace("math-later", "math");
  }
  typeset = typeset.then(() => window.MathJax?.typesetPromise?.(found));
};
const later = () => {
  if (!("IntersectionObserver" in window)) return;
  for (const formula of formulas()) {
    formula.classList.replace("math", "math-later"); // MathJax passes over this name
    waiting.add(formula);
  }
};
const watch = () => {
  if (!window.MathJax?.typesetPromise) return;
  const seen = new IntersectionObserver(
    (entries) => {
      const found = entries.filter((entry) => entry.isIntersecting).map((entry) => entry.target);
      found.forEach((formula) => seen.unobserve(formula));
      if (found.length) set(found);
    },
    { rootMargin: "400px 0px" },
  );
  waiting.forEach((formula) => seen.observe(formula));
};
window.addEventListener("beforeprint", () => {
  waiting.forEach((formula) => formula.classList.replace("math-later", "math"));
  if (waiting.size) window.MathJax?.typeset?.([...waiting]);
  waiting.clear();
});

// Read when the page is parsed, before the deferred MathJax takes the words out of the formulas.
document.addEventListener("readystatechange", () => {
  if (document.readyState !== "interactive") return;
  document.querySelectorAll(".record").forEach(start);
  later();
});
// A link to one row must land on it, also after the formulas above it have taken their room.
window.addEventListener("load", async () => {
  await window.MathJax?.startup?.promise;
  watch();
  const row = location.hash ? document.getElementById(decodeURIComponent(location.hash.slice(1))) : null;
  if (row?.closest(".record-table")) row.scrollIntoView();
});

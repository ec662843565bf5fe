// Sorting and filtering of the record tables (scoreboard, errata). No dependency; without it the tables are plain and whole.
document.addEventListener("DOMContentLoaded", () => {
  for (const record of document.querySelectorAll(".record")) {
    const body = record.querySelector("tbody");
    const rows = [...body.rows];
    const inputs = [...record.querySelectorAll("[data-filter]")];
    const output = record.querySelector("output");
    const filter = () => {
      let shown = 0;
      for (const row of rows) {
        const keep = inputs.every((input) => {
          const wanted = input.value.trim().toLowerCase();
          if (!wanted) return true;
          if (input.dataset.filter === "text") {
            const text = row.textContent.toLowerCase();
            return wanted.split(/\s+/).every((word) => text.includes(word));
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
        const text = (row) => row.cells[column].textContent.trim();
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
    // A link to one row must not land on a filtered-out or off-screen one.
    if (location.hash) document.getElementById(location.hash.slice(1))?.scrollIntoView();
  }
});

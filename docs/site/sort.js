// Tables inside of an element of the class `sortable` sort by a click on a heading: numbers by value, before texts.
for (const table of document.querySelectorAll(".sortable table")) {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  const value = (row, column) => {
    const text = row.cells[column].textContent.trim(), number = parseFloat(text.replaceAll(",", ""));
    return Number.isNaN(number) || !/^[\d.,]+( \[|$)/.test(text) ? text : number;
  };
  const compare = (a, b) => typeof a === typeof b ? (a < b ? -1 : a > b ? 1 : 0) : typeof a === "number" ? -1 : 1;
  heads.forEach((head, column) => {
    head.tabIndex = 0;
    head.setAttribute("role", "button");
    head.onclick = () => {
      const isRising = head.getAttribute("aria-sort") !== "ascending";
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", isRising ? "ascending" : "descending");
      body.append(...[...body.rows].sort((a, b) => (isRising ? 1 : -1) * compare(value(a, column), value(b, column))));
    };
    head.onkeydown = (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      head.onclick();
    };
  });
}

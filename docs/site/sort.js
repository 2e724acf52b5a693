// Tables inside of an element of the class `sortable` sort by a click on a heading: numbers by value, before texts; empty cells are last.
for (const table of document.querySelectorAll(".sortable table")) {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  const value = (row, column) => {
    const text = row.cells[column].textContent.trim(), number = parseFloat(text.replaceAll(",", ""));
    return Number.isNaN(number) || !/^[\d.,]+( \[|$)/.test(text) ? text : number;
  };
  const inOrder = (a, b) => typeof a === typeof b ? (a < b ? -1 : a > b ? 1 : 0) : typeof a === "number" ? -1 : 1;
  const compare = (a, b, sign) => (a === "") - (b === "") || sign * inOrder(a, b);
  heads.forEach((head, column) => {
    head.tabIndex = 0;
    head.setAttribute("role", "button");
    head.onclick = () => {
      const isRising = head.getAttribute("aria-sort") !== "ascending";
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", isRising ? "ascending" : "descending");
      const sign = isRising ? 1 : -1;
      body.append(...[...body.rows].sort((a, b) => compare(value(a, column), value(b, column), sign)));
    };
    head.onkeydown = (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      head.onclick();
    };
  });
}

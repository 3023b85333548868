// Brings what the guide's modules print: at first, after an edit of the one that holds the lease, and after an edit of leases.js.
const printed = [];

const print = () =>
  new Promise((resolve) => {
    console.log = (line) => resolve(printed.push(line));
  });

async function outcome() {
  let next = print();
  await import("./editor.js");
  await next;
  for (const file of ["editor.js", "leases.js"]) {
    next = print();
    import.meta.hot.send("edit", file);
    await next;
  }
  return printed;
}

window.outcome = outcome();

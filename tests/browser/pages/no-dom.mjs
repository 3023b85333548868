for (const name of ["window", "document"]) {
  Object.defineProperty(globalThis, name, {
    get() {
      throw new Error(`${name} is out of bounds`);
    },
  });
}

// Says what a typed cosine is worth, and unfolds everything for print.
(() => {
  "use strict";

  /* what a cosine is worth */

  const percentage = (value) => {
    if (value <= 0 || value >= 100) return value <= 0 ? "0%" : "100%";
    if (value < 0.01 || value > 99.99) return value < 0.01 ? "< 0.01%" : "> 99.99%";
    return `${value.toFixed(value >= 1 && value < 99 ? 1 : 2)}%`;
  };

  // The share of quantiles below a cosine, with straight lines between; of equal ones the first counts.
  const percentile = (quantiles, shares, cosine) => {
    if (cosine <= quantiles[0]) return 0;
    if (cosine >= quantiles.at(-1)) return 100;
    const after = quantiles.findIndex((each) => each >= cosine);
    let before = after - 1;
    while (before > 0 && quantiles[before - 1] === quantiles[before]) before -= 1;
    const way = (cosine - quantiles[before]) / (quantiles[after] - quantiles[before]);
    return 100 * (shares[before] + way * (shares[after] - shares[before]));
  };

  const field = document.getElementById("cosine");
  if (field) {
    const spaces = JSON.parse(document.getElementById("similarity").textContent);
    const said = document.querySelector("output");
    field.form.addEventListener("submit", (event) => event.preventDefault());
    field.addEventListener("input", () => {
      const cosine = field.valueAsNumber;
      if (!(cosine >= -1 && cosine <= 1)) {
        said.textContent = field.value === "" ? "" : "A cosine lies between −1 and 1.";
        return;
      }
      said.textContent = spaces.map(({ name, shares, pairs, nearest }) => {
        const whose = spaces.length > 1 ? `${name}: ` : "";
        const beyond = nearest.length ? ` and of ${percentage(percentile(nearest, shares, cosine))} of nearest neighbours` : "";
        return `${whose}${field.value} is above the cosine of ${percentage(percentile(pairs, shares, cosine))} of random pairs${beyond}.`;
      }).join(" ");
    });
  }

  /* on paper nothing can be unfolded */

  let folded = [];
  window.addEventListener("beforeprint", () => {
    folded = [...document.querySelectorAll("details:not([open])")];
    folded.forEach((each) => { each.open = true; });
  });
  window.addEventListener("afterprint", () => folded.forEach((each) => { each.open = false; }));
})();

// Translates a typed cosine into percentiles, and unfolds everything for print.
(() => {
  "use strict";

  /* what a cosine means */

  const percentage = (value) => {
    if (value <= 0 || value >= 100) return value <= 0 ? "0%" : "100%";
    if (value < 0.01 || value > 99.99) return value < 0.01 ? "< 0.01%" : "> 99.99%";
    return `${value.toFixed(value >= 1 && value < 99 ? 1 : 2)}%`;
  };

  // The percentage below a cosine: exact where it was counted, else interpolated between quantiles within the two
  // nearest counts. Of equal quantiles the first counts, as in auditing/similarity.py.
  const percentile = (quantiles, shares, cosines, counted, cosine) => {
    let after = cosines.findIndex((each) => each >= cosine - 1e-9);
    if (after < 0) after = cosines.length;
    if (after < counted.length && Math.abs(cosines[after] - cosine) < 1e-9) return 100 * counted[after];
    const low = after > 0 ? counted[after - 1] : 0;
    const high = after < counted.length ? counted[after] : 1;
    return 100 * Math.min(Math.max(interpolated(quantiles, shares, cosine), low), high);
  };

  const interpolated = (quantiles, shares, cosine) => {
    if (cosine <= quantiles[0]) return shares[0];
    if (cosine >= quantiles.at(-1)) return shares[quantiles.indexOf(quantiles.at(-1))];
    const after = quantiles.findIndex((each) => each >= cosine);
    let before = after - 1;
    while (before > 0 && quantiles[before - 1] === quantiles[before]) before -= 1;
    const way = (cosine - quantiles[before]) / (quantiles[after] - quantiles[before]);
    return shares[before] + way * (shares[after] - shares[before]);
  };

  const field = root.getElementById("cosine");
  if (field) {
    const spaces = JSON.parse(root.getElementById("similarity").textContent);
    const said = root.querySelector("output");
    field.form.addEventListener("submit", (event) => event.preventDefault());
    field.addEventListener("input", () => {
      const cosine = field.valueAsNumber;
      if (!(cosine >= -1 && cosine <= 1)) {
        said.textContent = field.value === "" ? "" : "A cosine lies between −1 and 1.";
        return;
      }
      said.textContent = spaces.map(({ name, shares, pairs, nearest, cosines, pairs_below, nearest_below }) => {
        const whose = spaces.length > 1 ? `${name}: ` : "";
        const among = (quantiles, counted) => percentage(percentile(quantiles, shares, cosines, counted, cosine));
        const beyond = nearest.length ? ` and of ${among(nearest, nearest_below)} of nearest neighbors` : "";
        return `${whose}${field.value} is above the cosine of ${among(pairs, pairs_below)} of random pairs${beyond}.`;
      }).join(" ");
    });
  }

  /* unfold everything for print */

  let folded = [];
  window.addEventListener("beforeprint", () => {
    folded = [...root.querySelectorAll("details:not([open])")];
    folded.forEach((each) => { each.open = true; });
  });
  window.addEventListener("afterprint", () => folded.forEach((each) => { each.open = false; }));
})();

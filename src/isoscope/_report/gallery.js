// Colors the pictures of many clouds, and opens one of them as an interactive cloud.
(() => {
  "use strict";

  const room = root.querySelector("[data-gallery]");
  if (!room) return;
  const { Cloud, HUES, SHAPES, read, slotsOf } = isoscope;
  const texts = read("gallery-texts");
  const stage = room.querySelector("dialog");
  let [cloud, key] = [null, room.querySelector("[data-color]").dataset.color];

  const cache = new Map();
  const readPoints = (still) => {
    const identity = still.dataset.points;
    if (!cache.has(identity)) {
      const data = read(identity);
      data.text = data.text && data.text.map((i) => texts[i]);
      cache.set(identity, data);
    }
    return cache.get(identity);
  };

  // The positions of the points in a picture, as Python computed them.
  const pointPaths = (still) => {
    const bytes = Uint8Array.from(atob(readPoints(still).points), (mark) => mark.charCodeAt(0));
    const view = new DataView(bytes.buffer);
    const [x, y, scale] = still.dataset.frame.split(" ").map(Number);
    const { width, height } = still.viewBox.baseVal;
    return Array.from({ length: bytes.length / 6 }, (_, i) => {
      const [across, up] = [0, 2].map((at) => view.getInt16(6 * i + at, true) / 32767);
      return `M${(width / 2 + scale * (across - x)).toFixed(1)} ${(height / 2 - scale * (up - y)).toFixed(1)}h0`;
    });
  };

  const look = (slot, names) => {
    if (!names) return `shade-${slot}`;
    return slot < 0 ? "other disc" : `hue-${slot % HUES} ${SHAPES[slot % SHAPES.length]}`;
  };

  const paint = (still) => {
    const coloring = readPoints(still).colorings.find((each) => each.key === key);
    const places = pointPaths(still);
    const slots = coloring ? slotsOf(coloring, places.length) : new Int16Array(places.length).fill(-1);
    const names = !coloring || coloring.names;
    const paths = new Map();
    slots.forEach((slot, i) => paths.set(slot, (paths.get(slot) || "") + places[i]));
    still.replaceChildren(...[...paths.keys()].sort((a, b) => a - b).flatMap((slot) => {
      const kinds = [look(slot, names)];
      if (kinds[0].endsWith("ring")) kinds.push("hole");
      return kinds.map((kind) => {
        const path = document.createElementNS(still.namespaceURI, "path");
        path.setAttribute("d", paths.get(slot));
        path.setAttribute("class", `dots ${kind}`);
        return path;
      });
    }));
  };

  const stills = [...room.querySelectorAll("[data-points]")];

  const paintAllBy = (chosen) => {
    key = chosen;
    stills.forEach(paint);
    for (const button of room.querySelectorAll(".shared [data-color]")) {
      button.setAttribute("aria-pressed", String(button.dataset.color === key));
    }
    for (const legend of room.querySelectorAll("[data-legend]")) legend.hidden = legend.dataset.legend !== key;
  };

  const open = (still) => {
    const data = readPoints(still);
    cloud ||= new Cloud(stage.querySelector(".cloud"));
    root.getElementById("stage-title").textContent = `Point cloud of ${data.name}`;
    root.getElementById("stage-caption").textContent = data.caption;
    stage.querySelector("canvas").setAttribute("aria-label", `Points of ${data.name}. ${data.caption}`);
    for (const button of stage.querySelectorAll("[data-color]")) {
      button.hidden = !data.colorings.some((each) => each.key === button.dataset.color);
    }
    for (const button of stage.querySelectorAll("[data-view]")) button.parentElement.hidden = data.axes.length < 3;
    stage.showModal();
    cloud.show(data, key);
    stage.querySelector("canvas").focus();
  };

  room.addEventListener("click", ({ target }) => {
    const choice = target.closest("[data-color]");
    const tile = target.closest(".tile");
    if (choice) paintAllBy(choice.dataset.color);
    else if (tile && !target.closest("bdi")) open(tile.querySelector("[data-points]"));
    else if (target === stage || target.closest("[data-close]")) stage.close();
  });
})();

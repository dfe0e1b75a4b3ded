// Colours the stills of many clouds alike, and opens one of them as the cloud that turns.
(() => {
  "use strict";

  const room = document.querySelector("[data-gallery]");
  if (!room) return;
  const { Cloud, HUES, read, slotsOf } = window.isoscope;
  const SHAPES = ["disc", "square", "ring"];
  const texts = read("gallery-texts");
  const stage = room.querySelector("dialog");
  let [cloud, key] = [null, room.querySelector("[data-colour]").dataset.colour];

  const held = new Map();
  const points = (still) => {
    const identity = still.dataset.points;
    if (!held.has(identity)) {
      const found = read(identity);
      found.text = found.text && found.text.map((i) => texts[i]);
      held.set(identity, found);
    }
    return held.get(identity);
  };

  // Where the points of a still are, as Python has placed them.
  const placed = (still) => {
    const bytes = Uint8Array.from(atob(points(still).points), (mark) => mark.charCodeAt(0));
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
    return slot < 0 ? "other disc" : `hue-${slot % HUES} ${SHAPES[Math.floor(slot / HUES)]}`;
  };

  const paint = (still) => {
    const colouring = points(still).colourings.find((each) => each.key === key);
    const places = placed(still);
    const slots = colouring ? slotsOf(colouring, places.length) : new Int16Array(places.length).fill(-1);
    const names = !colouring || colouring.names;
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
    for (const button of room.querySelectorAll(".shared [data-colour]")) {
      button.setAttribute("aria-pressed", String(button.dataset.colour === key));
    }
    for (const legend of room.querySelectorAll("[data-legend]")) legend.hidden = legend.dataset.legend !== key;
  };

  const open = (still) => {
    const found = points(still);
    cloud ||= new Cloud(stage.querySelector(".cloud"));
    document.getElementById("stage-title").textContent = `The cloud of ${found.name}`;
    document.getElementById("stage-caption").textContent = found.caption;
    stage.querySelector("canvas").setAttribute("aria-label", `Points of ${found.name}. ${found.caption}`);
    for (const button of stage.querySelectorAll("[data-colour]")) {
      button.hidden = !found.colourings.some((each) => each.key === button.dataset.colour);
    }
    for (const button of stage.querySelectorAll("[data-view]")) button.parentElement.hidden = found.axes.length < 3;
    stage.showModal();
    cloud.show(found, key);
    stage.querySelector("canvas").focus();
  };

  room.addEventListener("click", ({ target }) => {
    const choice = target.closest("[data-colour]");
    const tile = target.closest(".tile");
    if (choice) paintAllBy(choice.dataset.colour);
    else if (tile && !target.closest("bdi")) open(tile.querySelector("[data-points]"));
    else if (target === stage || target.closest("[data-close]")) stage.close();
  });
})();

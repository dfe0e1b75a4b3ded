// Draws point clouds: data-cloud of an element is the id of the JSON with its points.
// `root` is the document or a shadow root; the scripts of one root share `isoscope`.
(() => {
  "use strict";

  const HUES = 7;
  const SHAPES = ["disc", "square", "ring"];
  const NEIGHBORS = 5;
  const NAME_FONT = "600 12px system-ui, sans-serif";
  const SHADES = 6;
  const read = (id) => JSON.parse(root.getElementById(id).textContent);
  const clamp = (value, low, high) => Math.min(Math.max(value, low), high);

  const element = (name, text = "", className = "") => {
    const made = document.createElement(name);
    made.textContent = text;
    if (className) made.className = className;
    return made;
  };

  // A number with three digits, as everywhere on the page.
  const formatNumber = (value) => {
    const size = Math.abs(value);
    const digits = size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3;
    return value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits }).replace("-", "−");
  };

  // The slot of each point: that of its name (−1 without its own color), or the shade of its number.
  const slotsOf = ({ names, codes, slots, values, low, high, log }, count) => Int16Array.from({ length: count }, (_, i) => {
    if (names) return codes[i] < 0 ? -1 : slots[codes[i]];
    const [a, b, x] = log ? [low, high, values[i]].map((each) => Math.log(Math.max(each, 1e-300))) : [low, high, values[i]];
    return b > a ? clamp(Math.floor(((x - a) / (b - a)) * SHADES), 0, SHADES - 1) : SHADES / 2;
  });

  const shorten = (text) => (text.length <= 24 ? text : `${text.slice(0, 23)}…`);

  // Whether a point lies inside a polygon, by the number of edges to its right.
  const isInside = (corners, x, y) => corners.reduce((inside, [ax, ay], i) => {
    const [bx, by] = corners[(i || corners.length) - 1];
    return (ay > y) !== (by > y) && x < ((bx - ax) * (y - ay)) / (by - ay) + ax ? !inside : inside;
  }, false);

  class Cloud {
    constructor(box) {
      this.box = box;
      this.canvas = box.querySelector("canvas");
      this.pen = this.canvas.getContext("2d");
      this.tip = box.querySelector(".tip");
      this.spoken = box.querySelector(".spoken");
      this.legend = box.querySelector(".legend.live");
      [this.pickedBox, this.selectionBox, this.finder, this.status] = ["picked", "selection", "find", "matches"].map((name) => box.querySelector(`[data-${name}]`));
      this.showsNames = true;
      this.pointers = new Map();
      this.listen();
      new ResizeObserver(() => this.draw()).observe(this.canvas);
      matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.restyle());
    }

    // Draw the points, with this coloring if they have it.
    show(data, key) {
      const bytes = Uint8Array.from(atob(data.points), (mark) => mark.charCodeAt(0));
      const view = new DataView(bytes.buffer);
      this.count = bytes.length / 6;
      this.places = Float32Array.from({ length: 3 * this.count }, (_, i) => view.getInt16(2 * i, true) / 32767);
      this.data = data;
      this.screen = new Float32Array(3 * this.count); // x, y and depth of each point as last drawn
      this.chosen = -1;
      this.tip.hidden = true;
      this.hidden = new Set();
      [this.pins, this.selected, this.matches, this.picked, this.lasso] = [new Set(), new Set(), null, -1, null];
      this.finder.value = "";
      this.report();
      this.flat = data.axes.length < 3;
      this.press("[data-view]", this.flat ? "2" : "3");
      this.measure();
      this.reset();
      this.paintBy(data.colorings.some((each) => each.key === key) ? key : data.colorings[0].key);
      this.notify("shown");
    }

    // Tell a listener that other points are shown, or that the reader selected, pinned or clicked points.
    notify(kind) {
      this.box.dispatchEvent(new CustomEvent(kind, { bubbles: true, detail: this }));
    }

    // Mark the button with this value as pressed.
    press(selector, value) {
      for (const button of this.box.querySelectorAll(selector)) {
        button.setAttribute("aria-pressed", String(Object.values(button.dataset)[0] === value));
      }
    }

    // The radius of most points; a few far points do not shrink the rest.
    measure() {
      const reach = (of) => {
        const sizes = Float32Array.from({ length: this.count }, (_, i) => of(3 * i)).sort();
        const most = sizes[this.count - 1] || 1;
        return Math.min(most, 1.12 * (sizes[Math.floor(0.98 * (this.count - 1))] || most)) || 1;
      };
      const p = this.places;
      this.radius = reach((i) => Math.hypot(p[i], p[i + 1], p[i + 2]));
      this.tall = reach((i) => Math.max(Math.abs(p[i + 1]), Math.abs(p[i + 2])));
    }

    reset() {
      this.yaw = this.flat ? 0 : -0.5;
      this.pitch = this.flat ? 0 : 0.35;
      this.zoom = 1;
      this.shift = [0, 0];
      this.draw();
    }

    get coloring() {
      return this.data.colorings.find((each) => each.key === this.key);
    }

    paintBy(key) {
      this.key = key;
      this.hidden.clear();
      this.slots = slotsOf(this.coloring, this.count);
      this.centers = this.findCenters();
      this.press("[data-color]", key);
      this.restyle();
    }

    restyle() {
      const style = getComputedStyle(this.box);
      const color = (name) => style.getPropertyValue(`--${name}`).trim();
      const [kind, count] = this.coloring.names ? ["hue", HUES] : ["shade", SHADES];
      this.colors = Array.from({ length: count }, (_, i) => color(`${kind}-${i}`));
      for (const name of ["ink", "quiet", "rule", "panel", "other"]) this[name] = color(name);
      this.explain();
      this.draw();
    }

    look(slot) {
      if (!this.coloring.names) return [this.colors[slot], 0];
      return slot < 0 ? [this.other, 0] : [this.colors[slot % HUES], slot % SHAPES.length];
    }

    mark(pen, x, y, size, [fill, shape]) {
      pen.beginPath();
      if (shape === 1) pen.rect(x - size * 0.9, y - size * 0.9, 1.8 * size, 1.8 * size);
      else pen.arc(x, y, size, 0, 7);
      if (shape === 2) {
        pen.lineWidth = size * 0.7;
        pen.strokeStyle = fill;
        pen.stroke();
      } else {
        pen.fillStyle = fill;
        pen.fill();
      }
    }

    // Build the legend: a button for each group, or the ends of the scale.
    explain() {
      this.legend.replaceChildren();
      const { names, slots, rest, title, low, high } = this.coloring;
      if (!names) {
        const ramp = element("canvas", "", "ramp");
        [ramp.width, ramp.height] = [SHADES * 20, 10];
        const pen = ramp.getContext("2d");
        this.colors.forEach((fill, i) => {
          pen.fillStyle = fill;
          pen.fillRect(20 * i, 0, 20, 10);
        });
        this.enlist(`${title.toLowerCase()} from ${formatNumber(low)} `, ramp, ` to ${formatNumber(high)}`);
        return;
      }
      const counts = new Map();
      for (const slot of this.slots) counts.set(slot, (counts.get(slot) || 0) + 1);
      const order = [...counts.keys()].sort((a, b) => (a < 0) - (b < 0) || a - b);
      for (const slot of order) {
        const button = element("button");
        button.type = "button";
        button.setAttribute("aria-pressed", String(!this.hidden.has(slot)));
        const swatch = element("canvas");
        [swatch.width, swatch.height] = [24, 24];
        this.mark(swatch.getContext("2d"), 12, 12, 8, this.look(slot));
        const name = element("bdi", slot < 0 ? rest : names[slots.indexOf(slot)]);
        name.title = name.textContent;
        button.append(swatch, name, " ");
        button.append(element("small", counts.get(slot).toLocaleString("en")));
        button.addEventListener("click", () => {
          if (!this.hidden.delete(slot)) this.hidden.add(slot);
          button.setAttribute("aria-pressed", String(!this.hidden.has(slot)));
          this.choose(-1);
          this.draw();
        });
        this.enlist(button);
      }
      if (order.length < 3) return;
      const all = element("button", "All or none", "all");
      all.type = "button";
      all.addEventListener("click", () => {
        this.hidden = this.hidden.size ? new Set() : new Set(order);
        this.choose(-1);
        this.explain();
        this.draw();
      });
      this.enlist(all);
    }

    enlist(...parts) {
      const entry = element("li");
      entry.append(...parts);
      this.legend.append(entry);
    }

    draw() {
      if (this.waiting) return;
      this.waiting = true;
      requestAnimationFrame(() => {
        this.waiting = false;
        this.paint();
      });
    }

    // The position of a point on the canvas in CSS pixels, and its depth.
    project(x, y, z) {
      const { width, height } = this;
      const [a, b, c, d] = [Math.cos(this.yaw), Math.sin(this.yaw), Math.cos(this.pitch), Math.sin(this.pitch)];
      const right = a * x + b * z;
      const back = -b * x + a * z;
      const up = c * y - d * back;
      const near = (d * y + c * back) / this.radius;
      const fit = 0.92 * Math.min(width / 2 / this.radius, height / 2 / this.tall / (this.flat ? 1 : 1.12));
      const scale = fit * this.zoom * (this.flat ? 1 : 1 / (1 - 0.22 * clamp(near, -2, 2)));
      return [width / 2 + this.shift[0] + scale * right, height / 2 + this.shift[1] - scale * up, near];
    }

    paint() {
      const { canvas, pen, places, screen } = this;
      const dense = window.devicePixelRatio || 1;
      const { width, height } = canvas.getBoundingClientRect();
      if (!width || !height) return;
      [this.width, this.height] = [width, height];
      const wanted = [Math.round(width * dense), Math.round(height * dense)];
      if (canvas.width !== wanted[0] || canvas.height !== wanted[1]) [canvas.width, canvas.height] = wanted;
      pen.setTransform(dense, 0, 0, dense, 0, 0);
      pen.clearRect(0, 0, width, height);
      this.paintAxes(false);
      for (let i = 0; i < 3 * this.count; i += 3) {
        [screen[i], screen[i + 1], screen[i + 2]] = this.project(places[i], places[i + 1], this.flat ? 0 : places[i + 2]);
      }
      const order = this.visible().sort((i, j) => screen[3 * i + 2] - screen[3 * j + 2]);
      const size = clamp(150 / Math.sqrt(this.count), 2.2, 5) * clamp(Math.sqrt(this.zoom), 0.8, 2) * (width < 500 ? 0.85 : 1);
      for (const i of order) {
        const near = this.flat ? 0 : clamp(screen[3 * i + 2], -1, 1);
        pen.globalAlpha = (0.78 + 0.2 * near) * (this.isFaded(i) ? 0.15 : 1);
        this.mark(pen, screen[3 * i], screen[3 * i + 1], size * (1 + 0.3 * near), this.look(this.slots[i]));
      }
      pen.globalAlpha = 1;
      this.written = []; // the texts in the picture, so that names do not overlap them
      this.paintAxes(true);
      this.paintNeighbors(size);
      for (const i of this.pins) this.paintPin(i, size);
      this.paintNames();
      for (const i of [this.picked, this.chosen]) if (i >= 0) this.ring(i, size + 4);
      if (this.chosen >= 0) this.placeTip();
      if (this.lasso) {
        pen.beginPath();
        this.lasso.forEach(([x, y]) => pen.lineTo(x, y));
        pen.setLineDash([5, 4]);
        pen.strokeStyle = this.ink;
        pen.stroke();
        pen.setLineDash([]);
      }
    }

    ring(i, size) {
      this.pen.beginPath();
      this.pen.arc(this.screen[3 * i], this.screen[3 * i + 1], size, 0, 7);
      this.pen.lineWidth = 2;
      this.pen.strokeStyle = this.ink;
      this.pen.stroke();
    }

    // Points that are not among the matches of a search, or else not in the selection.
    isFaded(i) {
      if (this.matches) return !this.matches.has(i);
      return this.selected.size > 0 && !this.selected.has(i);
    }

    paintNeighbors(size) {
      const { pen, screen, picked } = this;
      if (picked < 0) return;
      for (const [i] of this.neighborsOf(picked)) {
        if (this.hidden.has(this.slots[i])) continue;
        pen.beginPath();
        pen.moveTo(screen[3 * picked], screen[3 * picked + 1]);
        pen.lineTo(screen[3 * i], screen[3 * i + 1]);
        pen.lineWidth = 1;
        pen.strokeStyle = this.ink;
        pen.stroke();
        this.ring(i, size + 2);
      }
    }

    paintPin(i, size) {
      this.ring(i, size + 3);
      const text = shorten(this.nameOf(i));
      this.pen.font = NAME_FONT;
      const half = this.pen.measureText(text).width / 2 + 4;
      const x = clamp(this.screen[3 * i], half, Math.max(half, this.width - half));
      this.write(text, x, this.screen[3 * i + 1] - size - 7, half);
    }

    // The middle of the points of each name: the median of each coordinate.
    findCenters() {
      const { names, slots } = this.coloring;
      if (!names) return [];
      const members = new Map();
      this.slots.forEach((slot, i) => {
        if (slot < 0) return;
        if (!members.has(slot)) members.set(slot, []);
        members.get(slot).push(i);
      });
      return [...members].sort((a, b) => a[0] - b[0]).map(([slot, points]) => {
        const middle = (axis) => points.map((i) => this.places[3 * i + axis]).sort((a, b) => a - b)[points.length >> 1];
        return { slot, name: shorten(names[slots.indexOf(slot)]), at: [0, 1, 2].map(middle) };
      });
    }

    // Write the names at their centers, those of large groups first; a name that finds no free place is left out.
    paintNames() {
      if (!this.showsNames || this.centers.length < 2) return;
      this.pen.font = NAME_FONT;
      for (const { slot, name, at } of this.centers) {
        if (this.hidden.has(slot)) continue;
        const [x, y] = this.project(at[0], at[1], this.flat ? 0 : at[2]);
        const half = this.pen.measureText(name).width / 2 + 4;
        if (x < 0 || x > this.width || y < 0 || y > this.height) continue;
        const across = clamp(x, half, Math.max(half, this.width - half));
        const free = [0, -16, 16, -32, 32].map((step) => y + 4 + step).find((down) => down > 14 && down < this.height - 4
          && this.written.every((each) => Math.abs(each.x - across) > each.half + half || Math.abs(each.y - down) > 15));
        if (free === undefined) continue;
        this.write(name, across, free, half);
      }
    }

    write(text, x, y, half) {
      const { pen } = this;
      this.written.push({ text, x, y, half });
      pen.font = NAME_FONT;
      pen.textAlign = "center";
      [pen.lineWidth, pen.lineJoin, pen.strokeStyle, pen.fillStyle] = [4, "round", this.panel, this.ink];
      pen.strokeText(text, x, y);
      pen.fillText(text, x, y);
    }

    paintAxes(names) {
      const { pen } = this;
      pen.lineWidth = names ? 3 : 1;
      pen.lineJoin = "round";
      pen.strokeStyle = names ? this.panel : this.rule;
      pen.fillStyle = this.quiet;
      pen.font = "12px system-ui, sans-serif";
      pen.textAlign = "center";
      this.data.axes.slice(0, this.flat ? 2 : 3).forEach((name, axis) => {
        const tip = [0, 0, 0];
        tip[axis] = axis ? Math.min(this.radius, this.tall) : 0.95 * this.radius;
        const to = this.project(...tip);
        if (names) {
          const room = pen.measureText(name).width / 2 + 6;
          const at = [clamp(to[0], room, this.width - room), clamp(to[1] - 6, 14, this.height - 6)];
          pen.strokeText(name, ...at);
          pen.fillText(name, ...at);
          this.written.push({ text: name, x: at[0], y: at[1], half: room });
        } else {
          const from = this.project(...tip.map((each) => -each));
          pen.beginPath();
          pen.moveTo(from[0], from[1]);
          pen.lineTo(to[0], to[1]);
          pen.stroke();
        }
      });
    }

    visible() {
      const found = [];
      for (let i = 0; i < this.count; i++) if (!this.hidden.has(this.slots[i])) found.push(i);
      return found;
    }

    /* reading points */

    nearest(x, y, reach) {
      let [best, least] = [-1, reach * reach];
      for (const i of this.visible()) {
        const away = (this.screen[3 * i] - x) ** 2 + (this.screen[3 * i + 1] - y) ** 2;
        if (away < least) [best, least] = [i, away];
      }
      return best;
    }

    // The lines about a point: its text, then its row, label and other values.
    lines(i) {
      const facts = [`row ${this.data.rows[i].toLocaleString("en")}`];
      if (this.data.ids) facts.push(`id ${this.data.ids[i]}`);
      for (const { key, title, names, codes, values, rest } of this.data.colorings) {
        if (key === "rows") continue; // already in the list
        if (!names) facts.push(`${title.toLowerCase()} ${key === "frequency" && values[i] >= 1 ? values[i].toLocaleString("en") : formatNumber(values[i])}`);
        else facts.push(key === "labels" ? `label ${names[codes[i]]}` : codes[i] < 0 ? rest : names[codes[i]]);
      }
      return [...(this.data.text ? [this.data.text[i] || "(no text)"] : []), facts.join(" · ")];
    }

    choose(i, aloud = false) {
      if (i === this.chosen && !aloud) return;
      this.chosen = i;
      this.tip.hidden = i < 0;
      if (i >= 0) {
        const lines = this.lines(i);
        this.tip.replaceChildren(...lines.map((text) => {
          const line = element("p", text);
          line.dir = "auto";
          return line;
        }));
        if (aloud) this.spoken.textContent = lines.join(". ");
      }
      this.draw();
    }

    // What a point is called: its text, or else its id or row.
    nameOf(i) {
      const { text, ids, rows } = this.data;
      return (text && text[i]) || (ids ? `id ${ids[i]}` : `row ${rows[i].toLocaleString("en")}`);
    }

    // The nearest points with their cosines or distances; without measured neighbors, the nearest in the picture.
    neighborsOf(i) {
      const { neighbors, scores } = this.data;
      if (neighbors) return neighbors[i].map((other, k) => [other, scores[i][k]]).filter(([other]) => other >= 0);
      const p = this.places;
      const away = (j) => Math.hypot(p[3 * i] - p[3 * j], p[3 * i + 1] - p[3 * j + 1], p[3 * i + 2] - p[3 * j + 2]);
      const others = Array.from({ length: this.count }, (_, j) => j).filter((j) => j !== i);
      return others.sort((a, b) => away(a) - away(b)).slice(0, NEIGHBORS).map((other) => [other, null]);
    }

    // List the neighbors of a point below the picture; −1 closes the list.
    pick(i) {
      this.picked = i;
      this.report();
      this.draw();
      this.notify("marked");
    }

    // Build the panels: the picked point with its neighbors, the pinned points, and the selection.
    report() {
      const { pickedBox, selectionBox, picked, pins, selected } = this;
      const button = (text, act, label = "") => {
        const made = element("button", text);
        made.type = "button";
        if (label) made.setAttribute("aria-label", label);
        made.addEventListener("click", act);
        return made;
      };
      const list = (title, points) => {
        const entries = element("ul");
        for (const [i, score] of points) {
          const entry = element("li");
          const go = button(this.nameOf(i), () => this.pick(i));
          go.dir = "auto";
          if (this.coloring && this.coloring.names) go.title = this.lines(i).at(-1);
          if (score !== null) entry.append(element("small", formatNumber(score)), " ");
          entry.append(go);
          entries.append(entry);
        }
        return [element("p", title, "hint"), entries];
      };
      pickedBox.replaceChildren();
      pickedBox.hidden = picked < 0 && !pins.size;
      if (picked >= 0) {
        const lines = this.lines(picked).map((text) => element("p", text));
        lines[0].className = "name";
        lines.forEach((line) => { line.dir = "auto"; });
        const found = this.neighborsOf(picked);
        const by = this.data.metric === "cosine" ? "cosine" : "distance";
        const title = this.data.neighbors
          ? `Nearest of the drawn points in the full space, by ${by}:`
          : "Nearest points in this picture (neighbors in the full space were not measured):";
        const pin = button(pins.has(picked) ? "Unpin" : "Pin", () => {
          if (!pins.delete(picked)) pins.add(picked);
          this.report();
          this.pickedBox.querySelector("button").focus();
          this.draw();
          this.notify("marked");
        });
        const choices = element("p", "", "choices");
        choices.append(pin, " ", button("Close", () => {
          this.pick(-1);
          this.canvas.focus();
        }, "Close the list of neighbors"));
        pickedBox.append(choices, ...lines, ...(found.length ? list(title, found) : [element("p", "No neighbor of this point is drawn.", "hint")]));
      }
      if (pins.size) pickedBox.append(...list("Pinned points:", [...pins].map((i) => [i, null])));
      selectionBox.replaceChildren();
      selectionBox.hidden = !selected.size;
      if (!selected.size) return;
      const { ids, rows } = this.data;
      const kind = ids ? "ids" : "row numbers";
      const content = [...selected].sort((a, b) => a - b).map((i) => `${ids ? ids[i] : rows[i]}\n`).join("");
      const choices = element("p", "", "choices");
      choices.append(
        element("b", `${selected.size.toLocaleString("en")} ${selected.size === 1 ? "point" : "points"} selected`),
        " ",
        button(`Download the ${kind}`, () => {
          const link = element("a");
          link.href = URL.createObjectURL(new Blob([content], { type: "text/plain" }));
          link.download = `${kind.replace(" ", "-")}.txt`;
          link.click();
          URL.revokeObjectURL(link.href);
        }),
        " ",
        button("Clear", () => this.select([]), "Clear the selection"),
      );
      const area = element("textarea", content);
      [area.readOnly, area.rows] = [true, 4];
      area.setAttribute("aria-label", `The ${kind} of the selected points`);
      selectionBox.append(choices, area);
    }

    select(points) {
      this.selected = new Set(points);
      this.spoken.textContent = `${this.selected.size.toLocaleString("en")} points selected`;
      this.report();
      this.draw();
      this.notify("marked");
    }

    // Select and pin the points of these row numbers, without telling the listener.
    markRows(selected, pinned) {
      const points = (rows) => this.data.rows.flatMap((row, i) => (rows.has(row) ? [i] : []));
      [this.selected, this.pins] = [new Set(points(selected)), new Set(points(pinned))];
      this.report();
      this.draw();
    }

    // The points whose text, id or name contains the words, or whose row number they are.
    search(words) {
      const wanted = words.trim().toLowerCase();
      const { text, ids, rows, colorings } = this.data;
      const named = colorings.filter(({ names }) => names).map(({ names, codes }) => [names.map((name) => name.toLowerCase().includes(wanted)), codes]);
      const matches = (i) => (text && text[i].toLowerCase().includes(wanted)) || (ids && ids[i].toLowerCase().includes(wanted))
        || String(rows[i]) === wanted.replace(/^row\s+|,/g, "") || named.some(([hits, codes]) => codes[i] >= 0 && hits[codes[i]]);
      this.matches = wanted ? new Set(Array.from({ length: this.count }, (_, i) => i).filter(matches)) : null;
      const found = this.matches ? this.matches.size : 0;
      this.status.textContent = this.matches ? `${found.toLocaleString("en")} of ${this.count.toLocaleString("en")} points match` : "";
      this.box.querySelector("[data-take]").hidden = !found;
      this.choose(-1);
      this.draw();
    }

    placeTip() {
      const { tip, screen, chosen, width, height } = this;
      const [x, y] = [screen[3 * chosen], screen[3 * chosen + 1]];
      const left = x + 14 + tip.offsetWidth > width ? x - 14 - tip.offsetWidth : x + 14;
      tip.style.left = `${clamp(left, 4, Math.max(4, width - tip.offsetWidth - 4))}px`;
      tip.style.top = `${clamp(y + 14, 4, Math.max(4, height - tip.offsetHeight - 4))}px`;
    }

    // The points in order, from the center of the cloud outward.
    step(by) {
      const away = (i) => Math.hypot(...this.places.subarray(3 * i, 3 * i + 3));
      const order = this.visible().filter((i) => !this.matches || this.matches.has(i)).sort((i, j) => away(i) - away(j) || i - j);
      if (!order.length) return;
      const at = order.indexOf(this.chosen);
      this.choose(order[at < 0 ? 0 : (at + by + order.length) % order.length], true);
    }

    /* moving */

    turn(right, up) {
      if (this.flat) this.shift = [this.shift[0] + right, this.shift[1] + up];
      else {
        this.yaw += right / 160;
        this.pitch = clamp(this.pitch + up / 160, -1.57, 1.57);
      }
      this.draw();
    }

    scale(by) {
      this.zoom = clamp(this.zoom * by, 0.3, 20);
      this.draw();
    }

    listen() {
      const { canvas, box } = this;
      const press = (selector, act) => box.querySelectorAll(selector).forEach((button) => button.addEventListener("click", () => act(button)));
      press("[data-color]", (button) => this.paintBy(button.dataset.color));
      press("[data-view]", (button) => {
        this.flat = button.dataset.view === "2";
        this.press("[data-view]", button.dataset.view);
        this.reset();
      });
      press("[data-zoom]", ({ dataset }) => (dataset.zoom === "reset" ? this.reset() : this.scale(dataset.zoom === "in" ? 1.3 : 1 / 1.3)));
      press("[data-lasso]", (button) => {
        this.lassoing = !this.lassoing;
        button.setAttribute("aria-pressed", String(this.lassoing));
        canvas.classList.toggle("lassoing", this.lassoing);
      });
      press("[data-names]", (button) => {
        this.showsNames = !this.showsNames;
        button.setAttribute("aria-pressed", String(this.showsNames));
        this.draw();
      });
      press("[data-take]", () => this.select(this.visible().filter((i) => this.matches && this.matches.has(i))));
      this.finder.addEventListener("input", () => this.search(this.finder.value));
      this.finder.addEventListener("keydown", (event) => {
        if (event.key !== "Enter") return;
        event.preventDefault();
        this.step(event.shiftKey ? -1 : 1);
      });
      press("[data-hold]", (button) => button.setAttribute("aria-pressed", String(canvas.classList.toggle("held"))));

      const keys = {
        ArrowLeft: () => this.turn(-16, 0),
        ArrowRight: () => this.turn(16, 0),
        ArrowUp: () => this.turn(0, -16),
        ArrowDown: () => this.turn(0, 16),
        "+": () => this.scale(1.2),
        "=": () => this.scale(1.2),
        "-": () => this.scale(1 / 1.2),
        0: () => this.reset(),
        n: () => this.step(1),
        p: () => this.step(-1),
        s: () => {
          if (this.chosen < 0) return;
          const points = new Set(this.selected);
          if (!points.delete(this.chosen)) points.add(this.chosen);
          this.select(points);
        },
        Enter: () => this.pick(this.chosen),
        Escape: () => {
          this.choose(-1);
          this.pick(-1);
        },
      };
      canvas.addEventListener("keydown", (event) => {
        const act = keys[event.key.length === 1 ? event.key.toLowerCase() : event.key];
        if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
        if (event.key === "Escape" && this.chosen < 0 && this.picked < 0) return; // no point is selected, so Escape may close the dialog
        event.preventDefault();
        act();
      });

      // Zoom only with Ctrl, which a pinch on a touchpad also sends; otherwise the page scrolls.
      canvas.addEventListener("wheel", (event) => {
        if (!event.ctrlKey && !event.metaKey) return;
        event.preventDefault();
        this.scale(Math.exp(-event.deltaY / 300));
      }, { passive: false });

      const spot = (event) => {
        const frame = canvas.getBoundingClientRect();
        return [event.clientX - frame.left, event.clientY - frame.top];
      };
      canvas.addEventListener("pointerdown", (event) => {
        if (event.button) return;
        canvas.setPointerCapture(event.pointerId);
        this.pointers.set(event.pointerId, spot(event));
        this.moved = 0;
        if (this.lassoing) this.lasso = [spot(event)];
      });
      canvas.addEventListener("pointermove", (event) => {
        const [now, before] = [spot(event), this.pointers.get(event.pointerId)];
        if (!before) {
          if (event.pointerType !== "touch") this.choose(this.nearest(...now, 12));
          return;
        }
        const spread = () => {
          const [one, two] = [...this.pointers.values()];
          return Math.hypot(one[0] - two[0], one[1] - two[1]);
        };
        const apart = this.pointers.size === 2 ? spread() : 0;
        this.pointers.set(event.pointerId, now);
        this.moved += Math.hypot(now[0] - before[0], now[1] - before[1]);
        if (this.lasso) {
          this.lasso.push(now);
          this.draw();
        } else if (apart) this.scale(spread() / apart);
        else if (this.moved > 3) this.turn(now[0] - before[0], now[1] - before[1]);
      });
      const release = (event) => {
        if (this.pointers.delete(event.pointerId) && event.type === "pointerup" && this.moved <= 3) {
          const found = this.nearest(...spot(event), event.pointerType === "touch" ? 26 : 12);
          this.choose(found, true);
          this.pick(found);
        } else if (this.lasso && event.type === "pointerup") {
          this.select(this.visible().filter((i) => isInside(this.lasso, this.screen[3 * i], this.screen[3 * i + 1])));
        }
        this.lasso = null;
      };
      for (const kind of ["pointerup", "pointercancel"]) canvas.addEventListener(kind, release);
      canvas.addEventListener("pointerleave", (event) => {
        if (event.pointerType === "mouse" && !this.pointers.size) this.choose(-1);
      });
    }
  }

  const clouds = [...root.querySelectorAll("[data-cloud]")].map((box) => {
    const cloud = new Cloud(box);
    cloud.show(read(box.dataset.cloud));
    return cloud;
  });
  Object.assign(isoscope, { Cloud, HUES, SHAPES, clouds, read, slotsOf });
})();

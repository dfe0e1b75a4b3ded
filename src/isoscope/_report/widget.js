// Shows a page in a notebook cell, and sends the points that the reader selects to Python. `activate` runs the scripts
// of the page.

// Whether the text around an element is light, as in a dark theme; a canvas reads every notation of colors.
const isDark = (element) => {
  const pen = document.createElement("canvas").getContext("2d");
  pen.fillStyle = getComputedStyle(element).color;
  pen.fillRect(0, 0, 1, 1);
  const [red, green, blue] = pen.getImageData(0, 0, 1, 1).data;
  return 0.299 * red + 0.587 * green + 0.114 * blue > 128;
};

const fold = (title, parts) => {
  const [folded, summary] = [document.createElement("details"), document.createElement("summary")];
  folded.className = "folded";
  summary.append(title);
  folded.append(summary, ...parts);
  return folded;
};

// Fold the sections of the page, except those with these ids (by default, the first one), which come first. Of the
// figures of a section with clouds, only the clouds remain open.
const foldSections = (root, given) => {
  const main = root.querySelector("main");
  const sections = [...main.querySelectorAll(":scope > section")];
  const known = sections.filter(({ id }) => given.includes(id));
  const open = known.length ? known : sections.slice(0, 1);
  for (const section of sections) {
    const title = section.querySelector("h2");
    if (!open.includes(section)) section.append(fold(title, [...section.childNodes].filter((each) => each !== title)));
  }
  main.prepend(...open);
  const figures = [...root.querySelectorAll(".points ~ .picture")];
  if (!figures.length) return;
  const title = document.createElement("h2");
  title.textContent = figures.map((figure) => figure.querySelector("h3").textContent).join(", ");
  const room = document.createElement("div");
  room.className = "figures";
  room.append(...figures);
  main.querySelector(".points").closest("section").append(fold(title, [room]));
};

// Follow links within the page, which browsers do not resolve inside a shadow root.
const followLinks = (root) => root.addEventListener("click", (event) => {
  const link = event.target.closest('a[href^="#"]');
  if (!link) return;
  event.preventDefault();
  const target = root.getElementById(link.getAttribute("href").slice(1));
  for (let each = target; each; each = each.parentElement) if (each.tagName === "DETAILS") each.open = true;
  target?.scrollIntoView({ block: "nearest" });
});

const isEqual = (a, b) => a.length === b.length && a.every((each, i) => each === b[i]);

// Keep the marks of the clouds and those of the model equal. Clouds of the same rows share their marks; of other
// clouds, only the one that the reader used last has marks.
const connect = (model, root, clouds) => {
  const linked = () => model.get("_linked");
  const indexOf = (cloud) => Number(/^cloud-(\d+)$/.exec(cloud.box.dataset.cloud)?.[1] || 1) - 1;
  const apply = (cloud) => {
    const own = linked() || model.get("source") === model.get("_sources")[indexOf(cloud)];
    cloud.markRows(...["selected", "pinned"].map((name) => new Set(own ? model.get(name) : [])));
  };
  const applyAll = () => clouds.forEach(apply);
  const collect = (cloud) => {
    const rows = cloud.data.rows;
    const source = model.get("_sources")[indexOf(cloud)];
    const keeps = linked() || model.get("source") === source;
    const here = new Set(rows);
    for (const [name, points] of [["selected", cloud.selected], ["pinned", cloud.pins]]) {
      const others = keeps ? model.get(name).filter((row) => !here.has(row)) : [];
      const all = [...others, ...[...points].map((i) => rows[i])].sort((a, b) => a - b);
      if (!isEqual(all, model.get(name))) model.set(name, all);
    }
    model.set("clicked", cloud.picked < 0 ? null : rows[cloud.picked]);
    model.set("source", source);
    model.save_changes();
    clouds.forEach((each) => each !== cloud && apply(each));
  };
  root.addEventListener("shown", ({ detail }) => {
    clouds.add(detail);
    apply(detail);
  });
  root.addEventListener("marked", ({ detail }) => collect(detail));
  for (const name of ["selected", "pinned"]) model.on(`change:${name}`, applyAll);
  return () => ["selected", "pinned"].forEach((name) => model.off(`change:${name}`, applyAll));
};

export default {
  render({ model, el }) {
    const host = document.createElement("div");
    host.dataset.lmSuppressShortcuts = "true"; // keys in the cloud are no shortcuts of JupyterLab
    host.addEventListener("keydown", (event) => event.stopPropagation());
    el.append(host);
    const root = host.attachShadow({ mode: "open" });
    root.innerHTML = `<style>${model.get("_style")}</style><div class="page scripted">${model.get("_content")}</div>`;
    foldSections(root, model.get("_open"));
    followLinks(root);
    const clouds = new Set();
    const disconnect = connect(model, root, clouds);
    const follow = () => {
      const dark = isDark(el);
      if (host.classList.contains("dark") === dark) return;
      host.classList.toggle("dark", dark);
      clouds.forEach((cloud) => cloud.restyle());
    };
    follow();
    activate(root);
    const timers = new Set();
    const later = () => [0, 300, 1500].forEach((wait) => timers.add(setTimeout(follow, wait))); // a theme is loaded
    const observer = new MutationObserver(later);
    for (const each of [document.documentElement, document.body]) observer.observe(each, { attributes: true });
    later();
    return () => {
      observer.disconnect();
      timers.forEach(clearTimeout);
      disconnect();
    };
  },
};

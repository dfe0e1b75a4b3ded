// Accessibility: the keyboard can scroll code and tables that are wider than the page, and the buttons of each code
// block are not a landmark.
const improve = () => {
  for (const box of document.querySelectorAll("pre > code, .md-typeset__scrollwrap")) {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
  }
  for (const buttons of document.querySelectorAll("nav.md-code__nav:not([role])")) buttons.setAttribute("role", "none");
};
addEventListener("load", () => {
  improve();
  new MutationObserver(improve).observe(document.body, { childList: true, subtree: true });
});
addEventListener("resize", improve);

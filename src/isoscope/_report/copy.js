// Buttons that copy the command before them.
(() => {
  "use strict";

  const copyText = async (code) => {
    try {
      await navigator.clipboard.writeText(code.textContent);
    } catch { // not allowed here: copy the selection instead
      const selection = window.getSelection();
      selection.selectAllChildren(code);
      document.execCommand("copy");
      selection.removeAllRanges();
    }
  };

  root.querySelectorAll("button.copy").forEach((button) => {
    const name = button.textContent;
    button.addEventListener("click", async () => {
      await copyText(button.parentElement.querySelector("code"));
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = name; }, 2000);
    });
  });
})();

// Before the first paint: which theme and which view, so that nothing jumps when the modules arrive.
(() => {
  const root = document.documentElement;
  let theme = null;
  try { theme = localStorage.getItem("dragoman.theme"); } catch { /* storage may be switched off */ }
  if (theme === "light" || theme === "dark") root.dataset.theme = theme;
  const view = /^#\/(translate|explain|live|learn)/.exec(location.hash);
  root.dataset.view = view ? view[1] : "translate";
})();

// Runs before anything is painted. Without a choice of the reader's, the system's scheme counts.
{
  const chosen = localStorage.getItem("penstock-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
}

// All parts are there: draws the page for the first time.

document.getElementById("filters").addEventListener("submit", (event) => event.preventDefault());
window.addEventListener("resize", showTrend);
showFooter();
showOverview();
choose({ release: subject().releases.length - 1 });

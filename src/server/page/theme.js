// Runs before the page is drawn, so that a chosen theme does not flash. No module: modules wait.
'use strict';
(() => {
  try {
    const theme = localStorage.getItem('winnow-theme');
    if (theme === 'light' || theme === 'dark') document.documentElement.dataset.theme = theme;
  } catch { /* storage is forbidden: the system's scheme holds */ }
})();

// Runs before the page is drawn, to avoid a flash of the wrong theme. Not a module, because modules are deferred.
'use strict';
(() => {
  try {
    const theme = localStorage.getItem('winnow-theme');
    if (theme === 'light' || theme === 'dark') document.documentElement.dataset.theme = theme;
  } catch { /* storage is forbidden: use the system's scheme */ }
})();

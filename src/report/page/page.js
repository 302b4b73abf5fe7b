// The page is complete without this script. It adds values at the pointer, sorting, hiding of series, and the choice of
// layer and head in token maps.
'use strict';
(() => {
  const make = (name, className, text = '') => {
    const element = document.createElement(name);
    element.className = className;
    element.textContent = text;
    return element;
  };
  const dataOf = (figure, kind) => {
    const element = figure.querySelector('script.' + kind);
    return element ? JSON.parse(element.textContent) : null;
  };
  const shown = (value) => value === null ? 'none' : String(Number(value.toPrecision(5)));

  const tip = make('div', 'tip');
  tip.hidden = true;
  document.body.append(tip);
  const showTip = (text, event) => {
    tip.textContent = text;
    tip.hidden = false;
    const right = event.pageX + 14 + tip.offsetWidth > document.documentElement.scrollWidth;
    tip.style.left = Math.max(0, right ? event.pageX - tip.offsetWidth - 14 : event.pageX + 14) + 'px';
    tip.style.top = event.pageY + 14 + 'px';
  };
  const hideTip = () => { tip.hidden = true; };

  // Line charts: show the points nearest to the pointer on the x axis.
  const axis = (text) => {
    const [first, last, from, to, scale] = text.split(',');
    const along = { first: +first, last: +last };
    along.valueAt = (px) => {
      const share = (px - first) / (last - first);
      return scale === 'log' ? from * Math.pow(to / from, share) : +from + share * (to - from);
    };
    return along;
  };
  const nearest = (series, x) => {
    let best = -1;
    series.x.forEach((value, i) => {
      if (typeof value !== 'number' || typeof series.y[i] !== 'number') return;  // null, "inf"
      if (best < 0 || Math.abs(value - x) < Math.abs(series.x[best] - x)) best = i;
    });
    return best;
  };
  const mostLines = 8;  // shown at the pointer
  const offNames = new Map();  // figure -> names of hidden series
  const isOff = (figure, name) => offNames.has(figure) && offNames.get(figure).has(name);
  for (const figure of document.querySelectorAll('figure')) {
    const panels = dataOf(figure, 'points');
    if (!panels) continue;
    for (const plot of figure.querySelectorAll('g.hover')) {
      const panel = panels[plot.dataset.panel];
      const x = axis(plot.dataset.x), y = axis(plot.dataset.y);
      const area = document.createElementNS('http://www.w3.org/2000/svg', 'rect');
      for (const [name, value] of Object.entries({ x: x.first, y: y.last, width: x.last - x.first,
                                                  height: y.first - y.last, fill: 'transparent' })) {
        area.setAttribute(name, value);
      }
      // Below the markers, so that their tooltips stay reachable.
      plot.parentNode.insertBefore(area, plot.parentNode.querySelector('.mark') || plot);
      area.addEventListener('pointerleave', hideTip);
      area.addEventListener('pointermove', (event) => {
        const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(area.getScreenCTM().inverse());
        const wanted = x.valueAt(at.x);
        const height = y.valueAt(at.y);
        const far = (series, i) => Math.abs(Math.log(series.y[i] / height) || series.y[i] - height);
        const found = panel.series.map((series) => ({ series, i: nearest(series, wanted) }))
            .filter(({ series, i }) => i >= 0 && !isOff(figure, series.name))
            .sort((a, b) => far(a.series, a.i) - far(b.series, b.i));
        const lines = found.slice(0, mostLines).map(({ series, i }) =>
          (series.name ? series.name + '  ' : '') + shown(series.y[i]) + '  at ' + shown(series.x[i]));
        if (found.length > mostLines) lines.push('and ' + (found.length - mostLines) + ' further away');
        showTip([panel.y, ...lines].join('\n'), event);
      });
    }
  }

  // Legends: a click hides or shows a series, a double click shows only that series, hovering highlights it.
  for (const figure of document.querySelectorAll('figure')) {
    const keys = [...figure.querySelectorAll('g.legend')];
    if (!keys.length) continue;
    const off = new Set();
    offNames.set(figure, new Set());
    const of = (key) => key.dataset.series;
    const update = () => {
      for (const element of figure.querySelectorAll('[data-series]')) {
        element.classList.toggle('off', off.has(of(element)));
      }
      offNames.set(figure, new Set(keys.filter((key) => off.has(of(key))).map((key) => key.textContent)));
      keys.forEach((key) => key.setAttribute('aria-pressed', String(!off.has(of(key)))));
    };
    const standOut = (series) => {
      for (const element of figure.querySelectorAll('[data-series]')) {
        element.classList.toggle('faded', series !== null && of(element) !== series);
      }
    };
    const all = new Set(keys.map(of));
    for (const key of keys) {
      key.setAttribute('tabindex', '0');
      key.setAttribute('role', 'button');
      const toggle = () => {
        off.has(of(key)) ? off.delete(of(key)) : off.add(of(key));
        if (off.size === all.size) off.clear();  // the last one was hidden: show all
        update();
      };
      key.addEventListener('click', toggle);
      key.addEventListener('keydown', (event) => {
        if (event.key !== 'Enter' && event.key !== ' ') return;
        event.preventDefault();
        toggle();
      });
      key.addEventListener('dblclick', () => {
        off.clear();
        all.forEach((series) => { if (series !== of(key)) off.add(series); });
        update();
      });
      key.addEventListener('pointerenter', () => standOut(of(key)));
      key.addEventListener('pointerleave', () => standOut(null));
      key.addEventListener('focus', () => standOut(of(key)));
      key.addEventListener('blur', () => standOut(null));
    }
    update();
  }

  // Tables: a click on a column's name sorts by it, a second click reverses the order.
  const sortKey = (text) => {
    const number = /^[^0-9-]*(-?[0-9][0-9.,]*(?:e[+-]?[0-9]+)?)\s*([KMGT]i?B|B|%)?/i.exec(text.trim());
    if (!number || /^[a-z]/i.test(text.trim())) return null;
    const power = { K: 1, M: 2, G: 3, T: 4 }[(number[2] || '')[0]] || 0;
    return Number(number[1].replace(/,/g, '')) * Math.pow(1024, power);
  };
  for (const table of document.querySelectorAll('table')) {
    const body = table.tBodies[0];
    if (!body || body.rows.length < 2) continue;
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      head.setAttribute('tabindex', '0');
      head.classList.add('sorts');
      const sort = () => {
        const up = head.getAttribute('aria-sort') !== 'ascending';
        [...table.tHead.rows[0].cells].forEach((cell) => cell.removeAttribute('aria-sort'));
        head.setAttribute('aria-sort', up ? 'ascending' : 'descending');
        const rows = [...body.rows].map((row) => ({ row, text: row.cells[column].textContent, key: sortKey(row.cells[column].textContent) }));
        const numeric = rows.every(({ text, key }) => key !== null || text.trim() === '');
        rows.sort((a, b) => {
          const empty = (a.text.trim() === '') - (b.text.trim() === '');
          if (empty) return empty;  // empty cells last in either order
          const order = numeric ? a.key - b.key : a.text.localeCompare(b.text);
          return up ? order : -order;
        });
        rows.forEach(({ row }) => body.append(row));
      };
      head.addEventListener('click', sort);
      head.addEventListener('keydown', (event) => { if (event.key === 'Enter') sort(); });
    });
  }

  // Open a collapsed section when a link leads into it.
  const unfold = () => {
    const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const details = target && target.closest('details');
    if (!details) return;
    details.open = true;
    target.scrollIntoView();
  };
  addEventListener('hashchange', unfold);
  unfold();

  // Token maps. States are run-length encoded: "3k2e" is three kept, two evicted.
  const expand = (runs) => runs.replace(/(\d+)(\D)/g, (_, n, state) => state.repeat(n));
  const classOf = (kept, merged, n) => {
    if (kept === 0) return merged ? 'm' : 'k0';
    return 'k' + (kept === n ? 4 : 1 + Math.min(2, Math.floor(3 * kept / n)));
  };
  for (const figure of document.querySelectorAll('figure.token-map')) {
    const views = dataOf(figure, 'states');
    const tokens = figure.querySelectorAll('.map i');
    // Views may have different numbers of heads: query heads or KV heads.
    const first = views.map((view) => view.states).reduce((a, b) => b[0].length > a[0].length ? b : a);
    const nHeads = first[0].length;
    const choose = make('div', 'choose');
    const selects = [['cache', views.map((view) => view.name)],
                     ['layer', ['all', ...first.keys()]],
                     ['KV head', ['all', ...first[0].keys()]]].map(([name, options]) => {
      const label = make('label', '', name + ' ');
      const select = make('select', '');
      options.forEach((option) => select.append(make('option', '', option)));
      label.append(select);
      choose.append(label);
      return select;
    });
    // If the times of evictions are known, the reader can choose the step.
    const prompt = Number(figure.dataset.prompt || tokens.length);
    const step = make('input', '');
    Object.assign(step, { type: 'range', min: prompt, max: tokens.length, value: tokens.length });
    if (prompt < tokens.length) {
      const label = make('label', '', 'tokens seen ');
      label.append(step);
      choose.append(label);
      step.addEventListener('input', () => colour());
    }
    let kept = [], merged = [], n = 0;
    const colour = () => {
      const [view, layer, head] = selects.map((select) => select.selectedIndex);
      const picked = (list) => list.filter((_, l) => layer === 0 || l === layer - 1)
          .flatMap((heads) => heads.filter((_, h) => head === 0 || h === Math.floor((head - 1) * heads.length / nHeads)));
      const gone = views[view].evicted_at ? picked(views[view].evicted_at) : [];
      const all = picked(views[view].states).map(expand);
      const seen = Number(step.value);
      n = all.length;
      kept = new Array(tokens.length).fill(0);
      merged = new Array(tokens.length).fill(0);
      all.forEach((states, which) => {
        for (let i = 0; i < seen; ++i) {
          const state = gone[which] && gone[which][i] > seen ? 'k' : states[i];
          if (state === 'k') ++kept[i];
          if (state === 'm') ++merged[i];
        }
      });
      figure.querySelector('.shown').textContent = views[view].name + ', ' +
          (layer ? 'layer ' + (layer - 1) : 'all layers') + ', ' + (head ? 'KV head ' + (head - 1) : 'all KV heads') +
          (prompt < tokens.length ? ', after ' + seen + ' tokens' : '');
      tokens.forEach((token, i) => { token.className = i < seen ? classOf(kept[i], merged[i], n) : 'later'; });
    };
    selects.forEach((select) => select.addEventListener('change', colour));
    colour();
    const map = figure.querySelector('.map');
    map.before(choose);
    // Scroll to the first marked token, such as the answer, instead of the beginning.
    const marked = map.querySelector('[data-marked]');
    if (marked) map.scrollTop += marked.getBoundingClientRect().top - map.getBoundingClientRect().top - map.clientHeight / 3;
    const place = new Map([...tokens].map((token, i) => [token, i]));
    map.addEventListener('pointerleave', hideTip);
    map.addEventListener('pointermove', (event) => {
      const i = place.get(event.target);
      if (i === undefined) return hideTip();
      const also = merged[i] ? ', merged in ' + merged[i] : '';
      showTip('token ' + i + '\nkept in ' + kept[i] + ' of ' + n + ' heads' + also, event);
    });
  }
})();

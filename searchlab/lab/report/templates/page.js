'use strict';
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];

  // Tables: a click on a heading sorts by it, a second one turns the order round.
  const key = (row, n) => {
    const cell = row.cells[n], given = cell.dataset.sort;
    if (given === undefined) return cell.textContent.trim().toLowerCase();
    const number = Number(given.replace(/^inf$/, 'Infinity'));
    return Number.isNaN(number) ? Infinity : number;
  };
  const compare = (a, b) => typeof a === 'number' && typeof b === 'number' ? (a === b ? 0 : a - b) : String(a).localeCompare(String(b), undefined, {numeric: true});
  for (const button of all('button.sort')) {
    button.addEventListener('click', () => {
      const heading = button.parentElement, body = heading.closest('table').tBodies[0];
      const down = heading.getAttribute('aria-sort') === 'ascending';
      for (const other of heading.parentElement.cells) other.removeAttribute('aria-sort');
      heading.setAttribute('aria-sort', down ? 'descending' : 'ascending');
      const rows = [...body.rows].map(row => [key(row, heading.cellIndex), row]);
      rows.sort((a, b) => (down ? -1 : 1) * compare(a[0], b[0]));
      body.append(...rows.map(([, row]) => row));
    });
  }

  // Entries: a button pushes an entry into the background of all figures, or brings it back.
  const chooser = document.querySelector('.entries');
  chooser.hidden = chooser.children.length < 2;
  for (const button of all('button', chooser)) {
    button.addEventListener('click', () => {
      const shown = button.getAttribute('aria-pressed') !== 'true';
      button.setAttribute('aria-pressed', String(shown));
      for (const mark of all(`[data-entry="${button.dataset.toggle}"]`)) mark.classList.toggle('muted', !shown);
    });
  }

  // Values of all lines at the pointer, read back from the drawing.
  const panel = document.getElementById('values');
  const scale = text => {
    const [low, high, start, end, log, percent] = text.split(' ').map(Number);
    const [a, b] = log ? [Math.log(low), Math.log(high)] : [low, high];
    return {start, end, percent, value: pixel => {
      const v = a + (pixel - start) / (end - start) * (b - a);
      return log ? Math.exp(v) : v;
    }};
  };
  const points = path => {
    const found = [];
    for (const [, command, one, two] of path.getAttribute('d').matchAll(/([MLHV])(-?[\d.]+)(?: (-?[\d.]+))?/g)) {
      if (command === 'H') found.push([Number(one), found[found.length - 1][1]]);
      else if (command === 'V') found[found.length - 1] = [found[found.length - 1][0], Number(one)];
      else found.push([Number(one), Number(two)]);
    }
    return found;
  };
  const words = (value, percent) => percent ? `${(100 * value).toFixed(1)} %` : String(Number(value.toPrecision(3)));
  const swatch = mark => ['e0', 'e1', 'e2', 'e3', 'e4', 'e5', 'e6', 'e7'].find(kind => mark.classList.contains(kind)).replace('e', 's');
  for (const svg of all('svg[data-x]')) {
    const x = scale(svg.dataset.x), y = scale(svg.dataset.y);
    let lines = null;
    const guide = document.createElementNS('http://www.w3.org/2000/svg', 'line');
    guide.setAttribute('class', 'guide');
    const leave = () => { panel.hidden = true; guide.remove(); };
    svg.addEventListener('pointerleave', leave);
    svg.addEventListener('pointermove', event => {
      const box = svg.getBoundingClientRect(), pixel = (event.clientX - box.left) / box.width * svg.viewBox.baseVal.width;
      if (pixel < x.start || pixel > x.end) return leave();
      lines ??= all('g.entry[data-name] > path.line', svg).filter(p => !p.closest('.legend')).map(p => ({mark: p.parentElement, at: points(p)}));
      const rows = lines.filter(l => !l.mark.classList.contains('muted')).map(l => {
        const before = l.at.filter(p => p[0] <= pixel + 0.5).pop();
        return before && {mark: l.mark, value: y.value(before[1])};
      }).filter(Boolean).sort((a, b) => b.value - a.value);
      if (!rows.length) return leave();
      panel.replaceChildren(...[null, ...rows].map(row => {
        const line = document.createElement('div');
        if (!row) { line.textContent = `${svg.dataset.xTitle}: ${words(x.value(pixel), x.percent)}`; return line; }
        const [colour, name, value] = ['span', 'span', 'span'].map(tag => document.createElement(tag));
        colour.className = `swatch ${swatch(row.mark)}`;
        name.textContent = row.mark.dataset.name;
        value.textContent = words(row.value, y.percent);
        line.append(colour, name, value);
        return line;
      }));
      panel.hidden = false;
      const room = panel.getBoundingClientRect();
      panel.style.left = `${Math.max(4, event.clientX + 16 + room.width > innerWidth ? event.clientX - room.width - 16 : event.clientX + 16)}px`;
      panel.style.top = `${Math.max(4, Math.min(event.clientY + 12, innerHeight - room.height - 4))}px`;
      for (const [name, v] of [['x1', pixel], ['x2', pixel], ['y1', y.start], ['y2', y.end]]) guide.setAttribute(name, v);
      svg.append(guide);
    });
  }

  // Downloads, made from the data inside this page.
  const data = () => document.getElementById('data').textContent;
  const save = (name, text, type) => {
    const link = document.createElement('a');
    link.href = URL.createObjectURL(new Blob([text], {type}));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  };
  const quoted = value => /[",\r\n]/.test(value) ? `"${value.replaceAll('"', '""')}"` : value;
  const csv = () => {
    const lines = ['run,entry,task,seed,trial,seconds,elapsed,status'];
    for (const run of JSON.parse(data()).runs) for (const c of run.cells) c.seconds.forEach((s, n) =>
      lines.push([run.name, c.entry, c.task, c.seed, n, s ?? 'inf', c.elapsed[n], c.status[n]].map(v => quoted(String(v))).join()));
    return lines.join('\n') + '\n';
  };
  const bind = (id, text, type) => {
    const button = document.getElementById(id);
    button.addEventListener('click', () => save(button.dataset.name, text(), type));
  };
  bind('data-json', data, 'application/json');
  bind('data-csv', csv, 'text/csv');
  for (const button of all('button.copy')) {
    button.addEventListener('click', async () => {
      await navigator.clipboard.writeText(button.parentElement.querySelector('code').textContent);
      button.textContent = 'copied';
      setTimeout(() => { button.textContent = 'copy'; }, 1500);
    });
  }
})();

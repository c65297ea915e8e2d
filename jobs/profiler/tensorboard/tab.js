// The tab "TF I/O": text of others (names of files, of runs) is only ever set as text.

const SIZES = ['100 B', '1 KiB', '10 KiB', '100 KiB', '1 MiB', '4 MiB', '10 MiB', '100 MiB', '1 GiB', 'more'];
const STYLE = `
  body { font: 14px/1.45 Roboto, sans-serif; color: #212121; background: #fff; margin: 16px 24px; }
  h2 { font-size: 16px; margin: 24px 0 6px; } p { margin: 4px 0; max-width: 70em; }
  .charts { display: flex; flex-wrap: wrap; gap: 8px 40px; } .chart { width: 330px; }
  .scroll { overflow: auto; max-height: 420px; border: 1px solid #ddd; }
  table { border-collapse: collapse; } th, td { padding: 3px 10px; text-align: right; white-space: nowrap; }
  th { position: sticky; top: 0; background: #f1f1f1; font-weight: 500; } td:last-child, th:last-child { text-align: left; }
  th button { font: inherit; border: 0; background: none; cursor: pointer; padding: 0; }
  tr:nth-child(even) td { background: #fafafa; } tr.chosen td { background: #e3eefb; } tbody.choice tr { cursor: pointer; }
  .bar { display: grid; grid-template-columns: 90px 1fr 110px; align-items: center; gap: 8px; font-size: 13px; }
  .bar i { display: block; height: 12px; background: #0072b2; } .bar b { font-weight: 400; text-align: right; }
  .bad { color: #a50e0e; font-weight: 500; }`;

function el(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

function number(value, digits = 0) {
  return Number.isFinite(value) ? value.toLocaleString('en', {minimumFractionDigits: digits, maximumFractionDigits: digits}) : '–';
}

const share = (value) => (Number.isFinite(value) ? `${number(100 * value, 1)} %` : '–');
const mb = (bytes) => number(bytes / 1e6, 2);
const list = (value) => (Array.isArray(value) ? value : []);

function bars(title, labels, counts) {
  const total = counts.reduce((sum, each) => sum + each, 0);
  const most = Math.max(...counts);
  const rows = labels.map((label, place) => [label, counts[place]]).filter(([, count]) => count > 0);
  const drawn = rows.map(([label, count]) => {
    const line = el('i');
    line.style.width = `${(100 * count) / most}%`;
    return el('div', {className: 'bar'}, el('span', {textContent: label}), line,
      el('b', {textContent: `${number(count)}  ${share(count / total)}`}));
  });
  return el('div', {className: 'chart'}, el('h2', {textContent: title}), ...(drawn.length ? drawn : [el('p', {textContent: 'none'})]));
}

const bySize = (title, counts) => bars(title, SIZES.map((size, place) => (place < 9 ? `to ${size}` : 'over 1 GiB')), list(counts));

function overTime(title, rates, seconds) {
  const svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
  const most = Math.max(...rates);
  svg.setAttribute('viewBox', '0 0 720 120');
  svg.setAttribute('width', '720');
  rates.forEach((rate, place) => {
    const bar = document.createElementNS('http://www.w3.org/2000/svg', 'rect');
    const height = most ? (118 * rate) / most : 0;
    const sides = {x: (720 / rates.length) * place, y: 120 - height, width: 720 / rates.length - 0.5, height, fill: '#0072b2'};
    Object.entries(sides).forEach(([name, value]) => bar.setAttribute(name, value));
    svg.append(bar);
  });
  const said = `highest: ${number(most, 1)} MB/s; from 0 to ${number(seconds, 3)} s, each bar ${number((1000 * seconds) / rates.length, 1)} ms`;
  return el('div', {}, el('h2', {textContent: title}), svg, el('p', {textContent: said}));
}

// columns: [head, value for the order, text]; the last one stands on the left.
function table(columns, rows, sorted, onChoice) {
  const body = el('tbody', {className: onChoice ? 'choice' : ''});
  const fill = () => body.replaceChildren(...rows.map((row) => {
    const line = el('tr', {}, ...columns.map(([, , text]) => el('td', {textContent: text(row)})));
    if (onChoice) {
      line.onclick = () => {
        [...body.children].forEach((each) => each.classList.toggle('chosen', each === line));
        onChoice(row);
      };
    }
    return line;
  }));
  const order = (value) => {
    rows.sort((a, b) => (typeof value(a) === 'string' ? value(a).localeCompare(value(b)) : (value(b) || 0) - (value(a) || 0)));
    fill();
  };
  const heads = columns.map(([head, value]) => el('th', {}, el('button', {textContent: head, onclick: () => order(value)})));
  order(columns[sorted][1]);
  return el('div', {className: 'scroll'}, el('table', {}, el('thead', {}, el('tr', {}, ...heads)), body));
}

function column(head, key, text) {
  const value = typeof key === 'function' ? key : (row) => row[key];
  return [head, value, (row) => text(value(row))];
}

const plain = (value) => String(value ?? '–');
const WINDOWS = [
  column('read MB/s', (row) => row.figures?.read_mb_per_s, (value) => number(value, 1)),
  column('MB read', (row) => row.figures?.bytes_read, mb),
  column('reads', (row) => row.figures?.reads, number),
  column('files', (row) => row.figures?.files, number),
  column('seconds', (row) => row.figures?.wall_s, (value) => number(value, 3)),
  column('complete', (row) => (row.fault ? 'failed' : row.figures?.blind_spot ? 'no' : 'yes'), plain),
  column('window', 'name', plain),
];
const FILES = [
  column('s in calls', (row) => row.read_s + row.write_s + row.meta_s, (value) => number(value, 4)),
  column('MB read', 'bytes_read', mb),
  column('MB written', 'bytes_written', mb),
  column('size, MB', 'size', mb),
  column('opens', 'opens', number),
  column('reads', 'reads', number),
  column('writes', 'writes', number),
  column('sequential', (row) => row.seq_reads / row.reads, share),
  column('consecutive', (row) => row.consec_reads / row.reads, share),
  column('by', 'module', plain),
  column('file', 'path', plain),
];

function sentences(window) {
  const all = window.figures;
  const moved = (verb, calls, bytes, rate, spent) => `${verb}: ${mb(bytes)} MB in ${number(calls)} calls, ` +
    `${number(rate, 1)} MB/s over the window; ${number(spent, 3)} s summed over threads`;
  const said = [
    `${number(all.wall_s, 3)} s, ${number(all.files)} files, process ${plain(window.process)} on ${plain(window.host)}`,
    ...(all.under_way_s === null ? [] :
      [`a call was under way for ${number(all.under_way_s, 3)} of ${number(all.wall_s, 3)} s`]),
    moved('read', all.reads, all.bytes_read, all.read_mb_per_s, all.read_s),
    moved('written', all.writes, all.bytes_written, all.write_mb_per_s, all.write_s),
    `metadata: ${number(all.opens)} opens, ${number(all.stats)} stats, ${number(all.seeks)} seeks, ` +
      `${number(all.syncs)} syncs; ${number(all.meta_s, 3)} s summed over threads`,
  ].map((text) => el('p', {textContent: text}));
  const whole = all.blind_spot ? `not complete: ${all.blind_spot}` : 'complete: nothing was dropped or missed';
  return [...said, el('p', {className: all.blind_spot ? 'bad' : '', textContent: whole})];
}

function detail(window) {
  if (!window.figures) {
    return [el('p', {className: 'bad', textContent: `there is no window of ours in this trace: ${plain(window.fault ?? window.error)}`})];
  }
  const rates = list(window.read_mb_per_s);
  return [
    ...sentences(window),
    ...(rates.length ? [overTime('Read, MB/s over time', rates, window.figures.wall_s)] : []),
    el('div', {className: 'charts'}, bySize('Reads by size', window.figures.read_sizes), bySize('Files by size', window.file_sizes),
      bars('Order of POSIX reads', ['consecutive', 'sequential', 'neither'], list(window.order)), bySize('Writes by size', window.figures.write_sizes)),
    el('h2', {textContent: 'Files, by the time in their calls'}),
    table(FILES, list(window.files), 0),
    el('p', {textContent: window.files_left_out ? `${number(window.files_left_out)} more files are not listed` : ''}),
  ];
}

export async function render() {
  const below = el('div', {id: 'window'});
  const choose = async (row) => {
    const answer = await fetch(`./window?name=${encodeURIComponent(row.name)}`);
    below.replaceChildren(el('h2', {textContent: row.name}), ...detail(await answer.json()));
  };
  document.head.append(el('style', {textContent: STYLE}));
  const windows = list(await (await fetch('./windows')).json());
  document.body.append(el('h2', {textContent: `Windows: ${number(windows.length)}`}), table(WINDOWS, windows, WINDOWS.length - 1, choose), below);
  if (windows.length) {
    document.querySelector('tbody tr').click();
  } else {
    below.append(el('p', {textContent: 'No trace below this folder has a window of ours: see docs/profiler.md.'}));
  }
}

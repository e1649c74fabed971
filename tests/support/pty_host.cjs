'use strict';
// Both ends of a terminal in VS Code, as far as a program in it can tell.
//
//   host SOCKET NODE_PTY ARGV...   the pty host: keeps a pty with this program in it, whether a window shows it or not
//   window SOCKET                  what shows it: passes the bytes of its own terminal on, and that terminal's size

const net = require('node:net');

function host(path, nodePty, file, ...args) {
  const options = { name: 'xterm-256color', cwd: process.cwd(), env: process.env, encoding: null };
  const terminal = require(nodePty).spawn(file, args, options);
  let shown = null;
  terminal.onData((bytes) => shown?.write(bytes));
  terminal.onExit(() => process.exit());
  const windows = net.createServer((window) => {
    shown = window;
    window.on('error', () => {}); // it was closed while something was on its way to it
    window.on('close', () => {
      if (shown === window) shown = null;
    });
    window.once('data', (first) => {
      const end = first.indexOf('\n');
      terminal.resize(...first.toString('latin1', 0, end).split(' ').map(Number));
      terminal.write(first.subarray(end + 1));
      window.on('data', (keys) => terminal.write(keys));
    });
  });
  windows.listen(path, () => console.log(terminal.ptsName));
}

function window(path) {
  process.stdin.setRawMode(true);
  const pty = net.connect(path);
  pty.write(`${process.stdout.columns} ${process.stdout.rows}\n`);
  process.stdin.pipe(pty);
  pty.pipe(process.stdout);
  pty.on('close', () => process.exit());
}

const [role, ...rest] = process.argv.slice(2);
({ host, window })[role](...rest);

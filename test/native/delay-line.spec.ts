import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { existsSync, readdirSync, readlinkSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout } from 'node:timers/promises';
import { promisify } from 'node:util';
import { lostPackets } from '../../bench/wan/counters.ts';
import { DelayLine, type DelayLineInit } from '../../bench/wan/delay-line.ts';
import { Probe } from '../../bench/wan/probe.ts';

const run = promisify(execFile);
const LIMIT_MS = 60_000;
const UDP_HEADERS = 28;
/** Nobody listens there. */
const DISCARD_PORT = 9;

/** Resolves when it holds; every state that is waited for here comes by itself. */
async function until(what: string, holds: () => boolean | Promise<boolean>): Promise<void> {
  const deadline = performance.now() + LIMIT_MS;
  while (!await holds()) {
    assert.ok(performance.now() < deadline, `not in time: ${what}`);
    await setTimeout(10);
  }
}

const gone = (pid: number): boolean => !existsSync(`/proc/${pid}`);

/** Of those that run in the namespace with this identity. */
function processesIn(identity: string): string[] {
  return readdirSync('/proc').filter((name) => {
    try {
      return /^\d+$/.test(name) && readlinkSync(`/proc/${name}/ns/net`) === identity;
    } catch {
      return false;
    }
  });
}

/** Sends so many datagrams at once. */
async function burst(line: DelayLine, { n, bytes, to }: { n: number; bytes: number; to: string }): Promise<void> {
  const program = `
    const socket = require('node:dgram').createSocket('udp4');
    let left = ${n};
    for (let i = 0; i < ${n}; ++i) socket.send(Buffer.alloc(${bytes}), ${DISCARD_PORT}, '${to}', () => { if (--left === 0) socket.close(); });
  `;
  await run(...line.command(0, [process.execPath, '-e', program]), { timeout: LIMIT_MS });
}

describe('native/delay-line', function () {
  this.timeout(2 * LIMIT_MS);
  const lines: DelayLine[] = [];

  before(async function () {
    const reason = await DelayLine.unavailable();
    if (reason !== undefined) {
      console.log(`    skipped: ${reason}`);
      this.skip();
    }
  });
  afterEach(() => Promise.all(lines.splice(0).map((line) => line.close())));

  async function open(init: DelayLineInit): Promise<DelayLine> {
    const line = await DelayLine.open(init, { signal: AbortSignal.timeout(LIMIT_MS) });
    lines.push(line);
    return line;
  }

  it('holds every packet for its time, each way, and counts what it carried', async () => {
    const line = await open({ delayMs: 15 });
    await using probe = await Probe.open(line, { from: 0, to: 1 });
    const { us, lost } = await probe.datagrams({ n: 30, bytes: 100 });
    assert.equal(lost, 0);
    assert.equal(us.length, 30);
    assert.ok(Math.min(...us) >= 30_000, `an echo took ${Math.min(...us)} µs`);
    const counters = await line.counters();
    for (const { packets, bytes } of counters.pairs) {
      assert.equal(packets, 30);
      assert.equal(bytes, 30 * (100 + UDP_HEADERS));
    }
    assert.equal(lostPackets(counters), 0);
    assert.equal(counters.heldBytes, 0);
  });

  it('changes the delay while it runs, of one direction too', async () => {
    const line = await open({ delayMs: 300 });
    await using probe = await Probe.open(line, { from: 0, to: 1 });
    await line.set({ delayMs: 0 });
    const { us: short } = await probe.datagrams({ n: 20, bytes: 8 });
    assert.ok(Math.min(...short) < 600_000, 'the old delay stays');
    await line.set({ delayMs: 40, from: 1, to: 0 });
    const { us: long } = await probe.datagrams({ n: 10, bytes: 8 });
    assert.ok(Math.min(...long) >= 40_000, `an echo took ${Math.min(...long)} µs`);
  });

  it('carries a TCP transfer unchanged', async () => {
    const line = await open({ delayMs: 5 });
    await using probe = await Probe.open(line, { from: 0, to: 1 });
    const size = 8_000_000;
    assert.equal((await probe.bulk(size)).intact, true);
    const { tcpPayloadBytes, bytes } = await line.pair(0, 1);
    assert.ok(tcpPayloadBytes >= size, `${tcpPayloadBytes} bytes of payload`);
    assert.ok(bytes > tcpPayloadBytes, 'no headers');
    assert.equal(lostPackets(await line.counters()), 0);
  });

  it('sends no faster than its rate', async () => {
    const line = await open({ rateMbit: 20, queueBytes: 1 << 22 });
    await using probe = await Probe.open(line, { from: 0, to: 1 });
    const size = 1_000_000;
    const { ms, intact } = await probe.bulk(size);
    assert.equal(intact, true);
    assert.ok(ms >= size * 8 / 20e3, `${size} bytes took ${ms} ms`);
    const { queuePeakBytes } = await line.pair(0, 1);
    assert.ok(queuePeakBytes > 0 && queuePeakBytes <= 1 << 22, `${queuePeakBytes} bytes waited`);
  });

  it('drops what its queue has no room for, and counts it', async () => {
    const line = await open({ rateMbit: 0.5, queueBytes: 65_535 });
    await burst(line, { n: 200, bytes: 1000, to: line.namespaces[1]?.address ?? '' });
    await line.set({ rateMbit: 0 });
    await until('the queue is empty', async () => (await line.counters()).heldBytes === 0);
    const { packets, bytes, droppedPackets, droppedBytes, queuePeakBytes } = await line.pair(0, 1);
    assert.ok(droppedPackets > 0, 'nothing was dropped');
    assert.equal(packets + droppedPackets, 200);
    assert.equal(bytes + droppedBytes, 200 * (1000 + UDP_HEADERS));
    assert.ok(queuePeakBytes <= 65_535, `${queuePeakBytes} bytes waited`);
  });

  it('joins each of three namespaces with each other, and counts what has no receiver', async () => {
    const line = await open({ namespaces: 3, delayMs: 2 });
    for (const from of [0, 1, 2]) {
      for (const to of [0, 1, 2].filter((one) => one !== from)) {
        await using probe = await Probe.open(line, { from, to });
        const { us } = await probe.datagrams({ n: 3, bytes: 8 });
        assert.ok(us.length === 3 && Math.min(...us) >= 4000, `${from} to ${to}: ${us.join()}`);
      }
    }
    const { pairs } = await line.counters();
    assert.deepEqual(pairs.map(({ packets }) => packets), [6, 6, 6, 6, 6, 6]);
    await burst(line, { n: 2, bytes: 8, to: '11.77.0.200' });
    await until('both are counted', async () => (await line.counters()).namespaces[0]?.unroutablePackets === 2);
  });

  it('counts what is no packet, and goes on', async () => {
    const line = await open({});
    // Whatever is written to the device's packet socket reaches the line as it is.
    const program = [
      'import random, socket, sys',
      'out = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM)',
      'rng = random.Random(1)',
      'for i in range(200): out.sendto(rng.randbytes(rng.randrange(1, 1400)), ("mesh0", 0x0800))',
    ].join('\n');
    await run(...line.command(0, ['python3', '-c', program]), { timeout: LIMIT_MS });
    await until('all are counted', async () => (await line.counters()).namespaces[0]?.malformedPackets === 200);
    await using probe = await Probe.open(line, { from: 0, to: 1 });
    assert.equal((await probe.datagrams({ n: 3, bytes: 8 })).us.length, 3);
  });

  it('lets nothing of a namespace’s own loopback onto the line', async () => {
    const line = await open({ delayMs: 1000 });
    for (const address of ['127.0.0.1', line.namespaces[0]?.address ?? '']) {
      await using probe = await Probe.open(line, { from: 0, to: 0, address });
      assert.equal((await probe.datagrams({ n: 5, bytes: 8 })).us.length, 5);
      assert.equal((await probe.bulk(100_000)).intact, true);
    }
    const { pairs, heldBytes } = await line.counters();
    assert.deepEqual(pairs.map(({ packets }) => packets), [0, 0]);
    assert.equal(heldBytes, 0);
  });

  it('tells the sysctls that it set and those that matter to speed', async () => {
    const line = await open({ sysctls: { 'net.ipv4.tcp_slow_start_after_idle': '0' } });
    const { sysctls, mtu } = line.context;
    assert.equal(sysctls['net.ipv4.tcp_slow_start_after_idle'], '0');
    assert.equal(sysctls['net.ipv4.tcp_no_metrics_save'], '1');
    assert.ok((sysctls['net.ipv4.tcp_congestion_control'] ?? '').length > 0);
    assert.equal(mtu, 1500);
  });

  it('refuses what is out of range and goes on', async () => {
    const line = await open({});
    for (const bad of [{ delayMs: 1e6 }, { delayMs: -1 }, { rateMbit: 1e-3 }, { queueBytes: 1 }, { delayMs: 1, from: 0, to: 0 }, { delayMs: 1, from: 2 }]) {
      await assert.rejects(line.set(bad), { code: 'INTERNAL' }, JSON.stringify(bad));
    }
    await using probe = await Probe.open(line, { from: 0, to: 1 });
    assert.equal((await probe.datagrams({ n: 3, bytes: 8 })).us.length, 3);
    for (const bad of [{ namespaces: 1 }, { namespaces: 9 }, { mtu: 10 }, { sysctls: { 'kernel.hostname': 'x' } }]) {
      await assert.rejects(open(bad), { code: 'INTERNAL' }, JSON.stringify(bad));
    }
  });

  it('leaves no process and no namespace behind when it is closed', async () => {
    const line = await open({});
    const [command, args] = line.command(1, ['sh', '-c', 'sleep 1000 & echo $(readlink /proc/self/ns/net); wait']);
    const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'ignore'] });
    const identity = String(await createInterface({ input: child.stdout })[Symbol.asyncIterator]().next().then(({ value }) => value));
    assert.equal(processesIn(identity).length, 2);
    await line.close();
    assert.deepEqual(processesIn(identity), []);
    assert.ok(gone(line.pid));
    assert.throws(() => line.command(0, ['true']), { code: 'INTERNAL' });
  });

  it('takes away what runs inside even when its process was killed', async () => {
    const line = await open({});
    const [command, args] = line.command(0, ['sleep', '1000']);
    const child = spawn(command, args, { stdio: 'ignore' });
    const ended = new Promise((resolve) => { child.once('exit', (_code, signal) => { resolve(signal); }); });
    process.kill(line.pid, 'SIGKILL');
    await until('the line is gone', () => gone(line.pid));
    await assert.rejects(line.counters());
    await line.close();
    assert.equal(await ended, 'SIGKILL');
  });

  it('leaves nothing behind when its owner is killed', async () => {
    const owner = spawn(process.execPath, ['--input-type=module', '-e', `
      import { spawn } from 'node:child_process';
      import { DelayLine } from ${JSON.stringify(join(import.meta.dirname, '../../bench/wan/delay-line.ts'))};
      const line = await DelayLine.open({}, { signal: AbortSignal.timeout(${LIMIT_MS}) });
      const [command, args] = line.command(1, ['sh', '-c', 'setsid sleep 1000 & echo ' + line.pid + ' $! $(readlink /proc/self/ns/net); wait']);
      spawn(command, args, { stdio: ['ignore', 'inherit', 'inherit'] });
    `], { stdio: ['ignore', 'pipe', 'inherit'] });
    const { value } = await createInterface({ input: owner.stdout })[Symbol.asyncIterator]().next();
    const [linePid, sleeper, identity = ''] = String(value).split(' ');
    assert.ok(!gone(Number(linePid)) && !gone(Number(sleeper)));
    owner.kill('SIGKILL');
    await until('the line and what ran inside are gone', () => gone(Number(linePid)) && processesIn(identity).length === 0);
  });
});

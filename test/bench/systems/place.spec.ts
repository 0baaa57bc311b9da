import assert from 'node:assert/strict';
import { commandAt, confinedLauncherAt, listeningAt, loopback, type Place } from '../../../bench/systems/place.ts';

const INSIDE: Place = { enter: ['nsenter', '--net=/proc/1/fd/3'], address: '11.77.0.2', core: 1, pins: 'everything' };

describe('bench/systems/place', () => {
  it('leaves the processes on this machine itself where the kernel puts them', () => {
    assert.deepEqual(commandAt(loopback(1), ['node', 'x.js']), ['node', ['x.js']]);
    assert.deepEqual(listeningAt(loopback(1), 4001), ['--listen', '/ip4/127.0.0.1/tcp/0']);
  });

  it('pins and enters, and announces the address, which nobody would find out', () => {
    assert.deepEqual(commandAt(INSIDE, ['node', 'x.js']), ['taskset', ['-c', '1', 'nsenter', '--net=/proc/1/fd/3', 'node', 'x.js']]);
    assert.deepEqual(listeningAt(INSIDE, 4001), ['--listen', '/ip4/11.77.0.2/tcp/4001', '--announce', '/ip4/11.77.0.2/tcp/4001']);
  });

  it('limits only what holds weights', () => {
    const limited = { ...loopback(0), confine: ['sh', '-c', 'limit'] };
    assert.deepEqual(confinedLauncherAt(limited), ['sh', '-c', 'limit']);
    assert.deepEqual(commandAt(limited, ['status']), ['status', []]);
  });
});

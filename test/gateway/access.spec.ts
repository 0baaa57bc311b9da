import assert from 'node:assert/strict';
import { allowedHeaders, clientOf, hostAllowed, isLoopback, keyMatches, originAllowed } from '../../src/gateway/access.ts';

describe('gateway/access', () => {
  it('lets in the names of the loopback and those of the configuration, with any port', () => {
    for (const host of ['localhost', 'LOCALHOST:7070', '127.0.0.1:1', '[::1]:7070', 'mesh.example:80', undefined]) {
      assert.equal(hostAllowed(host, ['mesh.example']), true, host);
    }
    for (const host of ['evil.example', 'localhost.evil.example', '127.0.0.1.evil.example', '', '10.0.0.1:7070', 'localhost:x']) {
      assert.equal(hostAllowed(host, ['mesh.example']), false, host);
    }
  });

  it('lets in pages of the loopback and those of the configuration', () => {
    for (const origin of [undefined, 'http://localhost:3000', 'https://127.0.0.1', 'http://[::1]:5', 'app://notes']) {
      assert.equal(originAllowed(origin, ['app://notes']), true, origin);
    }
    for (const origin of ['null', 'https://evil.example', 'http://localhost.evil.example', 'file://localhost', 'x', '']) {
      assert.equal(originAllowed(origin, ['app://notes']), false, origin);
    }
  });

  it('reads the scheme of a key in any case and compares the whole key', () => {
    assert.equal(keyMatches('Bearer s3cret', 's3cret'), true);
    assert.equal(keyMatches('bEARER   s3cret', 's3cret'), true);
    for (const header of [undefined, '', 's3cret', 'Basic s3cret', 'Bearer', 'Bearer s3cre', 'Bearer s3crets', 'Bearer S3CRET']) {
      assert.equal(keyMatches(header, 's3cret'), false, header);
    }
  });

  it('tells clients apart by their key, without a key by where they are', () => {
    const own = clientOf('Bearer mine', '127.0.0.1', undefined);
    assert.equal(clientOf('bearer  mine', '10.0.0.1', undefined), own);
    assert.notEqual(clientOf('Bearer yours', '127.0.0.1', undefined), own);
    assert.ok(!own.includes('mine'));
    for (const header of [undefined, '', 'Bearer ', 'Basic mine']) {
      assert.equal(clientOf(header, '10.0.0.1', undefined), 'address 10.0.0.1');
    }
  });

  it('tells clients apart by where they are when all of them carry the same key', () => {
    assert.equal(clientOf('Bearer s3cret', '10.0.0.1', 's3cret'), 'address 10.0.0.1');
    assert.equal(clientOf('Bearer s3cret', '::ffff:10.0.0.1', 's3cret'), 'address 10.0.0.1');
  });

  it('takes a network of IPv6 for one client', () => {
    const of = (address: string): string => clientOf(undefined, address, undefined);
    assert.equal(of('2001:db8:1:2:3:4:5:6'), of('2001:db8:1:2::9'));
    assert.notEqual(of('2001:db8:1:2::1'), of('2001:db8:1:3::1'));
    assert.equal(of('2001:db8::1'), 'address 2001:db8:0:0::/64');
    assert.equal(of('::1'), 'address 0:0:0:0::/64');
  });

  it('names authorization in a pre-flight and lets through what client libraries send', () => {
    assert.equal(allowedHeaders(undefined), 'authorization, content-type');
    assert.equal(allowedHeaders('X-Stainless-OS, Authorization, x-evil'), 'authorization, content-type, x-stainless-os');
  });

  it('knows addresses that strangers cannot reach', () => {
    assert.deepEqual(['127.0.0.1', '127.9.9.9', '::1', 'localhost', '0.0.0.0', '::', '192.168.1.2'].map(isLoopback),
      [true, true, true, true, false, false, false]);
  });
});

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { assertCertified, CERTIFICATES, isCertified } from '../../src/domain/certificate.ts';
import { isMeshnetError } from '../../src/errors.ts';
import { DType } from '../../src/proto/seam_pb.js';

describe('domain/certificate', () => {
  const [certificate = assert.fail()] = CERTIFICATES;
  const engineClass = `llama-${certificate.tree}-${certificate.patchedTree}/cpu-0011223344556677/kv-f16`;
  const subject = { architecture: 'llama', engineClass };

  it('is of the llama.cpp tree and the patches that are pinned: a new patch needs the parity suite again', () => {
    const pin = readFileSync('patches/pin.env', 'utf8');
    assert.equal(/^LLAMA_TREE=(.{8})/m.exec(pin)?.[1], certificate.tree);
    assert.equal(/^LLAMA_PATCHED_TREE=(.{8})/m.exec(pin)?.[1], certificate.patchedTree);
  });

  it('covers f32 boundaries of Llama on this engine, and nothing else', () => {
    assert.ok(isCertified(subject));
    assert.ok(isCertified({ ...subject, prefillDtype: DType.DTYPE_F32, decodeDtype: DType.DTYPE_F32 }));
    assert.ok(isCertified({ ...subject, engineClass: engineClass.replace('f16', 'f32') }));
    for (const other of [
      { architecture: 'qwen3' },
      { architecture: '' },
      { engineClass: '' },
      { engineClass: engineClass.replace(certificate.tree, '00000000') },
      { engineClass: engineClass.replace(certificate.patchedTree, '00000000') },
      { engineClass: engineClass.replace('/cpu-', '/cuda-') },
      { prefillDtype: DType.DTYPE_F16 },
      { decodeDtype: DType.DTYPE_Q8_0 },
    ]) {
      assert.equal(isCertified({ ...subject, ...other }), false, JSON.stringify(other));
      assert.throws(() => assertCertified({ ...subject, ...other }), (err) => isMeshnetError(err, 'NOT_CERTIFIED'));
    }
  });

  it('lets a benchmark try other boundary types, but no other engine', () => {
    assertCertified({ ...subject, decodeDtype: DType.DTYPE_F16 }, true);
    assert.throws(() => assertCertified({ ...subject, architecture: 'qwen3' }, true), (err) => isMeshnetError(err, 'NOT_CERTIFIED'));
  });

  it('says what is not certified', () => {
    assert.throws(() => assertCertified({ ...subject, decodeDtype: DType.DTYPE_F16 }), (err) => {
      assert.ok(isMeshnetError(err));
      assert.deepEqual(err.details, { architecture: 'llama', engineClass, prefillDtype: 'DTYPE_F32', decodeDtype: 'DTYPE_F16' });
      return true;
    });
  });
});

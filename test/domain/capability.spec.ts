import assert from 'node:assert/strict';
import { create } from '@bufbuild/protobuf';
import { capabilityOf, grantedPositions, MAX_SESSION_POSITIONS } from '../../src/domain/capability.ts';
import { isMeshnetError } from '../../src/errors.ts';
import { DescriptionSchema, ProbeReplySchema, ReportSchema } from '../../src/proto/worker_pb.js';

describe('domain/capability', () => {
  const description = create(DescriptionSchema, {
    nCtxTrain: 512, maxChunkTokens: 64, budget: { cellsTotal: 1000, cellsFree: 900, sequencesTotal: 8, sequencesFree: 7 },
  });
  const probe = create(ProbeReplySchema, { prefillUs: 1001, decodeUs: 300 });

  it('is what the worker described, until it reports', () => {
    assert.deepEqual(capabilityOf({ description, probe, probeTokens: 10 }), {
      maxPositions: 512, maxChunkTokens: 64, lanes: 0, sequencesFree: 7, cellsFree: 900, decodeUs: 300, prefillUs: 101,
    });
    const report = create(ReportSchema, { lanes: 3, budget: { cellsTotal: 1000, cellsFree: 10, sequencesFree: 5 } });
    const now = capabilityOf({ description, probe, probeTokens: 10, report });
    assert.deepEqual([now.lanes, now.sequencesFree, now.cellsFree, now.maxPositions], [3, 5, 10, 512]);
  });

  it('grants what is asked for up to the model\'s context and all cells', () => {
    const capability = capabilityOf({ description, probe, probeTokens: 10 });
    assert.equal(grantedPositions(capability, 1), 1);
    assert.equal(grantedPositions(capability, 5000), 512);
    assert.equal(grantedPositions({ ...capability, maxPositions: 100 }, MAX_SESSION_POSITIONS), 100);
    for (const asked of [0, MAX_SESSION_POSITIONS + 1]) {
      assert.throws(() => grantedPositions(capability, asked), (err) => isMeshnetError(err, 'LIMIT_EXCEEDED'));
    }
  });
});

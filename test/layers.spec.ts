import assert from 'node:assert/strict';
import { globSync, readFileSync } from 'node:fs';
import { benchViolations, engineViolations, layerViolations } from './support/layers.ts';

describe('layers', () => {
  it('keeps the table of who may import whom', () => {
    const files = globSync('src/**/*.ts').filter((file) => !file.endsWith('.d.ts'));
    assert.ok(files.length > 0);
    assert.deepEqual(files.flatMap((file) => layerViolations(file, readFileSync(file, 'utf8'))), []);
  });

  it('keeps the benchmarks in their order', () => {
    const files = globSync('bench/**/*.ts');
    assert.ok(files.length > 0);
    assert.deepEqual(files.flatMap((file) => benchViolations(file, readFileSync(file, 'utf8'))), []);
    for (const [file, source] of [
      ['bench/runner/rounds.ts', "import { judge } from '../judging/verdict.ts';"],
      ['bench/judging/judge.ts', "import { gate1 } from '../gate1/gate1.ts';"],
      ['bench/gate1/gate1.ts', "import { fit } from '../gate5/fit.ts';"],
      ['bench/systems/mesh.ts', "import { rig } from '../../test/support/rig.ts';"],
      ['bench/misc/misc.ts', ''],
    ] as const) {
      assert.notDeepEqual(benchViolations(file, source), [], `${file}: ${source}`);
    }
  });

  it('keeps llama.cpp inside the parts of the worker that own it', () => {
    const files = globSync('native-worker/src/**/*.{h,cpp,cc}');
    assert.ok(files.length > 0);
    assert.deepEqual(files.flatMap((file) => engineViolations(file, readFileSync(file, 'utf8'))), []);
  });

  it('notices what the table forbids', () => {
    const forbidden: [string, string][] = [
      ['src/errors.ts', "import { route } from './domain/route.ts';"],
      ['src/domain/route.ts', "import { host } from '../net/host.ts';"],
      ['src/net/host.ts', "import { Bridge } from '../worker/bridge.ts';"],
      ['src/serve/admission.ts', "import type { Plan } from '../route/planner.ts';"],
      ['src/route/planner.ts', "export { Admission } from '../serve/admission.ts';"],
      ['src/route/session.ts', "import { gateway } from '../gateway/server.ts';"],
      ['src/route/finder.ts', "import { createLibp2p } from 'libp2p';"],
      ['src/route/finder.ts', "const { tcp } = await import('@libp2p/tcp');"],
      ['src/domain/advertisement.ts', "import { multiaddr } from '@multiformats/multiaddr';"],
      ['src/gateway/server.ts', "import * as grpc from '@grpc/grpc-js';"],
      ['src/gateway/server.ts', "const grpc = require('@grpc/grpc-js');"],
      ['src/node.ts', "import Fastify from 'fastify';"],
      ['src/gateway/server.ts', "import { Counter } from 'prom-client';"],
      ['src/gateway/server.ts', "import type { NodeMetrics } from '../metrics/node-metrics.ts';"],
      ['src/net/host.ts', "import { main } from '../main.ts';"],
      ['src/net/host.ts', "import { rig } from '../../test/support/rig.ts';"],
      ['src/utils/misc.ts', ''],
      ['src/domain/lane.ts', "import { readFileSync } from 'node:fs';"],
      ['src/domain/lane.ts', "import { connect } from 'node:net';"],
      ['src/domain/lane.ts', "import { setTimeout } from 'node:timers/promises';"],
      ['src/domain/lane.ts', 'const now = Date.now();'],
      ['src/domain/lane.ts', 'const now = performance.now();'],
      ['src/domain/lane.ts', 'setTimeout(run, 5);'],
      ['src/domain/lane.ts', 'const dice = Math.random();'],
    ];
    for (const [file, source] of forbidden) {
      assert.notDeepEqual(layerViolations(file, source), [], `${file}: ${source}`);
    }
    for (const header of ['llama.h', 'ggml-backend.h', 'gguf.h', 'common/common.h', 'chat.h']) {
      const source = `// seam\n#include "${header}"\n`;
      assert.notDeepEqual(engineViolations('native-worker/src/seam.cpp', source), [], header);
    }
  });

  it('lets through what the table allows', () => {
    const allowed: [string, string][] = [
      ['src/main.ts', "import { up } from './cli/up.ts';"],
      ['src/cli/up.ts', "import { createNode } from '../node.ts';"],
      ['src/node.ts', "import { Gateway } from './gateway/server.ts';"],
      ['src/gateway/server.ts', "import type { RouteSession } from '../route/session.ts';"],
      ['src/metrics/node-metrics.ts', "import { Gauge } from 'prom-client';\nimport type { A } from '../serve/admission.ts';"],
      ['src/net/host.ts', "import { tcp } from '@libp2p/tcp';\nimport { MeshnetError } from '../errors.ts';"],
      ['src/domain/manifest.ts', "import { createHash } from 'node:crypto';\nimport { M } from '../proto/peer_pb.js';"],
      ['src/domain/lane.ts', '// The caller passes Date.now().\nconst text = "no fetch here";'],
    ];
    for (const [file, source] of allowed) {
      assert.deepEqual(layerViolations(file, source), []);
    }
    assert.deepEqual(engineViolations('native-worker/src/engine.cpp', '#include "llama.h"'), []);
    assert.deepEqual(engineViolations('native-worker/test/parity_test.cpp', '#include "llama.h"'), []);
  });
});

import assert from 'node:assert/strict';
import { MeshnetError } from '../../src/errors.ts';
import { code, soon, World } from './used-model-rig.ts';

describe('gateway/used-model', () => {
  let world: World;

  beforeEach(() => {
    world = new World();
  });

  it('fetches the manifest, then the header, keeps both and starts a text process on the file', async () => {
    const { nLayer } = await world.model().open(soon());
    assert.equal(nLayer, 12);
    assert.deepEqual(world.log, [
      'fetch manifest', 'keep manifest', 'fetch header', 'keep header', 'start fetched.gguf', 'ready',
    ]);
  });

  it('asks nobody for what is here, and takes the whole file when it has one', async () => {
    world.hasManifest = true;
    world.hasHeader = true;
    await world.model().open(soon());
    assert.deepEqual(world.log, ['start stored.gguf', 'ready']);

    world.log.length = 0;
    await world.model({ path: 'whole.gguf' }).open(soon());
    assert.deepEqual(world.log, ['start whole.gguf', 'ready']);
  });

  it('opens once for all who ask at once', async () => {
    const model = world.model();
    const all = await Promise.all([model.open(soon()), model.open(soon()), model.open(soon())]);
    assert.equal(new Set(all.map(({ text }) => text)).size, 1);
    assert.equal(world.log.filter((line) => line === 'ready').length, 1);
  });

  it('goes on for the others when one leaves', async () => {
    const model = world.model();
    const gone = new AbortController();
    const leaving = model.open({ signal: gone.signal });
    const staying = model.open(soon());
    gone.abort(new MeshnetError('CANCELLED', 'the client has gone'));
    await assert.rejects(leaving, code('CANCELLED'));
    assert.equal((await staying).nLayer, 12);
  });

  it('begins nothing for who has left already', async () => {
    world.faults.set('fetch manifest', new MeshnetError('NO_ROUTE'));
    await assert.rejects(world.model().open({ signal: AbortSignal.abort() }), code('CANCELLED'));
    assert.deepEqual(world.log, []);
  });

  it('does not remember a failure', async () => {
    const model = world.model();
    world.faults.set('fetch header', new MeshnetError('NO_ROUTE', 'nobody has the header'));
    await assert.rejects(model.open(soon()), code('NO_ROUTE'));
    world.faults.clear();
    assert.equal((await model.open(soon())).nLayer, 12);
  });

  it('stops a text process that does not become ready', async () => {
    const model = world.model();
    world.faults.set('ready', new MeshnetError('MODEL_CORRUPT'));
    await assert.rejects(model.open(soon()), code('MODEL_CORRUPT'));
    assert.equal(world.log.at(-1), 'stop text');
  });

  it('gives up what hangs at its own deadline, whoever waits', async () => {
    world.faults.set('fetch manifest', 'hang');
    await assert.rejects(world.model({ openMs: 20 }).open(soon()), code('DEADLINE_EXCEEDED'));
  });

  it('ends what is on its way when the node stops', async () => {
    world.faults.set('fetch header', 'hang');
    const model = world.model();
    const opening = model.open(soon());
    opening.catch(() => undefined);
    await world.reached('fetch header');
    await model.stop();
    await assert.rejects(opening, code('DRAINING'));
  });

  it('stops the text process with the node', async () => {
    const model = world.model();
    await model.open(soon());
    await model.stop();
    assert.equal(world.log.at(-1), 'stop text');
  });

  it('shows what is known now, and news as soon as they are there', async () => {
    const model = world.model({ coverageMs: 0 });
    assert.deepEqual([model.card().coverage, model.card().nLayer, model.card().contextLength], ['unknown', 0, 4096]);
    await world.reached('look up');
    await new Promise((resolve) => { setImmediate(resolve); });
    const known = model.card();
    assert.deepEqual([known.coverage, known.nLayer, known.contextLength], ['complete', 12, 2048]);
    assert.equal(known.digest, '09'.repeat(32));
  });

  it('does not look up again while an answer is fresh or on its way', async () => {
    const model = world.model({ coverageMs: 60_000 });
    model.card();
    model.card();
    await world.reached('look up');
    await new Promise((resolve) => { setImmediate(resolve); });
    model.card();
    assert.equal(world.log.filter((line) => line === 'look up').length, 1);
  });

  it('says that it does not know what it cannot find out', async () => {
    world.faults.set('look up', new MeshnetError('DEADLINE_EXCEEDED'));
    const model = world.model({ coverageMs: 60_000 });
    model.card();
    await world.reached('look up');
    await new Promise((resolve) => { setImmediate(resolve); });
    assert.equal(model.card().coverage, 'unknown');
  });
});

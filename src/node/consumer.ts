import { fromString as bytesFromString } from 'uint8arrays/from-string';
import { TIMES } from '../config.ts';
import type { AdvertisementRecord } from '../domain/advertisement.ts';
import type { AbortOptions, Health } from '../gateway/backend.ts';
import { Gateway } from '../gateway/gateway.ts';
import { MeshBackend } from '../gateway/mesh-backend.ts';
import { UsedModel, type HeaderSource } from '../gateway/used-model.ts';
import { WarmSessions } from '../gateway/warm-sessions.ts';
import type { IdentifiedModel } from '../model/digest.ts';
import { HeaderClient } from '../net/header-client.ts';
import type { PeerTarget } from '../net/protocols.ts';
import { Finder } from '../route/finder.ts';
import { offerOf } from '../route/offer.ts';
import { RouteOpener } from '../route/opener.ts';
import { Router } from '../route/router.ts';
import { TextProcess } from '../worker/text-process.ts';
import { nativeOf, type NodeContext } from './context.ts';
import type { Mesh } from './mesh.ts';

export interface ConsumerInit {
  readonly health: () => Health;
  /** What this node serves itself, at that moment. */
  readonly served: () => Promise<readonly AdvertisementRecord[]>;
}

/** The using half of a node: the models that its clients may name, routes to them, and the API. */
export class Consumer {
  readonly backend: MeshBackend;
  readonly #context: NodeContext;
  readonly #mesh: Mesh;
  readonly #router: Router;
  readonly #used: UsedModel[] = [];
  readonly #warm: WarmSessions;
  #gateway: Gateway | undefined;

  constructor(context: NodeContext, mesh: Mesh, { health, served }: ConsumerInit) {
    this.#context = context;
    this.#mesh = mesh;
    const { directory, records, dialer, admissions } = mesh;
    const finder = new Finder({
      providers: (modelDigest, { signal }) => records.findProviders(modelDigest, { signal }),
      offers: async (peer, modelDigest, { signal }) =>
        (await directory.get(peer, { modelDigest }, { signal })).map(offerOf),
      localOffers: async (modelDigest) => (await served())
        .filter(({ advertisement }) => Buffer.compare(advertisement.modelDigest, modelDigest) === 0).map(offerOf),
    }, { lookupMs: TIMES.findProvidersMs, peerMs: TIMES.peerAnswerMs, evictMs: TIMES.evictMs });
    const opener = new RouteOpener({ admissions, bridge: dialer, peerId: context.host.peerId }, {
      answerMs: TIMES.peerAnswerMs, resumeMs: TIMES.resumeMs, closeMs: TIMES.closeMs, idleMs: TIMES.turnIdleMs,
    });
    this.#router = new Router({ finder, opener }, { openMs: TIMES.routeOpenMs });
    this.#warm = new WarmSessions(context.config.warm);
    this.backend = new MeshBackend({ router: this.#router, models: this.#used, warm: this.#warm, health });
  }

  /** Base URL of the API, or undefined without one. */
  get apiUrl(): string | undefined {
    return this.#gateway?.url;
  }

  /** Sessions that rest until their conversations go on. */
  get warmSessions(): number {
    return this.#warm.size;
  }

  /** For `/health`. */
  get models(): { id: string; digest: string; coverage: string }[] {
    return this.#used.map((model) => model.card()).map(({ id, digest, coverage }) => ({ id, digest, coverage }));
  }

  /** @throws {MeshnetError} ADDRESS_IN_USE, CONFIG_INVALID */
  async start(): Promise<void> {
    const { config: { api, use }, log, metrics, parts } = this.#context;
    for (const [name, digest] of Object.entries(use)) {
      this.use(name, bytesFromString(digest, 'hex'));
    }
    parts.add('text processes', () => Promise.all(this.#used.map((model) => model.stop())));
    parts.add('warm sessions', () => this.#warm.stop());
    const { enabled, ...init } = api;
    if (!enabled) {
      return;
    }
    const gateway = new Gateway({ backend: this.backend, log, metrics }, init);
    await gateway.start();
    this.#gateway = gateway;
    parts.add('gateway', () => gateway.stop());
  }

  /** Clients may name it from now on, if it is not known already. `path`: a whole file of it, when there is one here. */
  use(name: string, digest: Uint8Array, path?: string): void {
    if (this.#used.some(({ init }) => init.name === name)) {
      return;
    }
    const { config, models } = this.#context;
    this.#used.push(new UsedModel({
      models, router: this.#router, headers: this.#headers(),
      newText: (model) => new TextProcess({ ...nativeOf(config), model }),
    }, { name, digest, path, positions: config.sessionPositions, openMs: TIMES.headerFetchMs }));
  }

  #headers(): HeaderSource {
    const { host, log } = this.#context;
    const client = new HeaderClient({ host, log });
    const holders = (digest: Uint8Array, { signal }: AbortOptions): AsyncIterable<PeerTarget> =>
      this.#mesh.records.findProviders(digest, { signal });
    return {
      manifest: (digest, options) => client.fetchManifest(holders(digest, options), digest, options),
      header: ({ digest, manifest: { headerSha256, headerBytes } }: IdentifiedModel, options) =>
        client.fetchHeader(holders(digest, options), { modelDigest: digest, headerSha256, headerBytes }, options),
    };
  }
}

import { LeaseClient } from '../net/admission-client.ts';
import { Bridge } from '../net/bridge-protocol.ts';
import { Directory } from '../net/directory.ts';
import { ProviderRecords } from '../net/provider-records.ts';
import { IncomingSeams } from '../serve/incoming-seams.ts';
import { LaneTable } from '../serve/lanes.ts';
import { LocalAdmission } from '../serve/local-admission.ts';
import { SeamDialer } from '../serve/seam-dialer.ts';
import { BridgeServer } from '../worker/bridge-server.ts';
import { nativeOf, type NodeContext } from './context.ts';

/** What carries seams and leases and finds peers, whether or not this node serves itself. */
export interface Mesh {
  readonly lanes: LaneTable;
  readonly seams: Bridge;
  readonly incoming: IncomingSeams;
  readonly dialer: SeamDialer;
  readonly bridge: BridgeServer;
  readonly directory: Directory;
  readonly records: ProviderRecords;
  readonly admissions: LocalAdmission;
}

export function composeMesh({ config, host, log, parts }: NodeContext): Mesh {
  const { peerId } = host;
  const lanes = new LaneTable();
  const incoming = new IncomingSeams({ lanes, log });
  const seams = new Bridge({ host });
  const dialer = new SeamDialer({ remote: seams, incoming }, { peerId });
  const records = new ProviderRecords({ host, log });
  records.start();
  parts.add('provider records', () => { records.stop(); });
  return {
    lanes, seams, incoming, dialer, records,
    bridge: new BridgeServer({ dialer }, { runtimeDir: nativeOf(config).runtimeDir }),
    directory: new Directory({ host, log }),
    admissions: new LocalAdmission({ remote: new LeaseClient({ host }) }, { peerId }),
  };
}

/** Bridged seams are carried from now on, those of our workers and those of other nodes. */
export async function startSeams({ seams, incoming, bridge }: Mesh, { parts }: NodeContext): Promise<void> {
  await bridge.start();
  parts.add('bridge', () => bridge.stop());
  await seams.handle((open, peerId) => incoming.accept(open, peerId));
}

/** What a person or a parent process is told of a node's life. */
export type NodeEvent =
  | { event: 'listening'; peer_id: string; addresses: string[]; api: string | undefined }
  | { event: 'progress'; phase: string; share: number }
  | { event: 'model'; model: string; digest: string; n_layer: number }
  | {
    event: 'shard'; state: string; layers: [number, number]; verified: boolean;
    error?: { code: string; message: string };
  };

export type Tell = (event: NodeEvent) => void;

/** Passes on what brings a phase a whole percent further, of the many events that a download makes. */
export function eachPercent(tell: Tell): (phase: string, share: number) => void {
  let told = '';
  return (phase, share) => {
    const step = `${phase} ${Math.floor(share * 100)}`;
    if (step !== told) {
      told = step;
      tell({ event: 'progress', phase, share });
    }
  };
}

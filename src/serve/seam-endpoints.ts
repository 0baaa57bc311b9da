/**
 * `host:port` that others reach a seam listener at: where it is bound to one address, that one; otherwise the hosts of the
 * node's own multiaddrs, which are what others reach it by.
 */
export function seamEndpoints(listen: string, addresses: readonly string[], port: number): string[] {
  const bound = listen.slice(0, listen.lastIndexOf(':'));
  if (bound !== '0.0.0.0' && bound !== '[::]') {
    return [`${bound}:${port}`];
  }
  const hosts = addresses.map(hostOf).filter((host) => host !== undefined);
  return [...new Set(hosts)].map((host) => `${host}:${port}`);
}

function hostOf(address: string): string | undefined {
  const [, kind, host] = address.split('/');
  switch (kind) {
    case 'ip4':
    case 'dns':
    case 'dns4':
    case 'dns6':
      return host;
    case 'ip6':
      return `[${host}]`;
    default:
      return undefined;
  }
}

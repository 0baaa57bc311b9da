/**
 * Stops each of them, also when another one's stop fails.
 * @throws the first failure, once all have been tried
 */
export async function stopAll(parts: readonly { stop(): Promise<unknown> }[]): Promise<void> {
  const results = await Promise.allSettled(parts.map((part) => part.stop()));
  const failed = results.find(({ status }) => status === 'rejected');
  if (failed?.status === 'rejected') {
    throw failed.reason;
  }
}

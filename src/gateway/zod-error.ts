import type { z } from 'zod';
import { MeshnetError } from '../errors.ts';

type Issue = z.core.$ZodIssue;

/** The REQUEST_INVALID for a body that a schema refused; `details.param` is the place of its first fault. */
export function requestInvalid(error: z.ZodError): MeshnetError {
  const { issue, path } = innermost(error.issues[0] as Issue, []);
  const param = paramOf(path);
  return new MeshnetError('REQUEST_INVALID', `${param}: ${issue.message}`, { details: { param } });
}

/** Of a union's branches, the one that came furthest: that is what the client meant. */
function innermost(issue: Issue, prefix: PropertyKey[]): { issue: Issue; path: PropertyKey[] } {
  const path = [...prefix, ...issue.path];
  if (issue.code !== 'invalid_union' || issue.errors.length === 0) {
    return { issue, path };
  }
  const branches = issue.errors.flatMap((issues) => issues.slice(0, 1)).map((inner) => innermost(inner, path));
  const furthest = Math.max(...branches.map((branch) => branch.path.length));
  const best = branches.filter((branch) => branch.path.length === furthest);
  return furthest > path.length && best[0] !== undefined ? best[0] : { issue, path };
}

/** `messages[0].content`, as the API writes it. */
function paramOf(path: readonly PropertyKey[]): string {
  const text = path.map((key) => typeof key === 'number' ? `[${key}]` : `.${String(key)}`).join('').replace(/^\./, '');
  return (text === '' ? 'body' : text).slice(0, 200);
}

import { MeshnetError } from '../errors.ts';
import { DType } from '../proto/seam_pb.js';

/** What has to be certified before a shard may be part of a route. */
export interface CertificationSubject {
  readonly architecture: string;
  /** As the worker reports it: `llama-TREE-PATCHED/BACKEND-FEATURES/kv-TYPE`. */
  readonly engineClass: string;
  /** UNSPECIFIED means f32. */
  readonly prefillDtype?: DType;
  readonly decodeDtype?: DType;
}

interface Certificate {
  readonly architecture: string;
  /** First eight digits of the pinned llama.cpp tree, and of the tree with the patches. */
  readonly tree: string;
  readonly patchedTree: string;
  readonly backend: string;
  readonly dtypes: readonly DType[];
}

/** Exactly what the parity suite proves. */
export const CERTIFICATES: readonly Certificate[] = Object.freeze([
  { architecture: 'llama', tree: '0424752f', patchedTree: '8ce1ba8c', backend: 'cpu', dtypes: [DType.DTYPE_F32] },
]);

/** Whether there is evidence for this architecture, engine and boundary. */
export function isCertified(subject: CertificationSubject): boolean {
  const dtypes = [subject.prefillDtype, subject.decodeDtype].map(orF32);
  return certificatesOf(subject).some((certificate) => dtypes.every((dtype) => certificate.dtypes.includes(dtype)));
}

/**
 * @param anyDtype - benchmarks may try boundary types for which there is no evidence yet
 * @throws {MeshnetError} NOT_CERTIFIED
 */
export function assertCertified(subject: CertificationSubject, anyDtype = false): void {
  if (anyDtype ? certificatesOf(subject).length > 0 : isCertified(subject)) {
    return;
  }
  const { architecture, engineClass } = subject;
  throw new MeshnetError('NOT_CERTIFIED', undefined, {
    details: {
      architecture,
      engineClass,
      prefillDtype: DType[orF32(subject.prefillDtype)],
      decodeDtype: DType[orF32(subject.decodeDtype)],
    },
  });
}

function certificatesOf({ architecture, engineClass }: CertificationSubject): Certificate[] {
  return CERTIFICATES.filter((certificate) => certificate.architecture === architecture &&
    engineClass.startsWith(`llama-${certificate.tree}-${certificate.patchedTree}/${certificate.backend}-`));
}

function orF32(dtype: DType | undefined): DType {
  return dtype === undefined || dtype === DType.DTYPE_UNSPECIFIED ? DType.DTYPE_F32 : dtype;
}

import { SingleBar } from 'cli-progress';
import type { Notice, ProgressEvent } from '../model/progress.ts';

export interface ProgressView {
  event(event: ProgressEvent): void;
  /** Leaves the last state on the screen. */
  stop(): void;
}

type Output = Pick<NodeJS.WriteStream, 'write'> & { readonly isTTY?: boolean | undefined };

export interface ViewInit {
  /** NDJSON goes there. */
  stdout: Output;
  /** Bar and lines go there. */
  stderr: Output;
  json: boolean;
  /** Monotone, milliseconds. */
  now?: () => number;
}

/** Between two NDJSON lines of one phase. */
const JSON_INTERVAL_MS = 500;
const STEP_PERCENT = 10;
const BAR_WIDTH = 22;

/** NDJSON, a bar on a terminal, or a line each 10 %. */
export function createProgressView(init: ViewInit): ProgressView {
  if (init.json) {
    return jsonView(init.stdout, init.now ?? (() => performance.now()));
  }
  return init.stderr.isTTY === true ? barView(init.stderr) : lineView(init.stderr);
}

function jsonView(stdout: Output, now: () => number): ProgressView {
  let phase = '';
  let at = -Infinity;
  return {
    event(event) {
      const isWorthIt = event.phase !== phase || event.notice !== undefined || event.done === event.total;
      if (isWorthIt || now() - at >= JSON_INTERVAL_MS) {
        ({ phase } = event);
        at = now();
        stdout.write(`${JSON.stringify(event)}\n`);
      }
    },
    stop() {},
  };
}

function lineView(stderr: Output): ProgressView {
  let phase = '';
  let step = -1;
  return {
    event(event) {
      if (event.notice !== undefined) {
        stderr.write(`${event.phase.padEnd(9)} ${noticeText(event.notice)}\n`);
        return;
      }
      const reached = Math.floor(percent(event) / STEP_PERCENT);
      if (event.phase !== phase || reached > step) {
        ({ phase } = event);
        step = Math.max(step, reached);
        stderr.write(`${describe(event)}\n`);
      }
    },
    stop() {},
  };
}

function barView(stderr: Output): ProgressView {
  const bar = new SingleBar({
    format: '{phase} {bar} {percentage} %  {amount}  {speed}  {left}',
    stream: stderr as NodeJS.WriteStream,
    barsize: BAR_WIDTH,
    barCompleteChar: '█',
    barIncompleteChar: '·',
    hideCursor: true,
    linewrap: false,
    fps: 5,
    // Ctrl-C is the command's to handle.
    gracefulExit: false,
  });
  let isStarted = false;
  return {
    event(event) {
      const payload = {
        phase: event.phase.padEnd(9),
        amount: amountText(event),
        speed: event.notice === undefined ? speedText(event) : noticeText(event.notice),
        left: event.notice === undefined ? leftText(event) : '',
      };
      // Without a total the bar stays empty and the amount grows.
      const [total, done] = event.total === null ? [1, 0] : [event.total, event.done];
      if (isStarted) {
        bar.setTotal(total);
        bar.update(done, payload);
      } else {
        isStarted = true;
        bar.start(total, done, payload);
      }
    },
    stop() {
      bar.stop();
    },
  };
}

function describe(event: ProgressEvent): string {
  const share = event.total === null ? '' : `${String(percent(event)).padStart(3)} %`;
  return [event.phase.padEnd(9), share, amountText(event), speedText(event), leftText(event)].filter((part) => part !== '').join('  ');
}

/** `stalled, retrying (2/5)`. */
function noticeText(notice: Notice): string {
  if (notice.kind === 'waiting') {
    return 'another process is fetching this model, waiting';
  }
  const what = notice.kind === 'stalled' ? 'stalled' : 'interrupted';
  return notice.attempt === undefined ? what : `${what}, retrying (${notice.attempt}/${notice.attempts})`;
}

function percent({ done, total }: ProgressEvent): number {
  return total === null ? 0 : total === 0 ? 100 : Math.floor(100 * done / total);
}

function amountText({ done, total }: ProgressEvent): string {
  return total === null ? formatBytes(done) : `${formatBytes(done)}/${formatBytes(total)}`;
}

function speedText({ rate }: ProgressEvent): string {
  return rate === null ? '' : `${formatBytes(rate)}/s`;
}

function leftText({ eta }: ProgressEvent): string {
  if (eta === null || eta === 0) {
    return '';
  }
  const minutes = Math.floor(eta / 60);
  return minutes === 0 ? `${eta} s` : minutes < 60 ? `${minutes} m ${eta % 60} s` : `${Math.floor(minutes / 60)} h ${minutes % 60} m`;
}

/** Decimal units, as disks and networks are sold by. */
export function formatBytes(bytes: number): string {
  const units = ['B', 'kB', 'MB', 'GB', 'TB'];
  let value = bytes;
  let unit = 0;
  while (value >= 999.5 && unit < units.length - 1) {
    value /= 1000;
    unit++;
  }
  return `${unit === 0 || value >= 99.95 ? Math.round(value) : value.toFixed(1)} ${units[unit]}`;
}

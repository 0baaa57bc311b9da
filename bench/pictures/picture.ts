import { mkdirSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { Resvg } from '@resvg/resvg-js';
import * as echarts from 'echarts';
import type { Figure } from '../runner/lane-record.ts';

/** A picture as data; drawing it needs neither a browser nor a font of the machine. */
interface PictureHead {
  /** Its file's name, without an ending. */
  readonly name: string;
  readonly title: string;
  readonly subtitle?: string;
  /** What is drawn upwards, with its unit. */
  readonly y: string;
  readonly logarithmic?: boolean;
}

/** One group a lane, one bar a series; a figure's interval is a whisker. */
export interface BarPicture extends PictureHead {
  readonly kind: 'bars';
  readonly groups: readonly string[];
  readonly series: readonly { readonly name: string; readonly values: readonly (Figure | undefined)[] }[];
  /** Drawn across, with their names. */
  readonly bounds: readonly { readonly name: string; readonly value: number }[];
}

/** Points over an axis, joined; what is expected or demanded is drawn dashed. */
export interface LinePicture extends PictureHead {
  readonly kind: 'lines';
  readonly x: string;
  readonly series: readonly {
    readonly name: string;
    readonly points: readonly (readonly [x: number, y: Figure])[];
    readonly dashed?: boolean;
    /** The line whose colour it has; a colour of its own without it. */
    readonly like?: string;
  }[];
}

export type Picture = BarPicture | LinePicture;

const WIDTH = 900;
const HEIGHT = 460;
/** Pixels of the PNG for one of the picture. */
const SCALE = 2;
const FONT = 'DejaVu Sans';
const INK = '#222222';
const FAINT = '#dddddd';
const BOUND = '#b00020';
/** Told apart without colour vision, too. */
const COLOURS = ['#0072b2', '#e69f00', '#009e73', '#cc79a7', '#56b4e9', '#d55e00', '#666666'];
const TITLE_LINE = 20;
const AXIS_LINE = 16;

/** Writes `<name>.svg` and `<name>.png`. @returns the files */
export function draw(pictures: readonly Picture[], folder: string): string[] {
  mkdirSync(folder, { recursive: true });
  return pictures.flatMap((picture) => {
    const svg = svgOf(picture);
    const files = [path.join(folder, `${picture.name}.svg`), path.join(folder, `${picture.name}.png`)] as const;
    writeFileSync(files[0], svg);
    writeFileSync(files[1], pngOf(svg));
    return files;
  });
}

export function svgOf(picture: Picture): string {
  const chart = echarts.init(null, null, { renderer: 'svg', ssr: true, width: WIDTH, height: HEIGHT });
  try {
    chart.setOption({ ...frame(picture), ...(picture.kind === 'bars' ? bars(picture) : lines(picture)) });
    return chart.renderToSVGString();
  } finally {
    chart.dispose();
  }
}

export function pngOf(svg: string): Buffer {
  const fonts = path.join(path.dirname(createRequire(import.meta.url).resolve('dejavu-fonts-ttf/package.json')), 'ttf');
  return new Resvg(svg, {
    fitTo: { mode: 'zoom', value: SCALE },
    font: {
      loadSystemFonts: false, defaultFontFamily: FONT,
      fontFiles: ['DejaVuSans.ttf', 'DejaVuSans-Bold.ttf'].map((file) => path.join(fonts, file)),
    },
  }).render().asPng();
}

function frame(picture: Picture): echarts.EChartsCoreOption {
  const { title, subtitle } = picture;
  const top = 16 + TITLE_LINE * (subtitle === undefined ? 1 : 2);
  return {
    animation: false,
    backgroundColor: '#ffffff',
    color: COLOURS,
    textStyle: { fontFamily: FONT, color: INK },
    title: {
      text: title, ...subtitle === undefined ? {} : { subtext: subtitle }, left: 16, top: 8,
      textStyle: { fontSize: 16, color: INK, fontFamily: FONT }, subtextStyle: { fontSize: 12, color: '#555555', fontFamily: FONT },
    },
    // Widths of texts are guessed without a browser, and too small for this font.
    legend: {
      top: top + 4, left: 16, itemWidth: 18, itemGap: 34, textStyle: { fontSize: 12, color: INK, fontFamily: FONT },
      // What looks like another line is named at its end alone.
      data: picture.series.filter((one) => !('like' in one)).map(({ name }) => name),
    },
    grid: { left: 70, right: 150, top: top + 56, bottom: 24 + AXIS_LINE * (picture.kind === 'bars' ? linesOf(picture.groups) : 2) },
  };
}

function linesOf(groups: readonly string[]): number {
  return Math.max(1, ...groups.map((name) => name.split(' / ').length));
}

/** Its title stands above it, where it needs no width. */
function yAxis({ y, logarithmic }: Picture, values: readonly number[]): echarts.EChartsCoreOption {
  const bottom = 10 ** Math.floor(Math.log10(Math.min(...values.filter((value) => value > 0))) - 0.3);
  return {
    type: logarithmic === true ? 'log' : 'value', name: y, nameLocation: 'end', nameGap: 12,
    // Bars grow from the bottom, not from 1.
    ...logarithmic === true ? { min: bottom, startValue: bottom } : {},
    nameTextStyle: { align: 'left', padding: [0, 0, 0, -52], fontSize: 12, color: INK },
    axisLabel: {
      fontSize: 12, color: INK, ...logarithmic === true ? { formatter: powerOfTen } : {},
    },
    splitLine: { lineStyle: { color: FAINT } },
  };
}

/** As people write it, where that is short. */
function powerOfTen(value: number): string {
  return value >= 0.001 && value < 1e5 ? String(value) : value.toExponential(0);
}

function bars(picture: BarPicture): echarts.EChartsCoreOption {
  const { groups, series, bounds } = picture;
  const drawn = series.flatMap(({ values }) => values).filter((figure) => figure !== undefined).map(middle);
  const last = bounds.toSorted((a, b) => a.value - b.value);
  return {
    xAxis: {
      type: 'category', data: groups, axisTick: { show: false },
      axisLabel: {
        fontSize: groups.length > 8 ? 10 : 12, color: INK, interval: 0, lineHeight: AXIS_LINE,
        formatter: (name: string) => name.replaceAll(' / ', '\n'),
      },
    },
    yAxis: yAxis(picture, [...drawn, ...last.map(({ value }) => value)]),
    series: [
      ...series.map(({ name, values }, i) => ({
        type: 'bar', name, data: values.map((figure) => figure === undefined ? '-' : middle(figure)), barMaxWidth: 48, barGap: '12%',
        label: { show: true, position: 'insideBottom', fontSize: 10, color: '#ffffff', rotate: groups.length * series.length > 12 ? 90 : 0,
          align: groups.length * series.length > 12 ? 'left' : 'center', verticalAlign: 'middle',
          formatter: ({ value }: { value: unknown }) => typeof value === 'number' ? Number(value.toPrecision(3)).toString() : '' },
        ...i > 0 ? {} : { markLine: boundLines(last) },
      })),
      ...series.map((one, i) => whiskers(one, { place: i, of: series.length })),
    ],
  };
}

function boundLines(bounds: BarPicture['bounds']): object {
  return {
    silent: true, symbol: 'none', precision: 12, lineStyle: { color: BOUND, type: 'dashed', width: 1.5 },
    data: bounds.map(({ name, value }) => ({ yAxis: value, name })),
    label: { position: 'end', color: BOUND, fontSize: 11, fontFamily: FONT, formatter: ({ name }: { name: string }) => name },
  };
}

/** The interval of each bar, over its middle. */
function whiskers(
  { name, values }: BarPicture['series'][number], { place, of }: { place: number; of: number },
): object {
  return {
    type: 'custom', name, silent: true, z: 5,
    data: values.flatMap((figure, group) => typeof figure === 'object' ? [[group, figure.low, figure.high]] : []),
    encode: { x: 0, y: [1, 2] },
    renderItem: (_: unknown, api: {
      value(i: number): number; coord(at: [number, number]): [number, number];
      barLayout(options: object): { offsetCenter: number }[];
    }) => {
      const offset = api.barLayout({ count: of, barMaxWidth: 48, barGap: '12%' })[place]?.offsetCenter ?? 0;
      const [x, low] = api.coord([api.value(0), api.value(1)]);
      const [, high] = api.coord([api.value(0), api.value(2)]);
      return whisker(x + offset, low, high);
    },
  };
}

function whisker(x: number, low: number, high: number): object {
  const line = (shape: object): object => ({ type: 'line', shape, style: { stroke: INK, lineWidth: 1.3 } });
  return {
    type: 'group',
    children: [
      line({ x1: x, y1: low, x2: x, y2: high }),
      line({ x1: x - 4, y1: low, x2: x + 4, y2: low }),
      line({ x1: x - 4, y1: high, x2: x + 4, y2: high }),
    ],
  };
}

function lines(picture: LinePicture): echarts.EChartsCoreOption {
  const { x, series } = picture;
  const xs = [...new Set(series.flatMap(({ points }) => points.map(([at]) => at)))].toSorted((a, b) => a - b);
  const coloured = series.filter(({ like }) => like === undefined).map(({ name }) => name);
  return {
    xAxis: {
      type: 'value', name: x, nameLocation: 'middle', nameGap: 32, nameTextStyle: { fontSize: 12, color: INK },
      min: Math.min(...xs), max: Math.max(...xs), axisLabel: { fontSize: 12, color: INK, customValues: xs },
      axisTick: { customValues: xs }, splitLine: { show: false },
    },
    yAxis: yAxis(picture, series.flatMap(({ points }) => points.map(([, y]) => middle(y)))),
    series: [
      ...series.map(({ name, points, dashed, like }) => ({
        type: 'line', name, data: points.map(([at, y]) => [at, middle(y)]), symbolSize: 7, symbol: dashed === true ? 'none' : 'circle',
        lineStyle: { width: dashed === true ? 1.5 : 2.2, type: dashed === true ? 'dashed' : 'solid' },
        color: COLOURS[coloured.indexOf(like ?? name) % COLOURS.length],
        endLabel: { show: true, formatter: name, fontSize: 11, color: INK, fontFamily: FONT }, labelLayout: { moveOverlap: 'shiftY' },
      })),
      ...series.map(({ name, points }) => ({
        type: 'custom', name, silent: true, z: 5, encode: { x: 0, y: [1, 2] },
        data: points.flatMap(([at, y]) => typeof y === 'object' ? [[at, y.low, y.high]] : []),
        renderItem: (_: unknown, api: { value(i: number): number; coord(at: [number, number]): [number, number] }) => {
          const [left, low] = api.coord([api.value(0), api.value(1)]);
          const [, high] = api.coord([api.value(0), api.value(2)]);
          return whisker(left, low, high);
        },
      })),
    ],
  };
}

function middle(figure: Figure): number {
  return typeof figure === 'number' ? figure : figure.median;
}

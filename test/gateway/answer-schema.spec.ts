import assert from 'node:assert/strict';
import { isMeshnetError } from '../../src/errors.ts';
import { checkAnswerSchema } from '../../src/gateway/answer-schema.ts';

function refusedAt(schema: unknown): unknown {
  try {
    checkAnswerSchema(schema, 's');
  } catch (err) {
    assert.ok(isMeshnetError(err), String(err));
    return err.details.param;
  }
  return undefined;
}

const object = (property: unknown): object => ({ type: 'object', properties: { p: property }, required: ['p'], additionalProperties: false });

describe('gateway/answer-schema', () => {
  it('lets through what a grammar can keep', () => {
    for (const property of [
      {}, { description: 'anything' }, { type: 'string' }, { type: 'string', minLength: 1, maxLength: 9 },
      { type: 'string', format: 'date-time' }, { type: 'integer', minimum: 0, exclusiveMaximum: 10 }, { type: 'number' },
      { type: ['string', 'null'], default: null }, { enum: ['a', 1, null] }, { type: 'string', enum: ['a'] }, { const: 5 },
      { type: 'array', items: { type: 'string' }, minItems: 1, maxItems: 3 }, { type: 'array' },
      { type: 'array', prefixItems: [{ type: 'string' }, { type: 'integer' }], minItems: 2, maxItems: 2 },
      { anyOf: [{ type: 'string' }, object({ type: 'boolean' })] }, { $ref: '#/$defs/x' }, { type: 'object', additionalProperties: { type: 'number' } },
    ]) {
      assert.equal(refusedAt(object(property)), undefined, JSON.stringify(property));
    }
    assert.equal(refusedAt({ ...object({ $ref: '#/$defs/x' }), $defs: { x: { type: 'null' } } }), undefined);
  });

  it('names what a grammar would overlook', () => {
    const cases: [unknown, string][] = [
      [{ type: 'string', pattern: '^a$' }, 'pattern'], [{ type: 'string', format: 'email' }, 'format'], [{ type: 'number', minimum: 0 }, 'minimum'],
      [{ type: 'integer', minimum: 0.5 }, 'minimum'], [{ type: 'integer', minimum: 0, exclusiveMinimum: 1 }, 'exclusiveMinimum'],
      [{ type: 'integer', multipleOf: 2 }, 'multipleOf'], [{ type: 'array', uniqueItems: true }, 'uniqueItems'], [{ type: 'array', minItems: 1 }, 'minItems'],
      [{ type: 'array', prefixItems: [{}], minItems: 2 }, 'prefixItems'], [{ minLength: 3 }, 'minLength'], [{ not: {} }, 'not'],
      [{ allOf: [{ type: 'string' }] }, 'allOf'], [{ anyOf: [{}], type: 'string' }, 'type'], [{ $ref: '#/$defs/x', type: 'string' }, 'type'],
      [{ $ref: 'https://example.org/s.json' }, '$ref'], [{ type: 'array', items: { type: 'string', pattern: 'x' } }, 'items.pattern'],
      [{ anyOf: [{ type: 'string' }, { type: 'number', maximum: 3 }] }, 'anyOf[1].maximum'], [{ type: 'object', patternProperties: {} }, 'patternProperties'],
      [{ type: 'object', required: ['q'] }, 'required'], [{ type: 'thing' }, 'type'],
    ];
    for (const [property, place] of cases) {
      assert.equal(refusedAt(object(property)), `s.properties.p.${place}`, JSON.stringify(property));
    }
    assert.equal(refusedAt(object(true)), 's.properties.p');
    assert.equal(refusedAt({ $defs: { x: { type: 'string', pattern: 'a' } }, type: 'object' }), 's.$defs.x.pattern');
    assert.equal(refusedAt({ properties: Object.fromEntries(Array.from({ length: 101 }, (_, i) => [`p${i}`, {}])) }), 's.properties');
  });
});

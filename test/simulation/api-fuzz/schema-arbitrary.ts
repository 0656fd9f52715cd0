/** Values that a JSON Schema allows, as zod writes them; what means something in the world is drawn from there. */
import fc from "fast-check";
import { z } from "zod";

export interface Schema {
  readonly type?: string;
  readonly enum?: readonly unknown[];
  readonly const?: unknown;
  readonly anyOf?: readonly Schema[];
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly required?: readonly string[];
  readonly items?: Schema;
  readonly propertyNames?: Schema;
  readonly additionalProperties?: Schema | boolean;
  readonly pattern?: string;
  readonly minLength?: number;
  readonly maxLength?: number;
  readonly minItems?: number;
  readonly maxItems?: number;
  readonly minimum?: number;
  readonly maximum?: number;
  readonly multipleOf?: number;
}

/** Values by the name of the field that they are for. */
export type Pool = Readonly<Record<string, fc.Arbitrary<unknown>>>;

const ITEMS_MAX = 4;
const LENGTH_MAX = 80;

export function schemaOf(schema: z.ZodType): Schema {
  return z.toJSONSchema(schema, { io: "input", unrepresentable: "any" }) as Schema;
}

export function valueOf(schema: Schema, pool: Pool, name = ""): fc.Arbitrary<unknown> {
  const known = pool[name];
  const drawn = plainValueOf(schema, pool);
  return known === undefined
    ? drawn
    : fc.oneof({ weight: 19, arbitrary: known }, { weight: 1, arbitrary: drawn });
}

function plainValueOf(schema: Schema, pool: Pool): fc.Arbitrary<unknown> {
  const { type, anyOf, minimum = -(2 ** 31), maximum = 2 ** 31 } = schema;
  if (schema.enum !== undefined) return fc.constantFrom(...schema.enum);
  if (schema.const !== undefined) return fc.constant(schema.const);
  if (anyOf !== undefined) return fc.oneof(...anyOf.map((each) => valueOf(each, pool)));
  switch (type) {
    case "string":
      return textOf(schema);
    case "integer": {
      const { multipleOf: step = 1 } = schema;
      const [min, max] = [Math.ceil(minimum / step), Math.floor(maximum / step)];
      return fc
        .oneof(fc.integer({ min, max: Math.min(max, min + 9) }), fc.integer({ min, max }))
        .map((count) => count * step);
    }
    case "number":
      return fc.double({ min: minimum, max: maximum, noNaN: true });
    case "boolean":
      return fc.boolean();
    case "null":
      return fc.constant(null);
    case "array": {
      const { items = {}, minItems: minLength = 0, maxItems = ITEMS_MAX } = schema;
      const maxLength = Math.max(minLength, Math.min(maxItems, ITEMS_MAX));
      return fc.array(valueOf(items, pool), { minLength, maxLength });
    }
    case "object":
      return objectOf(schema, pool);
    default:
      return fc.jsonValue();
  }
}

function textOf({ pattern, minLength = 0, maxLength = LENGTH_MAX }: Schema): fc.Arbitrary<string> {
  if (pattern !== undefined) {
    // Of what allows any length short ones are drawn.
    return fc.stringMatching(new RegExp(pattern)).filter((text) => text.length <= maxLength);
  }
  const bounds = { minLength, maxLength: Math.max(minLength, Math.min(maxLength, LENGTH_MAX)) };
  return fc.oneof(fc.string(bounds), fc.string({ ...bounds, unit: "binary" }));
}

function objectOf(schema: Schema, pool: Pool): fc.Arbitrary<unknown> {
  const { properties, required = [], propertyNames, additionalProperties } = schema;
  if (properties === undefined) {
    const key = textOf(propertyNames ?? {});
    const value = valueOf(
      typeof additionalProperties === "object" ? additionalProperties : {},
      pool,
    );
    return fc.dictionary(key, value, { maxKeys: ITEMS_MAX });
  }
  const fields = Object.entries(properties).map(([key, each]) => [key, valueOf(each, pool, key)]);
  return fc.record(Object.fromEntries(fields) as Record<string, fc.Arbitrary<unknown>>, {
    requiredKeys: [...required],
  });
}

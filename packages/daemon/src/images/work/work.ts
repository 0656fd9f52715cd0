/**
 * What is made in a process of its own, and what is said between it and the daemon: a job as JSON in its
 * arguments, and lines of JSON on its output.
 */
import type { ErrorBody, Recipe } from "@perdure/protocol";

export type Job =
  | {
      readonly kind: "import";
      readonly directory: string;
      readonly workspace: string;
      readonly archive: string;
      readonly name: string;
      readonly reference?: string;
      readonly start: boolean;
    }
  | {
      readonly kind: "build";
      readonly directory: string;
      readonly workspace: string;
      readonly name: string;
      readonly recipe: Recipe;
    };

export type WorkLine =
  | { readonly type: "progress"; readonly message: string }
  | { readonly type: "done"; readonly id: string }
  | { readonly type: "error"; readonly error: ErrorBody };

/** Terminals of programs. */
import { z } from "zod";

const cells = z.number().int().min(1).max(4096);

/** `POST …/processes/:process/resize`, and what an exec with a terminal begins with. */
export const terminalSizeSchema = z.strictObject({ rows: cells, columns: cells });
export type TerminalSize = z.infer<typeof terminalSizeSchema>;

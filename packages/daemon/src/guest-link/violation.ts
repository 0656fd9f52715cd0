/** What a guest that breaks the protocol gets: the link is closed with this error. */
import { PerdureError } from "@perdure/protocol";

/** `what` names the broken rule, in lower case, without a full stop. */
export function violation(what: string): PerdureError {
  return new PerdureError("guest_protocol_violation", `Guest broke the link's protocol: ${what}`, {
    hint: "The link is closed; sleep or stop ends the machine, recover starts it from its last checkpoint.",
  });
}

const TEXT_LENGTH_MAX = 1000;

/** Text from the guest, made fit for messages and logs: one line, no control characters, bounded. */
export function printable(text: string): string {
  const cut = text.length > TEXT_LENGTH_MAX ? `${text.slice(0, TEXT_LENGTH_MAX)}…` : text;
  return cut.replace(/\p{Cc}+/gu, " ").trim();
}

/** Words of a guest's making, for a terminal. */

/** Besides what JSON escapes: other control characters, what is not seen, and what turns the direction of text. */
const unseen = /[\u007f-\u009f\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;

/** As it is where it is plain; else in quotes, without anything that a terminal takes for orders. */
export function quoted(text: string): string {
  if (/^[\w.:/@%+,=~-]+$/.test(text)) return text;
  return JSON.stringify(text).replace(
    unseen,
    (letter) => `\\u${letter.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}

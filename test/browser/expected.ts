/** What the page must find, wherever it runs. */
export const expected = {
  states: ["awake", "asleep", "awake"],
  output: "hello\n",
  exitCode: 0,
  file: "Größe",
  fileMode: 0o600,
  large: (65_536 * 48 * 47) / 2,
  refusal: { code: "agent_not_found", hint: '"perdure list" shows those that exist' },
  unreachable: "daemon_unreachable",
  cancelled: "cancelled",
  part: "ße",
  names: ["e directory", "note file"],
  changes: ["ready", "created"],
  terminal: "ready\r\n40 120\r\ngot it\r\nexit 0",
};

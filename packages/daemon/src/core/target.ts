/** One agent of one tenant: what a call is about. */
export interface Target {
  readonly tenant: string;
  /** Name or id. */
  readonly agent: string;
}

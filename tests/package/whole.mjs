/** What apps/turn.mjs tells where all is well. */
export const WHOLE = { valid: true, released: "released", grows: true };

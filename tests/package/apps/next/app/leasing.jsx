"use client";
// Rendered on the server as well, where it is imported and not used.
import { useEffect } from "react";
import { LeaseManager } from "leasehold";
import { told, turn } from "../turn.mjs";

export function Leasing() {
  useEffect(() => {
    window.outcome = told(turn(LeaseManager));
  }, []);
  return <p>{typeof LeaseManager.open}</p>;
}
